/*
  What differs between the server releases that the plugin is compiled for. Nothing else tests the
  version of the server (plugin/tests/servers.rs looks after that).
*/
#ifndef SLUICE_SERVER_COMPAT_H
#define SLUICE_SERVER_COMPAT_H
#include <mysql_version.h>
#include <stddef.h>

/*
  Wrong layouts compile silently: each known release is listed with its sizes, as its headers have
  them. build.rs and scripts/fetch-mariadb read this table, too. server_release.cc compares it with
  the headers, scripts/install-plugin with the server itself.
*/
struct Sluice_layout
{
  unsigned version;
  size_t handlerton, handler, thd, binlog, io_cache;
};

constexpr Sluice_layout sluice_layouts[]= {
    /* Adding a release is one line here and one run of the tests: docs/install.md. */
    {101118, 456, 1328, 27312, 4440, 240},
};

#endif
