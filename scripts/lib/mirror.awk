# Finds the first source of "<suite> main" with binary packages in apt's source
# lists; prints "uri<TAB>keyring" (keyring empty when the source names no file).
# Files ending in .sources are deb822 stanzas, all others one source per line.

function has(words, word) { return index(" " words " ", " " word " ") > 0 }

function found(uri, keyring) {
  if (done) return
  done = 1
  sub(/\/$/, "", uri)
  if (keyring !~ /^\//) keyring = ""
  print uri "\t" keyring
}

function end_stanza() {
  if (field["enabled"] != "no" && has(field["types"], "deb") &&
      has(field["suites"], suite) && has(field["components"], "main")) {
    split(field["uris"], uris, " ")
    found(uris[1], field["signed-by"])
  }
  delete field
}

FNR == 1 { end_stanza(); deb822 = (FILENAME ~ /\.sources$/) }
/^[ \t]*#/ { next }

deb822 && /^[ \t]*$/ { end_stanza(); next }
deb822 && /^[A-Za-z]/ {
  name = tolower(substr($0, 1, index($0, ":") - 1))
  value = substr($0, index($0, ":") + 1)
  gsub(/[ \t]+/, " ", value)
  sub(/^ /, "", value)
  sub(/ $/, "", value)
  field[name] = value
  next
}

!deb822 && $1 == "deb" {
  line = $0
  keyring = ""
  if (match(line, /\[[^]]*\]/)) {
    options = substr(line, RSTART + 1, RLENGTH - 2)
    if (match(options, /signed-by=[^ ]+/)) keyring = substr(options, RSTART + 10, RLENGTH - 10)
    sub(/\[[^]]*\]/, "", line)
  }
  count = split(line, part, " ")
  components = ""
  for (i = 4; i <= count; i++) components = components " " part[i]
  if (part[3] == suite && has(components, "main")) found(part[2], keyring)
}

END { end_stanza() }
