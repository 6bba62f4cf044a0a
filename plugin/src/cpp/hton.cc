/*
  The handlerton: transactions, two-phase commit, XA, and hooks of the server.
*/
#include "ha_sluice.h"
#include "hton.h"
#include "psi.h"
#include "binlog.h"
#include <mysql/service_encryption.h>
#include <mysql/service_thd_wait.h>
#include <atomic>

handlerton *sluice_hton;

/* Exported by the server for engines, declared in none of its headers. */
void ignore_db_dirs_append(const char *dirname_arg);
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other_thd);

sluice_session *sluice_session_if_any(THD *thd)
{
  return static_cast<sluice_session *>(thd_get_ha_data(thd, sluice_hton));
}

sluice_session *sluice_session_of(THD *thd)
{
  sluice_session *session= sluice_session_if_any(thd);
  if (session)
    return session;
  if (sluice_report(thd, sluice_session_open(uint64_t(thd), &session)))
    return nullptr;
  thd_set_ha_data(thd, sluice_hton, session);
  return session;
}

/*
  Nobody else has the table open now. But an XA PREPARED transaction without its session holds no
  metadata lock, and what it wrote must not go with the old trees. At startup, when the DDL log is
  replayed, the statement had waited before the crash.
*/
int sluice_wait_for_prepared(THD *thd, const char *name)
{
  if (!thd || !mysqld_server_started)
    return 0;
  sluice_session *session= sluice_session_of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  return sluice_report(thd, sluice_wait_for_prepared(session, name, sluice_timeout_ms(thd)));
}

static bool in_transaction(THD *thd)
{
  return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
}

void sluice_register(THD *thd)
{
  trans_register_ha(thd, false, sluice_hton, 0);
  if (in_transaction(thd))
    trans_register_ha(thd, true, sluice_hton, 0);
}

int sluice_report(THD *thd, int error)
{
  char text[512];
  if (!error)
    return 0;
  if (sluice_message(text, sizeof text) && thd)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "Sluice: %s", text);
  /* Inside a function or trigger no handler may go on: the outer statement ends as a whole. */
  if ((error == HA_ERR_LOCK_DEADLOCK || error == HA_ERR_LOCK_WAIT_TIMEOUT) && thd)
    thd->mark_transaction_to_rollback(error == HA_ERR_LOCK_DEADLOCK);
  return error;
}

static int commit(THD *thd, bool all)
{
  sluice_session *session= sluice_session_if_any(thd);
  if (!session)
    return 0;
  if (!all && in_transaction(thd))
    return sluice_statement_end(session);
  int error= sluice_commit(session, tc_log == &mysql_bin_log);
  /*
    The server notes next in a log of its own that the copy replaces the table, and does it after a
    crash: the copy is durable before, whatever sluice_flush_log_at_trx_commit promises.
  */
  if (!error && copies_tables(thd_sql_command(thd)) && !sluice_planted("copy"))
    error= sluice_flush_log();
  return sluice_report(thd, error);
}

static int rollback(THD *thd, bool all)
{
  sluice_session *session= sluice_session_if_any(thd);
  if (!session)
    return 0;
  if (all || !in_transaction(thd))
    return sluice_report(thd, sluice_rollback(session));
  return sluice_report(thd, sluice_statement_rollback(session));
}

static void xid_to_abi(const XID *xid, sluice_xid *to)
{
  static_assert(sizeof xid->data == SLUICE_XID_BYTES, "size of an XID");
  to->format= xid->formatID;
  to->gtrid_bytes= xid->gtrid_length;
  to->bqual_bytes= xid->bqual_length;
  memcpy(to->data, xid->data, sizeof to->data);
}

/* Once: nothing tells after a crash whether both parts of this transaction are to stay. */
static void warn_of_replica_without_binlog(THD *thd)
{
  static std::atomic<bool> was_here{false};
  if (thd->slave_thread && tc_log != &mysql_bin_log && !was_here.exchange(true))
    sql_print_warning("Sluice: a replicated transaction writes to Sluice and to another engine, "
                      "maybe only to mysql.gtid_slave_pos, and there is no binary log: a crash "
                      "can keep one part only. Set log_bin, or GTID replication "
                      "with gtid_pos_auto_engines=Sluice");
}

