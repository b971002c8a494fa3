#!/usr/bin/env bats
# The root preflight on a stand-in host: real files, owners, devices and processes; only the mounts are a test's own.
# shellcheck disable=SC2016 # stand-ins expand when they run
# shellcheck disable=SC2154 # variables of preflight_host.bash

bats_require_minimum_version 1.5.0

setup() {
  [ "$EUID" -eq 0 ] || skip "mounts a stand-in host: as root only"
  load preflight_host
  make_host
}

teardown() { [[ -z ${place:-} ]] || rm -rf -- "$place"; }

# refused CODE: the last run was a refusal with this code, said with a closing line
refused() {
  [ "$status" -eq 1 ]
  [[ "$output" == *"ttm-preflight: refused: $1: "* && "${lines[-1]}" == "ttm-preflight: refused "*"$1"* ]]
}

# --- the limit ---

@test "a floor under the limit passes and says have, need and margin in MiB and pages" {
  run -0 on_host "$preflight" --check "$place/x.env"
  [[ "$output" == *"ok: ttm: have 4096 MiB (1048576 pages), need 4000 MiB (1024000 pages), margin +96 MiB (+24576 pages)"* ]]
  [[ "${lines[-1]}" == "ttm-preflight: ok test" ]]
}

@test "--check refuses a short limit with the figures and changes nothing" {
  limit 512000
  run on_host "$preflight" --check "$place/x.env"
  refused ttm-cap-short
  [[ "$output" == *"have 2000 MiB (512000 pages), need 4000 MiB (1024000 pages), margin -2000 MiB (-512000 pages)"* ]]
  [ "$(limit)" = 512000 ]
}

@test "--raise raises to the target, reads it again, and passes" {
  limit 512000
  more TTM_TARGET_MIB=6000
  run -0 on_host "$preflight" --raise "$place/x.env"
  [ "$(limit)" = 1536000 ]
  [[ "$output" == *"raised: 512000 -> 1536000 pages"* ]]
}

@test "--raise goes no higher than nine tenths of RAM, huge pages not counted" {
  more TTM_TARGET_MIB=100000
  memory 8388608 8000000 1048576
  run -0 on_host "$preflight" --raise "$place/x.env"
  [ "$(limit)" = $(((8388608 - 1048576) * 9 / 10 / 4)) ]
}

@test "--raise never lowers a limit" {
  limit 2000000
  more TTM_TARGET_MIB=5000
  run -0 on_host "$preflight" --raise "$place/x.env"
  [ "$(limit)" = 2000000 ]
}

@test "the power failure: a limit that fell to half of RAM is raised to the target before the start" {
  memory $((251976 * 1024)) $((240000 * 1024))
  limit 32252928
  settings FORMAT=1 ENDPOINT=archon RANKS=2 HOST_POOL_MIB=45568 NGRAM_TABLE_MIB=48824 PREFIX_CACHE_MIB=8192 \
    MAX_NUM_BATCHED_TOKENS=2048 TTM_TARGET_MIB=204800
  run on_host "$preflight" --check "$place/x.env"
  refused ttm-cap-short
  [[ "$output" == *"have 125988 MiB (32252928 pages), need 150200 MiB (38451200 pages), margin -24212 MiB (-6198272 pages)"* ]]
  run -0 on_host "$preflight" --raise "$place/x.env"
  [ "$(limit)" = 52428800 ]
}

@test "a floor over what RAM allows is set as far as it goes, read again, and refused" {
  memory 4194304 4000000
  limit 100
  run on_host "$preflight" --raise "$place/x.env"
  refused ttm-floor-over-ram
  [ "$(limit)" = $((4194304 * 9 / 10 / 4)) ]
}

@test "a knob that does not move is a named refusal" {
  limit 100
  first='mount -o remount,ro,bind /sys/module' run on_host "$preflight" --raise "$place/x.env"
  refused ttm-cap-not-raised
  [[ "$output" == *"is still 100 after 1024000 was written"* ]]
}

