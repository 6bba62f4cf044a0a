/*
  ha_sluice.so of a package. A build of the plugin fits one release of the server; a package has a
  build for each release that it serves, as sluice/ha_sluice-10.11.18.so beside this file. When the
  server opens this file, the constructor opens the build for this server and takes over the three
  symbols by which a server finds a plugin. The server reads them afterwards.

  1. Without a build the interface version stays 0. No server takes a plugin of that version, so
     nothing of the engine starts. The error log says what is missing.
  2. The path of a build follows from the path of this file and the release of the server, from
     nothing else.
  3. There is no header of the server here, for this file must work in any release. scripts/build-loader
     makes it, scripts/lib/plugin.sh looks whether a server has the two functions.

  docs/decisions/0040-builds-behind-a-loader.md
*/
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the server. Weak: a program without them, which is no server, opens this file all the same. */
__attribute__((weak)) void set_server_version(char *, size_t);
__attribute__((weak)) void sql_print_error(const char *, ...);

/* st_maria_plugin: its first member is the type, which is 0 in the last one. The rest is the build's. */
struct Declaration
{
  alignas(void *) int type;
  char rest[100];
};
static constexpr size_t declarations_max= 8;

extern "C"
{
#define EXPORTED __attribute__((visibility("default")))
EXPORTED int _maria_plugin_interface_version_= 0;
EXPORTED int _maria_sizeof_struct_st_plugin_= sizeof(Declaration);
EXPORTED Declaration _maria_plugin_declarations_[declarations_max]= {};
}

static constexpr const char *package= "mariadb-plugin-sluice";
static constexpr const char *prefix= "ha_sluice-";
static constexpr const char *suffix= ".so";

static void *build;

/* The release of the running server, 10.11.18, and where the builds are. */
struct Place
{
  char release[32];
  char directory[4096];
};

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
  char line[8192];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (sql_print_error)
    sql_print_error("%s", line);
  else
    fprintf(stderr, "%s\n", line);
}

static bool find(Place &place)
{
  Dl_info self;
  if (!dladdr(&build, &self))
    return false;
  const char *slash= strrchr(self.dli_fname, '/');
  const int length= slash ? int(slash - self.dli_fname) : -1;
  if (length < 0 || size_t(length) + 128 > sizeof place.directory)
    return false;
  snprintf(place.directory, sizeof place.directory, "%.*s/sluice", length, self.dli_fname);
  /* Not server_version, which --version may set. */
  if (!set_server_version)
    return false;
  char running[256]= "";
  set_server_version(running, sizeof running);
  const size_t digits= strspn(running, "0123456789.");
  if (!digits || digits >= sizeof place.release)
    return false;
  memcpy(place.release, running, digits);
  place.release[digits]= 0;
  return true;
}

static int is_build(const dirent *entry)
{
  const size_t length= strlen(entry->d_name);
  return length > strlen(prefix) + strlen(suffix) && !strncmp(entry->d_name, prefix, strlen(prefix)) &&
         !strcmp(entry->d_name + length - strlen(suffix), suffix);
}

/* "10.11.18, 10.11.19", in this order, or "none", or why there is no list. */
static void list_builds(const Place &place, char *list, size_t size)
{
  dirent **entries;
  const int count= scandir(place.directory, &entries, is_build, versionsort);
  size_t end= size_t(snprintf(list, size, "%s", count > 0 ? "" : count ? strerror(errno) : "none"));
  for (int i= 0; i < count; i++)
  {
    const char *name= entries[i]->d_name + strlen(prefix);
    if (end < size)
      end+= size_t(snprintf(list + end, size - end, "%s%.*s", i ? ", " : "",
                            int(strlen(name) - strlen(suffix)), name));
    free(entries[i]);
  }
  if (count >= 0)
    free(entries);
}

/* The linker writes the table of sections last. Opening a file that ends before it could be a SIGBUS. */
static bool is_whole(FILE *file)
{
  Elf64_Ehdr header;
  if (fread(&header, sizeof header, 1, file) != 1 || memcmp(header.e_ident, ELFMAG, SELFMAG))
    return false;
  const unsigned long end= header.e_shoff + (unsigned long) header.e_shentsize * header.e_shnum;
  return !fseek(file, 0, SEEK_END) && (unsigned long) ftell(file) >= end;
}

/* Takes over the symbols of the build; false if it has no such symbols. */
static bool take_over()
{
  const int *version= static_cast<int *>(dlsym(build, "_maria_plugin_interface_version_"));
  const int *size= static_cast<int *>(dlsym(build, "_maria_sizeof_struct_st_plugin_"));
  const auto *from= static_cast<Declaration *>(dlsym(build, "_maria_plugin_declarations_"));
  if (!version || !size || !from || *size != sizeof(Declaration))
    return false;
  size_t count= 0;
  while (from[count].type)
    if (++count == declarations_max)
      return false;
  if (!count)
    return false;
  memcpy(_maria_plugin_declarations_, from, count * sizeof *from);
  _maria_plugin_interface_version_= *version;
  return true;
}

/* Why the build at this path cannot be used; null if it is in use now. */
static const char *open_build(const char *path)
{
  FILE *file= fopen(path, "re");
  if (!file)
    return strerror(errno);
  const bool whole= is_whole(file);
  fclose(file);
  if (!whole)
    return "it is damaged: this is not a whole library";
  build= dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!build)
    return dlerror();
  if (take_over())
    return nullptr;
  dlclose(build);
  build= nullptr;
  return "it is no build of Sluice";
}

__attribute__((constructor)) static void choose_build()
{
  Place place;
  if (!find(place))
  {
    say("Sluice: ha_sluice.so does not find out which release of MariaDB has opened it: it is refused");
    return;
  }
  char path[sizeof place.directory + 64], builds[2048];
  snprintf(path, sizeof path, "%s/%s%s%s", place.directory, prefix, place.release, suffix);
  list_builds(place, builds, sizeof builds);
  if (access(path, F_OK))
    say("Sluice: there is no build for MariaDB %s, which this server is (builds in %s: %s). Install a package %s that "
        "has a build for %s, or a server of one of these releases",
        place.release, place.directory, builds, package, place.release);
  else if (const char *why= open_build(path))
    say("Sluice: the build for MariaDB %s, which this server is, cannot be loaded: %s (builds in %s: %s). Install the "
        "package %s again",
        place.release, why, place.directory, builds, package);
}

/* UNINSTALL, and the end of the server. */
__attribute__((destructor)) static void let_go()
{
  if (build)
    dlclose(build);
}
