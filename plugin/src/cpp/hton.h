#ifndef SLUICE_HTON_H
#define SLUICE_HTON_H
#include "ha_sluice.h"

#define SLUICE_DIRECTORY "sluice"

extern const sluice_host sluice_host_of_server;
extern my_bool sluice_allow_backup_stage;
/* False if the server has other layouts than those that the plugin was compiled with: nothing may start. */
bool sluice_fits_server();
bool sluice_makes_hot_backup(THD *thd);
void sluice_fill_hton(handlerton *hton);
void sluice_stay_loaded(handlerton *hton);

#endif
