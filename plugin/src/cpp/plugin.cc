/*
  The plugin as the server sees it: declaration, system variables, status variables.
*/
#include "ha_sluice.h"
#include "hton.h"
#include "binlog.h"
#include "psi.h"
#include <mysql/plugin.h>

static ulonglong buffer_pool_size;
static ulonglong log_capacity;
static char *log_dir;
static ulong flush_log_at_trx_commit;
static char *compression;
static ulong log_compression;
static ulong space_amplification_pct;
static ulong encrypt;
static ulong encryption_key_id;
static ulong rotate_key_age;
static my_bool page_deltas;

static const char *log_compression_names[]= {"none", "lz4", "zstd", "auto", NullS};
static TYPELIB log_compression_typelib=
  {4, "log_compression", log_compression_names, nullptr};

/* The numbers are those of sluice_config; 0 and 1 have always been OFF and ON. */
static const char *encrypt_names[]= {"OFF", "ON", "TABLES", NullS};
static TYPELIB encrypt_typelib= {3, "encrypt", encrypt_names, nullptr};

static void update_flush_mode(THD *, st_mysql_sys_var *, void *to, const void *value)
{
  *static_cast<ulong *>(to)= *static_cast<const ulong *>(value);
  sluice_set_flush_at_commit(uint32_t(flush_log_at_trx_commit));
}

static void update_buffer_pool(THD *, st_mysql_sys_var *, void *to, const void *value)
{
  *static_cast<ulonglong *>(to)= *static_cast<const ulonglong *>(value);
  sluice_set_buffer_pool_bytes(buffer_pool_size);
}

static void update_log_capacity(THD *, st_mysql_sys_var *, void *to, const void *value)
{
  *static_cast<ulonglong *>(to)= *static_cast<const ulonglong *>(value);
  sluice_set_log_capacity_bytes(log_capacity);
}

static void update_log_compression(THD *, st_mysql_sys_var *, void *to, const void *value)
{
  *static_cast<ulong *>(to)= *static_cast<const ulong *>(value);
  sluice_set_log_compression(uint32_t(log_compression));
}

static void update_space_amplification(THD *, st_mysql_sys_var *, void *to, const void *value)
{
  *static_cast<ulong *>(to)= *static_cast<const ulong *>(value);
  sluice_set_space_amplification(uint32_t(space_amplification_pct));
}

static void update_page_deltas(THD *, st_mysql_sys_var *, void *to, const void *value)
{
  *static_cast<my_bool *>(to)= *static_cast<const my_bool *>(value);
  sluice_set_page_deltas(uint32_t(page_deltas));
}

static void update_rotate_key_age(THD *, st_mysql_sys_var *, void *to, const void *value)
{
  *static_cast<ulong *>(to)= *static_cast<const ulong *>(value);
  sluice_set_rotate_key_age(uint32_t(rotate_key_age));
}

static MYSQL_SYSVAR_ULONGLONG(buffer_pool_size, buffer_pool_size, PLUGIN_VAR_RQCMDARG,
    "Memory for pages of Sluice tables and indexes, in bytes", nullptr, update_buffer_pool,
    128ULL << 20, 4ULL << 20, ULONGLONG_MAX, 1ULL << 20);

static MYSQL_SYSVAR_ULONGLONG(log_capacity, log_capacity, PLUGIN_VAR_RQCMDARG,
    "Size that checkpoints keep the Sluice log below, in bytes. Long transactions and old "
    "snapshots may hold more. A larger log means fewer page writes and a longer recovery",
    nullptr, update_log_capacity, 512ULL << 20, 16ULL << 20, ULONGLONG_MAX, 1ULL << 20);

static MYSQL_SYSVAR_STR(log_dir, log_dir, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
    "Directory of the Sluice log; by default log/ in the directory sluice/ of the data "
    "directory. Must not change while the log holds what is not in the pages yet",
    nullptr, nullptr, nullptr);

