#!/bin/bash -p
# Root's part of starting an endpoint: read a strict file, make sure that the host allows what the engine needs, raise
# the kernel's TTM limit if it must be raised, and say in numbers what is missing.
#
#   ttm-preflight.sh --raise  [OPTION...] FILE    as root: raises the limit, waits (bounded) for what is still coming
#   ttm-preflight.sh --check  [OPTION...] FILE    changes nothing and does not wait
#   ttm-preflight.sh --inside FILE                within the unit's own limits and account: memlock, access to devices
#   ttm-preflight.sh --print  FILE                what was understood of FILE
#
#   --verdict OUT   leave the outcome in OUT: "ok INVOCATION" or "refused INVOCATION CODE CLASS", then what was said;
#                   CLASS is "final" (the next start would end the same way) or "passing"
#   --replacing     what the engine that runs now holds is said and not judged, nor waited for: it is stopped first, or it
#                   stays and only the limit is raised
#   --wait S        wait at most S seconds, whatever FILE says
#
# exit: 0 the engine may start, 1 refused, 2 usage. Every refusal has a code: archonctl explain CODE.
#
# Needs bash and coreutils. -p: nothing of the environment (BASH_ENV, exported functions, SHELLOPTS) becomes code.
# There is no switch and no variable that moves /proc, /sys or /dev: tests give it others in a mount namespace.
set -uf
LC_ALL=C
IFS=$' \t\n'
umask 022
((EUID)) || PATH=/usr/sbin:/usr/bin:/sbin:/bin

readonly LARGEST_FILE=16384 RAM_SHARE_PERCENT=90 MANY_PAGES=4503599627370496 FILES_AT_ONCE=20000
readonly FLOOR_KEYS=(RANKS HOST_POOL_MIB NGRAM_TABLE_MIB PREFIX_CACHE_MIB MAX_NUM_BATCHED_TOKENS)
# The largest value of each key that holds a number. Nine digits: no product of them overflows 63 bits.
declare -rA LARGEST=([FORMAT]=1 [RANKS]=1024 [HOST_POOL_MIB]=999999999 [NGRAM_TABLE_MIB]=999999999
  [PREFIX_CACHE_MIB]=999999999 [MAX_NUM_BATCHED_TOKENS]=999999999 [TTM_TARGET_MIB]=999999999 [RAM_NEED_MIB]=999999999
  [MEMLOCK_NEED_MIB]=999999999 [RENDER_NODES]=1024 [VRAM_USED_MAX_MIB]=999999999 [WAIT_S]=600)

mode='' file='' verdict='' replacing='' wait_s='' invocation=${INVOCATION_ID:-}
[[ $invocation =~ ^[0-9a-f]{1,64}$ ]] || invocation=-
lines=() codes=() class=passing
declare -A value=()

say() {
  lines+=("ttm-preflight: $*")
  printf 'ttm-preflight: %s\n' "$*" >&2
}

# refuse CLASS CODE SENTENCE
refuse() {
  [[ $1 == passing ]] || class=final
  codes+=("$2")
  say "refused: $2: $3"
}

