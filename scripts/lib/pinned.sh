# shellcheck shell=bash
# Releases by their files: a mirror's list names the newest release only, while its pool keeps the
# files of those before for a while. Each file of releases/ has a first line, then SHA-256 and name of
# every file, so the list's signature is not needed. The first line: the pool's directory, the package's
# version, the archive (main or security) and the release that lends its source, usually itself. A line that
# ends with "extra" has a file that the prefix does not need, for a script that fetches it alone.
#
# A borrowed source: some mirrors have a release's packages, and no source. Its headers are then those in its own
# packages and, for the rest, those of the lender with the changes in releases/VERSION.patch. docs/decisions/0033
# says how it is shown that these are the release's headers.

RELEASES=$CHECKOUT/scripts/lib/releases

# The releases of series $1 that have such a file.
pinned_versions() { find "$RELEASES" -name "$1.*" ! -name '*.patch' -printf '%f\n'; }

# Word $2 of the first line of release $1; empty if there is no such file.
pinned_word() { [[ ! -r $RELEASES/$1 ]] || awk -v word="$2" 'NR == 1 { print $word }' "$RELEASES/$1"; }
pinned_package_version() { pinned_word "$1" 3; }
# The release with the source of release $1.
source_release() {
  local lender
  lender=$(pinned_word "$1" 5)
  printf '%s\n' "${lender:-$1}"
}

APT_HELPER=/usr/lib/apt/apt-helper

# Downloads the files of release $1 whose names fit the expression $2 into directory $3: those whose lines end
# with the name, or with the word $4.
download_files() {
  local release=$1 fitting=$2 into=$3 wanted=${4:-} archive=$SUITE uri pool hash name word
  [[ -r $RELEASES/$release ]] || return 1
  [[ $(pinned_word "$release" 4) != security ]] || archive+=-security
  uri=$(system_mirror "$archive" | cut -f 1)
  [[ -n $uri ]] || return 1
  pool=$(pinned_word "$release" 2)
  while read -r hash name word; do
    [[ $name =~ $fitting && $word == "$wanted" ]] || continue
    echo "$hash  $into/$name" | sha256sum --check --status 2>/dev/null ||
      "$APT_HELPER" -c "$PRIVATE_APT_CONF" download-file "${uri%/}/$pool/$name" "$into/$name" \
        "SHA256:$hash" >/dev/null || return 1
  done < <(tail -n +2 "$RELEASES/$release")
}

# Packages and source of release $1, into directory $2.
download_pinned() {
  download_files "$1" '\.deb$' "$2" && download_files "$(source_release "$1")" '\.(dsc|tar\..z)$' "$2"
}

# The package $2 of release $1, which the prefix does not need, into directory $3.
download_pinned_extra() {
  grep -qs "  $2_.*\.deb extra\$" "$RELEASES/$1" && download_files "$1" "^$2_" "$3" extra
}
