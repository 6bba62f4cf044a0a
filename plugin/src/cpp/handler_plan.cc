/*
  What the optimizer asks: sizes and statistics. What reading costs is in server_compat.h.
*/
#include "ha_sluice.h"

/*
  How many rows a value of the first parts of a key has, as InnoDB tells it. 0 is "not known".
*/
void ha_sluice::describe_selectivity(ha_rows rows, uint64_t version)
{
  m_statistics_version= version;
  m_pages_per_entry.clear();
  for (uint k= 0; k < table->s->keys; k++)
  {
    KEY *key= table->key_info + k;
    sluice_key_statistics found;
    if (sluice_key_statistics_of(m_handler, k, &found))
      found.count= 0;
    for (uint p= 0; p < key->ext_key_parts; p++)
    {
      ulong per_key= 0;
      if (p < found.count)
      {
        uint64_t values= MY_MAX(found.distinct[p], 1);
        per_key= ulong(MY_MAX(rows / values / sluice_told_part, 1));
      }
      else if (key->flags & HA_NOSAME && p + 1 >= key->user_defined_key_parts)
        per_key= 1;
      key->rec_per_key[p]= per_key;
    }
    if (found.count)
      m_pages_per_entry.push_back(double(found.leaf_pages) / double(MY_MAX(found.entries, 1)));
  }
  if (m_pages_per_entry.size() != table->s->keys)
    m_pages_per_entry.clear();
}

/* That of the definition, as with InnoDB. */
static ulong create_time_of(const TABLE_SHARE *share)
{
  char path[FN_REFLEN + 1];
  MY_STAT found;
  strxnmov(path, FN_REFLEN, share->normalized_path.str, reg_ext, NullS);
  return my_stat(path, &found, MYF(0)) ? ulong(found.st_ctime) : 0;
}

int ha_sluice::info(uint flag)
{
  if (flag & HA_STATUS_ERRKEY)
  {
    errkey= sluice_duplicate_key(m_handler, sluice_session_of(ha_thd()));
    if (errkey == SLUICE_NO_KEY)
      errkey= uint(-1);
  }
  if (!(flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_AUTO)))
    return 0;
  sluice_info found;
  int error= sluice_info_of(m_handler, &found);
  if (error)
    return failed(error);
  if (flag & HA_STATUS_AUTO)
    stats.auto_increment_value= found.next_autoinc;
  if (flag & HA_STATUS_VARIABLE)
  {
    /* The optimizer takes 0 and 1 for certain. A statement that shows the number asks for the times, too. */
    stats.records= flag & HA_STATUS_TIME ? found.rows : MY_MAX(found.rows, 2);
    stats.deleted= 0;
    stats.data_file_length= found.data_bytes;
    stats.index_file_length= found.index_bytes;
    stats.mean_rec_length= found.rows ? ulong(found.data_bytes / found.rows) : 0;
    stats.block_size= 16384;
    m_clustered_pages= double(MY_MAX(found.clustered_pages, 1));
  }
  /* The background refreshes them while tables are open. */
  if (flag & HA_STATUS_CONST)
    stats.create_time= create_time_of(table_share);
  if (flag & HA_STATUS_CONST || found.statistics_version != m_statistics_version)
    describe_selectivity(MY_MAX(found.rows, 2), found.statistics_version);
  return 0;
}

int ha_sluice::analyze(THD *thd, HA_CHECK_OPT *)
{
  /* With HA_ONLINE_ANALYZE no table is closed for it: the share is told here. */
  int error= sluice_analyze_table(m_handler, uint64_t(thd), table_share->stats_sample_pages);
  if (error)
  {
    sluice_report(thd, error);
    return HA_ADMIN_FAILED;
  }
  return info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST) ? HA_ADMIN_FAILED
                                                                        : HA_ADMIN_OK;
}

ha_rows ha_sluice::records_in_range(uint key, const key_range *low, const key_range *high,
                                    page_range *pages)
{
  sluice_bound from= {}, to= {};
  if (low)
    from= bound_of(key, low->key, low->keypart_map, low->flag != HA_READ_AFTER_KEY);
  if (high)
    to= bound_of(key, high->key, high->keypart_map, high->flag != HA_READ_BEFORE_KEY);
  sluice_range found;
  if (sluice_rows_in_range(m_handler, key, &from, &to, &found))
  {
    /* The read itself will say what is wrong. */
    sluice_message(nullptr, 0);
    return 10;
  }
  pages->first_page= found.first_page;
  pages->last_page= found.last_page;
  /* The server takes 0 for certain. */
  return MY_MAX(found.rows, 1);
}
