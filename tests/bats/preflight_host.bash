# shellcheck shell=bash
# shellcheck disable=SC2016 # what runs within the mounts expands there
# A stand-in host for the preflight, which has no switch that moves /proc, /sys or /dev: each run gets its own mounts.
# Loaded by preflight.bats. Sets: place (root's alone), host (the stand-in), preflight (the script, where all can read it).

# make_host: 8 GiB of RAM, a TTM limit of half of it, two empty cards.
make_host() {
  place=$(mktemp -d /run/archon-bats.XXXXXX) && chmod 755 "$place"
  host=$place/host preflight=$place/ttm-preflight.sh
  cp "$BATS_TEST_DIRNAME/../../scripts/ttm-preflight.sh" "$preflight"
  mkdir -p "$host"/{module/ttm/parameters,class/drm/card{0,1}/device,cgroup}
  echo 1048576 >"$host/module/ttm/parameters/pages_limit"
  memory 8388608 8000000
  vram 0 10
  vram 1 10
  devices='kfd dri/renderD128 dri/renderD129'
  settings FORMAT=1 ENDPOINT=test RANKS=2 HOST_POOL_MIB=1000 NGRAM_TABLE_MIB=1000 PREFIX_CACHE_MIB=500 \
    MAX_NUM_BATCHED_TOKENS=500
}

# memory TOTAL_KB AVAILABLE_KB [HUGE_KB]
memory() { printf 'MemTotal: %s kB\nMemFree: 1 kB\nMemAvailable: %s kB\nHugetlb: %s kB\n' "$1" "$2" "${3:-0}" >"$host/meminfo"; }

# vram CARD MIB
vram() { echo $(($2 * 1048576)) >"$host/class/drm/card$1/device/mem_info_vram_used"; }

# limit [PAGES]: write or show the stand-in's TTM limit
limit() { if (($#)); then echo "$1" >"$host/module/ttm/parameters/pages_limit"; else cat "$host/module/ttm/parameters/pages_limit"; fi; }

# settings KEY=VALUE...: the file that is read; more: a line is added
settings() { printf '%s\n' "$@" >"$place/x.env"; }
more() { printf '%s\n' "$@" >>"$place/x.env"; }

# on_host COMMAND...: run it with the stand-in mounted, alone with its own processes, which end with it. `first` (a shell
# text) runs before it and `beside` at the same time; a line "NAME BYTES" of `limits` is one of its control group.
on_host() {
  timeout 60 unshare --mount --propagation private --pid --fork --kill-child --mount-proc bash -c '
    set -e
    holds() { exec sleep 99 7<>"$1"; }
    waited() { until pgrep -x sleep >/dev/null; do :; done; } # between two looks of the preflight
    host=$1 devices=$2 limits=$3 first=$4 beside=$5
    shift 5
    mount --bind "$host/module" /sys/module
    mount -t tmpfs -o mode=755 none /sys/class && cp -r "$host/class/." /sys/class/
    mount --bind "$host/meminfo" /proc/meminfo
    mount -t tmpfs -o mode=755 none /sys/fs/cgroup
    while read -r name bytes; do
      [[ -n $name ]] || continue
      group=$(sed -n "s/^0:://p" /proc/self/cgroup)
      [[ $name == memory.limit_in_bytes ]] && group=/memory$(sed -n "s/^[0-9]*:memory://p" /proc/self/cgroup)
      mkdir -p "/sys/fs/cgroup$group"
      echo "$bytes" >"/sys/fs/cgroup$group/$name"
    done <<<"$limits"
    mount -t tmpfs -o mode=755 none /dev
    mkdir /dev/dri && ln -s /proc/self/fd /dev/fd && mknod -m 666 /dev/null c 1 3
    for node in $devices; do mknod -m 660 "/dev/$node" c 1 3; done
    eval "$first"
    (eval "$beside") </dev/null >/dev/null 2>&1 3>&- 4>&- &
    [[ $beside != holds* ]] || until [[ $(<"/proc/$!/comm") == sleep ]]; do :; done
    exec "$@"
  ' _ "$host" "$devices" "${limits:-}" "${first:-}" "${beside:-}" "$@"
}

# as_nobody COMMAND...: on the stand-in host, as an account without rights
as_nobody() { on_host setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