static MYSQL_SYSVAR_ULONG(flush_log_at_trx_commit, flush_log_at_trx_commit, PLUGIN_VAR_RQCMDARG,
    "When a commit is durable, as innodb_flush_log_at_trx_commit. 1: before it is answered; "
    "2: handed to the operating system then, synced about once a second; "
    "0: written and synced about once a second",
    nullptr, update_flush_mode, 1, 0, 2, 0);

static MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
    "Seconds that a statement waits for a row lock before it fails with error 1205. "
    "NOWAIT and WAIT n of a statement go before it",
    nullptr, nullptr, 50, 0, 100000000, 0);

static MYSQL_THDVAR_ULONGLONG(bulk_insert_size, PLUGIN_VAR_RQCMDARG,
    "INSERT ... SELECT and LOAD DATA of more bytes than this, into a table that has had no row since it "
    "was made, load it: pages are written once and full, and other sessions wait to insert until the "
    "transaction ends. Index entries count as at least 80 bytes",
    nullptr, nullptr, 1ULL << 20, 0, ULONGLONG_MAX, 1);

static MYSQL_SYSVAR_STR(compression, compression, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
    "Compression of the pages of new tables, as COMPRESSION of a table: none, lz4, zstd (level 3) or "
    "zstd:N (1 to 22)", nullptr, nullptr, "lz4");

static MYSQL_SYSVAR_ENUM(log_compression, log_compression, PLUGIN_VAR_RQCMDARG,
    "Compression of what is written to the Sluice log from now on: none, lz4, zstd (level 1), or "
    "auto: zstd while the buffer pool holds a part of the pages only, else lz4",
    nullptr, update_log_compression, 3, &log_compression_typelib);

/* As SPACE_PERCENT and its limits in engine/src/store/policy.rs. */
static MYSQL_SYSVAR_ULONG(space_amplification_pct, space_amplification_pct, PLUGIN_VAR_RQCMDARG,
    "Disk space that the pages of Sluice tables may take in the long run, in percent of what the "
    "newest version of each page needs. Less space costs more writes: garbage collection copies "
    "more. See docs/using.md",
    nullptr, update_space_amplification, 160, 110, 400, 0);

static MYSQL_SYSVAR_BOOL(page_deltas, page_deltas, PLUGIN_VAR_OPCMDARG,
    "Where memory for the changes of pages is scarce, log all changes of a page since its image together, "
    "in place of an image: fewer bytes are written, and more processor time is used, as a page that is "
    "not in memory then takes two reads",
    nullptr, update_page_deltas, 0);

static MYSQL_SYSVAR_ENUM(encrypt, encrypt, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
    "What Sluice encrypts with a key of the server's key management. ON: pages, log and temporary "
    "files of all tables. TABLES: log and temporary files, and pages of tables with ENCRYPTED=YES. "
    "OFF: nothing. What is there already is written anew in the background: see "
    "sluice_encryption_rotate_key_age",
    nullptr, nullptr, SLUICE_ENCRYPT_OFF, &encrypt_typelib);

static MYSQL_SYSVAR_ULONG(encryption_key_id, encryption_key_id,
    PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "The key of the server's key management that sluice_encrypt encrypts with",
    nullptr, nullptr, 1, 1, UINT_MAX32, 0);

static MYSQL_SYSVAR_ULONG(encryption_rotate_key_age, rotate_key_age, PLUGIN_VAR_RQCMDARG,
    "Write pages anew in the background that are under a key so many versions old, or older, as "
    "innodb_encryption_rotate_key_age; and those that are plain though sluice_encrypt says that "
    "they are encrypted, or encrypted though it is OFF. 0: leave all as they are. Status variables "
    "Sluice_encryption_% say what is left",
    nullptr, update_rotate_key_age, 1, 0, UINT_MAX32, 0);

static my_bool stats_auto_recalc;
static ulonglong stats_sample_pages;

