# shellcheck shell=bash
# Runs a script on a file system of its own, in memory, that ends with it.
# Sourced, never run.

# Starts this script again with the arguments given, in a mount namespace of its own with a tmpfs
# on $RUN_DIR, when the system lets us and has the memory; otherwise goes on. The losses of power
# are made by the harness, so nothing needs a real disk, and a busy one would take half of the time.
on_tmpfs() {
  [[ -z ${SLUICE_RUN_DIR:-} ]] || { RUN_DIR=$SLUICE_RUN_DIR; return; }
  RUN_DIR=$(mktemp -d "${TMPDIR:-/tmp}/sluice-$SCRIPT_NAME.XXXXXX")
  export SLUICE_RUN_DIR=$RUN_DIR
  local free_kib unshare=(unshare --mount)
  ((EUID == 0)) || unshare+=(--map-root-user)
  free_kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  # Not /dev/shm: there InnoDB takes its log for persistent memory, which has no syncs.
  if ((free_kib > 6 << 20)) && "${unshare[@]}" mount -t tmpfs tmpfs "$RUN_DIR" 2>/dev/null; then
    # shellcheck disable=SC2016
    exec "${unshare[@]}" bash -c 'mount -t tmpfs -o size=5g tmpfs "$SLUICE_RUN_DIR" && exec "$0" "$@"' "$0" "$@"
  fi
  say "no file system in memory (no right to mount one, or less than 6 GiB free): slower, in $RUN_DIR"
}
