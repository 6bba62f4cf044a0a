#ifndef SLUICE_PSI_H
#define SLUICE_PSI_H
#include "sluice_abi.h"

/* The thread of the plugin that is not one of the engine's (src/watch.rs counts those). */
enum { SLUICE_THREAD_BINLOG= 9 };

/* Before anything else of this file. */
void sluice_psi_register();

void *sluice_psi_file_opened(uint32_t kind, const char *path);
void sluice_psi_file_closed(void *file);
void sluice_psi_file_removed(const char *path);
void sluice_psi_file_begin(void *file, uint32_t operation, size_t bytes, sluice_watch *watch);
void sluice_psi_file_end(size_t bytes, sluice_watch *watch);
void sluice_psi_pause_begin(uint32_t what, sluice_watch *watch);
void sluice_psi_pause_end(sluice_watch *watch);
void sluice_psi_thread_begin(uint32_t which);
void sluice_psi_thread_end();

#endif
