/*
  Is this the server that the plugin was compiled for? Asked of the headers when it is compiled, of
  the server when it is loaded.
*/
#include "ha_sluice.h"
#include "hton.h"
#include "log.h"
#include <dlfcn.h>
#include <link.h>

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

/*
  A server of the same release that was compiled with other options may have other layouts: it loads
  the plugin, which then damages memory. scripts/install-plugin asks the same of the server's program.
  Not const: a test replaces the sizes.
*/
struct Sluice_sizes
{
  char name[16];
  size_t thd, binlog;
};
extern Sluice_sizes sluice_sizes;
Sluice_sizes sluice_sizes= {"SLUICE_SIZES_OF", sizeof(THD), sizeof(MYSQL_BIN_LOG)};

/* The size of what the server's symbol at this place names; 0: it has no symbol there. */
static size_t size_at(const void *place)
{
  Dl_info where;
  const ElfW(Sym) *symbol= nullptr;
  if (!place || !dladdr1(place, &where, (void **) &symbol, RTLD_DL_SYMENT) || !symbol || where.dli_saddr != place)
    return 0;
  return symbol->st_size;
}

/* Does this server give so many bytes to a new THD? The function has them as a number, for %esi or %edi. */
static bool makes_thd_of(size_t bytes)
{
  const auto *code= static_cast<const uchar *>(dlsym(RTLD_DEFAULT, "_Z21create_background_thdv"));
  const size_t length= size_at(code);
  for (size_t at= 0; at + 5 <= length; at++)
    if ((code[at] == 0xbe || code[at] == 0xbf) && uint4korr(code + at + 1) == bytes)
      return true;
  return false;
}

static bool fits;

bool sluice_fits_server() { return fits; }

static void compare_layouts(const char *running)
{
  const size_t binlog= size_at(&mysql_bin_log);
  fits= binlog == sluice_sizes.binlog && makes_thd_of(sluice_sizes.thd);
  if (!fits)
    sql_print_error("Sluice: this server, %s, was compiled with other options than the one that ha_sluice.so was "
                    "built for (MYSQL_BIN_LOG has %zu bytes, %zu in the plugin; THD has %s%zu): it is refused. Build "
                    "the plugin for this server, or install that server: see docs/install.md",
                    running, binlog, sluice_sizes.binlog, makes_thd_of(sluice_sizes.thd) ? "" : "not ",
                    sluice_sizes.thd);
}

__attribute__((constructor)) static void compare_releases()
{
  const char *release= strchr(sluice_built_for, '=') + 1;
  char running[SERVER_VERSION_LENGTH];
  /* Not server_version, which --version may set. */
  set_server_version(running, sizeof running);
  const size_t length= strcspn(release, "-");
  if (!strncmp(running, release, length) && !isdigit(running[length]))
    return compare_layouts(running);
  sql_print_error("Sluice: ha_sluice.so was built for MariaDB %.*s and this server is %s: it is "
                  "refused. Build it for this release: see docs/install.md",
                  int(length), release, running);
}
