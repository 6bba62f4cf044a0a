/*
  Is this the server that the plugin was compiled for? Asked of the headers when it is compiled, of
  the server when it is loaded.
*/
#include "ha_sluice.h"

static constexpr bool is_known(const Sluice_layout &found)
{
  for (const Sluice_layout &known : sluice_layouts)
    if (known.version == found.version)
      return true;
  return false;
}

static constexpr bool is_same(const Sluice_layout &found)
{
  for (const Sluice_layout &known : sluice_layouts)
    if (known.version == found.version)
      return known.handlerton == found.handlerton && known.handler == found.handler &&
             known.thd == found.thd && known.binlog == found.binlog &&
             known.io_cache == found.io_cache;
  return true;
}

/* The compiler names the line in its message: Line<101118, 456, ...>. */
template <unsigned version, size_t... sizes> struct Line
{
  static constexpr Sluice_layout found= {version, sizes...};
  static_assert(is_known(found), "Sluice does not know this release of MariaDB. Adding it is one line "
                                 "in server_compat.h, the numbers of this Line, and one run of the "
                                 "tests: see docs/install.md");
  static_assert(is_same(found), "these headers are not those of the release that server_compat.h "
                                "lists, or other settings changed them: fetch the server anew");
};
template struct Line<MYSQL_VERSION_ID, sizeof(handlerton), sizeof(handler), sizeof(THD),
                     sizeof(MYSQL_BIN_LOG), sizeof(IO_CACHE)>;

/*
  The server refuses a plugin of another release after this, with a message that names neither
  release. scripts/install-plugin looks for this text, too. Not const: else the comparison below
  holds a copy of it, and a test replaces it.
*/
extern char sluice_built_for[];
char sluice_built_for[]= "SLUICE_BUILT_FOR=" MYSQL_SERVER_VERSION;

__attribute__((constructor)) static void compare_releases()
{
  const char *release= strchr(sluice_built_for, '=') + 1;
  char running[SERVER_VERSION_LENGTH];
  /* Not server_version, which --version may set. */
  set_server_version(running, sizeof running);
  const size_t length= strcspn(release, "-");
  if (!strncmp(running, release, length) && !isdigit(running[length]))
    return;
  sql_print_error("Sluice: ha_sluice.so was built for MariaDB %.*s and this server is %s: it is "
                  "refused. Build it for this release: see docs/install.md",
                  int(length), release, running);
}
