/*
  The hook in the server's binary log.

  The server writes events through an IO_CACHE; its write function is replaced by one that calls
  the original and hands the same bytes to the log. At the end of a commit group the log is
  flushed in it, before the server lets anyone see the events, and the server's own sync of the
  file is switched off for that group. Everything here that touches the IO_CACHE runs under
  LOCK_log.

  A rotation makes a new IO_CACHE. The server syncs the new file's header before the index names
  the file; the sync calls a callback of this file, which hooks the new IO_CACHE there, with
  LOCK_log held and nothing in the buffer. So no event escapes.
*/
#include "binlog.h"
#include "psi.h"
#include <my_pthread.h>
#include <mysql/service_thd_wait.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <deque>

my_bool sluice_binlog_in_log;
my_bool sluice_binlog_may_abandon;
ulong sluice_binlog_interval_ms;

/* Exported by the server, declared in none of its headers. */
extern uint sync_binlog_period;
void mysql_bin_log_commit_pos(THD *thd, ulonglong *out_pos, const char **out_file);

/* As Fallback in the engine. */
enum { FALLBACK_UNHOOKED= 3, FALLBACK_CALLBACKS= 4 };

/*
  Where MYSQL_BIN_LOG looks up how often to sync: private, but an explicit instantiation may name
  it. Pointing it at a zero leaves @@sync_binlog what the user set.
*/
template <uint *MYSQL_BIN_LOG::*member> struct Sync_period
{
  friend uint *&sync_period_of(MYSQL_BIN_LOG &log) { return log.*member; }
};
uint *&sync_period_of(MYSQL_BIN_LOG &log);
template struct Sync_period<&MYSQL_BIN_LOG::sync_period_ptr>;

static uint never= 0;
static int (*original_write)(IO_CACHE *, const uchar *, size_t);
/* May LOCK_log be touched? Not once the server has begun to shut down. */
static std::atomic<bool> is_watching{false};
/* Under LOCK_log: the current file could not be hooked, and the next one may be. */
static bool is_refused;
static thread_local bool was_called_back;

[[noreturn]] static void end_process(const char *what)
{
  char text[1024];
  sluice_message(text, sizeof text);
  sql_print_error("Sluice: %s: %s. The server ends here: what it has acknowledged is in the log, "
                  "and the binary log is completed from it at the next start",
                  what, text);
  abort();
}

/* mysql_mutex_unlock() would name a function that the server does not export. */
static void unlock(mysql_mutex_t *mutex)
{
  if (mutex->m_psi)
    PSI_server->unlock_mutex(mutex->m_psi);
  pthread_mutex_unlock(&mutex->m_mutex);
}

static bool owns_log_lock()
{
  return mysql_bin_log.get_log_lock()->m_mutex.__data.__owner == int(syscall(SYS_gettid));
}

static int hook_write(IO_CACHE *info, const uchar *buffer, size_t count)
{
  const my_off_t at= info->pos_in_file;
  const bool is_direct= buffer != info->write_buffer;
  const bool is_full= !is_direct && info->write_pos >= info->write_end;
  /*
    A direct write of whole blocks would leave the buffer empty; the flush at the group's end
    would then not call us. One byte stays back.
  */
  if (is_direct && count >= IO_SIZE && count % IO_SIZE == 0)
    count--;
  if (sluice_binlog_before_write())
    end_process("the log cannot be flushed");
  const int error= original_write(info, buffer, count);
  const size_t written= size_t(info->pos_in_file - at);
  uint32_t flags= 0;
  if (is_direct)
    flags|= SLUICE_BINLOG_DIRECT;
  if (is_full)
    flags|= SLUICE_BINLOG_FULL;
  if (error)
    flags|= SLUICE_BINLOG_FAILED;
  if (sync_binlog_period || sluice_flushes_at_commit())
    flags|= SLUICE_BINLOG_SYNC;
  uint32_t verdict= SLUICE_BINLOG_SERVER;
  if (sluice_binlog_wrote(at, buffer, written, flags, &verdict))
    end_process("a group of the binary log cannot be made durable");
  if (verdict != SLUICE_BINLOG_INSIDE)
  {
    sync_period_of(mysql_bin_log)= verdict == SLUICE_BINLOG_DURABLE ? &never : &sync_binlog_period;
    hton2plugin[sluice_hton->slot]->load_option= PLUGIN_FORCE_PLUS_PERMANENT;
  }
  return error;
}

/* Under LOCK_log: hooks the file that the server writes, if it can be. */
static void hook()
{
  IO_CACHE *cache= mysql_bin_log.get_log_file();
  if (cache->type != WRITE_CACHE || !cache->write_function || cache->write_function == hook_write)
    return;
  if (!cache->pos_in_file || cache->write_pos != cache->write_buffer)
    return; /* the header is not written yet */
  sync_period_of(mysql_bin_log)= &sync_binlog_period;
  is_refused= sluice_binlog_opened(mysql_bin_log.get_log_fname(), cache->pos_in_file);
  if (is_refused)
  {
    char text[1024];
    sluice_message(text, sizeof text);
    sql_print_error("Sluice: %s stays out of the log (%s); the server syncs it as sync_binlog says",
                    mysql_bin_log.get_log_fname(), text);
    if (sluice_binlog_lost(FALLBACK_UNHOOKED))
      end_process("the binary log cannot be synced");
    return;
  }
  original_write= cache->write_function;
  cache->write_function= hook_write;
}

