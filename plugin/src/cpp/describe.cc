/*
  TABLE and Field to the descriptions of sluice_abi.h, and the refusals at CREATE.
*/
#include "ha_sluice.h"
#include "sql_alter.h"

/* Types of plugins that are bytes of a fixed number, compared with memcmp. */
static bool is_fixed_binary(const Field *field)
{
  const Name &name= field->type_handler()->name();
  for (const char *known : {"uuid", "inet6", "inet4"})
    if (name.length() == strlen(known) && !strncasecmp(name.ptr(), known, name.length()))
      return true;
  return false;
}

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
  /* Temporal types made with mysql56_temporal_format=OFF: numbers, or with a fraction of a
     second big-endian bytes. */
  case MYSQL_TYPE_TIME:
    return field->decimals() ? SLUICE_ORDERED : SLUICE_SIGNED;
  case MYSQL_TYPE_DATETIME:
  case MYSQL_TYPE_TIMESTAMP:
    return field->decimals() ? SLUICE_ORDERED : SLUICE_UNSIGNED;
  case MYSQL_TYPE_DATE:
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
      return is_fixed_binary(field) ? SLUICE_ORDERED : 0;
    return field->charset() == &my_charset_bin ? SLUICE_ORDERED : SLUICE_CHAR;
  case MYSQL_TYPE_VARCHAR:
    if (!dynamic_cast<Field_varstring *>(field))
      return 0;
    return SLUICE_VARCHAR;
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_GEOMETRY:
    if (!dynamic_cast<Field_blob *>(field))
      return 0;
    return SLUICE_BLOB;
  default:
    return 0;
  }
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
    CHARSET_INFO *weighed_as= cs;
    column.order= sluice_order_of(cs);
    column.levels= column.order == SLUICE_ORDER_BINARY ? 0 : sluice_levels(cs);
    /* "filename" writes a space with five bytes; so it has no key of ours. */
    column.space_bytes= cs == &my_charset_filename ? 0 : cs->mbminlen;
    cs->cset->fill(cs, reinterpret_cast<char *>(column.space), cs->mbminlen, ' ');
    column.char_bytes_max= cs->mbmaxlen;
    column.expansion= cs->mbmaxlen > 1 || cs->strxfrm_multiply > 1 ? 16 : 1;
    /* One weight a byte: the spaces after a CHAR are all alike. With weights that may be
       empty they count, see Kind::Char in key.rs. */
    if (column.kind == SLUICE_CHAR && column.expansion == 1 &&
        column.order == SLUICE_ORDER_NOPAD)
      column.order= SLUICE_ORDER_PAD;
    if (sluice_is_thai(cs))
    {
      column.flags|= SLUICE_COLUMN_SPACES_COUNT;
      /* The server compares CHAR without PAD SPACE as it does with it. */
      if (column.kind == SLUICE_CHAR)
        weighed_as= &my_charset_tis620_thai_ci;
    }
    column.collation_id= cs->number;
    column.charset= weighed_as;
    if (field->flags & PART_KEY_FLAG && column.order != SLUICE_ORDER_BINARY)
      column.fingerprint= sluice_fingerprint(cs);
  }
  if (field->vcol_info && !field->stored_in_db())
    column.flags|= SLUICE_COLUMN_VIRTUAL;
  m_columns.push_back(column);
}

void Sluice_description::add_key(const TABLE *table, const KEY *key)
{
  std::vector<sluice_key_part> parts;
  uint own= key->user_defined_key_parts;
  uint count= MY_MAX(own, key->ext_key_parts);
  const KEY_PART_INFO *first= key->key_part;
  bool unique= key->flags & HA_NOSAME;
  /* UNIQUE over long columns: an index on the hidden hash column; the server compares. */
  if (key->algorithm == HA_KEY_ALG_LONG_HASH)
  {
    while (!(table->field[first->fieldnr - 1]->flags & LONG_UNIQUE_HASH_FIELD))
      first++;
    own= count= 1;
    unique= false;
  }
  for (uint i= 0; i < count; i++)
  {
    const KEY_PART_INFO &from= first[i];
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
  out.part_count= own;
  out.extended_count= count;
  out.flags= unique ? SLUICE_KEY_UNIQUE : 0;
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
    if (!kind_of(field))
    {
      const Name &type= field->type_handler()->name();
      return refuse("the type %.*s (column `%s`)", int(type.length()), type.ptr(), name);
    }
    if (field->charset() == &my_charset_filename)
      return refuse("the character set filename (column `%s`)", name);
  }
  return false;
}

static bool refuse_keys(const TABLE *table)
{
  for (uint i= 0; i < table->s->keys; i++)
  {
    const KEY &key= table->key_info[i];
    if (sluice_is_fulltext(key))
      return refuse("FULLTEXT keys (key `%s`)", key.name.str);
    if (sluice_is_spatial(key))
      return refuse("SPATIAL keys (key `%s`)", key.name.str);
  }
  if (sluice_has_vector_key(table->s))
    return refuse("VECTOR keys");
  return false;
}

static bool refuse_options(const HA_CREATE_INFO *info)
{
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
  return false;
}

/* A table gets what it says, or is not made. */
static bool refuse_encrypted(const TABLE *table)
{
  const ha_table_option_struct *options= table->s->option_struct;
  const uint encrypted= options ? options->encrypted : uint(SLUICE_ENCRYPTED_DEFAULT);
  if (encrypted == SLUICE_ENCRYPTED_YES && sluice_encrypts() == SLUICE_ENCRYPT_OFF)
    return refuse("ENCRYPTED=YES while sluice_encrypt is OFF: restart the server with TABLES or ON");
  if (encrypted == SLUICE_ENCRYPTED_NO && sluice_encrypts() == SLUICE_ENCRYPT_ALL)
    return refuse("ENCRYPTED=NO while sluice_encrypt is ON, which encrypts all tables: leave it out, or restart "
                  "the server with TABLES");
  return false;
}

bool sluice_refuse(const TABLE *table, const HA_CREATE_INFO *info)
{
  return refuse_options(info) || refuse_encrypted(table) || refuse_columns(table) || refuse_keys(table);
}
