/*
  ALTER TABLE in place: secondary indexes come and go, and rows stay where they are. All else is
  copied by the server.
*/
#include "ha_sluice.h"
#include "sql_alter.h"

namespace
{
/* What is under way, until the server has decided. */
class Alter_context final : public inplace_alter_handler_ctx
{
public:
  ~Alter_context() override { abandon(); }
  void abandon()
  {
    if (m_alter)
      sluice_alter_abandon(m_alter);
    m_alter= nullptr;
  }
  /* The engine has it from here on. */
  sluice_alter *release()
  {
    sluice_alter *given= m_alter;
    m_alter= nullptr;
    return given;
  }

  sluice_alter *m_alter= nullptr;
  bool m_has_new= false;
};

constexpr alter_table_operations in_place=
    ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX |
    ALTER_ADD_UNIQUE_INDEX | ALTER_DROP_UNIQUE_INDEX;

/* An entry that may be longer goes to the tree of long values, row by row: by a copy. */
constexpr uint entry_bytes_max= 3000;

bool has_name_of(const KEY &key, const KEY &other)
{
  return !system_charset_info->strnncoll(key.name.str, key.name.length, other.name.str,
                                         other.name.length);
}

bool is_added(const Alter_inplace_info *info, const KEY &key)
{
  for (uint i= 0; i < info->index_add_count; i++)
    if (has_name_of(key, info->key_info_buffer[info->index_add_buffer[i]]))
      return true;
  return false;
}

uint key_of_name(const TABLE *table, const KEY &key)
{
  for (uint i= 0; i < table->s->keys; i++)
    if (has_name_of(key, table->key_info[i]))
      return i;
  return SLUICE_NO_KEY;
}

/* For each key of the altered table its number in the table, or SLUICE_NO_KEY for a new one. */
std::vector<uint32_t> kept_keys(const TABLE *table, const TABLE *altered,
                                const Alter_inplace_info *info)
{
  std::vector<uint32_t> kept;
  for (uint i= 0; i < altered->s->keys; i++)
  {
    const KEY &key= altered->key_info[i];
    kept.push_back(is_added(info, key) ? SLUICE_NO_KEY : key_of_name(table, key));
  }
  return kept;
}

uint entry_bytes(const TABLE *table, const KEY &key)
{
  uint bytes= 0;
  for (uint i= 0; i < key.user_defined_key_parts; i++)
    bytes+= table->field[key.key_part[i].fieldnr - 1]->pack_length();
  return bytes;
}

/* Can the engine build it from rows alone? */
bool can_build(const TABLE *altered, const KEY &key)
{
  if (key.algorithm == HA_KEY_ALG_LONG_HASH || sluice_is_fulltext(key) || sluice_is_spatial(key))
    return false;
  for (uint i= 0; i < key.user_defined_key_parts; i++)
    if (!altered->field[key.key_part[i].fieldnr - 1]->stored_in_db())
      return false;
  const uint primary= altered->s->primary_key;
  const uint row= primary == MAX_KEY ? 8 : entry_bytes(altered, altered->key_info[primary]);
  return entry_bytes(altered, key) + row <= entry_bytes_max;
}
} // namespace

