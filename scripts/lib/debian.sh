# shellcheck shell=bash
# Debian: packages this machine must have, and a private apt that downloads
# MariaDB without touching the system's lists, cache or configuration.

# shellcheck disable=SC2034  # the lists of packages are for the sourcing script

SUITE=bookworm # of this system

# Compiler and tools of the build, sysbench for the benchmarks, and the shared
# libraries that the packaged mariadbd and its clients are linked with.
BUILD_PACKAGES=(g++ make binutils dpkg-dev patch perl sysbench)
SERVER_LIBRARIES=(libaio1 libcrypt1 libgcc-s1 libncurses6 libnuma1 libpcre2-8-0 libpcre2-posix3
  libssl3 libstdc++6 libsystemd0 liburing2 zlib1g)

check_debian() {
  { have apt-get && have dpkg; } ||
    die "this is not a Debian-like system (no apt-get): use Debian 12, or a container of it"
  local codename architecture
  architecture=$(dpkg --print-architecture)
  [[ $architecture == amd64 ]] || die "this system is $architecture: Sluice runs on x86-64 (amd64) only"
  codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-unknown}")
  [[ $codename == "$SUITE" ]] ||
    die "the server's packages are built for Debian 12 ($SUITE), this system is '$codename': use a container of Debian 12"
}

# Those of the packages $@ that are not installed, one per line.
missing_packages() {
  local installed name
  # `|| true`: dpkg-query fails when it knows nothing of one of the names.
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for name in "$@"; do
    grep -qx "installed $name" <<<"$installed" || printf '%s\n' "$name"
  done
}

# Installs what is missing as root or through a sudo that asks nothing;
# otherwise names it in one line.
ensure_packages() {
  local missing sudo=()
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    sudo -n true 2>/dev/null || die "missing packages: run 'apt-get install ${missing[*]}' as root"
    sudo=(sudo -n)
  fi
  say "installing packages: ${missing[*]}"
  local install=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive
    apt-get install -y -qq --no-install-recommends "${missing[@]}")
  # The first attempt fails on a machine whose package lists were never loaded.
  "${install[@]}" >/dev/null 2>&1 && return
  "${sudo[@]}" apt-get update -qq >/dev/null 2>&1 || true
  "${install[@]}" >/dev/null || die "could not install: ${missing[*]} (is there a network?)"
}

# The mirror from which this system gets suite $1 main, and the keyring that it
# trusts for it, as "uri<TAB>keyring". Reads both formats of apt's source lists.
system_mirror() {
  local files=() file
  for file in /etc/apt/sources.list.d/*.sources /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [[ -r $file ]] && files+=("$file")
  done
  ((${#files[@]})) || return 0
  awk -v suite="$1" -f "$CHECKOUT/scripts/lib/mirror.awk" "${files[@]}"
}

# The lines of a source list for suite $2 on the mirror that has this system's suite $1.
source_lines() {
  local uri keyring
  IFS=$'\t' read -r uri keyring < <(system_mirror "$1") || true
  [[ -n ${uri:-} ]] || return 0
  [[ -n ${keyring:-} ]] || keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  printf '%s [signed-by=%s] %s %s main\n' deb "$keyring" "$uri" "$2" deb-src "$keyring" "$uri" "$2"
}

# Where the private apt keeps the lists of suite $1. Each suite has its own: the packages' names are
# the same.
apt_root() {
  local root=$SLUICE_CACHE/apt
  [[ $1 == "$SUITE" ]] || root+=-$1
  printf '%s\n' "$root"
}

# Writes the configuration of the private apt for suite $2 under directory $1. Hooks of the
# system's configuration are cleared: they belong to the system's own updates. What this system
# installs from the security suite first comes from there.
write_private_apt() {
  local root=$1 suite=$2
  mkdir -p "$root/lists/partial" "$root/cache/archives/partial"
  source_lines "$SUITE" "$suite" >"$root/sources.list"
  [[ -s $root/sources.list ]] ||
    die "no source of '$SUITE main' in /etc/apt/sources.list or /etc/apt/sources.list.d"
  source_lines "$SUITE-security" "$suite-security" >>"$root/sources.list"
  cat >"$root/apt.conf" <<CONF
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::DEP-11-icons;
#clear Acquire::IndexTargets::deb::DEP-11-icons-small;
#clear Acquire::IndexTargets::deb::DEP-11-icons-hidpi;
#clear Acquire::IndexTargets::deb::DEP-11-icons-large;
#clear Acquire::IndexTargets::deb::DEP-11-icons-large-hidpi;
Dir::Etc::sourcelist "$root/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$root/lists";
Dir::Cache "$root/cache";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "2";
CONF
  PRIVATE_APT_CONF=$root/apt.conf
}

private_apt_get() { apt-get -c "$PRIVATE_APT_CONF" -qq "$@"; }
private_apt_cache() { apt-cache -c "$PRIVATE_APT_CONF" "$@"; }
