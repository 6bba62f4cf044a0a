/*
  Instruments of performance_schema: files, waits and threads of the engine. When the schema is
  off, the server's functions do nothing and no file is watched.
*/
#include <my_global.h>
#include <mysql/psi/psi.h>
#include "psi.h"

/* In the order of the enumerations in src/watch.rs and engine/src/os/observe.rs. */
static PSI_file_key file_keys[6];
static PSI_file_info file_infos[]= {
    {&file_keys[0], "log", 0},         {&file_keys[1], "log_control", 0},
    {&file_keys[2], "pages", 0},       {&file_keys[3], "page_map", 0},
    {&file_keys[4], "superblock", 0},  {&file_keys[5], "binlog", 0},
};

static PSI_cond_key pause_keys[4];
static PSI_cond_info pause_infos[]= {
    {&pause_keys[0], "log_flush", 0}, {&pause_keys[1], "row_lock", 0},
    {&pause_keys[2], "log_room", 0},  {&pause_keys[3], "frame", 0},
};
static PSI_cond *pauses[array_elements(pause_infos)];

static PSI_thread_key thread_keys[12];
static PSI_thread_info thread_infos[]= {
    {&thread_keys[0], "log", PSI_FLAG_GLOBAL},    {&thread_keys[1], "check", PSI_FLAG_GLOBAL},
    {&thread_keys[2], "gc", PSI_FLAG_GLOBAL},     {&thread_keys[3], "evict", PSI_FLAG_GLOBAL},
    {&thread_keys[4], "revert", PSI_FLAG_GLOBAL}, {&thread_keys[5], "purge", PSI_FLAG_GLOBAL},
    {&thread_keys[6], "move", PSI_FLAG_GLOBAL},   {&thread_keys[7], "redo", 0},
    {&thread_keys[8], "stats", PSI_FLAG_GLOBAL},  {&thread_keys[9], "binlog", PSI_FLAG_GLOBAL},
    {&thread_keys[10], "age", PSI_FLAG_GLOBAL},   {&thread_keys[11], "read", 0},
};

static_assert(array_elements(file_infos) == array_elements(file_keys), "");
static_assert(array_elements(pause_infos) == array_elements(pause_keys), "");
static_assert(array_elements(thread_infos) == array_elements(thread_keys), "");
static_assert(sizeof(PSI_file_locker_state) <= sizeof(sluice_watch::state), "");
static_assert(sizeof(PSI_cond_locker_state) <= sizeof(sluice_watch::state), "");

void sluice_psi_register()
{
  PSI_server->register_file("sluice", file_infos, array_elements(file_infos));
  PSI_server->register_cond("sluice", pause_infos, array_elements(pause_infos));
  PSI_server->register_thread("sluice", thread_infos, array_elements(thread_infos));
  for (size_t i= 0; i < array_elements(pauses); i++)
    pauses[i]= PSI_server->init_cond(pause_keys[i], &pauses[i]);
}

void *sluice_psi_file_opened(uint32_t kind, const char *path)
{
  PSI_file_locker_state state;
  PSI_file_locker *locker= PSI_server->get_thread_file_name_locker(
      &state, file_keys[kind], PSI_FILE_STREAM_OPEN, path, &locker);
  if (!locker)
    return nullptr;
  PSI_server->start_file_open_wait(locker, __FILE__, __LINE__);
  return PSI_server->end_file_open_wait(locker, &state);
}

void sluice_psi_file_closed(void *file)
{
  PSI_file_locker_state state;
  PSI_file_locker *locker= PSI_server->get_thread_file_stream_locker(
      &state, static_cast<PSI_file *>(file), PSI_FILE_STREAM_CLOSE);
  if (!locker)
    return;
  PSI_server->start_file_close_wait(locker, __FILE__, __LINE__);
  PSI_server->end_file_close_wait(locker, 0);
}

void sluice_psi_file_removed(const char *path)
{
  PSI_file_locker_state state;
  PSI_file_locker *locker= PSI_server->get_thread_file_name_locker(
      &state, file_keys[0], PSI_FILE_DELETE, path, &locker);
  if (!locker)
    return;
  PSI_server->start_file_close_wait(locker, __FILE__, __LINE__);
  PSI_server->end_file_close_wait(locker, 0);
}

void sluice_psi_file_begin(void *file, uint32_t operation, size_t bytes, sluice_watch *watch)
{
  static const PSI_file_operation operations[]= {PSI_FILE_READ, PSI_FILE_WRITE, PSI_FILE_SYNC,
                                                 PSI_FILE_CHSIZE};
  PSI_file_locker *locker= PSI_server->get_thread_file_stream_locker(
      reinterpret_cast<PSI_file_locker_state *>(watch->state), static_cast<PSI_file *>(file),
      operations[operation]);
  watch->locker= locker;
  if (locker)
    PSI_server->start_file_wait(locker, bytes, __FILE__, __LINE__);
}

void sluice_psi_file_end(size_t bytes, sluice_watch *watch)
{
  if (watch->locker)
    PSI_server->end_file_wait(static_cast<PSI_file_locker *>(watch->locker), bytes);
}

void sluice_psi_pause_begin(uint32_t what, sluice_watch *watch)
{
  watch->locker= nullptr;
  if (pauses[what])
    watch->locker= PSI_server->start_cond_wait(
        reinterpret_cast<PSI_cond_locker_state *>(watch->state), pauses[what], nullptr,
        PSI_COND_WAIT, __FILE__, __LINE__);
}

void sluice_psi_pause_end(sluice_watch *watch)
{
  if (watch->locker)
    PSI_server->end_cond_wait(static_cast<PSI_cond_locker *>(watch->locker), 0);
}

void sluice_psi_thread_begin(uint32_t which)
{
  PSI_server->set_thread(PSI_server->new_thread(thread_keys[which], nullptr, 0));
}

void sluice_psi_thread_end() { PSI_server->delete_current_thread(); }