static void update_statistics()
{
  sluice_set_statistics(stats_auto_recalc, stats_sample_pages);
}

static void update_auto_recalc(THD *, st_mysql_sys_var *, void *to, const void *value)
{
  *static_cast<my_bool *>(to)= *static_cast<const my_bool *>(value);
  update_statistics();
}

static void update_sample_pages(THD *, st_mysql_sys_var *, void *to, const void *value)
{
  *static_cast<ulonglong *>(to)= *static_cast<const ulonglong *>(value);
  update_statistics();
}

static MYSQL_SYSVAR_BOOL(stats_auto_recalc, stats_auto_recalc, PLUGIN_VAR_OPCMDARG,
    "Refresh the statistics of a table in the background when a tenth of its rows has changed, as "
    "innodb_stats_auto_recalc",
    nullptr, update_auto_recalc, 1);

static MYSQL_SYSVAR_ULONGLONG(stats_sample_pages, stats_sample_pages, PLUGIN_VAR_RQCMDARG,
    "Leaf pages that statistics read for each part of a key, as "
    "innodb_stats_persistent_sample_pages. STATS_SAMPLE_PAGES of a table goes before it in ANALYZE",
    nullptr, update_sample_pages, 20, 1, 100000, 0);

static void update_binlog_in_log(THD *, st_mysql_sys_var *, void *to, const void *value)
{
  *static_cast<my_bool *>(to)= *static_cast<const my_bool *>(value);
  sluice_binlog_switch();
}

/* As the server checks a value of this type; then what ON needs is made ready, or ON is refused. */
static int check_binlog_in_log(THD *, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  static const char *names[]= {"OFF", "ON", NullS};
  static TYPELIB typelib= {2, "", names, nullptr};
  longlong number= 0;
  if (value->value_type(value) == MYSQL_VALUE_TYPE_STRING)
  {
    char buffer[16], name[16];
    int length= sizeof buffer;
    const char *text= value->val_str(value, buffer, &length);
    if (!text || length <= 0 || size_t(length) >= sizeof name)
      return 1;
    strmake(name, text, size_t(length));
    if ((number= find_type(name, &typelib, FIND_TYPE_BASIC) - 1) < 0)
      return 1;
  }
  else if (value->val_int(value, &number) < 0 || number < 0 || number > 1)
    return 1;
  *static_cast<my_bool *>(save)= my_bool(number);
  if (!number || !sluice_binlog_prepare_switch())
    return 0;
  char text[1024];
  sluice_message(text, sizeof text);
  my_printf_error(ER_UNKNOWN_ERROR, "Sluice: sluice_persist_binlog_to_redo stays OFF: %s", MYF(0), text);
  return 1;
}

static MYSQL_SYSVAR_BOOL(persist_binlog_to_redo, sluice_binlog_in_log, PLUGIN_VAR_OPCMDARG,
    "Write the events of the binary log to the Sluice log too: one flush of the log makes a commit "
    "group durable, and the binary log files are synced in the background and completed from the "
    "log after a crash. While it is ON the server does not sync them, whatever sync_binlog says",
    check_binlog_in_log, update_binlog_in_log, 1);

static MYSQL_SYSVAR_BOOL(abandon_binlog, sluice_binlog_may_abandon,
    PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
    "Start although the binary log files whose end the Sluice log holds since a crash are missing, "
    "or others. No file is changed then; what the log holds of them is given up, but no row: "
    "transactions that they have are committed. For one start",
    nullptr, nullptr, 0);

static MYSQL_SYSVAR_ULONG(sync_binlog_interval, sluice_binlog_interval_ms, PLUGIN_VAR_RQCMDARG,
    "Milliseconds between background syncs of the binary log files",
    nullptr, nullptr, 50, 1, 10000, 0);

static MYSQL_SYSVAR_BOOL(skip_binlog_scan, sluice_skip_binlog_scan,
    PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
    "After a crash, take the GTID state and the XIDs of the binary log from the Sluice log where it "
    "has them, so that the server need not read its last binary log. The result is the same",
    nullptr, nullptr, 1);

