#!/usr/bin/env bats
# The scripts that set a machine up, without setting anything up: package managers and compilers are stand-ins.
# shellcheck disable=SC2016 # stand-ins expand when they run

bats_require_minimum_version 1.5.0

setup() {
  root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd -P)
  export XDG_CACHE_HOME="$BATS_TEST_TMPDIR/a cache" HOME="$BATS_TEST_TMPDIR/home"
  mkdir -p "$XDG_CACHE_HOME" "$HOME" "$BATS_TEST_TMPDIR/bin"
  unset ARCHON_LLAMA_SERVER
  PATH="$BATS_TEST_TMPDIR/bin:$PATH"
  work="$XDG_CACHE_HOME/archonctl/llama-b11434.build"
  real=${ARCHON_TEST_LLAMA_SERVER:-$root/.cache/llama/llama-server}
}

# stand_in NAME BODY: a command found first.
stand_in() {
  printf '#!/bin/bash\n%s\n' "$2" >"$BATS_TEST_TMPDIR/bin/$1"
  chmod +x "$BATS_TEST_TMPDIR/bin/$1"
}

# in_lib COMMANDS: run them after the library, as the scripts do.
in_lib() {
  bash -c "set -euo pipefail; source '$root/scripts/lib-setup.sh'; $1"
}

@test "packages: what is installed is left alone, in silence" {
  stand_in dpkg-query 'echo "install ok installed"'
  stand_in apt-get 'exit 99'
  run --separate-stderr -0 in_lib 'packages "a test" g++ cmake'
  [ -z "$output$stderr" ]
}

@test "packages: only what is missing is installed, and said" {
  [ "$EUID" -eq 0 ] || skip "as root only"
  stand_in dpkg-query '[[ $4 == g++ ]] && echo "install ok installed"; exit 0'
  stand_in apt-get "echo \"\$*\" >>'$BATS_TEST_TMPDIR/apt'"
  run --separate-stderr -0 in_lib 'packages "a test" g++ cmake'
  [[ "$stderr" == *"for a test: cmake (apt-get)"* ]]
  grep -q -- 'install --no-install-recommends cmake$' "$BATS_TEST_TMPDIR/apt"
}

@test "packages: a failing apt-get shows what it said and where the whole log is" {
  [ "$EUID" -eq 0 ] || skip "as root only"
  stand_in dpkg-query 'exit 1'
  stand_in apt-get 'echo "E: no such thing" >&2; exit 100'
  run --separate-stderr -1 in_lib 'packages "a test" cmake'
  [[ "$stderr" == *"E: no such thing"* && "$stderr" == *apt.log* ]]
}