static void unhook()
{
  IO_CACHE *cache= mysql_bin_log.get_log_file();
  sync_period_of(mysql_bin_log)= &sync_binlog_period;
  if (cache->type == WRITE_CACHE && cache->write_function == hook_write)
    cache->write_function= original_write;
}

/* What the server has here itself. */
static void plain_before_sync() { thd_wait_begin(nullptr, THD_WAIT_SYNC); }
static void plain_after_sync() { thd_wait_end(nullptr); }

static void before_sync()
{
  was_called_back= true;
  if (mysql_bin_log.get_log_file()->write_function != hook_write && owns_log_lock())
    hook();
  plain_before_sync();
}

bool sluice_binlog_is_hooked()
{
  return mysql_bin_log.get_log_file()->write_function == hook_write;
}

bool sluice_binlog_has_covered(THD *thd)
{
  ulonglong at= 0;
  const char *file= nullptr;
  mysql_bin_log_commit_pos(thd, &at, &file);
  return file && *file && sluice_binlog_covers(file, at);
}

/* The thread: syncs the file, answers checkpoint requests, looks after the hook. */

static pthread_mutex_t thread_lock= PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t thread_wanted= PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static bool is_thread_running, is_thread_to_end;
static std::deque<void *> checkpoint_requests;

/*
  Everything committed so far becomes durable; needs no lock of the server. If that fails, the
  binary log must keep what recovery would need: it is not told that it may forget, and RESET
  MASTER and the shutdown wait, until it succeeds.
*/
static bool answer_checkpoint(void *cookie)
{
  static bool has_failed;
  if (!sluice_flush_log())
  {
    has_failed= false;
    commit_checkpoint_notify_ha(cookie);
    return true;
  }
  char text[512];
  sluice_message(text, sizeof text);
  if (!has_failed)
    sql_print_error("Sluice: the log cannot be flushed (%s); the binary log files up to here are "
                    "kept, and it is tried again", text);
  has_failed= true;
  return false;
}

/* Answers what was asked; what failed is asked again with the next tick. */
static void answer_checkpoints(std::deque<void *> *failed)
{
  std::deque<void *> requests;
  requests.swap(checkpoint_requests);
  pthread_mutex_unlock(&thread_lock);
  requests.insert(requests.begin(), failed->begin(), failed->end());
  failed->clear();
  for (void *cookie : requests)
    if ((!failed->empty() || !answer_checkpoint(cookie)) && !sluice_planted("D7"))
      failed->push_back(cookie);
}

void sluice_binlog_request_checkpoint(void *cookie)
{
  pthread_mutex_lock(&thread_lock);
  const bool running= is_thread_running && !is_thread_to_end;
  if (running)
  {
    checkpoint_requests.push_back(cookie);
    pthread_cond_signal(&thread_wanted);
  }
  pthread_mutex_unlock(&thread_lock);
  /* Without the thread there is no binary log that waits for long. */
  if (!running)
    answer_checkpoint(cookie);
}

static void give_up(uint32_t reason, const char *text)
{
  sql_print_error("Sluice: %s", text);
  if (sluice_binlog_lost(reason))
    end_process("the binary log cannot be synced");
}

/* A sync of no file: only the callback is of interest. */
static bool are_callbacks_ours()
{
  was_called_back= false;
  my_sync(-1, MYF(0));
  return was_called_back;
}

/* The server may be told otherwise at run time. */
static void keep_commits_in_hook()
{
  if (is_watching && sluice_binlog_in_log && sluice_forbid_commit_by_rename())
    sql_print_information("Sluice: binlog_large_commit_threshold is at its maximum, so that large "
                          "transactions do not bypass the log (sluice_persist_binlog_to_redo)");
}

static void look_after_hook()
{
  static bool is_given_up;
  keep_commits_in_hook();
  /* Without syncs there are no callbacks, and nothing is durable anyway. */
  if (is_given_up || !is_watching || my_disable_sync || mysql_mutex_trylock(mysql_bin_log.get_log_lock()))
    return;
  if (is_watching && mysql_bin_log.is_open())
  {
    if (!are_callbacks_ours())
    {
      is_given_up= true;
      is_watching= false;
      unhook();
      give_up(FALLBACK_CALLBACKS, "another component has taken the callbacks of the server's file "
              "syncs: the binary log is not written to the log any more");
    }
    else if (!sluice_binlog_is_hooked() && !is_refused)
    {
      give_up(FALLBACK_UNHOOKED, "the server writes a binary log file that was not hooked: it is "
              "synced and hooked now");
      hook();
    }
  }
  unlock(mysql_bin_log.get_log_lock());
}