# finish: the verdict, in words, in OUT and as the exit status.
finish() {
  local name=${value[ENDPOINT]:-the endpoint} outcome="ok $invocation" status=0
  if ((${#codes[@]})); then
    outcome="refused $invocation ${codes[0]} $class" status=1
    printf -v listed '%s, ' "${codes[@]}"
    say "refused $name: ${listed%, }"
  else
    say "ok $name"
  fi
  if [[ $verdict ]] && ! leave_verdict "$outcome"; then
    printf 'ttm-preflight: refused: preflight-verdict-unsafe: %s cannot be written\n' "$verdict" >&2
    status=1
  fi
  exit "$status"
}

# leave_verdict LINE: whole or not at all.
leave_verdict() {
  local fresh=$verdict.new
  [[ ! -e $fresh && ! -L $fresh ]] || rm -f -- "$fresh"
  set -C # never through a link, never into a file that is there
  { printf '%s\n' "$1" "${lines[@]}" >"$fresh"; } 2>/dev/null && mv -f -T -- "$fresh" "$verdict"
}

usage() {
  printf 'ttm-preflight: %s\n' "$1" >&2
  printf 'usage: ttm-preflight.sh --raise|--check|--inside|--print [--verdict OUT] [--replacing] [--wait S] FILE\n' >&2
  exit 2
}

arguments() {
  while (($#)); do
    case $1 in
    --raise | --check | --inside | --print)
      [[ ! $mode ]] || usage "$1 after $mode"
      mode=$1
      ;;
    --verdict | --wait)
      (($# > 1)) || usage "$1 needs a value"
      if [[ $1 == --wait ]]; then wait_s=$2; else verdict=$2; fi
      shift
      ;;
    --replacing) replacing=yes ;;
    -h | --help)
      # from this file, up to the first line that is no comment
      while IFS= read -r line && [[ $line == '#'* ]]; do
        [[ $line == '#!'* ]] || printf '%s\n' "${line#'#'}"
      done <"$0"
      exit 0
      ;;
    -*) usage "no option $1" ;;
    *)
      [[ ! $file ]] || usage "one file, not also $1"
      file=$1
      ;;
    esac
    shift
  done
  [[ $mode ]] || usage "say what to do"
  [[ $file ]] || usage "name the file"
  [[ ! $wait_s || $wait_s =~ ^(0|[1-9][0-9]{0,2})$ && $wait_s -le 600 ]] || usage "--wait takes 0 to 600 seconds"
  [[ ! $replacing || $mode == --raise || $mode == --check ]] || usage "--replacing goes with --raise and --check"
  [[ ! $verdict || $verdict == /*[!/] ]] || usage "--verdict takes an absolute path"
  [[ ! $verdict || $mode == --raise || $mode == --check ]] || usage "--verdict goes with --raise and --check"
}

# --- what may be trusted --------------------------------------------------------------------------------------------

# above PATH: append PATH's folders, from / down, to the array `parts` as folders.
above() {
  local rest=${1#/} at=
  parts+=(/) kinds+=(folder)
  while [[ $rest == */* ]]; do
    at+=/${rest%%/*} rest=${rest#*/}
    parts+=("$at") kinds+=(folder)
  done
}

# trusted CODE: every entry of parts is of its kind, root's, and writable by root alone. Sets `size` of the last one.
trusted() {
  local stats index owner bits links kind=''
  if ! mapfile -t stats < <(stat -c '%u %f %h %s' -- "${parts[@]}" 2>/dev/null) || ((${#stats[@]} != ${#parts[@]})); then
    for index in "${!parts[@]}"; do
      [[ -e ${parts[index]} || -L ${parts[index]} ]] && continue
      [[ $1 != preflight-file-untrusted ]] || set -- preflight-file-missing
      refuse final "$1" "${parts[index]}: not there, or not to be seen by uid $EUID"
      return 1
    done
    refuse final "$1" "${parts[-1]}: cannot be looked at"
    return 1
  fi
  for index in "${!stats[@]}"; do
    read -r owner bits links size <<<"${stats[index]}"
    bits=$((16#$bits))
    case $((bits >> 12)) in 4) kind='folder' ;; 8) kind='file' ;; 10) kind='link' ;; *) kind='special file' ;; esac
    if [[ $kind != "${kinds[index]}" ]]; then
      refuse final "$1" "${parts[index]}: is a $kind, not a ${kinds[index]}; name the place itself"
    elif ((owner != 0)); then
      refuse final "$1" "${parts[index]}: belongs to uid $owner, not to root; chown root:root it"
    elif ((bits & 8#022)) && [[ $kind != link ]]; then
      refuse final "$1" "${parts[index]}: others than root may write to it (mode $(printf %04o $((bits & 8#7777)))); chmod go-w it"
    elif [[ $kind == file ]] && ((links != 1)); then
      refuse final "$1" "${parts[index]}: has $links names (hard links), expected one"
    else
      continue
    fi
    return 1
  done
}

plain_path() { [[ $1 == /* && $1 != *//* && /$1/ != */./* && /$1/ != */../* && $1 != */ && $1 != *$'\n'* ]]; }

trust_file() {
  local parts=() kinds=() folder
  [[ $file == /* ]] || file=${PWD%/}/${file#./}
  if ! plain_path "$file"; then
    refuse final preflight-file-untrusted "$file: name it by an absolute path without . .. and //"
    return 1
  fi
  folder=${file%/*}
  if [[ $folder && -L $folder ]]; then
    # NAME/current is a link that root switches; only root can, since it and all above it are root's.
    above "$folder"
    parts+=("$folder") kinds+=(link)
    if ! cd -P -- "$folder" 2>/dev/null; then
      refuse final preflight-file-missing "$folder: leads nowhere"
      return 1
    fi
    file=${PWD%/}/${file##*/}
    cd / || return 1
  fi
  above "$file"
  parts+=("$file") kinds+=(file)
  trusted preflight-file-untrusted
}

trust_verdict() {
  local parts=() kinds=() size folder=${verdict%/*}
  if ! plain_path "$verdict"; then
    refuse final preflight-verdict-unsafe "$verdict: name it by an absolute path without . .. and //"
  elif { [[ -e $folder || -L $folder ]] || new_folder "$folder"; } && above "$verdict" && trusted preflight-verdict-unsafe; then
    [[ ! -e $verdict && ! -L $verdict ]] || rm -f -- "$verdict" && return 0
    refuse final preflight-verdict-unsafe "$verdict: cannot be replaced"
  fi
  verdict=''
  return 1
}

# new_folder FOLDER: made where only root could have put something else
new_folder() {
  local parts=() kinds=()
  above "$1"
  trusted preflight-verdict-unsafe || return 1
  mkdir -m 0755 -- "$1" 2>/dev/null && return 0
  refuse final preflight-verdict-unsafe "$1: cannot be made"
  return 1
}

# --- the file -------------------------------------------------------------------------------------------------------

invalid() {
  refuse final preflight-file-invalid "$file:$1: $2"
  return 1
}

read_file() {
  local text='' line number=0 size
  trust_file || return 1
  ((size <= LARGEST_FILE)) || { invalid 1 "$size bytes, at most $LARGEST_FILE"; return 1; }
  if IFS= read -r -d '' text 2>/dev/null <"$file"; then
    invalid 1 "holds a NUL byte"
    return 1
  elif ((${#text} != size)); then
    invalid 1 "${#text} of $size bytes could be read"
    return 1
  elif [[ $text != *$'\n' ]]; then
    invalid 1 "the last line is not ended: the file is empty or was cut short"
    return 1
  fi
  while [[ $text ]]; do
    line=${text%%$'\n'*} text=${text#*$'\n'} number=$((number + 1))
    [[ $line != *[!\ -~]* ]] || { invalid "$number" "holds a character that is not printable ASCII"; return 1; }
    [[ $line && $line != '#'* ]] || continue
    take_line "$line" || return 1
  done
  complete
}

# take_line NAME=VALUE, with `number` of the caller
take_line() {
  local name=${1%%=*} text=${1#*=}
  [[ $1 == *=* && $name =~ ^[A-Z][A-Z0-9_]*$ ]] || { invalid "$number" "is neither KEY=VALUE nor a comment"; return 1; }
  [[ ! -v "value[$name]" ]] || { invalid "$number" "$name is set a second time"; return 1; }
  ((${#value[@]})) || [[ $name == FORMAT ]] || { invalid "$number" "begins with $name, expected FORMAT=1"; return 1; }
  if [[ -v "LARGEST[$name]" ]]; then
    # "010" would be eight for the kernel and for bash
    [[ $text =~ ^(0|[1-9][0-9]{0,8})$ ]] || { invalid "$number" "$name is no plain whole number: ${text:0:40}"; return 1; }
    ((text <= LARGEST[$name])) || { invalid "$number" "$name is $text, at most ${LARGEST[$name]}"; return 1; }
    [[ $text != 0 || $name != @(FORMAT|RANKS) ]] || { invalid "$number" "$name is 0, at least 1"; return 1; }
  else
    case $name in
    ENDPOINT) [[ $text =~ ^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$ ]] ;;
    SHARED_CARDS) [[ $text == yes || $text == no ]] ;;
    DEVICES) [[ $text =~ ^/dev(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+(,/dev(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+)*$ && ${#text} -le 2000 ]] ;;
    *)
      invalid "$number" "$name is not known"
      return 1
      ;;
    esac || { invalid "$number" "$name does not take ${text:0:60}"; return 1; }
  fi
  value[$name]=$text
}

# complete: what must be there is there; sets floor_mib (0: nothing is pinned).
complete() {
  local name there=()
  [[ -v value[FORMAT] ]] || { invalid 1 "sets nothing, expected FORMAT=1 first"; return 1; }
  [[ -v value[ENDPOINT] ]] || { invalid 1 "ENDPOINT is missing"; return 1; }
  for name in "${FLOOR_KEYS[@]}"; do
    [[ ! -v "value[$name]" ]] || there+=("$name")
  done
  floor_mib=0
  if ((${#there[@]} == ${#FLOOR_KEYS[@]})); then
    # tokens of a step are counted 1:1 in MiB
    floor_mib=$((value[RANKS] * value[HOST_POOL_MIB] + value[NGRAM_TABLE_MIB] + value[PREFIX_CACHE_MIB] + value[MAX_NUM_BATCHED_TOKENS]))
  elif ((${#there[@]})) || [[ -v value[TTM_TARGET_MIB] ]]; then
    invalid 1 "the floor needs all of ${FLOOR_KEYS[*]}"
    return 1
  fi
}

# --- what the host has ----------------------------------------------------------------------------------------------

# figures HAVE_KIB NEED_KIB: sets `figured`; what is there is rounded down, what is needed up, so the margin adds up
figures() {
  local have=$(($1 / 1024)) pages=$(($1 / page_kib)) need=$((($2 + 1023) / 1024)) need_pages=$((($2 + page_kib - 1) / page_kib))
  printf -v figured 'have %d MiB (%d pages), need %d MiB (%d pages), margin %+d MiB (%+d pages)' \
    "$have" "$pages" "$need" "$need_pages" $((have - need)) $((pages - need_pages))
}

# judge CLASS CHECK CODE HAVE_KIB NEED_KIB SENTENCE FIX
judge() {
  figures "$4" "$5"
  if (($4 >= $5)); then
    say "ok: $2: $figured"
  elif [[ $replacing && $1 == passing ]]; then
    say "note: $3: $6: $figured; not judged, for the running engine is stopped first"
  else
    refuse "$1" "$3" "$6: $figured; $7"
    return 1
  fi
}

# page_size: sets page_kib. The kernel's own word is in smaps; x86-64 has one size of base pages.
page_size() {
  local rows row found
  page_kib=''
  mapfile -t -n 40 rows 2>/dev/null </proc/self/smaps
  for row in "${rows[@]}"; do
    [[ $row =~ ^KernelPageSize:\ +([0-9]+)\ kB$ ]] && page_kib=${BASH_REMATCH[1]} && return 0
  done
  [[ $HOSTTYPE == x86_64 ]] && page_kib=4 && return 0
  found=$(getconf PAGESIZE 2>/dev/null) && [[ $found =~ ^[0-9]{4,7}$ ]] && page_kib=$((found / 1024)) && return 0
  refuse final page-size-unknown "the kernel does not tell the size of its pages"
  return 1
}

# meminfo: sets total_kib, available_kib, huge_kib ('' where a line is missing)
meminfo() {
  local rows row
  total_kib='' available_kib='' huge_kib=0
  mapfile -t rows 2>/dev/null </proc/meminfo
  for row in "${rows[@]}"; do
    [[ $row =~ ^(MemTotal|MemAvailable|Hugetlb):\ +([0-9]{1,15})\ kB$ ]] || continue
    case ${BASH_REMATCH[1]} in
    MemTotal) total_kib=${BASH_REMATCH[2]} ;;
    MemAvailable) available_kib=${BASH_REMATCH[2]} ;;
    *) huge_kib=${BASH_REMATCH[2]} ;;
    esac
  done
}

# cgroup_limit: sets limit_kib (the smallest of this process's groups and all above) and limit_file; '' without one.
cgroup_limit() {
  local rows row group mount names name path text
  limit_kib='' limit_file=''
  mapfile -t rows 2>/dev/null </proc/self/cgroup
  for row in "${rows[@]}"; do
    group=/${row#*:*:/}
    case $row in
    0::*) mount=/sys/fs/cgroup names='memory.max memory.high' && [[ ! -d $mount/unified ]] || mount=/sys/fs/cgroup/unified ;;
    *:*memory*:*) mount=/sys/fs/cgroup/memory names=memory.limit_in_bytes ;;
    *) continue ;;
    esac
    group=${group%/}
    while :; do
      for name in $names; do
        path=$mount$group/$name
        [[ -r $path ]] && read -r text 2>/dev/null <"$path" && [[ $text =~ ^[0-9]{1,18}$ ]] || continue
        [[ $limit_kib ]] && ((text / 1024 >= limit_kib)) || limit_kib=$((text / 1024)) limit_file=$path
      done
      [[ $group ]] || break
      group=${group%/*}
    done
  done
}

# ttm: sets ttm_file and ttm_pages; AMD's packaged driver has its own copy of the module, and that one binds.
ttm() {
  local module
  ttm_file='' ttm_pages=''
  for module in amdttm ttm; do
    ttm_file=/sys/module/$module/parameters/pages_limit
    [[ -e $ttm_file ]] && break
    ttm_file=''
  done
  [[ $ttm_file ]] && read -r ttm_pages 2>/dev/null <"$ttm_file" && [[ $ttm_pages =~ ^(0|[1-9][0-9]{0,19})$ ]] || ttm_pages=''
  # the kernel takes anything up to 2^64 - 1; more than 16 EiB of pages is simply "no limit"
  [[ ${#ttm_pages} -lt 16 ]] || ttm_pages=$MANY_PAGES
}

# --- what may still come: devices, memory that is being released, cards that are held ---------------------------------

# expand PATTERN: sets `found` to the paths that match
expand() {
  set +f
  # shellcheck disable=SC2206 # the pattern is ours
  found=($1)
  set -f
  [[ ${found[0]:-} != "$1" ]] || found=()
}

# coming: sets pending[CODE] to what is missing now
coming() {
  local device missing='' found code
  pending=() aside=()
  for device in ${value[DEVICES]//,/ }; do
    [[ -c $device ]] || missing+=" $device"
  done
  expand '/dev/dri/renderD*'
  ((${#found[@]} >= value[RENDER_NODES])) || missing+=" render nodes (have ${#found[@]}, need ${value[RENDER_NODES]})"
  [[ ! $missing ]] || pending[device-missing]="not there:$missing"
  ((floor_mib == 0)) || [[ -e /sys/module/amdttm/parameters/pages_limit || -e /sys/module/ttm/parameters/pages_limit ]] ||
    pending[ttm-absent]='neither /sys/module/ttm nor /sys/module/amdttm is there'
  vram_pending
  holders
  for code in cards-held vram-not-released; do
    [[ ${value[SHARED_CARDS]} == yes && -v "pending[$code]" ]] || continue
    aside[$code]=${pending[$code]}
    unset "pending[$code]"
  done
  meminfo
  if ((value[RAM_NEED_MIB])) && [[ $available_kib ]] && ((available_kib < value[RAM_NEED_MIB] * 1024)); then
    pending[ram-short]='memory is not available'
  fi
}

# vram_pending: as many cards as are needed must be as good as empty
vram_pending() {
  local found path text free=0 full=''
  vram_known=''
  [[ ${value[VRAM_USED_MAX_MIB]} ]] || return 0
  expand '/sys/class/drm/card[0-9]*/device/mem_info_vram_used'
  for path in "${found[@]}"; do
    read -r text 2>/dev/null <"$path" && [[ $text =~ ^[0-9]{1,18}$ ]] || continue
    vram_known=yes
    if ((text / 1048576 <= value[VRAM_USED_MAX_MIB])); then
      free=$((free + 1))
    else
      path=${path#/sys/class/drm/}
      figures $((value[VRAM_USED_MAX_MIB] * 1024)) $((text / 1024))
      full+=" ${path%%/*}: $((text / 1048576)) MiB in use, at most ${value[VRAM_USED_MAX_MIB]} (${figured##*, });"
    fi
  done
  [[ ! $vram_known ]] || ((free >= (value[RENDER_NODES] ? value[RENDER_NODES] : ${#found[@]}))) || pending[vram-not-released]="${full# }"
}

# holders: other processes that have a compute device or a render node open. What a closing engine holds goes away.
holders() {
  local found rows=() row from pid comm named=' ' who=''
  [[ ${value[DEVICES]} || ${value[RENDER_NODES]} != 0 ]] || return 0
  expand '/proc/[0-9]*/fd/*'
  for ((from = 0; from < ${#found[@]}; from += FILES_AT_ONCE)); do
    mapfile -t -O "${#rows[@]}" rows < <(QUOTING_STYLE=shell-escape-always stat -c %N -- "${found[@]:from:FILES_AT_ONCE}" 2>/dev/null)
  done
  for row in "${rows[@]}"; do
    [[ $row == *" -> '/dev/"@(kfd|dri/renderD+([0-9])|nvidia+([0-9])|nvidia-uvm)"'" ]] || continue
    pid=${row#"'/proc/"} pid=${pid%%/*}
    [[ $named != *" $pid "* ]] || continue
    named+="$pid "
    read -r comm 2>/dev/null <"/proc/$pid/comm" || comm='?'
    row=${row##*"-> '"}
    who+=", process $pid (${comm//[!A-Za-z0-9._:+-]/?}) has ${row%"'"} open"
  done
  [[ ! $who ]] || pending[cards-held]=${who#, }
}

await() {
  local until code said='' nap=0.1
  until=$((SECONDS + ${wait_s:-${value[WAIT_S]}}))
  [[ $mode == --raise && ! $replacing ]] || until=0
  declare -gA pending=() aside=()
  while coming; ((${#pending[@]})) && ((SECONDS < until)) && ! hopeless; do
    [[ $said ]] || for code in "${!pending[@]}"; do say "note: $code: ${pending[$code]}; waiting up to $((until - SECONDS)) s"; done
    said=yes
    sleep "$nap"
    nap=0.5
  done
}

# hopeless: there is less RAM than the engine needs, and waiting brings no more
hopeless() { [[ $total_kib ]] && ((total_kib < value[RAM_NEED_MIB] * 1024)); }

# settle CODE FIX: what is still pending after the wait
settle() {
  if [[ -v "aside[$1]" ]]; then
    say "note: $1: ${aside[$1]}; not judged, for the cards are declared to be shared"
  elif [[ ! -v "pending[$1]" ]]; then
    return 0
  elif [[ $replacing && $1 != device-missing ]]; then
    say "note: $1: ${pending[$1]}; not judged, for the running engine is stopped first"
  else
    refuse passing "$1" "${pending[$1]}; $2"
  fi
}

devices_and_cards() {
  if [[ ! ${value[DEVICES]} && ${value[RENDER_NODES]} == 0 ]]; then
    say "skip: devices: this endpoint needs none"
  elif [[ ! -v pending[device-missing] ]]; then
    say "ok: devices: ${value[DEVICES]:-none by name}, ${value[RENDER_NODES]} render nodes"
  else
    settle device-missing "is the GPU driver loaded?"
  fi
  [[ ! ${value[VRAM_USED_MAX_MIB]} || $vram_known ]] || say "note: vram: no card tells its memory in sysfs"
  settle vram-not-released "stop what holds the cards' memory, or wait until it is gone"
  settle cards-held "stop it, or declare cards_shared in the host profile"
}

# --- RAM, and the TTM limit -----------------------------------------------------------------------------------------

memory() {
  local need_kib=$((value[RAM_NEED_MIB] * 1024)) of=passing
  ((need_kib)) || { say "skip: ram, cgroup, hugepages: the need of this endpoint is not known"; return 0; }
  if [[ ! $total_kib ]]; then
    say "note: ram: /proc/meminfo has no MemTotal; not judged"
  elif ((huge_kib && total_kib >= need_kib)); then
    judge final hugepages hugepages-reserved $((total_kib - huge_kib)) "$need_kib" \
      "$((huge_kib / 1024)) MiB of RAM are set aside as huge pages" "lower vm.nr_hugepages"
  fi
  [[ ! $total_kib ]] || ((total_kib >= need_kib)) || of=final
  if [[ ! $available_kib ]]; then
    say "note: ram: /proc/meminfo has no MemAvailable; not judged"
  else
    judge "$of" ram ram-short "$available_kib" "$need_kib" \
      "MemAvailable is under what the engine will hold" "stop what uses the memory, or lower the need"
  fi
  cgroup_limit
  if [[ ! $limit_kib ]]; then
    say "ok: cgroup: no memory limit"
  elif [[ $replacing ]]; then
    say "note: cgroup: $limit_file allows $((limit_kib / 1024)) MiB to this shell; the unit's own group is judged at its start"
  else
    judge final cgroup cgroup-limit-short "$limit_kib" "$need_kib" "$limit_file" \
      "raise MemoryMax= and MemoryHigh= of the unit and its slices"
  fi
}

# write_pages N: as root by writing; for a person by sudo, if that asks nothing
write_pages() {
  { printf '%d\n' "$1" >"$ttm_file"; } 2>/dev/null && return 0
  ((EUID)) && type -P sudo >/dev/null && printf '%d\n' "$1" | sudo -n tee "$ttm_file" >/dev/null 2>&1
}

limit() {
  local floor_kib=$((floor_mib * 1024)) was allowed wanted module
  ((floor_mib)) || { say "skip: ttm: this endpoint pins no memory through the GPU driver"; return 0; }
  ttm
  module=${ttm_file#/sys/module/} module=${module%%/*}
  if [[ ! $ttm_file ]]; then
    refuse passing ttm-absent "${pending[ttm-absent]:-no ttm module}; is the GPU driver loaded? need $floor_mib MiB ($((floor_kib / page_kib)) pages)"
    return 1
  elif [[ ! $ttm_pages ]]; then
    refuse final ttm-unreadable "$ttm_file holds no number; need $floor_mib MiB ($((floor_kib / page_kib)) pages)"
    return 1
  fi
  what_ram_allows
  [[ $mode != --raise ]] || raise
  if [[ $replacing && $mode == --check ]] && ((ttm_pages * page_kib < floor_kib && allowed >= floor_kib)); then
    say "note: ttm: $ttm_pages pages now; the start raises it to $wanted"
  elif ((ttm_pages == 0)) && [[ $mode == --check ]]; then
    figures 0 "$floor_kib"
    refuse passing ttm-not-set-yet "$module shows 0 until the first GPU device is there, which says nothing: need ${figured#*need }; the start sets it"
    return 1
  elif ((ttm_pages * page_kib < floor_kib)); then
    cap_short
    return 1
  fi
  figures $((ttm_pages * page_kib)) "$floor_kib"
  say "ok: ttm: $figured"
  say "note: ttm: $module's limit is soft, and a driver may have copied it as it loaded: the engine's boot is the proof"
}

# what_ram_allows: sets `allowed` (KiB) and `wanted` (pages): the target, or what RAM allows if that is less
what_ram_allows() {
  allowed=$((value[TTM_TARGET_MIB] * 1024))
  ((allowed >= floor_kib)) || allowed=$floor_kib
  if [[ $total_kib ]] && ((allowed > (total_kib - huge_kib) * RAM_SHARE_PERCENT / 100)); then
    allowed=$(((total_kib - huge_kib) * RAM_SHARE_PERCENT / 100))
  fi
  wanted=$((allowed / page_kib))
}

# raise: never down
raise() {
  was=$ttm_pages
  ((wanted > ttm_pages)) || return 0
  write_pages "$wanted"
  ttm
  ((ttm_pages == was)) || say "raised: $was -> $ttm_pages pages ($module, asked for $wanted)"
}

cap_short() {
  figures $((ttm_pages * page_kib)) "$floor_kib"
  if [[ $mode == --check ]] && ((allowed >= floor_kib)); then
    refuse final ttm-cap-short "$module pins at most this: $figured; raise it: sudo ttm-preflight.sh --raise $file"
  elif ((allowed < floor_kib)); then
    refuse final ttm-floor-over-ram "$RAM_SHARE_PERCENT % of RAM without huge pages are $((allowed / 1024)) MiB: $figured; lower the host pool or the prefix cache"
  elif ((EUID)); then
    refuse final ttm-cap-not-raised "uid $EUID may not write $ttm_file, and sudo -n is not there or wants a password: $figured; run it as root"
  else
    refuse final ttm-cap-not-raised "$ttm_file is still $ttm_pages after $wanted was written: $figured; is /sys read-only here?"
  fi
}

# --- inside the unit's limits ---------------------------------------------------------------------------------------

memlock() {
  local need_kib=$((value[MEMLOCK_NEED_MIB] * 1024)) have rows row
  ((need_kib)) || { say "skip: memlock: this endpoint locks no memory"; return 0; }
  mapfile -t rows </proc/self/status
  for row in "${rows[@]}"; do
    if [[ $row =~ ^CapEff:[[:space:]]([0-9a-f]+)$ ]] && ((16#${BASH_REMATCH[1]} >> 14 & 1)); then
      say "skip: memlock: CAP_IPC_LOCK, no limit binds"
      return 0
    fi
  done
  have=$(ulimit -S -l)
  [[ $have != unlimited ]] || { say "ok: memlock: unlimited"; return 0; }
  judge final memlock memlock-short "$have" "$need_kib" "the unit may lock this" "LimitMEMLOCK=infinity in the unit"
}

access() {
  local device found opened=0
  for device in ${value[DEVICES]//,/ }; do
    { : <>"$device"; } 2>/dev/null ||
      refuse final device-unusable "uid $EUID cannot open $device for reading and writing; add the account to the group that owns it, and see DeviceAllow="
  done
  ((value[RENDER_NODES])) || return 0
  expand '/dev/dri/renderD*'
  for device in "${found[@]}"; do
    { : <>"$device"; } 2>/dev/null && opened=$((opened + 1))
  done
  ((opened >= value[RENDER_NODES])) || refuse final device-unusable \
    "uid $EUID can open $opened of ${#found[@]} render nodes, ${value[RENDER_NODES]} are needed; add the account to the group render"
}

main() {
  local name
  arguments "$@"
  shopt -s extglob
  [[ ! $verdict ]] || trust_verdict || finish
  read_file || finish
  if [[ $mode == --print ]]; then
    for name in "${!value[@]}"; do printf '%s=%s\n' "$name" "${value[$name]}"; done
    printf 'floor_mib=%d\n' "$floor_mib"
    exit 0
  fi
  : "${value[RENDER_NODES]=0}" "${value[RAM_NEED_MIB]=0}" "${value[MEMLOCK_NEED_MIB]=0}" "${value[TTM_TARGET_MIB]=0}"
  : "${value[DEVICES]=}" "${value[VRAM_USED_MAX_MIB]=}" "${value[SHARED_CARDS]=no}" "${value[WAIT_S]=30}"
  page_size || finish
  if [[ $mode == --inside ]]; then
    memlock
    access
  else
    await
    devices_and_cards
    memory
    limit
  fi
  finish
}

main "$@"