static MYSQL_SYSVAR_BOOL(allow_backup_stage, sluice_allow_backup_stage, PLUGIN_VAR_OPCMDARG,
    "Let BACKUP STAGE START succeed while there are Sluice tables. mariadb-backup does not copy "
    "their rows; ON is for tools that read rows by SQL, as mydumper, and for snapshots of the "
    "whole file system",
    nullptr, nullptr, 0);

static MYSQL_THDVAR_BOOL(hot_backup, PLUGIN_VAR_OPCMDARG,
    "BACKUP STAGE START of this session keeps the files of Sluice as a copy needs them, until "
    "BACKUP STAGE END. For `sluice backup`, which sets it: mariadb-backup does not copy these files",
    nullptr, nullptr, 0);

bool sluice_makes_hot_backup(THD *thd) { return thd && THDVAR(thd, hot_backup); }

uint32_t sluice_encrypts() { return uint32_t(encrypt); }

bool sluice_flushes_at_commit() { return flush_log_at_trx_commit == 1; }

extern "C" {
st_mysql_sys_var *sluice_plugin_variables[]= {
    MYSQL_SYSVAR(persist_binlog_to_redo), MYSQL_SYSVAR(sync_binlog_interval),
    MYSQL_SYSVAR(skip_binlog_scan), MYSQL_SYSVAR(abandon_binlog),
    MYSQL_SYSVAR(buffer_pool_size), MYSQL_SYSVAR(log_capacity),
    MYSQL_SYSVAR(log_dir),          MYSQL_SYSVAR(flush_log_at_trx_commit),
    MYSQL_SYSVAR(lock_wait_timeout), MYSQL_SYSVAR(compression),
    MYSQL_SYSVAR(log_compression), MYSQL_SYSVAR(space_amplification_pct),
    MYSQL_SYSVAR(encrypt),         MYSQL_SYSVAR(encryption_key_id),
    MYSQL_SYSVAR(encryption_rotate_key_age),
    MYSQL_SYSVAR(allow_backup_stage), MYSQL_SYSVAR(hot_backup),
    MYSQL_SYSVAR(stats_auto_recalc), MYSQL_SYSVAR(stats_sample_pages),
    MYSQL_SYSVAR(bulk_insert_size), MYSQL_SYSVAR(page_deltas),
    nullptr,
};
}

/* The server puts NOWAIT and WAIT n of a statement into lock_wait_timeout. */
uint64_t sluice_timeout_ms(THD *thd)
{
  uint64_t seconds= THDVAR(thd, lock_wait_timeout);
  return MY_MIN(seconds, uint64_t(thd->variables.lock_wait_timeout)) * 1000;
}

uint64_t sluice_bulk_insert_bytes(THD *thd) { return THDVAR(thd, bulk_insert_size); }

static int show_values(THD *thd, SHOW_VAR *variable, void *, system_status_var *, enum_var_type)
{
  const size_t room= 256;
  variable->type= SHOW_ARRAY;
  SHOW_VAR *list= static_cast<SHOW_VAR *>(thd_calloc(thd, (room + 1) * sizeof(SHOW_VAR)));
  sluice_status_value *values=
      static_cast<sluice_status_value *>(thd_alloc(thd, room * sizeof(sluice_status_value)));
  size_t count= list && values ? sluice_status(values, room) : 0;
  for (size_t i= 0; i < count; i++)
  {
    list[i].name= values[i].name;
    list[i].value= reinterpret_cast<char *>(&values[i].value);
    list[i].type= SHOW_ULONGLONG;
  }
  variable->value= reinterpret_cast<char *>(list);
  return 0;
}

