/*
  After a crash the server reads the whole of its last binary log: for the GTID state and for the
  XIDs of transactions that engines have prepared. Where the log knows both, all that is done here
  before the server opens its binary log, and the file is left as after a clean shutdown.

  Everything is asked first and changed then; in doubt nothing is changed, and the server scans.
*/
#include "binlog.h"
#include <semisync_slave.h>
#include <wsrep_mysqld.h>
#include <algorithm>
#include <vector>

my_bool sluice_skip_binlog_scan;

namespace {
struct In_doubt
{
  handlerton *hton;
  XID xid;
  bool is_in_binlog;
};

struct Search
{
  std::vector<In_doubt> found;
  const char *obstacle= nullptr;
};

/* Other engines that the server would ask, but that cannot be asked yet. */
my_bool is_ready(THD *, plugin_ref plugin, void *to)
{
  if (plugin_state(plugin) == PLUGIN_IS_UNINITIALIZED || plugin_state(plugin) == PLUGIN_IS_DYING)
    ++*static_cast<uint *>(to);
  return false;
}

uint count_unready()
{
  uint count= 0;
  plugin_foreach_with_mask(nullptr, is_ready, MYSQL_STORAGE_ENGINE_PLUGIN,
                           PLUGIN_IS_UNINITIALIZED | PLUGIN_IS_DYING, &count);
  return count;
}

void ask(handlerton *hton, bool is_ours, Search *search)
{
  /* Engines begin again after a list that was not filled. */
  const uint room= MAX_XID_LIST_SIZE;
  std::vector<XID> list(room);
  const int got= sluice_call(hton, hton->recover, list.data(), room);
  if (got == int(room))
    search->obstacle= "an engine has too many prepared transactions";
  for (int i= 0; i < got; i++)
  {
    const my_xid xid= list[i].get_my_xid();
    if (!xid)
      continue; /* of a user's XA: stays prepared */
    const int32_t decision= sluice_binlog_decide(xid, is_ours);
    if (decision < 0)
      search->obstacle= "the log does not know for certain what became of a prepared transaction";
    search->found.push_back({hton, list[i], decision == 1});
  }
}

my_bool ask_plugin(THD *, plugin_ref plugin, void *to)
{
  handlerton *hton= plugin_hton(plugin);
  if (hton && hton != sluice_hton && hton->recover)
    ask(hton, false, static_cast<Search *>(to));
  return false;
}

const char *obstacle_of_server()
{
  if (!sluice_skip_binlog_scan)
    return "sluice_skip_binlog_scan is OFF";
  if (tc_heuristic_recover)
    return "tc_heuristic_recover is set";
  if (global_rpl_semi_sync_slave_enabled)
    return "a semi-synchronous replica may have to truncate it";
  if (WSREP_ON)
    return "wsrep is ON";
  if (count_unready() > 1) /* one is this engine */
    return "not every engine could be asked for prepared transactions";
  return nullptr;
}

/* As the server declares a variable of a plugin with a value of this type. */
struct Ulong_variable
{
  MYSQL_PLUGIN_VAR_HEADER;
  const ulong *value;
};

/* InnoDB's flush_logs goes by its own variable. In doubt commits may be lost with the power. */
bool commits_may_be_lost(handlerton *hton)
{
  st_mysql_sys_var **list= hton2plugin[hton->slot]->plugin->system_vars;
  for (; list && *list; list++)
  {
    const auto *variable= reinterpret_cast<const Ulong_variable *>(*list);
    const int kind= variable->flags & (0x7f | PLUGIN_VAR_THDLOCAL); /* type, and whose */
    /* 3 flushes at prepare as well. */
    if (kind == PLUGIN_VAR_LONG && !strcmp(variable->name, "innodb_flush_log_at_trx_commit"))
      return *variable->value != 1 && *variable->value != 3;
  }
  return true;
}

/* What each engine has decided is durable when this returns. */
const char *resolve(const Search &search)
{
  for (const In_doubt &it : search.found)
  {
    XID xid= it.xid;
    const int error= sluice_call(
        it.hton, it.is_in_binlog ? it.hton->commit_by_xid : it.hton->rollback_by_xid, &xid);
    if (error)
      return "an engine did not end a prepared transaction";
  }
  for (const In_doubt &it : search.found)
    if (it.hton != sluice_hton && it.hton->flush_logs && it.hton->flush_logs(it.hton))
      return "an engine could not flush its log";
  return nullptr;
}

const char *skip(Search *search)
{
  ask(sluice_hton, true, search);
  plugin_foreach(nullptr, ask_plugin, MYSQL_STORAGE_ENGINE_PLUGIN, search);
  for (const In_doubt &it : search->found)
    if (it.hton != sluice_hton && commits_may_be_lost(it.hton))
      search->obstacle= "another engine's part of a transaction would not be durable at once";
  return search->obstacle ? search->obstacle : resolve(*search);
}
}

