# shellcheck shell=bash
# Releases by their files: a mirror's list names the newest release only, while its pool keeps the
# files of those before for a while. Each file of releases/ has the pool's directory and the package's version
# in its first line, then SHA-256 and name of every file, so the list's signature is not needed.

RELEASES=$CHECKOUT/scripts/lib/releases

# The releases of series $1 that have such a file.
pinned_versions() { find "$RELEASES" -name "$1.*" -printf '%f\n'; }

# Empty for another one.
pinned_package_version() { [[ ! -r $RELEASES/$1 ]] || awk 'NR == 1 { print $3 }' "$RELEASES/$1"; }

APT_HELPER=/usr/lib/apt/apt-helper

# Downloads the files of release $1 into directory $2.
download_pinned() {
  local release=$RELEASES/$1 into=$2 uri pool hash name
  uri=$(system_mirror "$SUITE" | cut -f 1)
  [[ -r $release ]] || return 1
  pool=$(awk 'NR == 1 { print $2 }' "$release")
  while read -r hash name; do
    echo "$hash  $into/$name" | sha256sum --check --status 2>/dev/null ||
      "$APT_HELPER" -c "$PRIVATE_APT_CONF" download-file "${uri%/}/$pool/$name" "$into/$name" \
        "SHA256:$hash" >/dev/null || return 1
  done < <(tail -n +2 "$release")
}
