# shellcheck shell=bash
# What the tests of the tools share: a private server in $D, functions that run tests and look at answers.
# To be read behind common.sh; not every script uses every variable.
# shellcheck disable=SC2034

SLUICE=$TARGET_DIR/release/sluice
WORK=$(mktemp -d "${TMPDIR:-/tmp}/sluice-${SCRIPT_NAME}.XXXXXX")
D=$WORK/d
DSN="mysql://root@localhost/?socket=$D/mysql.sock"
PASSED=0 FAILED=0 SKIPPED=0

clean_up() {
  # What an interrupted test left: servers by their directories, then everything.
  local dir
  for dir in "$D" "$WORK"/*/servers/*/; do
    [[ ! -e $dir ]] || "$SLUICE" server stop --dir "$dir" >/dev/null 2>&1 || true
  done
  rm -rf "$WORK"
}
trap clean_up EXIT

# Runs test function $1 in a subshell of its own; its output shows if it fails.
run_test() {
  local output status=0
  set +e
  output=$(set -e; "$1" 2>&1)
  status=$?
  set -e
  case $status in
    0) PASSED=$((PASSED + 1)); printf 'ok       %s\n' "$1" ;;
    77) SKIPPED=$((SKIPPED + 1)); printf 'skipped  %s: %s\n' "$1" "$output" ;;
    *) FAILED=$((FAILED + 1)); printf 'FAILED   %s\n%s\n' "$1" "$output" ;;
  esac
}
skip() {
  printf '%s' "$*"
  exit 77
}

sql() { "$SLUICE_PREFIX/usr/bin/mariadb" --no-defaults -uroot -S "$D/mysql.sock" -N "$@"; }
says() { grep -qF -- "$1" <<<"$2" || { printf '%s\nshould say: %s\n' "$2" "$1"; return 1; }; }
# The command "${@:2}" must fail and say $1.
refuses() {
  local wanted=$1 output status=0
  shift
  output=$("$@" 2>&1) || status=$?
  ((status != 0)) && says "$wanted" "$output"
}

# Runs tests "$@" in turn and says how many passed; fails if one did.
run_tests() {
  local test
  for test in "$@"; do
    run_test "$test"
  done
  printf '%d passed, %d failed, %d skipped\n' "$PASSED" "$FAILED" "$SKIPPED"
  ((FAILED == 0))
}