@test "0 is not 'no memory': it cannot be judged, and a raise sets it" {
  limit 0
  run on_host "$preflight" --check "$place/x.env"
  refused ttm-not-set-yet
  run -0 on_host "$preflight" --raise "$place/x.env"
  [ "$(limit)" = 1024000 ]
}

@test "a limit of 2^64-1 is no limit, not a negative one" {
  limit 18446744073709551615
  run -0 on_host "$preflight" --check "$place/x.env"
}

@test "amdttm, where it is loaded, is the one that binds" {
  mkdir -p "$host/module/amdttm/parameters"
  echo 5 >"$host/module/amdttm/parameters/pages_limit"
  run -0 on_host "$preflight" --raise "$place/x.env"
  [ "$(cat "$host/module/amdttm/parameters/pages_limit")" = 1024000 ]
  [ "$(limit)" = 1048576 ]
}

@test "neither ttm nor amdttm is said, with what is needed" {
  rm -r "$host/module/ttm"
  run on_host "$preflight" --raise --wait 0 "$place/x.env"
  refused ttm-absent
  [[ "$output" == *"neither /sys/module/ttm nor /sys/module/amdttm is there"*"need 4000 MiB (1024000 pages)"* ]]
}

@test "a limit that is no number is refused" {
  for text in '' 'abc' '-1' '010' '12 34'; do
    printf '%s\n' "$text" >"$host/module/ttm/parameters/pages_limit"
    run on_host "$preflight" --check "$place/x.env"
    refused ttm-unreadable
  done
}

# --- without root ---

@test "an account without rights and without sudo cannot raise, and is told so" {
  limit 100
  run as_nobody env "PATH=$place/nothing:/usr/bin:/bin" "$preflight" --raise --wait 0 "$place/x.env"
  refused ttm-cap-not-raised
  [[ "$output" == *"uid 65534 may not write"* ]]
  [ "$(limit)" = 100 ]
}

@test "an account whose sudo wants a password is refused, not asked" {
  limit 100
  mkdir "$place/bin"
  printf '#!/bin/sh\n[ "$1" = -n ] || sleep 99\nexit 1\n' >"$place/bin/sudo"
  chmod 755 "$place/bin/sudo"
  run as_nobody env "PATH=$place/bin:/usr/bin:/bin" "$preflight" --raise --wait 0 "$place/x.env"
  refused ttm-cap-not-raised
}

@test "from a person's shell, sudo -n raises" {
  limit 100
  mkdir "$place/bin"
  mkfifo -m 666 "$place/asked" "$place/done"
  # what sudo does, root does here: the account itself could not
  printf '#!/bin/bash\n[[ "$*" == "-n tee /sys/module/ttm/parameters/pages_limit" ]] || exit 1\ncat >%s\nread -r <%s\n' "$place/asked" "$place/done" >"$place/bin/sudo"
  chmod 755 "$place/bin/sudo"
  beside="read -r pages <$place/asked; echo \$pages >$host/module/ttm/parameters/pages_limit; echo >$place/done" \
    run -0 as_nobody env "PATH=$place/bin:/usr/bin:/bin" "$preflight" --raise --wait 0 "$place/x.env"
  [ "$(limit)" = 1024000 ]
}

@test "an account without rights may check" {
  run -0 as_nobody "$preflight" --check "$place/x.env"
  limit 100
  run as_nobody "$preflight" --check "$place/x.env"
  refused ttm-cap-short
}

# --- RAM ---

@test "MemAvailable is judged apart from the limit" {
  more RAM_NEED_MIB=4000
  memory 8388608 2048000
  run on_host "$preflight" --check "$place/x.env"
  refused ram-short
  [[ "$output" == *"have 2000 MiB (512000 pages), need 4000 MiB (1024000 pages), margin -2000 MiB"* && "$output" == *"ok: ttm:"* ]]
}

@test "memory that is released in time is waited for" {
  more RAM_NEED_MIB=4000
  memory 8388608 2048000
  beside='waited; printf "MemTotal: 8388608 kB\nMemAvailable: 8000000 kB\n" >"$host/meminfo"' \
    run -0 on_host "$preflight" --raise --wait 20 "$place/x.env"
  [[ "$output" == *"note: ram-short: "*"waiting up to"* ]]
}

