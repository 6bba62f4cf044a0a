# shellcheck shell=bash
# Packages of a newer Debian than this system's. Their programs need newer libraries, the C library
# among them: these lie in the prefix as well (system/), and each program is told to use them, and
# their loader. So a program runs by its name, without a chroot and without a wrapper, which would
# hide its process from those that look for it.

# What the server and its tools are linked with in trixie, and what these libraries need.
NEWER_LIBRARIES=(libc6 libgcc-s1 libstdc++6 libaio1t64 libcrypt1 libnuma1 libpcre2-8-0 libpcre2-posix3
  libssl3t64 libzstd1 libsystemd0 libcap2 liburing2 zlib1g libncurses6 libtinfo6 libedit2 libbsd0 libmd0)
LOADER=lib64/ld-linux-x86-64.so.2

download_libraries() {
  local into=$1
  mkdir -p "$into"
  (cd "$into" && private_apt_get download "${NEWER_LIBRARIES[@]}" >/dev/null) ||
    die "the download of the libraries failed: run this again to resume"
}

is_program() { [[ -f $1 && ! -L $1 ]] && readelf --program-headers "$1" 2>/dev/null | grep -q 'INTERP'; }

# Tells each program below $1 to use the loader and the libraries in $2, an absolute path that holds
# at the end. As RPATH they hold for plugins and whatever else the program loads, too.
use_libraries() {
  local programs=$1 system=$2 file
  while read -r file; do
    is_program "$file" || continue
    patchelf --set-interpreter "$system/usr/$LOADER" --force-rpath \
      --set-rpath "$system/usr/lib/x86_64-linux-gnu" "$file" || die "cannot set the loader of $file"
  done < <(find "$programs" -type f -perm -u+x)
}

# Debian 13 has what older releases have in share/mysql at another place; our tools look there.
link_old_names() {
  local share=$1/share
  [[ -d $share/mysql ]] || ln -s mariadb "$share/mysql"
  [[ -d $share/mysql/mysql-test ]] || ln -s mariadb-test "$share/mysql/mysql-test"
}
