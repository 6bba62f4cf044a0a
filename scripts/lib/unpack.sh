# shellcheck shell=bash
# From downloaded packages and source to a complete prefix. Every directory is
# filled beside its final place and then renamed, and READY comes last, so an
# interrupted run leaves nothing that a later one could take for complete.

unpack_packages() {
  local from=$1 to=$2 package
  for package in "$from"/*.deb; do
    dpkg -x "$package" "$to" || die "cannot unpack $package: remove it and run this again"
  done
}

# Keeps of the source tree only what the plugin's compiler reads: patches of the
# distribution may touch headers, so the tree is made by dpkg-source first.
unpack_source() {
  local from=$1 to=$2 tree=$2.tree
  # apt has verified the source against the signed lists; dpkg-source would only
  # add a warning that it lacks the developer's key.
  dpkg-source -q -x --no-check "$from"/mariadb_*.dsc "$tree" >/dev/null ||
    die "cannot unpack the source: remove $from and run this again"
  mkdir -p "$to/scripts"
  (cd "$tree" && tar -cf - include sql/*.h wsrep-lib/include wsrep-lib/wsrep-API/v26 \
    scripts/dheadgen.pl) | tar -xf - -C "$to"
  rm -rf "$tree"
}

# Makes of a borrowed source in $1 what release $VERSION has: the headers of its own package, which is
# unpacked in $2, wherever the source has another copy, and the changes of its patch.
mend_headers() {
  local source=$1 packaged=$2/usr/include/mariadb/server header
  [[ $(source_release "$VERSION") != "$VERSION" ]] || return 0
  while read -r header; do
    cp "$packaged/$header" "$source/include/$header"
  done < <(comm -12 <(cd "$packaged" && find . -type f | sort) <(cd "$source/include" && find . -type f | sort))
  patch --directory "$source" --strip 1 --fuzz 0 --quiet <"$RELEASES/$VERSION.patch" ||
    die "the patch for the headers of $VERSION does not fit the source of $(source_release "$VERSION")"
}

# The one generated header that the development packages do not carry: the
# probes' no-op macros.
generate_headers() {
  local source=$1 to=$2
  mkdir -p "$to"
  cp "$source/include/probes_mysql.d.base" "$to/probes_mysql.d"
  perl "$source/scripts/dheadgen.pl" -f "$to/probes_mysql.d" >"$to/probes_mysql_nodtrace.h"
}

# Relative symlinks: they outlive the rename of the directory that they are made in.
link_stock_plugins() {
  local stock=$1 to=$2 plugin
  mkdir -p "$to"
  for plugin in "$stock"/*.so; do
    ln -s "../usr/lib/mysql/plugin/$(basename "$plugin")" "$to/"
  done
}

write_build_env() {
  local library=$1 major minor patch
  IFS=. read -r major minor patch <<<"$VERSION"
  cat <<ENV
MARIADB_VERSION=$VERSION
MARIADB_VERSION_ID=$(printf '%d%02d%02d' "$major" "$minor" "$patch")
MARIADB_INCLUDE=$SLUICE_PREFIX/gen:$SLUICE_PREFIX/usr/include/mariadb/server:$SLUICE_PREFIX/src/sql:$SLUICE_PREFIX/src/include:$SLUICE_PREFIX/src/wsrep-lib/include:$SLUICE_PREFIX/src/wsrep-lib/wsrep-API/v26
MARIADB_LIBDIR=$(dirname "$library")
ENV
}

write_ready() {
  local include
  include=$(sed -n 's/^MARIADB_INCLUDE=//p' "$SLUICE_PREFIX/build.env")
  cat <<READY
layout=$LAYOUT version=$VERSION
package=$PACKAGE_VERSION
CXXFLAGS=-DMYSQL_DYNAMIC_PLUGIN -DDBUG_OFF -DHAVE_CONFIG_H -fPIC -I ${include//:/ -I }
LIBDIR=$(sed -n 's/^MARIADB_LIBDIR=//p' "$SLUICE_PREFIX/build.env")
READY
}

# The prefix may hold servers' plugin directory or a test tree of an older
# layout: everything that this file makes is replaced, the rest is left alone.
replace_parts() {
  local from=$1 part
  rm -f "$SLUICE_PREFIX/READY"
  for part in usr src gen plugin system; do
    rm -rf "${SLUICE_PREFIX:?}/$part"
    [[ ! -e $from/$part ]] || mv "$from/$part" "$SLUICE_PREFIX/$part"
  done
}

fill_prefix() {
  local from=$SLUICE_CACHE/mariadb/$VERSION staging=$SLUICE_PREFIX/unpacking library
  rm -rf "$staging"
  mkdir -p "$staging"
  say "unpacking the packages"
  unpack_packages "$from" "$staging"
  link_old_names "$staging/usr"
  if is_newer; then
    unpack_packages "$from/libraries" "$staging/system"
    use_libraries "$staging/usr" "$SLUICE_PREFIX/system"
  fi
  say "unpacking the source"
  unpack_source "$from" "$staging/src"
  mend_headers "$staging/src" "$staging"
  generate_headers "$staging/src" "$staging/gen"
  link_stock_plugins "$staging/usr/lib/mysql/plugin" "$staging/plugin"
  replace_parts "$staging"
  rm -rf "$staging"
  library=$(find "$SLUICE_PREFIX/usr/lib" -name libmysqlservices.a | head -n 1)
  [[ -n $library ]] || die "the packages hold no libmysqlservices.a"
  write_build_env "$library" >"$SLUICE_PREFIX/build.env"
  write_ready >"$SLUICE_PREFIX/READY.new"
  mv "$SLUICE_PREFIX/READY.new" "$SLUICE_PREFIX/READY"
}