static int prepare(THD *thd, bool all)
{
  sluice_session *session= sluice_session_if_any(thd);
  if (!session)
    return 0;
  if (!all && in_transaction(thd))
    return sluice_statement_end(session);
  XID xid;
  sluice_xid name;
  thd_get_xid(thd, reinterpret_cast<MYSQL_XID *>(&xid));
  xid_to_abi(&xid, &name);
  if (xid.get_my_xid())
    warn_of_replica_without_binlog(thd);
  const bool is_hooked= tc_log == &mysql_bin_log && xid.get_my_xid() && sluice_binlog_is_hooked();
  return sluice_report(thd, sluice_prepare(session, &name, is_hooked));
}

/* In the order of the binary log; maybe in the thread of the group's leader. */
static void commit_ordered(THD *thd, bool all)
{
  sluice_session *session= sluice_session_if_any(thd);
  if (session && (all || !in_transaction(thd)))
    sluice_commit_ordered(session, sluice_binlog_has_covered(thd));
}

static int savepoint_set(THD *thd, void *to)
{
  sluice_session *session= sluice_session_of(thd);
  return session ? sluice_savepoint_set(session, to) : HA_ERR_INTERNAL_ERROR;
}

static int savepoint_rollback(THD *thd, void *to)
{
  sluice_session *session= sluice_session_of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  return sluice_report(thd, sluice_savepoint_rollback(session, to));
}

/*
  After ROLLBACK TO SAVEPOINT the server gives back the metadata locks taken since. What the
  transaction wrote since is taken back; locks of reads stay, and with them the tables.
*/
static bool can_release_metadata_locks(THD *thd)
{
  sluice_session *session= sluice_session_if_any(thd);
  return !session || sluice_holds_no_locks(session);
}

static int savepoint_release(THD *, void *) { return 0; }

static int recover(XID *list, uint room)
{
  std::vector<sluice_xid> found(room);
  size_t count= sluice_recover(found.data(), room);
  for (size_t i= 0; i < count; i++)
    list[i].set(long(found[i].format), reinterpret_cast<const char *>(found[i].data),
                long(found[i].gtrid_bytes),
                reinterpret_cast<const char *>(found[i].data) + found[i].gtrid_bytes,
                long(found[i].bqual_bytes));
  return int(count);
}

static int commit_by_xid(XID *xid)
{
  sluice_xid name;
  xid_to_abi(xid, &name);
  return sluice_report(current_thd, sluice_commit_xid(&name));
}

static int rollback_by_xid(XID *xid)
{
  sluice_xid name;
  xid_to_abi(xid, &name);
  return sluice_report(current_thd, sluice_rollback_xid(&name));
}

static void commit_checkpoint_request(void *cookie) { sluice_binlog_request_checkpoint(cookie); }

static int start_consistent_snapshot(THD *thd)
{
  sluice_session *session= sluice_session_of(thd);
  if (!session)
    return HA_ERR_INTERNAL_ERROR;
  trans_register_ha(thd, true, sluice_hton, 0);
  const int isolation= thd_tx_isolation(thd);
  int error= sluice_statement_start(session, isolation, sluice_timeout_ms(thd));
  if (!error && isolation >= ISO_REPEATABLE_READ)
    error= sluice_open_snapshot(session);
  sluice_statement_end(session);
  return sluice_report(thd, error);
}

static int end_connection(THD *thd)
{
  sluice_session *session= sluice_session_if_any(thd);
  if (!session)
    return 0;
  thd_set_ha_data(thd, sluice_hton, nullptr);
  return sluice_session_close(session);
}

/* Holds THD::LOCK_thd_data: wakes the waiter and does nothing else. */
static void kill_query(handlerton *, THD *thd, thd_kill_levels)
{
  sluice_interrupt(uint64_t(thd));
}

static bool flush_logs(handlerton *) { return sluice_flush_log() != 0; }

struct Status_output
{
  THD *thd;
  stat_print_fn *print;
  bool failed;
};

