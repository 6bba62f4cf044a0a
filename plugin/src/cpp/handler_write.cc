/*
  Locks of a statement, and rows going in.
*/
#include "ha_sluice.h"
#include "sql_trigger.h"

int ha_sluice::failed(int error) { return sluice_report(ha_thd(), error); }

/* Called for each table at the start of each statement. */
int ha_sluice::begin(THD *thd)
{
  m_session= sluice_session_of(thd);
  if (!m_session)
    return HA_ERR_INTERNAL_ERROR;
  sluice_register(thd);
  uint64_t timeout_ms= sluice_timeout_ms(thd);
  int error= sluice_statement_start(m_session, thd_tx_isolation(thd), timeout_ms);
  if (error)
    return failed(error);
  uint32_t wait= m_skip_locked ? SLUICE_SKIP_LOCKED : timeout_ms ? SLUICE_WAIT : SLUICE_NOWAIT;
  return done(sluice_lock(m_handler, m_lock, wait));
}

/* Galera sends no row events of other engines: the nodes would differ, and nobody be told. */
bool ha_sluice::refuse_galera(THD *thd) const
{
  if (!wsrep_on(thd) || !wsrep_thd_is_local(thd) || table_share->tmp_table != NO_TMP_TABLE)
    return false;
  my_printf_error(ER_CHECK_NOT_IMPLEMENTED, "Sluice does not support writes under Galera (wsrep_on)",
                  MYF(0));
  return true;
}

int ha_sluice::external_lock(THD *thd, int type)
{
  m_server_locked= type != F_UNLCK;
  if (type == F_UNLCK)
    return 0;
  if (type == F_WRLCK && refuse_galera(thd))
    return HA_ERR_UNSUPPORTED;
  if (type == F_WRLCK)
    m_stored_lock= SLUICE_LOCK_EXCLUSIVE;
  else if (m_stored_lock == SLUICE_LOCK_NONE && thd_tx_isolation(thd) == ISO_SERIALIZABLE &&
           thd_sql_command(thd) != SQLCOM_HA_READ && thd_sql_command(thd) != SQLCOM_HA_OPEN &&
           thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN))
    m_stored_lock= SLUICE_LOCK_SHARED;
  m_lock= m_stored_lock;
  /* DROP PARTITION comes back for the data when the table's definition has changed already. */
  if (copies_tables(thd_sql_command(thd)) && thd->lex->alter_info.partition_flags)
    if (int error= sluice_wait_for_prepared(thd, m_name.c_str()))
      return error;
  return begin(thd);
}

/*
  Under LOCK TABLES and in prelocked statements: external_lock came long ago, and what was chosen
  there holds, as in InnoDB. Not for a temporary table that was made since.
*/
int ha_sluice::start_stmt(THD *thd, thr_lock_type type)
{
  if (type >= TL_WRITE_ALLOW_WRITE && refuse_galera(thd))
    return HA_ERR_UNSUPPORTED;
  if (!m_server_locked)
    m_lock= SLUICE_LOCK_EXCLUSIVE;
  else if (type == TL_READ && thd_sql_command(thd) == SQLCOM_SELECT &&
           thd_tx_isolation(thd) != ISO_SERIALIZABLE)
    m_lock= SLUICE_LOCK_NONE;
  else if (type < TL_WRITE_ALLOW_WRITE && sluice_planted("A6"))
    m_lock= SLUICE_LOCK_NONE;
  else
    m_lock= m_stored_lock;
  if (sluice_session *session= sluice_session_of(thd))
    sluice_autoinc_statement(session);
  return begin(thd);
}

