#!/usr/bin/env bats
# The installed command from end to end, as a shell sees it: exit codes, what goes where, and what never happens.

bats_require_minimum_version 1.5.0

setup() {
  cd "$BATS_TEST_DIRNAME/../.." || return
  unset "${!ARCHON@}" NO_COLOR FORCE_COLOR
  export COLUMNS=100
}

no_traceback() {
  [[ "${output}${stderr:-}" != *Traceback* ]]
}

@test "exit 0: --version says a version on stdout and nothing else" {
  run --separate-stderr -0 archonctl --version
  [[ "$output" =~ ^archonctl\ [0-9]+\.[0-9]+ ]]
  [ -z "$stderr" ]
}

@test "exit 0: --help of the command and of every verb goes to stdout, with an example" {
  run --separate-stderr -0 archonctl --help
  [[ "$output" == *examples:* && "$output" == *"exit codes"* ]]
  [ -z "$stderr" ]
  for verb in plan render up probe stop ledger inspect explain completion; do
    run --separate-stderr -0 archonctl "$verb" --help
    [[ "$output" == *example* ]]
    [ -z "$stderr" ]
  done
}

@test "exit 0: a contract that holds; the answer on stdout" {
  run --separate-stderr -0 archonctl plan env/archon.toml --seqs 3 --len 200000
  [[ "$output" == *HOLDS* ]]
  [ -z "$stderr" ]
}

@test "exit 1: a contract that is short names the smallest change" {
  run --separate-stderr -1 archonctl plan env/archon.toml --set engine.knobs.host-pool-mib=44928
  [[ "$output" == *SHORT* && "$output" == *host-pool-mib* ]]
  no_traceback
}

@test "exit 2: no verb, an unknown verb, an unknown option; the likely one is suggested" {
  run --separate-stderr -2 archonctl
  [ -z "$output" ]
  run --separate-stderr -2 archonctl plam
  [[ "$stderr" == *"did you mean plan"* ]]
  run --separate-stderr -2 archonctl plan --sqes 3
  [[ "$stderr" == *"did you mean --seqs"* ]]
  no_traceback
}

@test "exit 2: an endpoint that does not exist lists the ones that do" {
  run --separate-stderr -2 archonctl plan no-such-endpoint
  [[ "$stderr" == *endpoint-not-found* && "$stderr" == *archon* ]]
  [ -z "$output" ]
  no_traceback
}

@test "exit 2: numbers that are none, or too small, or too large" {
  for value in 0 -1 1000000000 three '' 1e3 0x10; do
    run --separate-stderr -2 archonctl plan env/archon.toml "--seqs=$value"
    [ -n "$stderr" ]
    no_traceback
  done
}

@test "exit 2: a declaration that is empty, binary, a folder, or unreadable TOML" {
  : >"$BATS_TEST_TMPDIR/empty.toml"
  head -c 4096 /dev/urandom >"$BATS_TEST_TMPDIR/binary.toml"
  mkdir "$BATS_TEST_TMPDIR/folder.toml"
  printf '[contract\nseqs = 3\n' >"$BATS_TEST_TMPDIR/broken.toml"
  for name in empty binary folder broken; do
    run --separate-stderr -2 archonctl plan "$BATS_TEST_TMPDIR/$name.toml"
    [[ "$stderr" == *"$name.toml"* ]]
    [ -z "$output" ]
    no_traceback
  done
}

@test "exit 2: an unknown key is named, with the file" {
  { cat env/archon.toml; printf '\n[nonsense]\nkey = 1\n'; } >"$BATS_TEST_TMPDIR/x.toml"
  run --separate-stderr -2 archonctl plan "$BATS_TEST_TMPDIR/x.toml"
  [[ "$stderr" == *nonsense* && "$stderr" == *x.toml* ]]
}

@test "an error says where more can be read, and that page exists" {
  run --separate-stderr -2 archonctl plan no-such-endpoint
  [[ "$stderr" =~ archonctl\ explain\ ([a-z-]+) ]]
  run -0 archonctl explain "${BASH_REMATCH[1]}"
  [[ "$output" == "# ${BASH_REMATCH[1]}"* || "$output" == *endpoint-not-found* ]]
}

@test "errors are JSON too where JSON was asked for" {
  run --separate-stderr -2 archonctl plan no-such-endpoint --json
  python -c 'import json, sys; assert json.load(sys.stdin)["error"]["code"] == "endpoint-not-found"' <<<"$output"
}

@test "--json is one JSON value on stdout, with the verdict and its schema" {
  run --separate-stderr -0 archonctl plan env/archon.toml --json
  python -c '
import json, sys
plan = json.load(sys.stdin)
assert plan["schema"] == "archonctl.plan/1", plan["schema"]
assert plan["verdict"] == "holds"
' <<<"$output"
}

@test "no colour in a pipe, with NO_COLOR, or with --color=never; colour when it is asked for" {
  for arguments in "" "--color=never"; do
    # shellcheck disable=SC2086 # empty or one word
    run -0 archonctl plan env/archon.toml $arguments
    [[ "$output" != *$'\e['* ]]
  done
  NO_COLOR=1 run -0 archonctl plan env/archon.toml
  [[ "$output" != *$'\e['* ]]
  run -0 archonctl plan env/archon.toml --color=always
  [[ "$output" == *$'\e['* ]]
}

@test "plain ASCII where the locale has nothing else" {
  LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 PYTHONIOENCODING=ascii run -0 archonctl plan env/archon.toml
  run ! env LC_ALL=C grep -q '[^ -~]' <<<"$output"
}

@test "a pipe that is closed early ends the command quietly" {
  for arguments in "plan env/archon.toml" "plan env/archon.toml --json" "--help" "explain"; do
    # shellcheck disable=SC2086 # words on purpose
    run --separate-stderr bash -c "archonctl $arguments | head -c 1"
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
  done
}

@test "a closed or full stdout is an error, and no traceback" {
  run --separate-stderr bash -c 'archonctl plan env/archon.toml >/dev/full'
  [ "$status" -ne 0 ]
  no_traceback
  run --separate-stderr bash -c 'archonctl plan env/archon.toml >&-'
  [[ "$stderr" != *Traceback* ]]
}

@test "any folder, and a path with spaces, will do" {
  mkdir -p "$BATS_TEST_TMPDIR/with space"
  cp -r env "$BATS_TEST_TMPDIR/with space/"
  cd "$BATS_TEST_TMPDIR/with space"
  run -0 archonctl plan "env/archon.toml"
  run -0 archonctl plan archon
  cd /
  run -0 archonctl plan "$BATS_TEST_TMPDIR/with space/env/archon.toml"
}

@test "completion is a script that its shell accepts" {
  run -0 archonctl completion bash
  bash -n <<<"$output"
}

@test "nothing is written by looking" {
  cp -r env "$BATS_TEST_TMPDIR/"
  cd "$BATS_TEST_TMPDIR"
  before=$(find . -type f -exec sha256sum {} + | sort)
  run -0 archonctl plan archon
  [ "$(find . -type f -exec sha256sum {} + | sort)" = "$before" ]
}