@test "RAM that is not in the machine is not waited for" {
  more RAM_NEED_MIB=9000
  run on_host "$preflight" --raise --wait 500 "$place/x.env"
  refused ram-short
}

@test "huge pages take RAM that could be pinned" {
  more RAM_NEED_MIB=4000
  memory 8388608 8000000 $((5000 * 1024))
  run on_host "$preflight" --check "$place/x.env"
  refused hugepages-reserved
  [[ "$output" == *"5000 MiB of RAM are set aside as huge pages"*"have 3192 MiB"*"margin -808 MiB"* ]]
}

@test "control groups: v2 memory.max, memory.high and v1 are found, 'max' is no limit" {
  more RAM_NEED_MIB=4000
  for name in memory.max memory.high memory.limit_in_bytes; do
    [[ $name != *.limit_in_bytes ]] || grep -q :memory: /proc/self/cgroup || continue
    limits="$name 1073741824" run on_host "$preflight" --check "$place/x.env"
    refused cgroup-limit-short
    [[ "$output" == *"$name: have 1024 MiB (262144 pages), need 4000 MiB"* ]]
  done
  limits='memory.max max' run -0 on_host "$preflight" --check "$place/x.env"
  limits='memory.limit_in_bytes 9223372036854771712' run -0 on_host "$preflight" --check "$place/x.env"
}

# --- devices and cards ---

@test "devices that are not there are refused, and waited for" {
  more DEVICES=/dev/kfd RENDER_NODES=2
  run -0 on_host "$preflight" --check "$place/x.env"
  devices='dri/renderD128' run on_host "$preflight" --check "$place/x.env"
  refused device-missing
  [[ "$output" == *"/dev/kfd render nodes (have 1, need 2)"* ]]
  devices='' beside='waited; for node in kfd dri/renderD12{8,9}; do mknod "/dev/$node" c 1 3; done' \
    run -0 on_host "$preflight" --raise --wait 20 "$place/x.env"
}

@test "a file in the place of a device is no device" {
  more DEVICES=/dev/nvidia-uvm
  first='touch /dev/nvidia-uvm' run on_host "$preflight" --check "$place/x.env"
  refused device-missing
}

@test "memory that a card has not released is waited for, then refused with the card and the figures" {
  more RENDER_NODES=2 VRAM_USED_MAX_MIB=1024
  vram 1 30000
  run on_host "$preflight" --check "$place/x.env"
  refused vram-not-released
  [[ "$output" == *"card1: 30000 MiB in use, at most 1024"* ]]
  beside='waited; echo 1 >/sys/class/drm/card1/device/mem_info_vram_used' \
    run -0 on_host "$preflight" --raise --wait 20 "$place/x.env"
}

@test "one busy card of two does not matter to an engine that needs one" {
  more RENDER_NODES=1 VRAM_USED_MAX_MIB=1024
  vram 1 30000
  run -0 on_host "$preflight" --check "$place/x.env"
}

@test "a process that holds the cards is named, wherever its /dev comes from" {
  more DEVICES=/dev/kfd
  for node in kfd dri/renderD128; do
    beside="holds /dev/$node" run on_host "$preflight" --check "$place/x.env"
    refused cards-held
    [[ "$output" =~ "process "[0-9]+" (sleep) has /dev/$node open" ]]
  done
}

@test "a hostile file name names nobody else" {
  more DEVICES=/dev/kfd
  export hostile="$place/a
'/proc/1/fd/9' -> '/dev/kfd'"
  first='mkdir -p "${hostile%/*}"; exec 8>"$hostile"' run -0 on_host "$preflight" --check "$place/x.env"
}

@test "a holder that goes away in time is no obstacle; shared cards are a note" {
  more DEVICES=/dev/kfd
  beside='sleep 0.7 7<>/dev/kfd' run -0 on_host "$preflight" --raise --wait 20 "$place/x.env"
  more SHARED_CARDS=yes
  beside='holds /dev/kfd' run -0 on_host "$preflight" --raise --wait 20 "$place/x.env"
  [[ "$output" == *"note: cards-held: "*"not judged"* ]]
}

