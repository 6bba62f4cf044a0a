/*
  TABLE and Field to the descriptions of sluice_abi.h, and the refusals at CREATE.
*/
#include "ha_sluice.h"
#include "sql_alter.h"

static uint32_t kind_of(Field *field)
{
  switch (field->real_type())
  {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
    return field->flags & UNSIGNED_FLAG ? SLUICE_UNSIGNED : SLUICE_SIGNED;
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
    return SLUICE_UNSIGNED;
  case MYSQL_TYPE_FLOAT:
    return SLUICE_FLOAT;
  case MYSQL_TYPE_DOUBLE:
    return SLUICE_DOUBLE;
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIMESTAMP2:
    return SLUICE_ORDERED;
  case MYSQL_TYPE_BIT:
    return static_cast<Field_bit *>(field)->bit_ptr ? 0 : SLUICE_ORDERED;
  case MYSQL_TYPE_STRING:
    if (!dynamic_cast<Field_string *>(field))
      return 0; /* UUID, INET6 and other types of plugins */
    return field->charset() == &my_charset_bin ? SLUICE_ORDERED : SLUICE_CHAR;
  case MYSQL_TYPE_VARCHAR:
    if (!dynamic_cast<Field_varstring *>(field) || field->compression_method())
      return 0;
    return SLUICE_VARCHAR;
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
    if (!dynamic_cast<Field_blob *>(field) || field->compression_method())
      return 0;
    return SLUICE_BLOB;
  default:
    return 0;
  }
}

/* Weight strings that strnxfrm gives in one level and whole. */
static bool is_faithful(CHARSET_INFO *cs)
{
  if (!strcmp(cs->coll_name.str, "tis620_thai_nopad_ci"))
    return false; /* reorders, and drops what it has reordered */
  return cs == &my_charset_bin ||
         (cs->levels_for_order <= 1 && !(cs->state & MY_CS_STRNXFRM_BAD_NWEIGHTS));
}

void Sluice_description::add_column(const TABLE *table, Field *field)
{
  sluice_column column= {};
  CHARSET_INFO *cs= field->charset();
  column.kind= kind_of(field);
  column.offset= field->offset(table->record[0]);
  column.length= field->pack_length();
  if (field->real_maybe_null())
  {
    column.null_offset= field->null_offset(table->record[0]);
    column.null_bit= field->null_bit;
  }
  if (column.kind == SLUICE_VARCHAR)
  {
    column.length= field->field_length;
    column.length_bytes= static_cast<Field_varstring *>(field)->length_bytes;
  }
  if (column.kind == SLUICE_BLOB)
    column.length_bytes= static_cast<Field_blob *>(field)->pack_length_no_ptr();
  if (column.kind == SLUICE_CHAR || column.kind == SLUICE_VARCHAR || column.kind == SLUICE_BLOB)
  {
    column.order= cs == &my_charset_bin        ? SLUICE_ORDER_BINARY
                  : (cs->state & MY_CS_NOPAD) ? SLUICE_ORDER_NOPAD
                                              : SLUICE_ORDER_PAD;
    column.space_bytes= cs->mbminlen;
    cs->cset->fill(cs, reinterpret_cast<char *>(column.space), cs->mbminlen, ' ');
    column.char_bytes_max= cs->mbmaxlen;
    column.expansion= cs->mbmaxlen > 1 || cs->strxfrm_multiply > 1 ? 16 : 1;
    /* One weight a byte: the spaces behind a CHAR are all alike. With weights that may be
       empty they count, see Kind::Char in key.rs. */
    if (column.kind == SLUICE_CHAR && column.expansion == 1)
      column.order= SLUICE_ORDER_PAD;
    column.collation_id= cs->number;
    column.charset= cs;
  }
  m_columns.push_back(column);
}

void Sluice_description::add_key(const TABLE *table, const KEY *key)
{
  std::vector<sluice_key_part> parts;
  uint count= MY_MAX(key->user_defined_key_parts, key->ext_key_parts);
  for (uint i= 0; i < count; i++)
  {
    const KEY_PART_INFO &from= key->key_part[i];
    /* The field of the key part may be a copy that is as long as the part. */
    const Field *field= table->field[from.fieldnr - 1];
    bool prefix= (field->flags & BLOB_FLAG) || from.length < field->key_length();
    sluice_key_part part= {};
    part.column= from.fieldnr - 1;
    part.length= from.length;
    part.flags= (from.key_part_flag & HA_REVERSE_SORT ? SLUICE_PART_REVERSE : 0) |
                (prefix ? SLUICE_PART_PREFIX : 0);
    part.image_bytes= from.store_length;
    parts.push_back(part);
  }
  sluice_key out= {};
  out.part_count= key->user_defined_key_parts;
  out.extended_count= count;
  out.flags= key->flags & HA_NOSAME ? SLUICE_KEY_UNIQUE : 0;
  m_parts.push_back(std::move(parts));
  m_keys.push_back(out);
}

Sluice_description::Sluice_description(const TABLE *table)
{
  const TABLE_SHARE *share= table->s;
  for (Field **field= table->field; *field; field++)
    add_column(table, *field);
  for (uint i= 0; i < share->keys; i++)
    add_key(table, table->key_info + i);
  for (uint i= 0; i < share->keys; i++)
    m_keys[i].parts= m_parts[i].data();
  m_table= sluice_table();
  m_table.columns= m_columns.data();
  m_table.keys= m_keys.data();
  m_table.defaults= share->default_values;
  m_table.column_count= m_columns.size();
  m_table.key_count= m_keys.size();
  m_table.primary= share->primary_key == MAX_KEY ? SLUICE_NO_KEY : share->primary_key;
  m_table.record_bytes= share->rec_buff_length > share->reclength ? share->reclength
                                                                   : share->rec_buff_length;
  m_table.null_bytes= share->null_bytes;
}

