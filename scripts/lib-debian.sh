# shellcheck shell=bash
# Shared by the scripts that unpack packages of another Debian release, for tests. Sourced after lib-setup.sh.
# The machine's own package lists are not touched, and nothing is installed.

# debian_archive: print the archive that this machine is configured to use.
debian_archive() {
  { cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null || true; } |
    sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' | head -n 1
}

# unpack_debian ARCHIVE PLACE SUITE PACKAGE...: download and unpack into PLACE/root
unpack_debian() {
  local archive=$1 place=$2 suite=$3 package
  shift 3
  mkdir -p -- "$place"/lists/partial "$place"/cache/archives/partial "$place"/debs "$place"/root
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$archive" "$suite" \
    >"$place/sources.list"
  local apt=(apt-get -q -o "Dir::Etc::sourcelist=$place/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::Lists=$place/lists" -o "Dir::Cache=$place/cache" -o Debug::NoLocking=1
    -o APT::Sandbox::User="$(id -un)")
  "${apt[@]}" update
  (cd -- "$place/debs" && "${apt[@]}" download "$@")
  for package in "$place"/debs/*.deb; do dpkg-deb -x "$package" "$place/root"; done
  rm -rf -- "$place/lists" "$place/cache" "$place/debs" "$place/sources.list"
}