@test "--replacing: what the running engine holds is said and not judged, what is missing is still refused" {
  more DEVICES=/dev/kfd RAM_NEED_MIB=4000 VRAM_USED_MAX_MIB=1024
  memory 8388608 2048000
  vram 0 30000
  limit 100
  beside='holds /dev/kfd' run -0 on_host "$preflight" --check --replacing "$place/x.env"
  [[ "$output" == *"note: ttm: 100 pages now; the start raises it to 1024000"* ]]
  memory 4194304 4000000
  run on_host "$preflight" --check --replacing "$place/x.env"
  refused ttm-floor-over-ram
}

@test "an engine that needs neither cards nor pinned memory passes, and the checks that did not apply are named" {
  settings FORMAT=1 ENDPOINT=tiny RAM_NEED_MIB=300
  devices='' run -0 on_host "$preflight" --raise "$place/x.env"
  [[ "$output" == *"skip: devices: "* && "$output" == *"skip: ttm: "* && "$output" == *"ok: ram: "* ]]
}

# --- inside the unit ---

@test "--inside: the memlock limit of the engine itself" {
  settings FORMAT=1 ENDPOINT=x MEMLOCK_NEED_MIB=100
  run as_nobody bash -c "ulimit -l 1024; exec '$preflight' --inside '$place/x.env'"
  refused memlock-short
  [[ "$output" == *"have 1 MiB (256 pages), need 100 MiB (25600 pages), margin -99 MiB"* ]]
  settings FORMAT=1 ENDPOINT=x MEMLOCK_NEED_MIB=1
  run -0 as_nobody bash -c "ulimit -l 1024; exec '$preflight' --inside '$place/x.env'"
  settings FORMAT=1 ENDPOINT=x MEMLOCK_NEED_MIB=100
  run -0 on_host "$preflight" --inside "$place/x.env"
  [[ "$output" == *"skip: memlock: CAP_IPC_LOCK"* ]]
}

@test "--inside: a device that the account may not open" {
  settings FORMAT=1 ENDPOINT=x DEVICES=/dev/kfd RENDER_NODES=1
  run as_nobody "$preflight" --inside "$place/x.env"
  refused device-unusable
  [[ "$output" == *"uid 65534 cannot open /dev/kfd"* && "$output" == *"can open 0 of 2 render nodes"* ]]
  first='chmod 666 /dev/kfd /dev/dri/*' run -0 as_nobody "$preflight" --inside "$place/x.env"
}

# --- what is read ---

@test "a file that is not in the strict form is refused, whatever is wrong with it" {
  for text in '' 'FORMAT=1\nENDPOINT=x' '\n' '#\n' 'ENDPOINT=x\nFORMAT=1\n' 'FORMAT=1\n' 'FORMAT=2\nENDPOINT=x\n' \
    'FORMAT=1\r\nENDPOINT=x\r\n' 'FORMAT=1\nENDPOINT=x\0\n' 'FORMAT=1\nENDPOINT=x\nENDPOINT=x\n' \
    'FORMAT=1\nENDPOINT=$(id)\n' 'FORMAT=1\nENDPOINT=x\nexport WAIT_S=1\n' 'FORMAT=1\nENDPOINT=x\nWAIT_S=010\n' \
    'FORMAT=1\nENDPOINT=x\nWAIT_S= 5\n' 'FORMAT=1\nENDPOINT=x\nWAIT_S=-1\n' 'FORMAT=1\nENDPOINT=x\nWAIT_S=0x10\n' \
    'FORMAT=1\nENDPOINT=x\nWAIT_S=601\n' 'FORMAT=1\nENDPOINT=x\nWAIT_S\n' 'FORMAT=1\nENDPOINT=x\nPATH=/tmp\n' \
    'FORMAT=1\nENDPOINT=x\nRANKS=2\n' 'FORMAT=1\nENDPOINT=x\nTTM_TARGET_MIB=5\n' 'FORMAT=1\nENDPOINT=x\xc3\xa9\n' \
    'FORMAT=1\nENDPOINT=x\nRAM_NEED_MIB=1000000000\n' 'FORMAT=1\nENDPOINT=x\nDEVICES=/dev/../etc/passwd\n' \
    'FORMAT=1\nENDPOINT=x\nDEVICES=/dev/a,\n' 'FORMAT=1\nENDPOINT=x\nvalue[$(id)]=1\n' 'FORMAT=1\nENDPOINT=x\n WAIT_S=1\n'; do
    # shellcheck disable=SC2059
    printf "$text" >"$place/x.env"
    run on_host "$preflight" --check "$place/x.env"
    refused preflight-file-invalid || { echo "accepted: $text"; false; }
  done
  head -c 20000 /dev/zero | tr '\0' '#' >"$place/x.env"
  run on_host "$preflight" --check "$place/x.env"
  refused preflight-file-invalid
}