@test "packages: neither root nor sudo is a refusal with the command to run" {
  [ "$EUID" -eq 0 ] || skip "as root only"
  folder=$(mktemp -d /tmp/archonctl-bats.XXXXXX)
  mkdir "$folder/scripts" "$folder/bin"
  cp "$root/scripts/lib-setup.sh" "$folder/scripts/"
  for name in dpkg-query sudo; do printf '#!/bin/sh\nexit 1\n' >"$folder/bin/$name"; done
  chmod -R a+rX "$folder"
  chmod a+x "$folder"/bin/*
  run --separate-stderr setpriv --reuid 65534 --clear-groups env "PATH=$folder/bin:/usr/bin:/bin" "HOME=$folder" \
    bash -c "cd /; set -euo pipefail; source '$folder/scripts/lib-setup.sh'; packages 'a test' cmake"
  rm -rf "$folder"
  [ "$status" -eq 1 ]
  [[ "$stderr" == *"run as root: apt-get install cmake"* ]]
}

@test "packages: a system without apt-get is told what to install" {
  stand_in dpkg-query 'exit 1'
  run --separate-stderr -1 in_lib 'command() { [[ $2 != apt-get ]] && builtin command "$@"; }; packages "a test" cmake'
  [[ "$stderr" == *"a test needs cmake"* ]]
}

@test "python_command: a Python without venv or too old is passed over" {
  stand_in python3 'exit 1'
  stand_in python3.13 'exit 1'
  stand_in python3.12 'exit 0'
  run -0 in_lib python_command
  [ "$output" = "$BATS_TEST_TMPDIR/bin/python3.12" ]
}

@test "a home that cannot be written moves the cache into the tree" {
  XDG_CACHE_HOME=/proc/nowhere run -0 in_lib 'echo "$cache"'
  [ "$output" = "$root/.cache/archonctl" ]
  env -u HOME -u XDG_CACHE_HOME bash -c "set -euo pipefail; source '$root/scripts/lib-setup.sh'"
}

@test "scripts tell their use, and refuse what they do not know" {
  for script in quickstart get-llama-server lint test; do
    run -0 "$root/scripts/$script" --help
    [[ "$output" == *"scripts/$script"* ]]
  done
  run -1 "$root/scripts/quickstart" --fast
  run -1 "$root/scripts/get-llama-server" --fast
  run -1 env ARCHON_VENV="$(dirname "$(dirname "$(command -v archonctl)")")" "$root/scripts/lint" nonsense
}

@test "smoke: what dies of SIGILL was compiled for another CPU" {
  stand_in llama-server '[[ $1 == --version ]] || kill -ILL $$'
  run -1 "$root/scripts/smoke-llama-server" "$BATS_TEST_TMPDIR/bin/llama-server"
  [[ "$output" == *SIGILL* && "$output" == *"another CPU"* && "$output" != *Traceback* ]]
}

@test "smoke: what is missing, is no program, or ends at once is said in one line" {
  stand_in llama-server 'echo "error while loading shared libraries" >&2; [[ $1 == --version ]] && exit 127'
  for binary in /nonexistent /etc/passwd "$BATS_TEST_TMPDIR/bin/llama-server" /bin/true; do
    run -1 "$root/scripts/smoke-llama-server" "$binary"
    [[ -n "$output" && "$output" != *Traceback* ]]
  done
}

@test "get-llama-server: ARCHON_LLAMA_SERVER that does not do is an error, not a fallback" {
  ARCHON_LLAMA_SERVER=/nonexistent run -1 "$root/scripts/get-llama-server" "$BATS_TEST_TMPDIR/dest"
  [[ "$output" == *"/nonexistent"* ]]
  stand_in llama-server 'exit 3'
  stand_in llama-fit-params 'exit 0'
  ARCHON_LLAMA_SERVER="$BATS_TEST_TMPDIR/bin/llama-server" run -1 "$root/scripts/get-llama-server" "$BATS_TEST_TMPDIR/dest"
  [[ "$output" == *"exited with 3"* ]]
}

# A build folder whose sources are there already, and a cmake that does what BUILD says.
fake_build() {
  mkdir -p "$work/llama.cpp" "$work/venv/bin"
  touch "$work/llama.cpp/CMakeLists.txt"
  ln -s /bin/true "$work/venv/bin/python"
  stand_in ninja 'exit 0'
  stand_in c++ 'exit 0'
  stand_in cmake "[[ \$1 == --build ]] || exit 0; $1"
}

@test "get-llama-server: a build that fails shows the compiler's words and the log" {
  fake_build 'echo "[1/2] fine"; echo "FAILED: x.o"; echo "x.cpp:1: error: no luck"; exit 1'
  run -1 "$root/scripts/get-llama-server" "$BATS_TEST_TMPDIR/dest"
  [[ "$output" == *"error: no luck"* && "$output" == *build.log* ]]
  [ ! -e "$BATS_TEST_TMPDIR/dest/llama-server" ]
}

@test "get-llama-server: a build that yields something that does not run installs nothing" {
  fake_build 'mkdir -p "$2/bin"; for b in llama-server llama-fit-params; do cp /bin/false "$2/bin/$b"; done'
  run -1 "$root/scripts/get-llama-server" "$BATS_TEST_TMPDIR/dest"
  [[ "$output" == *"does not do"* ]]
  [ ! -e "$BATS_TEST_TMPDIR/dest/llama-server" ]
  [ ! -e "$XDG_CACHE_HOME/archonctl/llama-b11434/llama-server" ]
}

# bats test_tags=engine
@test "get-llama-server: built once, every clone and every second run takes it from there" {
  [ -x "$real" ] || skip "no llama-server"
  fake_build "mkdir -p \"\$2/bin\"; echo '[1/1] linked'; cp '$(dirname "$real")'/llama-{server,fit-params} \"\$2/bin/\""
  run -0 "$root/scripts/get-llama-server" "$BATS_TEST_TMPDIR/dest one"
  [[ "$output" == *"100 % built"* && "$output" == *"built from source"* ]]
  [ ! -e "$work" ]
  stand_in cmake 'exit 99'
  run -0 "$root/scripts/get-llama-server" "$BATS_TEST_TMPDIR/dest one"
  [[ "$output" == *"was there"* ]]
  run -0 "$root/scripts/get-llama-server" "$BATS_TEST_TMPDIR/dest two"
  [[ "$output" == *"built earlier"* ]]
  # What is damaged is replaced, with a word about it.
  printf 'x' >"$BATS_TEST_TMPDIR/dest two/llama-server"
  run -0 "$root/scripts/get-llama-server" "$BATS_TEST_TMPDIR/dest two"
  [[ "$output" == *"does not do"* && "$output" == *"built earlier"* ]]
}

# bats test_tags=engine
@test "get-llama-server: ARCHON_LLAMA_SERVER is linked" {
  [ -x "$real" ] || skip "no llama-server"
  ARCHON_LLAMA_SERVER="$real" run -0 "$root/scripts/get-llama-server" "$BATS_TEST_TMPDIR/dest"
  [ "$BATS_TEST_TMPDIR/dest/llama-server" -ef "$real" ]
  "$BATS_TEST_TMPDIR/dest/llama-fit-params" --version
}