static void print_status(void *context, const char *text, size_t length)
{
  Status_output *to= static_cast<Status_output *>(context);
  to->failed= to->print(to->thd, STRING_WITH_LEN("Sluice"), "", 0, text, length);
}

static bool show_status(handlerton *, THD *thd, stat_print_fn *print, ha_stat_type type)
{
  if (type != HA_ENGINE_STATUS)
    return false;
  Status_output to= {thd, print, false};
  return sluice_status_text(print_status, &to) || to.failed;
}

/*
  A table that is not there must be reported as such: the server's DDL log, which asks again after
  a crash, takes -1 for a failure and then leaves the .frm file behind.
*/
static int drop_table(handlerton *, const char *path)
{
  if (int error= sluice_wait_for_prepared(current_thd, sluice_name(path)))
    return error;
  int error= sluice_drop_table(sluice_name(path));
  if (error == HA_ERR_NO_SUCH_TABLE)
    return error;
  return sluice_report(current_thd, error);
}

/* What a failed DROP TABLE left behind in a database goes with the database. */
static void drop_database(handlerton *, char *path)
{
  std::string name= path;
  while (!name.empty() && name.back() == '/')
    name.pop_back();
  name= name.substr(name.rfind('/') + 1) + "/";
  if (sluice_session *session= sluice_session_of(current_thd))
    sluice_report(current_thd, sluice_drop_database(session, name.c_str(),
                                                    sluice_timeout_ms(current_thd)));
}

my_bool sluice_allow_backup_stage;

/*
  mariadb-backup begins with BACKUP STAGE START. It would copy the .frm files of Sluice tables, not
  their rows, and report success. `sluice backup` says that it is there before.
*/
static void prepare_for_backup()
{
  if (sluice_makes_hot_backup(current_thd))
  {
    if (!sluice_backup_begin())
      return;
    char text[1024];
    sluice_message(text, sizeof text);
    my_printf_error(ER_GET_ERRMSG, "Sluice: no backup is begun: %s", MYF(0), text);
  }
  else if (!sluice_allow_backup_stage && sluice_table_count())
    my_printf_error(ER_CHECK_NOT_IMPLEMENTED,
                    "Sluice does not support backups with BACKUP STAGE, as mariadb-backup makes "
                    "them: they would lack the rows of Sluice tables. Use sluice backup, dump these, "
                    "or set sluice_allow_backup_stage=ON for tools that read rows by SQL and for "
                    "snapshots of the whole file system",
                    MYF(0));
}

/* BACKUP STAGE END, or the end of the session that began. Commits may be held until this returns. */
static void end_backup() { sluice_backup_end(); }

static handler *create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *root)
{
  return new (root) ha_sluice(hton, share);
}

/* What Rust asks of the server. */

static void host_log(int32_t level, const char *text, size_t length)
{
  if (level == 0)
    sql_print_information("Sluice: %.*s", int(length), text);
  else if (level == 1)
    sql_print_warning("Sluice: %.*s", int(length), text);
  else
    sql_print_error("Sluice: %.*s", int(length), text);
}

static void host_lock_wait(uint64_t waiter, uint64_t holder)
{
  thd_rpl_deadlock_check(reinterpret_cast<THD *>(waiter), reinterpret_cast<THD *>(holder));
}

static void host_wait_begin(uint64_t session)
{
  thd_wait_begin(reinterpret_cast<THD *>(session), THD_WAIT_ROW_LOCK);
}

static void host_wait_end(uint64_t session) { thd_wait_end(reinterpret_cast<THD *>(session)); }

static int32_t host_killed(uint64_t session)
{
  return thd_kill_level(reinterpret_cast<THD *>(session)) != THD_IS_NOT_KILLED;
}

static size_t host_weights(const void *charset, uint32_t levels, uint8_t *to, size_t room,
                           const uint8_t *from, size_t length)
{
  return sluice_weights(static_cast<CHARSET_INFO *>(charset), levels, to, room, from, length);
}

