# shellcheck shell=bash
# The Rust toolchain: is it there, and is it new enough for this workspace?

# The rust-version of the workspace, e.g. "1.85"; empty when it names none.
required_rust() {
  sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' "$CHECKOUT/Cargo.toml" | head -n 1
}

check_rust() {
  local required found
  have cargo || die "cargo is missing: install Rust $(required_rust) or newer with rustup"
  required=$(required_rust)
  [[ -n $required ]] || return 0
  # The toolchain that cargo would use here, which rustup may pin by directory.
  found=$(cd "$CHECKOUT" && cargo --version) || die "cargo does not run: $found"
  found=${found#cargo }
  found=${found%%[ -]*}
  dpkg --compare-versions "$found" ge "$required" ||
    die "Rust $found is too old: this workspace needs $required or newer (rustup update)"
}
