#ifndef SLUICE_BINLOG_H
#define SLUICE_BINLOG_H
#include "hton.h"

/* The values of sluice_persist_binlog_to_redo and sluice_sync_binlog_interval. */
extern my_bool sluice_binlog_in_log;
extern ulong sluice_binlog_interval_ms;
/* sluice_flush_log_at_trx_commit is 1. */
bool sluice_flushes_at_commit();

/* The value of sluice_abandon_binlog. */
extern my_bool sluice_binlog_may_abandon;
/*
  The plugin cannot start. If the log holds the end of the binary log, the server must not either:
  its scan would roll back what other engines have acknowledged.
*/
void sluice_binlog_refuse_server(void *hton);

/* 0: the hook is in place, or there is no binary log. */
int sluice_binlog_plugin_start();
int sluice_binlog_plugin_stop();
/* The value of sluice_skip_binlog_scan. */
extern my_bool sluice_skip_binlog_scan;
/* Before anything is started: shall other engines be started first? Once. */
bool sluice_binlog_wants_retry();
/* Does what the server's scan of the completed file would do, if it can. Not 0: cannot start. */
int sluice_binlog_skip_scan();
/* The variable has changed; takes LOCK_log. */
void sluice_binlog_switch();
/* From now on the server's mutexes of the binary log may be destroyed. */
void sluice_binlog_pre_shutdown();

/* Will the hook see the events of a transaction that is prepared now? */
bool sluice_binlog_is_hooked();
/* Did it see those of this one? To be asked in commit_ordered: the server forgets the position. */
bool sluice_binlog_has_covered(THD *thd);
/* Answers a commit checkpoint request when the log is durable, from another thread. */
void sluice_binlog_request_checkpoint(void *cookie);

#endif
