# shellcheck shell=bash
# What packages and tarballs share: the builds of plugin, loader and program, their version, their licences.
# The plugin is compiled for each of the chosen servers; a loader chooses among the builds when a server
# starts (docs/decisions/0040).
#
#   PACK_RELEASES      releases of one series, lowest first; default: all that the plugin knows of the default series
#   PACK_PREFIXES      the directory with their prefixes, .prefix or .prefix-<release>; default: the checkout
#   PACK_VERSION       in place of the version that Cargo.toml and the commit give
#   PACK_OUT           the directory for what is made
#   PACK_COMPILED=DIR  packs what is in DIR in place of compiling: builds/ha_sluice-<release>.so, the loader
#                      ha_sluice.so, and release/sluice. A run that compiles leaves them in target/deb/cargo
#   SOURCE_DATE_EPOCH  in place of the time of the commit
#
# Equal sources give equal bytes wherever the checkout, the prefixes and cargo's directory are: the
# compilers write other names for them, so this compilation has a target directory of its own.
# shellcheck disable=SC2034

# Sets RELEASES, SERIES, SERVER_RELEASES ("10.11.18 and 10.11.19"), PREFIXES, BUILT, UPSTREAM and
# SOURCE_DATE_EPOCH. Stops here if something is missing.
prepare_packing() {
  local list release
  check_debian
  check_rust
  list=$("$CHECKOUT/scripts/known-releases")
  read -ra RELEASES <<<"${PACK_RELEASES:-${list//$'\n'/ }}"
  SERIES=${RELEASES[0]%.*}
  for release in "${RELEASES[@]}"; do
    [[ $release == "$SERIES".* ]] || die "a package is for releases of one series, not for ${RELEASES[*]}"
  done
  SERVER_RELEASES=$(printf '%s, ' "${RELEASES[@]}" | sed 's/, $//; s/, \([^,]*\)$/ and \1/')
  PREFIXES=$(cd "${PACK_PREFIXES:-$CHECKOUT}" && pwd) || die "no directory ${PACK_PREFIXES:-}"
  date_of_sources
  UPSTREAM=${PACK_VERSION:-$(upstream_version)}
  BUILT=${PACK_COMPILED:-$TARGET_DIR/deb/cargo}
  if [[ -n ${PACK_COMPILED:-} ]]; then check_compiled; fi
}

date_of_sources() {
  local commit
  if [[ -z ${SOURCE_DATE_EPOCH:-} ]]; then
    commit=$(git -C "$CHECKOUT" log -1 --format=%ct 2>/dev/null) ||
      die "$CHECKOUT has no commit that tells a version: set SOURCE_DATE_EPOCH and PACK_VERSION"
    SOURCE_DATE_EPOCH=$commit
  fi
  [[ $SOURCE_DATE_EPOCH =~ ^[0-9]+$ ]] || die "SOURCE_DATE_EPOCH is a number of seconds, not '$SOURCE_DATE_EPOCH'"
  export SOURCE_DATE_EPOCH
}

# 0.1.0 at its tag; between tags with the time of the commit, so that a later build is an upgrade.
upstream_version() {
  local version
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$CHECKOUT/Cargo.toml" | head -n 1)
  [[ $(git -C "$CHECKOUT" tag --points-at HEAD 2>/dev/null) == *"v$version"* ]] ||
    version+=$(date -u -d "@$SOURCE_DATE_EPOCH" '+~git%Y%m%d.%H%M%S')
  printf '%s\n' "$version"
}

check_compiled() {
  local release file
  for file in "${RELEASES[@]/#/builds/ha_sluice-}"; do
    [[ -r $BUILT/$file.so ]] || die "$BUILT has no $file.so: without PACK_COMPILED it is compiled"
  done
  for file in ha_sluice.so release/sluice; do
    [[ -r $BUILT/$file ]] || die "$BUILT has no $file: without PACK_COMPILED it is compiled"
  done
}

# Plugin, loader and program in BUILT.
compile_unless_compiled() {
  [[ -z ${PACK_COMPILED:-} ]] || return 0
  fetch_servers
  compile
}