/* Which reads lock, as InnoDB does it; writers are let in beside each other. */
THR_LOCK_DATA **ha_sluice::store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type type)
{
  if (type == TL_IGNORE)
    return to;
  const int command= thd_sql_command(thd);
  const bool read_committed= thd_tx_isolation(thd) <= ISO_READ_COMMITTED;
  const bool in_lock_tables= thd_in_lock_tables(thd);
  m_skip_locked= type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED;
  bool shared= type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED ||
               type == TL_READ_NO_INSERT || command != SQLCOM_SELECT ||
               (in_lock_tables && (type == TL_READ || type == TL_READ_HIGH_PRIORITY));
  const bool source= command == SQLCOM_INSERT_SELECT || command == SQLCOM_REPLACE_SELECT ||
                     command == SQLCOM_UPDATE || command == SQLCOM_CREATE_TABLE;
  if (read_committed && source && (type == TL_READ || type == TL_READ_NO_INSERT))
    shared= false;
  /* HANDLER reads without locks, as in InnoDB, unless under LOCK TABLES. Its OPEN is asked, too. */
  if ((command == SQLCOM_HA_READ || command == SQLCOM_HA_OPEN) && !in_lock_tables)
    shared= false;
  /* A copying ALTER keeps writers out by its metadata lock and reads in a fresh transaction. */
  if (command == SQLCOM_CHECKSUM || command == SQLCOM_ALTER_TABLE ||
      command == SQLCOM_CREATE_INDEX || command == SQLCOM_DROP_INDEX ||
      command == SQLCOM_OPTIMIZE || command == SQLCOM_ANALYZE || command == SQLCOM_CHECK)
    shared= false;
  m_stored_lock= shared ? SLUICE_LOCK_SHARED : SLUICE_LOCK_NONE;
  /* lock_count() is 0: the server's own table locks are not used. */
  return to;
}

void ha_sluice::unlock_row()
{
  if (m_session && thd_tx_isolation(ha_thd()) <= ISO_READ_COMMITTED)
    sluice_unlock_row(m_handler, m_session);
}

/* UPDATE asks for it. At higher levels what was read must stay as it is. */
void ha_sluice::try_semi_consistent_read(bool yes)
{
  sluice_try_semi_consistent(m_handler, yes && thd_tx_isolation(ha_thd()) <= ISO_READ_COMMITTED);
}

bool ha_sluice::was_semi_consistent_read()
{
  return sluice_was_semi_consistent(m_handler) != 0;
}

/* Rows come from an ALTER TABLE or a CREATE TABLE ... SELECT. */
int ha_sluice::copy_begin(bool ignores)
{
  /* For a unique key over a hash or without overlaps the server reads the table that it writes. */
  if (!m_session || table->s->long_unique_table || table->s->period.unique_keys)
    return 0;
  /* So does a statement that goes on after a duplicate. */
  const LEX *lex= ha_thd()->lex;
  const bool goes_on= ignores || m_replace || lex->ignore || lex->duplicates != DUP_ERROR;
  return sluice_copy_begin(m_handler, m_session, !goes_on && !table->part_info);
}

/* A duplicate may be a row that came earlier: the server reads its key in the record. */
int ha_sluice::copied(int error)
{
  if (error == HA_ERR_FOUND_DUPP_KEY)
    if (int worse= sluice_copy_duplicate(m_handler, m_session, table->record[0]))
      error= worse;
  return done(error);
}

int ha_sluice::extra(ha_extra_function operation)
{
  switch (const Copy_step step= sluice_copy_step(operation))
  {
  case Copy_step::BEGIN:
  case Copy_step::BEGIN_IGNORE:
    return copy_begin(step == Copy_step::BEGIN_IGNORE);
  case Copy_step::END:
    return m_session ? copied(sluice_copy_end(m_handler, m_session, 1)) : 0;
  case Copy_step::ABORT:
    return m_session ? sluice_copy_end(m_handler, m_session, 0) : 0;
  case Copy_step::NONE:
    break;
  }
  switch (operation)
  {
  case HA_EXTRA_KEYREAD:
    m_keyread= true;
    return sluice_set_keyread(m_handler, 1);
  case HA_EXTRA_KEYREAD_PRESERVE_FIELDS:
    m_keyread= true;
    return sluice_set_keyread(m_handler, 2);
  case HA_EXTRA_NO_KEYREAD:
    m_keyread= false;
    return sluice_set_keyread(m_handler, 0);
  case HA_EXTRA_WRITE_CAN_REPLACE:
  case HA_EXTRA_INSERT_WITH_UPDATE:
    m_replace= true;
    return sluice_set_replace(m_handler, 1);
  case HA_EXTRA_IGNORE_DUP_KEY:
    m_ignores= true;
    return 0;
  case HA_EXTRA_NO_IGNORE_DUP_KEY:
    m_ignores= false;
    return 0;
  case HA_EXTRA_WRITE_CANNOT_REPLACE:
    m_replace= false;
    return sluice_set_replace(m_handler, 0);
  default:
    return 0;
  }
}