/* So often the thread looks whether there is something to do. */
static const ulonglong tick_ns= 100 * 1000000;

static void *run(void *)
{
  ulonglong last_ns= my_interval_timer();
  std::deque<void *> failed;
  my_thread_init();
  sluice_psi_thread_begin(SLUICE_THREAD_BINLOG);
  pthread_mutex_lock(&thread_lock);
  while (!is_thread_to_end)
  {
    struct timespec until;
    set_timespec_nsec(until, std::min(ulonglong(sluice_binlog_interval_ms) * 1000000, tick_ns));
    if (checkpoint_requests.empty())
      pthread_cond_timedwait(&thread_wanted, &thread_lock, &until);
    answer_checkpoints(&failed);
    const ulonglong now_ns= my_interval_timer();
    const bool is_due= now_ns - last_ns >= ulonglong(sluice_binlog_interval_ms) * 1000000;
    if (is_due)
      last_ns= now_ns;
    if (sluice_binlog_step(is_due))
      end_process("the binary log cannot be synced");
    look_after_hook();
    pthread_mutex_lock(&thread_lock);
  }
  pthread_mutex_unlock(&thread_lock);
  sluice_psi_thread_end();
  my_thread_end();
  return nullptr;
}

static int report_start(int error)
{
  char text[1024];
  if (error && sluice_message(text, sizeof text))
    sql_print_error("Sluice: cannot start: %s", text);
  return error;
}

void sluice_binlog_refuse_server(void *hton)
{
  if (!opt_bin_log || mysqld_server_started)
    return;
  char mark[FN_REFLEN];
  fn_format(mark, opt_bin_logname, mysql_data_home, ".sluice", MY_UNPACK_FILENAME);
  if (access(mark, F_OK))
    return;
  sql_print_error("Sluice: the server must not start without it: the end of the binary log may be "
                  "in its log only (%s)", mark);
  sluice_stay_loaded(static_cast<handlerton *>(hton));
}

static int complete_files()
{
  char base[FN_REFLEN];
  uint32_t flags= 0;
  if (opt_bin_log)
    fn_format(base, opt_bin_logname, mysql_data_home, "", MY_UNPACK_FILENAME);
  if (sluice_binlog_in_log && !my_disable_sync)
    flags|= SLUICE_BINLOG_ON;
  if (sluice_binlog_may_abandon)
    flags|= SLUICE_BINLOG_ABANDON;
  if (mysqld_server_started)
    flags|= SLUICE_BINLOG_RUNNING;
  return sluice_binlog_start(opt_bin_log ? mysql_bin_log.get_index_fname() : nullptr,
                             opt_bin_log ? base : nullptr, flags);
}

int sluice_binlog_plugin_start()
{
  if (report_start(complete_files()))
    return 1;
  if (!mysqld_server_started && report_start(sluice_binlog_skip_scan()))
    return 1;
  if (!opt_bin_log)
    return 0;
  thr_set_sync_wait_callback(before_sync, plain_after_sync);
  is_watching= true;
  keep_commits_in_hook();
  if (mysqld_server_started)
  {
    mysql_mutex_lock(mysql_bin_log.get_log_lock());
    if (mysql_bin_log.is_open() && owns_log_lock())
      hook();
    unlock(mysql_bin_log.get_log_lock());
  }
  if (pthread_create(&thread, nullptr, run, nullptr))
  {
    sql_print_error("Sluice: cannot start the thread that syncs the binary log");
    sluice_binlog_plugin_stop();
    return 1;
  }
  is_thread_running= true;
  return 0;
}

void sluice_binlog_pre_shutdown() { is_watching= false; }

int sluice_binlog_plugin_stop()
{
  if (!opt_bin_log)
    return 0;
  if (is_thread_running)
  {
    pthread_mutex_lock(&thread_lock);
    is_thread_to_end= true;
    pthread_cond_signal(&thread_wanted);
    pthread_mutex_unlock(&thread_lock);
    pthread_join(thread, nullptr);
    is_thread_running= is_thread_to_end= false;
  }
  /* Still watching: the plugin goes, the server stays. */
  if (is_watching.exchange(false))
  {
    mysql_mutex_lock(mysql_bin_log.get_log_lock());
    unhook();
    unlock(mysql_bin_log.get_log_lock());
  }
  thr_set_sync_wait_callback(plain_before_sync, plain_after_sync);
  return sluice_binlog_stop();
}

/* The caller holds LOCK_global_system_variables, which comes after LOCK_log. */
void sluice_binlog_switch()
{
  if (!is_watching)
    return;
  unlock(&LOCK_global_system_variables);
  mysql_mutex_lock(mysql_bin_log.get_log_lock());
  if (!sluice_binlog_in_log)
    sync_period_of(mysql_bin_log)= &sync_binlog_period;
  if (sluice_binlog_set_on(sluice_binlog_in_log && !my_disable_sync))
    end_process("the binary log cannot be synced");
  unlock(mysql_bin_log.get_log_lock());
  mysql_mutex_lock(&LOCK_global_system_variables);
}