@test "a file that others can write, or could replace, is refused" {
  chmod 664 "$place/x.env"
  run on_host "$preflight" --check "$place/x.env"
  refused preflight-file-untrusted
  chmod 646 "$place/x.env"
  run on_host "$preflight" --check "$place/x.env"
  refused preflight-file-untrusted
  chmod 644 "$place/x.env"
  chown 65534 "$place/x.env"
  run on_host "$preflight" --check "$place/x.env"
  refused preflight-file-untrusted
  chown 0 "$place/x.env"
  for mode in 777 1777 775; do
    chmod "$mode" "$place"
    run on_host "$preflight" --check "$place/x.env"
    refused preflight-file-untrusted
  done
  chmod 755 "$place"
  chown 65534 "$place"
  run on_host "$preflight" --check "$place/x.env"
  refused preflight-file-untrusted
  chown 0 "$place"
  run -0 on_host "$preflight" --check "$place/x.env"
}

@test "links, second names, folders, pipes and devices in the place of the file are refused" {
  ln -s x.env "$place/link"
  run on_host "$preflight" --check "$place/link"
  refused preflight-file-untrusted
  ln "$place/x.env" "$place/second"
  run on_host "$preflight" --check "$place/x.env"
  refused preflight-file-untrusted
  rm "$place/second"
  mkfifo "$place/pipe"
  for other in "$place/pipe" "$place/host" /dev/null; do
    run timeout 20 "$preflight" --check "$other"
    refused preflight-file-untrusted
  done
  run on_host "$preflight" --check "$place/nothing"
  refused preflight-file-missing
  run on_host "$preflight" --check "$place/../${place##*/}/x.env"
  refused preflight-file-untrusted
}

@test "the folder may be root's own link, and no other; a link above it is refused" {
  mkdir "$place/r1" "$place/open"
  cp "$place/x.env" "$place/r1/"
  ln -s r1 "$place/current"
  run -0 on_host "$preflight" --check "$place/current/x.env"
  chown -h 65534 "$place/current"
  run on_host "$preflight" --check "$place/current/x.env"
  refused preflight-file-untrusted
  chmod 777 "$place/open"
  ln -s "$place/r1" "$place/open/current"
  run on_host "$preflight" --check "$place/open/current/x.env"
  refused preflight-file-untrusted
  mkdir "$place/r1/deep"
  cp "$place/x.env" "$place/r1/deep/"
  ln -s r1 "$place/up"
  run on_host "$preflight" --check "$place/up/deep/x.env"
  refused preflight-file-untrusted
  ln -s nowhere "$place/gone"
  run on_host "$preflight" --check "$place/gone/x.env"
  refused preflight-file-missing
}

@test "the environment becomes neither code nor another program" {
  mkdir "$place/bin"
  printf '#!/bin/sh\ntouch %s/pwned\nexec /usr/bin/stat "$@"\n' "$place" >"$place/bin/stat"
  chmod 755 "$place/bin/stat"
  echo "touch $place/pwned" >"$place/rc"
  run -0 on_host env "BASH_FUNC_stat%%=() { touch $place/pwned; }" "BASH_FUNC_printf%%=() { touch $place/pwned; }" \
    BASH_ENV="$place/rc" ENV="$place/rc" PATH="$place/bin:$PATH" SHELLOPTS=xtrace PS4="\$(touch $place/pwned)" \
    IFS=0123456789 QUOTING_STYLE=c "$preflight" --check "$place/x.env"
  [ ! -e "$place/pwned" ]
}