/*
  Index merge reads with a handler for each index. The server asks store_lock only for the first,
  so the others lock as it does.
*/
handler *ha_sluice::clone(const char *, MEM_ROOT *root)
{
  handler *made= handler::clone(m_name.c_str(), root);
  if (!made)
    return nullptr;
  ha_sluice *copy= static_cast<ha_sluice *>(made);
  copy->m_stored_lock= sluice_planted("A3") ? uint32_t(SLUICE_LOCK_NONE) : m_lock;
  copy->m_skip_locked= m_skip_locked;
  return copy;
}

int ha_sluice::reset()
{
  m_replace= m_ignores= m_bulk= m_keyread= false;
  return sluice_reset(m_handler);
}

/*
  Other sessions may take values in between while one of these gets its own (InnoDB locks them out), and
  a replica that runs the statement alone would give it other values.
*/
bool ha_sluice::autoinc_lock_mode_stmt_unsafe() const
{
  switch (thd_sql_command(ha_thd()))
  {
  case SQLCOM_LOAD:
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE_SELECT:
  case SQLCOM_CREATE_TABLE:
    return true;
  default:
    return false;
  }
}

/* Does a duplicate move the counter? Where the statement goes on behind it, as in InnoDB. */
static uint32_t autoinc_outcome(THD *thd, int error, bool replaces)
{
  if (!error)
    return SLUICE_AUTOINC_GIVEN;
  if (error != HA_ERR_FOUND_DUPP_KEY)
    return SLUICE_AUTOINC_FAILED;
  switch (thd_sql_command(thd))
  {
  case SQLCOM_LOAD:
    return replaces ? SLUICE_AUTOINC_REPLACES : SLUICE_AUTOINC_FAILED;
  case SQLCOM_REPLACE:
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE_SELECT:
    return SLUICE_AUTOINC_REPLACES;
  default:
    return SLUICE_AUTOINC_FAILED;
  }
}

void ha_sluice::note_autoinc(uint32_t how)
{
  Field *field= table->found_next_number_field;
  const ulonglong value= field->val_uint();
  /*
    As with InnoDB a negative value that is given counts as 0, from which the series goes on; one that
    an UPDATE or ALTER TABLE brings moves nothing.
  */
  const longlong as_signed= field->val_int();
  const bool is_negative= !(field->flags & UNSIGNED_FLAG) && as_signed < 0;
  const bool counts= (how == SLUICE_AUTOINC_GIVEN || how == SLUICE_AUTOINC_REPLACES) &&
                     thd_sql_command(ha_thd()) != SQLCOM_ALTER_TABLE;
  sluice_autoinc_wrote(m_handler, m_session, !is_negative ? value : counts ? 0 : ULONGLONG_MAX,
                       field->get_max_int_value(), how);
}

int ha_sluice::write_row(const uchar *record)
{
  const bool numbered= table->next_number_field && record == table->record[0];
  if (numbered)
    if (int error= update_auto_increment())
      return error;
  int error= sluice_insert(m_handler, m_session, record);
  Field *field= table->found_next_number_field;
  if (field && record == table->record[0])
  {
    MY_BITMAP *saved= dbug_tmp_use_all_columns(table, &table->read_set);
    if (numbered)
      note_autoinc(autoinc_outcome(ha_thd(), error, m_replace));
    if ((!error || error == HA_ERR_FOUND_DUPP_KEY) && !field->is_null())
      note_autoinc(SLUICE_AUTOINC_STORED);
    dbug_tmp_restore_column_map(&table->read_set, saved);
  }
  return copied(error);
}

