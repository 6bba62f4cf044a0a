# shellcheck shell=bash
# The plugin with mistakes that can be switched on (plugin/src/planted.rs), in a directory of its own.
# Sourced, never run.

PLANTED_DIR=$TARGET_DIR/planted/plugin

build_planted() {
  say "cargo build --features planted"
  (cd "$CHECKOUT" &&
    cargo build --release --locked -p ha_sluice --features planted --target-dir "$TARGET_DIR/planted")
  mkdir -p "$PLANTED_DIR"
  # Renamed into place: a running server keeps the file that it has mapped.
  cp "$TARGET_DIR/planted/release/libha_sluice.so" "$PLANTED_DIR/ha_sluice.so.new"
  mv "$PLANTED_DIR/ha_sluice.so.new" "$PLANTED_DIR/ha_sluice.so"
}