# --- the verdict ---

@test "the verdict is left whole, for one start, with the class of the refusal" {
  run -0 on_host env INVOCATION_ID=0123abcd "$preflight" --raise --verdict "$place/v" "$place/x.env"
  [ "$(head -n 1 "$place/v")" = "ok 0123abcd" ]
  [ "$(stat -c '%a %u' "$place/v")" = "644 0" ]
  memory 4194304 4000000
  limit 1
  run on_host "$preflight" --raise --verdict "$place/v" "$place/x.env"
  [ "$(head -n 1 "$place/v")" = "refused - ttm-floor-over-ram final" ]
  grep -q '^ttm-preflight: refused: ttm-floor-over-ram: .*margin -' "$place/v"
  memory 8388608 8000000
  more DEVICES=/dev/none
  run on_host "$preflight" --raise --wait 0 --verdict "$place/v" "$place/x.env"
  [ "$(head -n 1 "$place/v")" = "refused - device-missing passing" ]
  echo 'FORMAT=9' >"$place/x.env"
  run on_host "$preflight" --raise --verdict "$place/v" "$place/x.env"
  [ "$(head -n 1 "$place/v")" = "refused - preflight-file-invalid final" ]
  [ ! -e "$place/v.new" ]
}

@test "a verdict is not written where others could have prepared the place" {
  mkdir -m 1777 "$place/open"
  run on_host "$preflight" --raise --verdict "$place/open/v" "$place/x.env"
  refused preflight-verdict-unsafe
  [ ! -e "$place/open/v" ]
  run on_host "$preflight" --raise --verdict "$place/open/new/v" "$place/x.env"
  refused preflight-verdict-unsafe
  [ ! -e "$place/open/new" ]
  run -0 on_host "$preflight" --raise --verdict "$place/new/v" "$place/x.env"
  [ "$(stat -c '%a %u' "$place/new")" = "755 0" ]
  echo keep >"$place/precious"
  ln -s precious "$place/v"
  ln -s precious "$place/v.new"
  run -0 on_host "$preflight" --raise --verdict "$place/v" "$place/x.env"
  [ "$(cat "$place/precious")" = keep ]
  [ ! -L "$place/v" ]
}

@test "a verdict that cannot be written is a failure" {
  mkdir "$place/small"
  first='mount -t tmpfs -o size=4k,nr_inodes=1,mode=755 none "${host%/*}/small"' \
    run on_host "$preflight" --raise --verdict "$place/small/v" "$place/x.env"
  [ "$status" -eq 1 ]
  [[ "$output" == *"preflight-verdict-unsafe"*"cannot be written"* ]]
}

# --- usage ---

@test "usage errors are exit 2 and say the usage" {
  for words in '' '--check' '--raise --check f' 'f' '--raise f g' '--nonsense f' '--check --wait' '--check --wait 601 f' \
    '--check --wait x f' '--inside --replacing f' '--raise --verdict v f' '--inside --verdict /v f'; do
    # shellcheck disable=SC2086
    run "$preflight" $words
    [ "$status" -eq 2 ] || { echo "$words: $status"; false; }
    [[ "$output" == *"usage: ttm-preflight.sh"* ]]
  done
  run -0 "$preflight" --help
  [[ "$output" == *"exit: 0"* ]]
}

@test "every refusal that the script knows has its row and its page" {
  cd "$BATS_TEST_DIRNAME/../.."
  grep -oE '(refuse|settle|judge) .*' scripts/ttm-preflight.sh | grep -oE '\b(preflight|ttm|ram|cgroup|hugepages|memlock|device|vram|cards|page)-[a-z-]+[a-z]' |
    grep -vE '^ttm-preflight$' | sort -u >"$place/codes"
  [ "$(wc -l <"$place/codes")" -ge 15 ]
  while read -r code; do
    grep -q "^code = \"$code\"" controller/archonctl/release/preflight_codes.toml || { echo "no row: $code"; false; }
    [ -f "runbooks/$code.md" ]
  done <"$place/codes"
}
