# shellcheck shell=bash
# Measuring with sysbench against private servers. Sourced after common.sh.
#
# Every engine has a server of its own: the InnoDB server does not load the plugin, so that its
# commits take the server's stock path.
# shellcheck disable=SC2034 # measure() sets results for the script that sources this

SLUICE=$TARGET_DIR/release/sluice

need_tools() {
  have sysbench || die "sysbench is not installed (Debian: apt-get install sysbench)"
  [[ -x $SLUICE ]] || die "no $SLUICE: run make build"
}

# Starts a server for engine $1 on directory $2 with pools of $3 MiB and logs of $4 MiB. Durable
# and alike: each commit is on the disk, in the engine and in the binlog, before it is acknowledged.
start_server() {
  local engine=$1 dir=$2 pool_mib=$3 log_mib=$4
  local ours=(server start --dir "$dir" --prefix "$SLUICE_PREFIX" --min-free-mib 4096)
  local options=(--max-prepared-stmt-count=1000000 --max-connections=2000
    --binlog-format=ROW --sync-binlog=1
    --innodb-log-file-size="${log_mib}M" --innodb-flush-method=O_DIRECT
    --innodb-flush-log-at-trx-commit=1)
  if [[ $engine == InnoDB ]]; then
    ours+=(--without-engine)
    options+=(--innodb-buffer-pool-size="${pool_mib}M")
  else
    # Tables of the server itself are InnoDB's: a small pool is enough for them.
    options+=(--innodb-buffer-pool-size=16M --loose-sluice-buffer-pool-size="${pool_mib}M"
      --loose-sluice-log-capacity="${log_mib}M" --loose-sluice-flush-log-at-trx-commit=1)
  fi
  # shellcheck disable=SC2206 # several options in one variable
  options+=(${SERVER_OPTIONS:-})
  "$SLUICE" "${ours[@]}" -- "${options[@]}" >"$dir.start.log" 2>&1 ||
    die "the $engine server did not start: $(tail -n 25 "$dir.start.log")"
}

server_pid() { cat "$1/mariadbd.pid" 2>/dev/null; }

# SIGKILL for every server of directory $1, and their end. By the directory and not by the pid file,
# which is not there yet, or not whole, when somebody interrupts the start.
kill_server() {
  local pid
  for pid in $(pgrep -f -- "--datadir=$1/"); do
    kill -KILL "$pid" 2>/dev/null || continue
    wait_until_gone "$1" "$pid"
  done
}

# Runs SQL on the server of directory $1.
sql() {
  local dir=$1
  shift
  "$SLUICE_PREFIX/usr/bin/mariadb" --no-defaults -uroot -S "$dir/mysql.sock" -N "$@"
}

# sysbench for engine $1 on directory $2 with TABLES and SIZE; the rest is the workload and command.
run_sysbench() {
  local engine=$1 dir=$2
  shift 2
  sysbench --db-driver=mysql --mysql-socket="$dir/mysql.sock" --mysql-user=root \
    --mysql-db=sbtest --mysql-storage-engine="$engine" --tables="$TABLES" --table-size="$SIZE" \
    --rand-type=uniform "$@"
}

prepare_tables() {
  sql "$2" -e 'CREATE DATABASE sbtest'
  run_sysbench "$1" "$2" oltp_write_only prepare --threads=2 >"$2.prepare.log" 2>&1 ||
    die "preparing tables in $1: $(grep -i -m 3 fatal "$2.prepare.log")"
}

# "bytes written, flushes" so far of the disk that holds $1; "0 0" when it is not on a disk.
disk_counters() {
  local number stat
  number=$(stat -c '%Hd:%Ld' "$1")
  stat=/sys/dev/block/$number
  # A partition has no flush counter: its disk does.
  [[ -e $stat/partition ]] && stat=$(readlink -f "$stat")/..
  if [[ -r $stat/stat ]]; then
    awk '{ printf "%.0f %d\n", $7 * 512, $16 }' "$stat/stat"
  else
    echo 0 0
  fi
}

# CPU seconds that the process $1 has used.
cpu_seconds() {
  sed 's/.*) //' "/proc/$1/stat" | awk -v hz="$(getconf CLK_TCK)" '{ print ($12 + $13) / hz }'
}

# The first figure of the line that starts with $1 in the sysbench log $2, or nothing.
figure() { sed -n "s/^ *$1: *\([0-9.]*\).*/\1/p" "$2" | head -n 1; }

# Runs workload $3 on $4 threads for $5 seconds and sets TXNS TPS P95 ERRORS RECONNECTS BYTES
# FLUSHES (both per transaction) CPU and FAILURE (empty, or what sysbench said).
measure() {
  local engine=$1 dir=$2 workload=$3 threads=$4 seconds=$5
  local log=$dir.$workload.$threads.log bytes0 flushes0 bytes1 flushes1 cpu0 pid
  pid=$(server_pid "$dir")
  sync -f "$dir"
  cpu0=$(cpu_seconds "$pid")
  read -r bytes0 flushes0 < <(disk_counters "$dir")
  FAILURE=
  run_sysbench "$engine" "$dir" "$workload" run --threads="$threads" --time="$seconds" \
    --db-ps-mode="${PS_MODE:-auto}" >"$log" 2>&1 ||
    FAILURE=$(grep -m 1 -E 'FATAL|error' "$log" || echo "sysbench failed")
  read -r bytes1 flushes1 < <(disk_counters "$dir")
  CPU=$(cpu_seconds "$pid" 2>/dev/null | awk -v a="$cpu0" '{ printf "%.2f", $1 - a }')
  TXNS=$(figure transactions "$log")
  TPS=$(sed -n 's/^ *transactions:.*(\([0-9.]*\) per sec.*/\1/p' "$log")
  P95=$(figure '95th percentile' "$log")
  ERRORS=$(figure 'ignored errors' "$log")
  RECONNECTS=$(figure reconnects "$log")
  : "${TXNS:=0}" "${TPS:=0}" "${P95:=0}" "${ERRORS:=0}" "${RECONNECTS:=0}" "${CPU:=0}"
  BYTES=$(per_transaction $((bytes1 - bytes0)) 0)
  FLUSHES=$(per_transaction $((flushes1 - flushes0)) 2)
}

per_transaction() {
  awk -v sum="$1" -v digits="$2" -v n="$TXNS" 'BEGIN { printf "%.*f", digits, n ? sum / n : 0 }'
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else printf "-" }'; }