static size_t host_prefix(const void *charset, const uint8_t *from, size_t length, size_t chars)
{
  CHARSET_INFO *cs= static_cast<CHARSET_INFO *>(charset);
  const char *begin= reinterpret_cast<const char *>(from);
  return cs->cset->charpos(cs, begin, begin + length, chars);
}

static uint32_t host_key_newest(uint32_t id) { return encryption_key_get_latest_version(id); }

static uint32_t host_key(uint32_t id, uint32_t version, uint8_t *to, uint32_t room)
{
  unsigned int length= room;
  return encryption_key_get(id, version, to, &length) ? 0 : length;
}

const sluice_host sluice_host_of_server= {
    host_log,           host_lock_wait,      host_wait_begin,     host_wait_end,
    host_killed,        host_weights,        host_prefix,         sluice_psi_file_opened,
    sluice_psi_file_closed, sluice_psi_file_removed, sluice_psi_file_begin, sluice_psi_file_end,
    sluice_psi_pause_begin, sluice_psi_pause_end, sluice_psi_thread_begin, sluice_psi_thread_end,
    host_key_newest,    host_key,
};

struct Library
{
  const void *hton;
  const st_plugin_dl *file;
};

static my_bool find_library(THD *, plugin_ref plugin, void *to)
{
  Library *library= static_cast<Library *>(to);
  const st_plugin_int *found= plugin_ref_to_int(plugin);
  if (found->data == library->hton)
    library->file= found->plugin_dl;
  return 0;
}

static my_bool make_permanent(THD *, plugin_ref plugin, void *file)
{
  st_plugin_int *found= plugin_ref_to_int(plugin);
  if (found->plugin_dl == file)
    found->load_option= PLUGIN_FORCE_PLUS_PERMANENT;
  return 0;
}

/*
  Its threads and sessions live until the server ends: UNINSTALL is refused (error 1702). With all plugins
  of the file: UNINSTALL SONAME would remove those that it may, and then be refused.
*/
void sluice_stay_loaded(handlerton *hton)
{
  Library library= {hton, nullptr};
  plugin_foreach_with_mask(nullptr, find_library, MYSQL_STORAGE_ENGINE_PLUGIN, ~0U, &library);
  if (library.file)
    plugin_foreach_with_mask(nullptr, make_permanent, MYSQL_ANY_PLUGIN, ~0U,
                             const_cast<st_plugin_dl *>(library.file));
}

void sluice_fill_hton(handlerton *hton)
{
  sluice_hton= hton;
  hton->flags= HTON_SUPPORTS_EXTENDED_KEYS;
  hton->db_type= DB_TYPE_AUTOASSIGN;
  hton->create= create_handler;
  hton->close_connection= Trx_callback<end_connection>();
  hton->kill_query= kill_query;
  hton->commit= Trx_callback<commit>();
  hton->rollback= Trx_callback<rollback>();
  hton->prepare= Trx_callback<prepare>();
  hton->commit_ordered= Trx_callback<commit_ordered>();
  hton->savepoint_offset= 16;
  hton->savepoint_set= Trx_callback<savepoint_set>();
  hton->savepoint_rollback= Trx_callback<savepoint_rollback>();
  hton->savepoint_rollback_can_release_mdl= Trx_callback<can_release_metadata_locks>();
  hton->savepoint_release= Trx_callback<savepoint_release>();
  hton->recover= Trx_callback<recover>();
  hton->commit_by_xid= Trx_callback<commit_by_xid>();
  hton->rollback_by_xid= Trx_callback<rollback_by_xid>();
  hton->commit_checkpoint_request= commit_checkpoint_request;
  hton->start_consistent_snapshot= Trx_callback<start_consistent_snapshot>();
  hton->flush_logs= flush_logs;
  hton->pre_shutdown= sluice_binlog_pre_shutdown;
  hton->show_status= show_status;
  hton->drop_table= drop_table;
  hton->check_version= sluice_check_version;
  hton->drop_database= drop_database;
  hton->prepare_for_backup= prepare_for_backup;
  hton->end_backup= end_backup;
  hton->table_options= sluice_table_options;
  sluice_offer_costs(hton);
  /* The engine's directory is not a database. */
  ignore_db_dirs_append(SLUICE_DIRECTORY);
}
