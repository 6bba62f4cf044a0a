/*
  Tables as a whole: create, open, drop, rename, truncate, check.
*/
#include "ha_sluice.h"
#include "my_check_opt.h"

const char *sluice_name(const char *path)
{
  /* In the server's directory for temporary files; names are unique while it runs. */
  const char *base= strrchr(path, '/');
  if (base && !strncmp(base + 1, STRING_WITH_LEN("#sql-temptable-")))
    return base + 1;
  if (path[0] == '.' && path[1] == '/')
    return path + 2;
  /* An absolute path: the last two components name the table. */
  const char *end= path + strlen(path);
  int slashes= 0;
  while (end > path)
  {
    if (end[-1] == '/' && ++slashes == 2)
      return end;
    end--;
  }
  return path;
}

ha_sluice::ha_sluice(handlerton *hton, TABLE_SHARE *share) : Sluice_costs(hton, share) {}

ha_sluice::~ha_sluice()
{
  if (m_handler)
    sluice_close(m_handler);
}

handler::Table_flags ha_sluice::table_flags() const
{
  /*
    At READ COMMITTED only what is written already keeps others from the same value, and what a
    statement has read may change before its commit. At higher levels it may not, so the statements,
    in the order of their commits, make the same rows elsewhere.
  */
  const Table_flags of_level= thd_tx_isolation(ha_thd()) <= ISO_READ_COMMITTED
                                  ? HA_CHECK_UNIQUE_AFTER_WRITE
                                  : HA_BINLOG_STMT_CAPABLE;
  return of_level | HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_CAN_SQL_HANDLER |
         HA_CAN_VIRTUAL_COLUMNS | HA_CAN_GEOMETRY |
         HA_REQUIRES_KEY_COLUMNS_FOR_DELETE | HA_PRIMARY_KEY_REQUIRED_FOR_POSITION |
         HA_PRIMARY_KEY_IN_READ_INDEX | HA_TABLE_SCAN_ON_INDEX | HA_BINLOG_ROW_CAPABLE |
         HA_CAN_SKIP_LOCKED | HA_CRASH_SAFE | HA_ONLINE_ANALYZE |
         /* BACKUP STAGE FLUSH and BLOCK_DDL let writers go on; BLOCK_COMMIT holds their commits. */
         HA_CAN_ONLINE_BACKUPS |
         /* Without it OPTIMIZE asks for a lock against readers before it asks the handler. */
         HA_CONCURRENT_OPTIMIZE;
}

ulong ha_sluice::index_flags(uint key, uint, bool) const
{
  ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY;
  return key == table_share->primary_key ? flags | HA_CLUSTERED_INDEX : flags;
}

int ha_sluice::open(const char *name, int, uint)
{
  /* So that an UPDATE of the key it scans collects its rows first. */
  key_used_on_scan= table_share->primary_key;
  ref_length= is_hidden() ? 8 : table->key_info[table_share->primary_key].key_length;
  Sluice_description description(table);
  m_name= sluice_name(name);
  int error= sluice_open(m_name.c_str(), description.get(), &m_handler);
  if (error)
    return failed(error);
  return info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST);
}

int ha_sluice::close()
{
  int error= m_handler ? sluice_close(m_handler) : 0;
  m_handler= nullptr;
  return error;
}

/* Whom sluice_host asks whether it was killed. */
static uint64_t asked(THD *thd) { return reinterpret_cast<uint64_t>(thd); }

int ha_sluice::create(const char *name, TABLE *form, HA_CREATE_INFO *info)
{
  if (sluice_refuse(form, info))
    return HA_ERR_UNSUPPORTED;
  Sluice_description description(form);
  ulonglong start= info->auto_increment_value ? info->auto_increment_value : 1;
  uint32_t compression= SLUICE_COMPRESSION_DEFAULT;
  const ha_table_option_struct *options= form->s->option_struct;
  if (options && options->compression && !sluice_compression(options->compression, &compression))
  {
    my_error(ER_WRONG_VALUE_FOR_VAR, MYF(0), "COMPRESSION", options->compression);
    return HA_WRONG_CREATE_OPTION;
  }
  uint32_t flags= info->tmp_table() ? SLUICE_CREATE_TEMPORARY : 0;
  if (options && options->encrypted == SLUICE_ENCRYPTED_YES)
    flags|= SLUICE_CREATE_ENCRYPTED;
  int error= sluice_create_table(asked(ha_thd()), sluice_name(name), description.get(), start,
                                 compression, flags);
  return error ? failed(error) : 0;
}

ha_create_table_option sluice_table_options[]= {
    HA_TOPTION_STRING("COMPRESSION", compression),
    HA_TOPTION_ENUM("ENCRYPTED", encrypted, "DEFAULT,YES,NO", SLUICE_ENCRYPTED_DEFAULT),
    HA_TOPTION_END,
};