bool sluice_binlog_wants_retry()
{
  static bool was_here;
  if (was_here || mysqld_server_started)
    return false;
  was_here= true;
  return count_unready() > 1;
}

static my_bool find_innodb(THD *, plugin_ref plugin, void *to)
{
  handlerton *hton= plugin_hton(plugin);
  if (hton && hton->db_type == DB_TYPE_INNODB)
    *static_cast<handlerton **>(to)= hton;
  return false;
}

/* The binary log is whole after a crash; what InnoDB has of it, InnoDB's own flushes say. */
static void warn_of_innodb()
{
  handlerton *innodb= nullptr;
  plugin_foreach(nullptr, find_innodb, MYSQL_STORAGE_ENGINE_PLUGIN, &innodb);
  if (innodb && commits_may_be_lost(innodb))
    sql_print_error("Sluice: after this crash InnoDB may lack the last transactions that the binary "
                    "log and its replicas have: innodb_flush_log_at_trx_commit is not 1. Compare "
                    "InnoDB's tables with a replica, or apply what they lack from the binary log "
                    "(mariadb-binlog --start-position), and set the variable to 1");
}

/* The server will not look where these were written: those that the binary log has are committed. */
static int commit_aside()
{
  Search search;
  if (tc_heuristic_recover)
    return 0;
  ask(sluice_hton, true, &search);
  plugin_foreach(nullptr, ask_plugin, MYSQL_STORAGE_ENGINE_PLUGIN, &search);
  const auto is_left= [](const In_doubt &it) { return !it.is_in_binlog; };
  search.found.erase(std::remove_if(search.found.begin(), search.found.end(), is_left),
                     search.found.end());
  if (const char *error= resolve(search))
  {
    sql_print_error("Sluice: cannot start: %s", error);
    return 1;
  }
  sql_print_information("Sluice: %zu prepared transactions committed that the binary log has",
                        search.found.size());
  return 0;
}

int sluice_binlog_skip_scan()
{
  char ddl_log[FN_REFLEN], text[1024];
  fn_format(ddl_log, opt_ddl_recovery_file, mysql_data_home, ".log", MYF(MY_REPLACE_EXT));
  const int32_t known= sluice_binlog_scan_known(ddl_log);
  if (known < 0)
    return 1;
  if (known == SLUICE_SCAN_NOTHING)
    return 0;
  warn_of_innodb();
  if (known == SLUICE_SCAN_ASIDE)
    return commit_aside();
  if (known == SLUICE_SCAN_LEFT)
    return 0;
  Search search;
  const char *obstacle= obstacle_of_server();
  if (!obstacle)
    obstacle= skip(&search);
  if (obstacle && !opt_bin_log)
    return commit_aside();
  if (obstacle)
  {
    sql_print_information("Sluice: the binary log is left to the server's scan: %s", obstacle);
    return 0;
  }
  if (sluice_binlog_close_completed())
    return 1;
  size_t committed= 0;
  for (const In_doubt &it : search.found)
    committed+= it.is_in_binlog;
  snprintf(text, sizeof text, "%zu prepared transactions committed, %zu rolled back", committed,
           search.found.size() - committed);
  sql_print_information("Sluice: the binary log is complete and need not be scanned; %s", text);
  return 0;
}
