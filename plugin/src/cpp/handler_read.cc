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
  const bool all= m_lock == SLUICE_LOCK_EXCLUSIVE || bitmap_is_set_all(wanted);
  sluice_set_columns(m_handler, reinterpret_cast<const uint8_t *>(wanted->bitmap),
                     (wanted->n_bits + 7) / 8, all);
}

void ha_sluice::column_bitmaps_signal()
{
  if (m_handler)
    choose_columns();
}

int ha_sluice::index_init(uint key, bool)
{
  if (copies_tables(thd_sql_command(ha_thd())))
    if (int error= sluice_wait_for_prepared(ha_thd(), m_name.c_str()))
      return error;
  active_index= key;
  choose_columns();
  return sluice_scan_end(m_handler);
}

int ha_sluice::index_end()
{
  active_index= MAX_KEY;
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
  return done(sluice_seek(m_handler, m_session, active_index, &at, how, record));
}

int ha_sluice::index_read_last_map(uchar *record, const uchar *key, key_part_map parts)
{
  return index_read_map(record, key, parts, HA_READ_PREFIX_LAST);
}

int ha_sluice::index_next(uchar *record)
{
  return done(sluice_step(m_handler, m_session, 0, record));
}

int ha_sluice::index_prev(uchar *record)
{
  return done(sluice_step(m_handler, m_session, 1, record));
}

int ha_sluice::index_first(uchar *record)
{
  return done(sluice_first(m_handler, m_session, active_index, 0, record));
}

int ha_sluice::index_last(uchar *record)
{
  return done(sluice_first(m_handler, m_session, active_index, 1, record));
}

int ha_sluice::index_next_same(uchar *record, const uchar *, uint)
{
  return done(sluice_step_same(m_handler, m_session, record));
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
  {
    print_error(error, MYF(0));
    m_reported= error;
  }
  return error;
}

/* Other callers of multi_range_read_next() report the error as well: it is shown once. */
void ha_sluice::print_error(int error, myf flags)
{
  const bool again= error && error == m_reported;
  m_reported= 0;
  if (!again)
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