/* "none", "lz4", "zstd", "zstd:9" */
bool sluice_compression(const char *text, uint32_t *to)
{
  if (!strcasecmp(text, "none"))
    *to= 0;
  else if (!strcasecmp(text, "lz4"))
    *to= 1;
  else if (!strcasecmp(text, "zstd"))
    *to= 2 | 3 << 8;
  else
  {
    char *end= nullptr;
    long level= strncasecmp(text, "zstd:", 5) ? 0 : strtol(text + 5, &end, 10);
    if (!end || *end || !my_isdigit(&my_charset_latin1, text[5]) || level < 1 || level > 22)
      return false;
    *to= 2 | uint32_t(level) << 8;
  }
  return true;
}

int ha_sluice::delete_table(const char *name)
{
  if (int error= sluice_wait_for_prepared(ha_thd(), sluice_name(name)))
    return error;
  int error= sluice_drop_table(sluice_name(name));
  return error == HA_ERR_NO_SUCH_TABLE ? ENOENT : done(error);
}

int ha_sluice::rename_table(const char *from, const char *to)
{
  if (int error= sluice_wait_for_prepared(ha_thd(), sluice_name(from)))
  {
    /* The server would say "Error on rename" and hide the reason; InnoDB says it as well. */
    if (error == HA_ERR_LOCK_WAIT_TIMEOUT)
      my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
    return error;
  }
  return done(sluice_rename_table(asked(ha_thd()), sluice_name(from), sluice_name(to)));
}

int ha_sluice::truncate()
{
  if (int error= sluice_wait_for_prepared(ha_thd(), m_name.c_str()))
    return error;
  int error= sluice_truncate_table(asked(ha_thd()), m_name.c_str());
  return done(error ? error : sluice_lock(m_handler, m_lock, SLUICE_WAIT));
}

static void print_fault(void *context, const char *text, size_t length)
{
  push_warning_printf(static_cast<THD *>(context), Sql_condition::WARN_LEVEL_WARN,
                      ER_NOT_KEYFILE, "Sluice: %.*s", int(length), text);
}

/* MEDIUM, EXTENDED and CHANGED are the full check. */
int ha_sluice::check(THD *thd, HA_CHECK_OPT *options)
{
  uint32_t quick= (options->flags & T_QUICK) != 0;
  int error= sluice_check_table(m_handler, quick, print_fault, thd);
  if (!error)
    return check_for_upgrade(options);
  sluice_report(thd, error);
  return error == HA_ERR_CRASHED ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
}

/* Other weights of a collation: entries are not in the order that the server expects. */
int ha_sluice::check_for_upgrade(HA_CHECK_OPT *)
{
  return sluice_is_stale(m_handler) ? HA_ADMIN_NEEDS_ALTER : HA_ADMIN_OK;
}

/* "Table does not support optimize, doing recreate + analyze instead" */
int ha_sluice::optimize(THD *, HA_CHECK_OPT *) { return HA_ADMIN_TRY_ALTER; }

void ha_sluice::update_create_info(HA_CREATE_INFO *info)
{
  if (!table->found_next_number_field)
  {
    /* AUTO_INCREMENT=n means nothing then, and SHOW CREATE TABLE does not say it. */
    info->auto_increment_value= 0;
    return;
  }
  if (info->used_fields & HA_CREATE_USED_AUTO)
    return;
  this->info(HA_STATUS_AUTO);
  info->auto_increment_value= stats.auto_increment_value;
}

/* Names, defaults and comments are the server's alone; all else needs a copy of the table. */
bool ha_sluice::check_if_incompatible_data(HA_CREATE_INFO *info, uint changes)
{
  const ha_table_option_struct *old= table_share->option_struct, *now= info->option_struct;
  const char *before= old && old->compression ? old->compression : "";
  const char *after= now && now->compression ? now->compression : "";
  const uint was= old ? old->encrypted : uint(SLUICE_ENCRYPTED_DEFAULT);
  const uint is= now ? now->encrypted : uint(SLUICE_ENCRYPTED_DEFAULT);
  if (strcmp(before, after) || was != is)
    return COMPATIBLE_DATA_NO;
  const ulonglong ours= HA_CREATE_USED_AUTO | HA_CREATE_USED_ROW_FORMAT |
                        HA_CREATE_USED_KEY_BLOCK_SIZE | HA_CREATE_USED_DATADIR |
                        HA_CREATE_USED_INDEXDIR;
  return changes != IS_EQUAL_YES || info->used_fields & ours ? COMPATIBLE_DATA_NO
                                                             : COMPATIBLE_DATA_YES;
}
