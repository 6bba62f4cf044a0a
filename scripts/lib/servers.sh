# shellcheck shell=bash
# Which releases of the server there are: those that the plugin knows, and the
# distribution that has their packages and source.
# shellcheck disable=SC2034

# What is fetched when nothing else is asked for.
DEFAULT_VERSION=10.11.18
SERVER_TABLE=$CHECKOUT/plugin/src/cpp/server_compat.h

# The suite of Debian that has series $1; empty for one that this build does not know.
suite_of() {
  case $1 in
    10.11) echo bookworm ;;
    11.8) echo trixie ;;
  esac
}

# What versions of packages for suite $1 end with: an upgrade of the distribution is one of the package.
distribution_of() {
  case $1 in
    bookworm) echo deb12 ;;
    trixie) echo deb13 ;;
  esac
}

# 10.11.18 as the table has it: 101118.
version_id() {
  local major minor patch
  IFS=. read -r major minor patch <<<"$1"
  printf '%d%02d%02d\n' "$major" "$minor" "$patch"
}

# The line of the release $1 in the plugin's table, its numbers separated by spaces:
# version, sizes of handlerton, handler, THD, MYSQL_BIN_LOG, IO_CACHE.
layout_of() {
  sed -n "s/^ *{\($(version_id "$1"), [0-9, ]*\)},\$/\1/p" "$SERVER_TABLE" | tr -d ,
}

# Those of the versions on standard input that the plugin knows.
known_versions() {
  local version
  while read -r version; do
    [[ -z $(layout_of "$version") ]] || printf '%s\n' "$version"
  done
}

# The prefix of release $1 in directory $2: that of `make build` if it has this release.
prefix_of() {
  if grep -qsE "^layout=.* version=${1//./\\.}$" "$2/.prefix/READY"; then
    printf '%s\n' "$2/.prefix"
  else
    printf '%s\n' "$2/.prefix-$1"
  fi
}