fetch_servers() {
  local release
  for release in "${RELEASES[@]}"; do
    SLUICE_PREFIX=$(prefix_of "$release" "$PREFIXES") SLUICE_MARIADB_VERSION=$release \
      "$CHECKOUT/scripts/fetch-mariadb" ||
      die "nothing made for MariaDB ${RELEASES[*]}, for $release cannot be had: SERVER=<release> makes it for one"
  done
}

# Sets FLAGS and RUST: the compilers name these directories otherwise. The last one that fits counts, and
# .prefix is the beginning of .prefix-10.11.18.
name_otherwise() {
  local pairs=("$CHECKOUT=/usr/src/sluice" "$BUILT=/usr/src/target") release pair
  for release in "${RELEASES[@]}"; do
    pairs+=("$(prefix_of "$release" "$PREFIXES")=/usr/src/mariadb")
  done
  pairs+=("${CARGO_HOME:-$HOME/.cargo}=/usr/src/cargo")
  mapfile -t pairs < <(printf '%s\n' "${pairs[@]}" | awk -F = '{ print length($1), $0 }' | sort -n | cut -d ' ' -f 2-)
  FLAGS=(-fstack-protector-strong -D_FORTIFY_SOURCE=2)
  RUST=()
  for pair in "${pairs[@]}"; do
    FLAGS+=("-ffile-prefix-map=$pair")
    RUST+=("--remap-path-prefix=$pair")
  done
}

# The same packages and flags each time, so that only what differs is compiled again.
compile_for() {
  local release=$1 SLUICE_PREFIX
  SLUICE_PREFIX=$(prefix_of "$release" "$PREFIXES")
  export SLUICE_PREFIX
  say "cargo build --release for MariaDB $release in $BUILT"
  (cd "$CHECKOUT" && CARGO_TARGET_DIR=$BUILT RUSTFLAGS="${RUST[*]}" CFLAGS="${FLAGS[*]}" CXXFLAGS="${FLAGS[*]}" \
    cargo build --release --locked -p ha_sluice -p sluice)
  CHECK_ONLY=1 "$CHECKOUT/scripts/install-plugin" "$BUILT/release/libha_sluice.so"
  cp "$BUILT/release/libha_sluice.so" "$BUILT/builds/ha_sluice-$release.so"
}

compile() {
  local release prefixes=() binary
  name_otherwise
  rm -rf "$BUILT/builds"
  mkdir -p "$BUILT/builds"
  for release in "${RELEASES[@]}"; do
    compile_for "$release"
    prefixes+=("$(prefix_of "$release" "$PREFIXES")")
  done
  CXXFLAGS="${FLAGS[*]}" "$CHECKOUT/scripts/build-loader" "$BUILT/ha_sluice.so" "${prefixes[@]}"
  # Such a name makes other bytes in another directory.
  for binary in "$BUILT"/builds/*.so "$BUILT/ha_sluice.so" "$BUILT/release/sluice"; do
    ! grep -qF "$CHECKOUT" "$binary" || die "$binary has the name $CHECKOUT in it"
  done
}

# The licences of the crates that package $1 is linked with; that under MIT where there are several.
licences() {
  local name version directory file
  while read -r name version _; do
    directory=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -maxdepth 2 -name "$name-${version#v}" | head -n 1)
    [[ -n $directory ]] || continue
    file=$(find "$directory" -maxdepth 1 -iname '*licen[cs]e*' | sort |
      awk '/MIT/ { best = $0 } { any = any ? any : $0 } END { print best ? best : any }')
    printf '\n%s %s\n\n' "$name" "$version"
    # Without a file of its own it is under a licence that asks for no copy, such as MIT-0.
    if [[ -n $file ]]; then cat "$file"; else grep '^license' "$directory/Cargo.toml"; fi
  done < <(cd "$CHECKOUT" &&
    cargo tree --locked -p "$1" --edges normal,no-proc-macro --prefix none --no-dedupe | sort -u)
}
