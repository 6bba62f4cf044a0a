# shellcheck shell=bash
# Will a server be able to load a plugin? By the symbols of both.

# The names of dynamic symbols in the files $@, $1 being defined or undefined.
# Symbol versions are cut off: the plugin asks for them by the same name. Weak references
# count (plugin/build.rs says why), but for those of zstd and of the compiler's start files.
symbols() {
  local kind=$1
  shift
  nm --dynamic --"$kind"-only --format=posix --no-demangle "$@" 2>/dev/null |
    awk 'NF >= 2 { sub(/@.*/, "", $1) } NF >= 2 && $1 !~ /^(ZSTD_trace_|_ITM_|__gmon_start__$)/ { print $1 }' |
    sort -u
}

# Every library that the loader would bring in for the given programs.
libraries_of() {
  ldd "$@" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^\t\(\/[^ ]*\) (0x.*/\1/p' | sort -u
}

# An undefined symbol that nobody defines makes the server refuse the plugin, so
# it is found here, by name, instead of at the next start of a server. $2 is the server's prefix.
check_symbols() {
  local plugin=$1 server=$2/usr/sbin/mariadbd missing libraries
  mapfile -t libraries < <(libraries_of "$server" "$plugin")
  missing=$(comm -23 <(symbols undefined "$plugin") \
    <(symbols defined "$server" "${libraries[@]}"))
  [[ -z $missing ]] && return
  die "nothing defines these symbols of $(basename "$plugin"): $(head -n 10 <<<"$missing" | c++filt | paste -sd' ')"
}

check_is_plugin() {
  grep -qx _maria_plugin_declarations_ <(symbols defined "$1") ||
    die "$1 declares no MariaDB plugin: is the handler compiled into it?"
}