static bool refuse(const char *format, ...)
{
  char text[400];
  va_list args;
  va_start(args, format);
  my_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  my_printf_error(ER_CHECK_NOT_IMPLEMENTED, "Sluice does not support %s", MYF(0), text);
  return true;
}

static bool refuse_columns(const TABLE *table)
{
  for (Field **at= table->field; *at; at++)
  {
    Field *field= *at;
    const char *name= field->field_name.str;
    if (field->vcol_info)
      return refuse("generated columns yet (column `%s`)", name);
    if (!kind_of(field))
    {
      const Name &type= field->type_handler()->name();
      return refuse("the type %.*s (column `%s`)", int(type.length()), type.ptr(), name);
    }
  }
  return false;
}

/* The most bytes of one part in an encoded key; src/key.rs and src/order.rs are the codec. */
static uint encoded_bytes_max(const TABLE *table, const KEY_PART_INFO &part)
{
  const Field *field= table->field[part.fieldnr - 1];
  const uint marker= field->real_maybe_null() ? 1 : 0;
  const uint kind= kind_of(const_cast<Field *>(field));
  if (kind != SLUICE_CHAR && kind != SLUICE_VARCHAR && kind != SLUICE_BLOB)
    return marker + part.length;
  CHARSET_INFO *cs= field->charset();
  const uint weights= cs == &my_charset_bin ? part.length : uint(cs->strnxfrmlen(part.length));
  const bool escaped= cs == &my_charset_bin || cs->state & MY_CS_NOPAD;
  return marker + (escaped ? 2 * weights + 2 : (weights / 8 + 1) * 9);
}

static uint encoded_bytes_max(const TABLE *table, const KEY &key)
{
  uint sum= 0;
  for (uint p= 0; p < key.user_defined_key_parts; p++)
    sum+= encoded_bytes_max(table, key.key_part[p]);
  return sum;
}

/* A secondary key carries the primary key behind it, unless it is unique and has no NULL. */
static bool refuse_long_keys(const TABLE *table)
{
  const uint limit= 3200;
  const uint primary= table->s->primary_key;
  const uint suffix= primary == MAX_KEY ? 8 : encoded_bytes_max(table, table->key_info[primary]);
  for (uint i= 0; i < table->s->keys; i++)
  {
    const KEY &key= table->key_info[i];
    const bool alone= i == primary || ((key.flags & HA_NOSAME) && !(key.flags & HA_NULL_PART_KEY));
    if (encoded_bytes_max(table, key) + (alone ? 0 : suffix) > limit)
    {
      my_error(ER_TOO_LONG_KEY, MYF(0), limit);
      return true;
    }
  }
  return false;
}

static bool refuse_keys(const TABLE *table)
{
  for (uint i= 0; i < table->s->keys; i++)
  {
    const KEY &key= table->key_info[i];
    if (key.flags & HA_FULLTEXT)
      return refuse("FULLTEXT keys (key `%s`)", key.name.str);
    if (key.flags & HA_SPATIAL || key.algorithm == HA_KEY_ALG_RTREE)
      return refuse("SPATIAL keys (key `%s`)", key.name.str);
    if (key.algorithm == HA_KEY_ALG_LONG_HASH)
      return refuse("UNIQUE keys over long columns (key `%s`)", key.name.str);
    for (uint p= 0; p < key.user_defined_key_parts; p++)
    {
      CHARSET_INFO *cs= key.key_part[p].field->charset();
      if (!is_faithful(cs))
        return refuse("keys with the collation %s (key `%s`, column `%s`)", cs->coll_name.str,
                      key.name.str, key.key_part[p].field->field_name.str);
    }
  }
  return false;
}

static bool refuse_options(const TABLE *table, const HA_CREATE_INFO *info)
{
  if (info->tmp_table())
    return refuse("TEMPORARY tables");
  if (table->versioned())
    return refuse("system versioning");
  if (info->data_file_name || info->index_file_name)
    return refuse("DATA DIRECTORY and INDEX DIRECTORY");
  switch (info->row_type)
  {
  case ROW_TYPE_NOT_USED:
  case ROW_TYPE_DEFAULT:
  case ROW_TYPE_DYNAMIC:
    break;
  default:
    return refuse("this ROW_FORMAT (leave it out: rows are compact and compressed already)");
  }
  if (info->key_block_size)
    return refuse("KEY_BLOCK_SIZE");
  if (info->alter_info)
  {
    List_iterator_fast<Key> keys(info->alter_info->key_list);
    while (Key *key= keys++)
      if (key->type == Key::FOREIGN_KEY)
        return refuse("FOREIGN KEY constraints yet; the table was not created without them");
  }
  for (engine_option_value *o= info->option_list; o; o= o->next)
    if (!o->parsed && o->name.length >= 9 && !strncasecmp(o->name.str, "ENCRYPTED", 9))
      return refuse("ENCRYPTED tables");
  return false;
}

bool sluice_refuse(const TABLE *table, const HA_CREATE_INFO *info)
{
  return refuse_options(table, info) || refuse_columns(table) || refuse_keys(table) ||
         refuse_long_keys(table);
}
