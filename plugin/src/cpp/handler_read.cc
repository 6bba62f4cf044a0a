/*
  Rows coming out: searches, scans and positions.
*/
#include "ha_sluice.h"

sluice_bound ha_sluice::bound_of(uint key, const uchar *image, key_part_map parts,
                                 bool inclusive) const
{
  sluice_bound bound= {};
  if (!image)
    return bound;
  const KEY *info= table->key_info + key;
  bound.image= image;
  for (uint i= 0; i < info->ext_key_parts && (parts & (key_part_map(1) << i)); i++)
  {
    bound.image_bytes+= info->key_part[i].store_length;
    bound.parts++;
  }
  bound.inclusive= inclusive;
  return bound;
}

/* Who may write the row needs all of it; others get what the statement reads. */
void ha_sluice::choose_columns()
{
  const MY_BITMAP *wanted= table->read_set;
  const bool all= m_lock == SLUICE_LOCK_EXCLUSIVE || m_computes_virtual || bitmap_is_set_all(wanted);
  sluice_set_columns(m_handler, reinterpret_cast<const uint8_t *>(wanted->bitmap),
                     (wanted->n_bits + 7) / 8, all);
}

void ha_sluice::column_bitmaps_signal()
{
  if (m_handler)
    choose_columns();
}

static bool is_virtual(const TABLE *table, const KEY_PART_INFO &part)
{
  return !table->field[part.fieldnr - 1]->stored_in_db();
}

static bool is_cut(const KEY_PART_INFO &part)
{
  return part.key_part_flag & HA_PART_KEY_SEG;
}

/*
  Must virtual columns of this index be computed here? The server computes them in its own record, and
  not with keyread. What is left: a prefix in the index, which is too little of the column for the
  server's comparison of the record with the end of a range; and the records of a partitioned table,
  which the server merges by the columns of the index.
*/
static bool computes_virtual(const TABLE *table, const KEY &key)
{
  if (!table->vfield)
    return false;
  for (uint i= 0; i < key.user_defined_key_parts; i++)
    if (is_virtual(table, key.key_part[i]) && (is_cut(key.key_part[i]) || table->part_info))
      return true;
  return false;
}

/* A partitioned table reads into buffers of its own. */
static void move_fields(TABLE *table, my_ptrdiff_t distance)
{
  for (Field **field= table->field; distance && *field; field++)
    (*field)->move_field_offset(distance);
}

/*
  Records of several partitions exist at a time, and a field computes all into one place. So each
  partition's handler keeps what its record points to.
*/
void ha_sluice::keep_blob(uint part, Field *field)
{
  if (!(field->flags & BLOB_FLAG) || field->is_null())
    return;
  auto *blob= static_cast<Field_blob *>(field);
  std::string &kept= m_virtual_blobs[part];
  kept.assign(reinterpret_cast<const char *>(blob->get_ptr()), blob->get_length());
  blob->set_ptr(kept.size(), reinterpret_cast<uchar *>(&kept[0]));
}

/* Those that the index has whole are in the record already with keyread. */
void ha_sluice::compute_virtual(uchar *record)
{
  const KEY &key= table->key_info[active_index];
  const my_ptrdiff_t distance= record - table->record[0];
  /* The call below clears tmp_set, by which a sort reads. */
  my_bitmap_map saved[bitmap_buffer_size(MAX_FIELDS) / sizeof(my_bitmap_map)];
  MY_BITMAP *const read_set= table->read_set;
  const size_t bytes= bitmap_buffer_size(table->tmp_set.n_bits);
  memcpy(saved, table->tmp_set.bitmap, bytes);
  table->read_set= &table_share->all_set;
  move_fields(table, distance);
  for (uint i= 0; i < key.user_defined_key_parts; i++)
  {
    const KEY_PART_INFO &part= key.key_part[i];
    if (!is_virtual(table, part) || (m_keyread && !is_cut(part)))
      continue;
    Field *const field= table->field[part.fieldnr - 1];
    table->update_virtual_field(field, true);
    if (distance)
      keep_blob(i, field);
  }
  move_fields(table, -distance);
  table->read_set= read_set;
  memcpy(table->tmp_set.bitmap, saved, bytes);
}

/* The end of each call that reads by an index. */
int ha_sluice::came(int error, uchar *record)
{
  const bool is_of_partition= table->part_info && record != table->record[0];
  if (!error && m_computes_virtual && (m_keyread || is_of_partition))
    compute_virtual(record);
  return done(error);
}

int ha_sluice::index_init(uint key, bool)
{
  if (copies_tables(thd_sql_command(ha_thd())))
    if (int error= sluice_wait_for_prepared(ha_thd(), m_name.c_str()))
      return error;
  active_index= key;
  m_computes_virtual= computes_virtual(table, table->key_info[key]);
  choose_columns();
  return sluice_scan_end(m_handler);
}