enum_alter_inplace_result ha_sluice::check_if_supported_inplace_alter(TABLE *altered,
                                                                      Alter_inplace_info *info)
{
  const enum_alter_inplace_result otherwise=
      handler::check_if_supported_inplace_alter(altered, info);
  if (info->handler_flags & ~(in_place | ALTER_INDEX_ORDER) || !(info->handler_flags & in_place) || info->ignore ||
      table->part_info || altered->part_info ||
      table_share->primary_key != altered->s->primary_key || sluice_is_stale(m_handler))
    return otherwise;
  const std::vector<uint32_t> kept= kept_keys(table, altered, info);
  for (uint i= 0; i < kept.size(); i++)
    if (kept[i] == SLUICE_NO_KEY && (i == altered->s->primary_key ||
                                     !can_build(altered, altered->key_info[i])))
      return otherwise;
  /* The answer below would do for it, but every row is read. */
  if (info->index_add_count &&
      info->alter_info->algorithm(ha_thd()) == Alter_info::ALTER_TABLE_ALGORITHM_INSTANT)
  {
    info->unsupported_reason= "a new index is made of all rows";
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  return HA_ALTER_INPLACE_SHARED_LOCK;
}

/* True, as the server wants it, after an error. */
bool ha_sluice::alter_failed(int error)
{
  if (!error)
    return false;
  if (!ha_thd()->is_error())
    print_error(failed(error), MYF(0));
  return true;
}

bool ha_sluice::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  if (!(info->handler_flags & in_place))
    return false;
  THD *thd= ha_thd();
  if (alter_failed(sluice_wait_for_prepared(thd, m_name.c_str())))
    return true;
  Alter_context *context= new (thd->mem_root) Alter_context;
  info->handler_ctx= context;
  const std::vector<uint32_t> kept= kept_keys(table, altered, info);
  for (uint32_t key : kept)
    context->m_has_new|= key == SLUICE_NO_KEY;
  Sluice_description description(altered);
  return alter_failed(sluice_alter_begin(m_handler, reinterpret_cast<uint64_t>(thd),
                                         description.get(), kept.data(), &context->m_alter));
}

/* Every row to the new indexes. */
int ha_sluice::alter_rows(sluice_alter *alter)
{
  THD *thd= ha_thd();
  info(HA_STATUS_VARIABLE);
  const ha_rows rows= stats.records ? stats.records : 1;
  thd_progress_init(thd, 2);
  int error= ha_rnd_init(true);
  for (ha_rows done= 0; !error; done++)
  {
    if ((error= ha_rnd_next(table->record[0])))
      break;
    if (done % 1024 == 0)
    {
      if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
        error= HA_ERR_ABORTED_BY_USER;
      thd_progress_report(thd, MY_MIN(done, rows), rows);
    }
    if (!error)
      error= sluice_alter_row(alter, m_handler, table->record[0]);
  }
  ha_rnd_end();
  thd_progress_next_stage(thd);
  return error == HA_ERR_END_OF_FILE ? 0 : error;
}

bool ha_sluice::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  Alter_context *context= static_cast<Alter_context *>(info->handler_ctx);
  if (!context || !context->m_has_new)
    return false;
  THD *thd= ha_thd();
  MY_BITMAP *saved= tmp_use_all_columns(table, &table->read_set);
  column_bitmaps_signal();
  int error= alter_rows(context->m_alter);
  uint32_t key= 0;
  if (!error)
    error= sluice_alter_build(context->m_alter, reinterpret_cast<uint64_t>(thd), m_handler,
                              m_session, &key, table->record[0]);
  if (error == HA_ERR_FOUND_DUPP_KEY)
  {
    memcpy(altered->record[0], table->record[0], table_share->reclength);
    print_keydup_error(altered, altered->key_info + key, MYF(0));
  }
  tmp_restore_column_map(&table->read_set, saved);
  column_bitmaps_signal();
  thd_progress_end(thd);
  return alter_failed(error);
}

bool ha_sluice::commit_inplace_alter_table(TABLE *, Alter_inplace_info *info, bool commit)
{
  Alter_context *context= static_cast<Alter_context *>(info->handler_ctx);
  if (!context)
    return false;
  if (!commit)
  {
    context->abandon();
    return false;
  }
  return alter_failed(
      sluice_alter_commit(context->release(), reinterpret_cast<uint64_t>(ha_thd())));
}

/* By it the server finds out after a crash whether an ALTER in place had happened. */
ulonglong ha_sluice::table_version() const { return sluice_table_version(m_name.c_str()); }

int sluice_check_version(handlerton *, const char *path, const LEX_CUSTRING *, ulonglong before)
{
  return sluice_table_version(sluice_name(path)) > before ? 0 : 1;
}