extern "C" {
st_mysql_show_var sluice_plugin_status[]= {
    {"Sluice", reinterpret_cast<char *>(&show_values), SHOW_FUNC},
    {nullptr, nullptr, SHOW_LONG},
};

/*
  A replica keeps its position in a table. In another engine than the transaction's, a crash may
  keep one part only where no binary log decides. The server makes a table of its own for each
  engine of this list when it is first needed; it reads the list after the plugins have started.
*/
static void keep_replica_positions_here()
{
  static char name[]= "Sluice";
  if (!mysqld_server_started && (!gtid_pos_auto_engines || !*gtid_pos_auto_engines))
    gtid_pos_auto_engines= name;
}

int sluice_plugin_start(void *hton)
{
  if (!sluice_fits_server())
    return 1;
  if (sluice_binlog_wants_retry())
    return HA_ERR_RETRY_INIT;
  static char data_dir[FN_REFLEN];
  strxnmov(data_dir, sizeof data_dir - 1, mysql_real_data_home, "/" SLUICE_DIRECTORY, NullS);
  sluice_config config= {};
  config.data_dir= data_dir;
  config.log_dir= log_dir;
  config.buffer_pool_bytes= buffer_pool_size;
  config.log_capacity_bytes= log_capacity;
  config.flush_at_commit= uint32_t(flush_log_at_trx_commit);
  if (!compression || !sluice_compression(compression, &config.compression))
  {
    sql_print_error("Sluice: cannot start: sluice_compression is '%s', and must be none, lz4, zstd or "
                    "zstd:N with a level N from 1 to 22", compression ? compression : "");
    sluice_binlog_refuse_server(hton);
    return 1;
  }
  config.log_compression= uint32_t(log_compression);
  config.space_amplification_pct= uint32_t(space_amplification_pct);
  config.encrypts= uint32_t(encrypt);
  config.encryption_key_id= uint32_t(encryption_key_id);
  config.rotate_key_age= uint32_t(rotate_key_age);
  config.page_deltas= page_deltas;
  sluice_fill_hton(static_cast<handlerton *>(hton));
  sluice_psi_register();
  if (!sluice_start(&config, &sluice_host_of_server))
  {
    update_statistics();
    if (!sluice_drop_temporary_tables())
    {
      if (!sluice_binlog_plugin_start())
      {
        sluice_stay_loaded(static_cast<handlerton *>(hton));
        keep_replica_positions_here();
        if (const uint64_t tables= sluice_table_count())
          sql_print_information("Sluice: mariadb-backup does not copy the %llu Sluice tables of "
                                "this server: use sluice backup, or dump them", ulonglong(tables));
        return 0;
      }
      sluice_stop();
      sluice_binlog_refuse_server(hton);
      return 1;
    }
  }
  char text[1024];
  sluice_message(text, sizeof text);
  sql_print_error("Sluice: cannot start: %s", text);
  sluice_binlog_refuse_server(hton);
  return 1;
}

int sluice_plugin_stop(void *)
{
  const int binlog_error= sluice_binlog_plugin_stop();
  if (!binlog_error && !sluice_stop())
    return 0;
  char text[1024];
  sluice_message(text, sizeof text);
  sql_print_error("Sluice: shutdown: %s", text);
  return 1;
}

/* What src/declare.rs puts into the declaration of the plugin. */
static_assert(MARIA_PLUGIN_INTERFACE_VERSION == 0x010f, "as in declare.rs");
static_assert(sizeof(st_maria_plugin) == 104, "as in declare.rs");
static_assert(offsetof(st_maria_plugin, init) == 48 && offsetof(st_maria_plugin, maturity) == 96,
              "as in declare.rs");
static_assert(MYSQL_STORAGE_ENGINE_PLUGIN == 1 && PLUGIN_LICENSE_GPL == 1 &&
                  MariaDB_PLUGIN_MATURITY_EXPERIMENTAL == 1,
              "as in declare.rs");

st_mysql_storage_engine sluice_plugin_engine= {MYSQL_HANDLERTON_INTERFACE_VERSION};
}