int ha_sluice::index_end()
{
  active_index= MAX_KEY;
  m_computes_virtual= false;
  return sluice_scan_end(m_handler);
}

static int find_of(ha_rkey_function find)
{
  switch (find)
  {
  case HA_READ_KEY_EXACT:
    return SLUICE_FIND_EXACT;
  case HA_READ_KEY_OR_NEXT:
    return SLUICE_FIND_AT_OR_AFTER;
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV:
    return SLUICE_FIND_AT_OR_BEFORE;
  case HA_READ_AFTER_KEY:
    return SLUICE_FIND_AFTER;
  case HA_READ_BEFORE_KEY:
    return SLUICE_FIND_BEFORE;
  case HA_READ_PREFIX_LAST:
    return SLUICE_FIND_LAST;
  case HA_READ_PREFIX:
    return SLUICE_FIND_EXACT;
  default:
    return -1;
  }
}

int ha_sluice::index_read_map(uchar *record, const uchar *key, key_part_map parts,
                              ha_rkey_function find)
{
  if (!key)
    return index_first(record);
  int how= find_of(find);
  if (how < 0)
    return HA_ERR_UNSUPPORTED;
  sluice_bound at= bound_of(active_index, key, parts, true);
  return came(sluice_seek(m_handler, m_session, active_index, &at, how, record), record);
}

int ha_sluice::index_read_last_map(uchar *record, const uchar *key, key_part_map parts)
{
  return index_read_map(record, key, parts, HA_READ_PREFIX_LAST);
}

int ha_sluice::index_next(uchar *record)
{
  return came(sluice_step(m_handler, m_session, 0, record), record);
}

int ha_sluice::index_prev(uchar *record)
{
  return came(sluice_step(m_handler, m_session, 1, record), record);
}

int ha_sluice::index_first(uchar *record)
{
  return came(sluice_first(m_handler, m_session, active_index, 0, record), record);
}

int ha_sluice::index_last(uchar *record)
{
  return came(sluice_first(m_handler, m_session, active_index, 1, record), record);
}

int ha_sluice::index_next_same(uchar *record, const uchar *, uint)
{
  return came(sluice_step_same(m_handler, m_session, record), record);
}

/* The engine is told where the range ends, so that it locks no further. */
int ha_sluice::read_range_first(const key_range *start, const key_range *end, bool eq_range,
                                bool sorted)
{
  if (end && !eq_range)
  {
    sluice_bound bound= bound_of(active_index, end->key, end->keypart_map,
                                 end->flag != HA_READ_BEFORE_KEY);
    if (int error= sluice_range_end(m_handler, active_index, &bound))
      return failed(error);
  }
  return handler::read_range_first(start, end, eq_range, sorted);
}

/*
  The server's MRR in engines that use it (DS-MRR) reports an error itself, and callers of
  QUICK_SELECT_I::reset() count on that: UPDATE would end as if nothing had happened.
*/
int ha_sluice::multi_range_read_next(range_id_t *range)
{
  int error= handler::multi_range_read_next(range);
  if (error && error != HA_ERR_END_OF_FILE && error != HA_ERR_KEY_NOT_FOUND)
    print_error(error, MYF(0));
  return error;
}

/*
  Callers of multi_range_read_next() report the error as well, one or more of them, some as "out of
  memory" whatever it was (join_init_read_record). What the statement ends with is its first error.
*/
void ha_sluice::print_error(int error, myf flags)
{
  if (!ha_thd()->is_error())
    handler::print_error(error, flags);
}

int ha_sluice::rnd_init(bool scan)
{
  if (scan && copies_tables(thd_sql_command(ha_thd())))
    if (int error= sluice_wait_for_prepared(ha_thd(), m_name.c_str()))
      return error;
  /* Rows by position are wanted already. */
  if (!scan)
    try_semi_consistent_read(false);
  m_scan_started= false;
  choose_columns();
  return sluice_scan_end(m_handler);
}

int ha_sluice::rnd_end() { return sluice_scan_end(m_handler); }

int ha_sluice::rnd_next(uchar *record)
{
  if (m_scan_started)
    return done(sluice_step(m_handler, m_session, 0, record));
  m_scan_started= true;
  return done(sluice_first(m_handler, m_session, SLUICE_NO_KEY, 0, record));
}

int ha_sluice::rnd_pos(uchar *record, uchar *position)
{
  return done(sluice_fetch(m_handler, m_session, position, ref_length, record));
}

void ha_sluice::position(const uchar *record)
{
  if (is_hidden())
  {
    sluice_hidden_ref(m_handler, ref);
    return;
  }
  KEY *key= table->key_info + table_share->primary_key;
  key_copy(ref, record, key, key->key_length);
}

int ha_sluice::cmp_ref(const uchar *left, const uchar *right)
{
  if (is_hidden())
    return memcmp(left, right, ref_length);
  return sluice_compare_refs(m_handler, left, right, ref_length);
}
