# shellcheck shell=bash
# What every script of this directory shares: where things are, and how to speak.
# Sourced, never run; not every script uses every variable.
# shellcheck disable=SC2034

# BASH_SOURCE[1] is the script that sources this file.
SCRIPT_NAME=$(basename "${BASH_SOURCE[1]}")
CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
SLUICE_PREFIX=${SLUICE_PREFIX:-$CHECKOUT/.prefix}
SLUICE_CACHE=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/sluice
TARGET_DIR=${CARGO_TARGET_DIR:-$CHECKOUT/target}

say() { printf '%s: %s\n' "$SCRIPT_NAME" "$*"; }
die() {
  printf '%s: error: %s\n' "$SCRIPT_NAME" "$*" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# Holds an exclusive lock on file $1 until the script ends: two builds that
# share a cache or a prefix take turns instead of writing over each other.
take_lock() {
  local file=$1 fd
  mkdir -p "$(dirname "$file")"
  exec {fd}>"$file"
  flock --nonblock "$fd" && return
  say "waiting for another build that holds $file"
  flock "$fd"
}
