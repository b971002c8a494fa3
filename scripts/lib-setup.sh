# shellcheck shell=bash
# Shared by the scripts beside it: where things are, how work in progress is shown, how what is missing is installed.
# Sourced by bash after `set -euo pipefail`. Sets: root (of the source tree), venv (its virtual environment), cache
# (this user's, shared by all clones), and the colours, which are empty without a terminal.
# shellcheck disable=SC2034,SC2015 # names for the sourcing script; A && B || C where C is right for either failing

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=${ARCHON_VENV:-$root/.venv}
cache=${XDG_CACHE_HOME:-${HOME:-$root}/.cache}/archonctl
mkdir -p -- "$cache" 2>/dev/null && [[ -w $cache ]] || cache=$root/.cache/archonctl # a home that cannot be written

if [[ -t 2 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
  bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' plain=$'\e[0m' line_start=$'\r\e[K'
else
  bold='' dim='' red='' plain='' line_start=''
fi

# All talk goes to stderr, so that stdout can carry an answer.
say() { printf '%s\n' "$*" >&2; }
note() { printf '%s%s%s\n' "$dim" "$*" "$plain" >&2; }
die() {
  printf '%s%s: %s%s\n' "$red" "${0##*/}" "$*" "$plain" >&2
  exit 1
}

# logged LOG WHAT COMMAND...: run quietly; when it fails, show the end of its log and stop.
logged() {
  local log=$1 what=$2
  shift 2
  mkdir -p -- "$(dirname -- "$log")"
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 30 -- "$log" >&2
    die "$what failed; the whole log: $log"
  fi
}

# packages WHY PACKAGE...: install the Debian packages of the list that are not there, saying so.
packages() {
  local why=$1 package missing=() as_root=()
  shift
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  command -v apt-get >/dev/null || die "$why needs ${missing[*]} (Debian's names), and there is no apt-get to install them"
  if ((EUID)); then
    as_root=(sudo)
    [[ -t 0 ]] || as_root=(sudo -n) # no terminal: never wait for a password
    command -v sudo >/dev/null && "${as_root[@]}" true 2>/dev/null ||
      die "$why needs the system packages ${missing[*]}; run as root: apt-get install ${missing[*]}"
  fi
  say "Installing system packages for $why: ${missing[*]} (apt-get)"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
  local log=$cache/log/apt.log
  logged "$log" "apt-get update" "${apt[@]}" update
  logged "$log" "apt-get install ${missing[*]}" "${apt[@]}" install --no-install-recommends "${missing[@]}"
}

# python_command: print a Python of at least 3.11 that can make virtual environments.
python_command() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
    [[ -n $candidate ]] && command -v "$candidate" >/dev/null || continue
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

# make_venv DIR: a fresh virtual environment with pip.
make_venv() {
  local python
  if ! python=$(python_command); then
    packages "a virtual environment" python3 python3-venv
    python=$(python_command) || die "Python 3.11 or newer is needed (Debian 12 has it); set PYTHON to one"
  fi
  logged "$cache/log/venv.log" "making a virtual environment in $1" "$python" -m venv --clear "$1"
}

# project_venv [EXTRA]: the project, editable, with its dependencies, in $venv. Does nothing when that is so already.
project_venv() {
  local extra=${1:-} stamp wanted
  stamp=$venv/.archonctl-installed${extra:+-$extra}
  wanted=$(printf '%s\n' "$root" && cat -- "$root/pyproject.toml")
  if [[ -f $stamp && $(<"$stamp") == "$wanted" ]] && "$venv/bin/archonctl" --version >/dev/null 2>&1; then
    return 0
  fi
  local other
  for other in "$venv"/.archonctl-installed*; do
    # A folder that was moved or copied here: its commands still point at the old place.
    [[ -f $other && $(head -n 1 -- "$other") != "$root" ]] && rm -rf -- "$venv"
  done
  if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    say "Making a virtual environment in $venv"
    make_venv "$venv"
  fi
  say "Installing archonctl${extra:+ with what the ${extra}s need} into $venv"
  logged "$cache/log/pip.log" "pip install" \
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root${extra:+[$extra]}"
  printf '%s\n' "$wanted" >"$stamp"
}

# pystemd_in_venv: D-Bus for the systemd tests. There is no wheel of it to download: built once a Python version, kept.
pystemd_in_venv() {
  "$venv/bin/python" -c 'import pystemd.dbuslib' 2>/dev/null && return 0
  local tag wheels
  tag=$("$venv/bin/python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  wheels=("$cache/wheels"/pystemd-*-"$tag"-*.whl)
  if [[ ! -f ${wheels[0]} ]]; then
    packages "building pystemd" libsystemd-dev pkg-config gcc libc6-dev python3-dev
    say "Building pystemd (once; kept in $cache/wheels)"
    logged "$cache/log/pystemd.log" "building pystemd" \
      "$venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$cache/wheels" \
      'pystemd>=0.13'
    wheels=("$cache/wheels"/pystemd-*-"$tag"-*.whl)
  fi
  logged "$cache/log/pip.log" "pip install" \
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${wheels[-1]}"
}