/*
  INSERT ... SELECT or LOAD DATA that stops at the first duplicate, and reads nothing of the table that it
  fills. Each row of a multi-row INSERT has a number that an error names, so those go in one by one.
*/
bool ha_sluice::may_load() const
{
  const THD *thd= ha_thd();
  const int command= thd_sql_command(thd);
  if ((command != SQLCOM_INSERT_SELECT && command != SQLCOM_LOAD) || !m_session)
    return false;
  const LEX *lex= thd->lex;
  if (m_replace || m_ignores || lex->ignore || lex->duplicates != DUP_ERROR)
    return false;
  /* A trigger or stored function may do anything. */
  if (table->triggers || thd->in_sub_stmt || thd->locked_tables_mode > LTM_LOCK_TABLES)
    return false;
  /* For such keys the server reads the table. A partition would sort in memory of its own. */
  if (table->part_info || table->s->long_unique_table || table->s->period.unique_keys)
    return false;
  for (const TABLE_LIST *other= lex->query_tables; other; other= other->next_global)
    if (other->table && other->table != table && other->table->s == table->s)
      return false;
  return true;
}

void ha_sluice::start_bulk_insert(ha_rows, uint)
{
  THD *thd= ha_thd();
  m_bulk= may_load() && !sluice_bulk_begin(m_handler, m_session, sluice_bulk_insert_bytes(thd));
  /*
    ALTER TABLE ... AUTO_INCREMENT=n below a row's value goes on in the session's series, with
    ALGORITHM=COPY one after the highest value; any other ALTER moves nothing. So it is in InnoDB.
  */
  const bool in_series= thd_sql_command(thd) == SQLCOM_ALTER_TABLE &&
                        thd->lex->create_info.used_fields & HA_CREATE_USED_AUTO &&
                        thd->lex->alter_info.algorithm(thd) != Alter_info::ALTER_TABLE_ALGORITHM_COPY;
  sluice_autoinc_bulk(m_handler, 1, in_series ? thd->variables.auto_increment_offset : 0,
                      in_series ? thd->variables.auto_increment_increment : 0);
}

/* Also called after a row has failed: then nobody waits for the trees. */
int ha_sluice::end_bulk_insert()
{
  const int error= sluice_autoinc_bulk(m_handler, 0, 0, 0);
  if (!m_bulk)
    return error;
  m_bulk= false;
  const int ended= copied(sluice_bulk_end(m_handler, m_session, !ha_thd()->is_error()));
  /* LOAD DATA looks there. */
  if (ended)
    my_errno= ended;
  return error ? error : ended;
}

/*
  A trigger may have changed what an indexed virtual column is made of. In an UPDATE of several tables
  the server does not compute it again. (Nor does InnoDB: its index is wrong then.)
*/
void ha_sluice::compute_indexed_virtual()
{
  if (!table->vfield || !table->triggers ||
      !table->triggers->has_triggers(TRG_EVENT_UPDATE, TRG_ACTION_BEFORE))
    return;
  const uint indexed= PART_KEY_FLAG | PART_INDIRECT_KEY_FLAG;
  MY_BITMAP *const read_set= table->read_set;
  table->read_set= &table_share->all_set;
  for (Field **at= table->vfield; *at; at++)
    if (!(*at)->stored_in_db() && (*at)->flags & indexed)
      table->update_virtual_field(*at, true);
  table->read_set= read_set;
}

int ha_sluice::update_row(const uchar *before, const uchar *after)
{
  if (after == table->record[0])
    compute_indexed_virtual();
  int error= sluice_update(m_handler, m_session, before, after);
  if (error == HA_ERR_RECORD_IS_THE_SAME)
    return error;
  Field *field= table->found_next_number_field;
  if (!error && field && after == table->record[0] && !field->is_null() &&
      bitmap_is_set(table->write_set, field->field_index) &&
      field->cmp_binary_offset(uint(before - after)))
    note_autoinc(SLUICE_AUTOINC_UPDATED);
  return done(error);
}

int ha_sluice::delete_row(const uchar *record)
{
  return done(sluice_delete(m_handler, m_session, record));
}

void ha_sluice::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                                   ulonglong *first, ulonglong *reserved)
{
  const ulonglong max= table->next_number_field->get_max_int_value();
  const bool is_alter= thd_sql_command(ha_thd()) == SQLCOM_ALTER_TABLE;
  const sluice_autoinc question= {offset, increment, wanted, max, is_alter};
  uint64_t from= *first, count= 0;
  if (sluice_autoinc_get(m_handler, m_session, &question, &from, &count))
    from= ULONGLONG_MAX;
  *first= from;
  *reserved= count;
}
