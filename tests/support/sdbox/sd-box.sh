#!/bin/bash
# A real systemd as PID 1, in namespaces of its own, on a throwaway overlay of this machine's root.
# Needs root (CAP_SYS_ADMIN), overlayfs, cgroup2, and Debian's systemd and dbus. Installs nothing.
#
#   sd-box.sh up   DIR [BIND ...]   boot; BIND is a host path, mounted at the same path (prefix ro: for read-only)
#   sd-box.sh exec DIR CMD...       run a command inside all namespaces; its exit status is passed through
#   sd-box.sh run  DIR CMD...       like exec, but as a transient unit of the box
#   sd-box.sh down DIR              power off, wait, remove the cgroup
#
# SDBOX_NET=private|host (private)   SDBOX_SYSMODULE=DIR stands in for /sys/module
# SDBOX_UPPER=DIR keeps the box's changes there: down and up is then a reboot of the same machine
set -euo pipefail

readonly BOX_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
action=$1
dir=$(realpath -m "$2")
shift 2
name=$(basename "$dir")
group=sdbox-$name-$(cksum <<<"$dir" | cut -d ' ' -f 1) # two boxes may have one name
cgroup2=$(findmnt -n -l -t cgroup2 -o TARGET | head -1)

die() {
  echo "sd-box: $*" >&2
  exit 1
}

# Runs as PID 1 of the new namespaces: lays out the root, then becomes systemd.
inner() {
  local m=$dir/root bind ro unit node pair
  # A tmpfs as upper layer is fast, works on any file system, and vanishes with the mount namespace.
  mount -t tmpfs -o mode=755 sdbox "$m"
  mkdir "$m"/{u,w,r}
  local upper=$m/u work=$m/w
  if [ -n "${SDBOX_UPPER:-}" ]; then
    mkdir -p "$SDBOX_UPPER"/{u,w}
    upper=$SDBOX_UPPER/u work=$SDBOX_UPPER/w
  fi
  mount -t overlay sdbox -o "lowerdir=/,upperdir=$upper,workdir=$work" "$m/r"
  m=$m/r
  mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$m/tmp" # else systemd-tmpfiles walks the host's /tmp
  mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$m/run"
  mkdir -p "$m/run/lock"
  for bind in "$@"; do
    ro=
    case $bind in ro:*) bind=${bind#ro:} ro=1 ;; esac
    if [ -d "$bind" ]; then
      mkdir -p "$m$bind"
    else
      mkdir -p "$(dirname "$m$bind")"
      touch "$m$bind"
    fi
    mount --bind "$bind" "$m$bind"
    [ -z "$ro" ] || mount -o remount,bind,ro "$m$bind"
  done
  mount -t proc -o nosuid,nodev,noexec proc "$m/proc"
  # Kernel-wide settings stay out of reach; only those of the box's own network namespace are writable.
  mount --bind "$m/proc/sys" "$m/proc/sys"
  mount --bind "$m/proc/sys/net" "$m/proc/sys/net"
  mount -o remount,bind,ro "$m/proc/sys"
  mount -t sysfs -o nosuid,nodev,noexec sysfs "$m/sys"
  [ -z "${SDBOX_SYSMODULE:-}" ] || mount --bind "$SDBOX_SYSMODULE" "$m/sys/module"
  mount -o remount,bind,ro "$m/sys"
  mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$m/sys/fs/cgroup" # v2 alone: systemd runs unified
  mount -t tmpfs -o mode=755,nosuid tmpfs "$m/dev"
  for node in null zero full random urandom tty fuse net/tun; do
    [ -e /dev/$node ] || continue
    mkdir -p "$(dirname "$m/dev/$node")"
    : >"$m/dev/$node"
    mount --bind /dev/$node "$m/dev/$node"
  done
  mkdir "$m/dev/pts" "$m/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$m/dev/pts"
  ln -s pts/ptmx "$m/dev/ptmx"
  ln -s /proc/self/fd "$m/dev/fd"
  for pair in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${pair%%:*}" "$m/dev/${pair#*:}"; done
  mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$m/dev/shm"
  ip link set lo up 2>/dev/null || true
  echo "$name" >"$m/etc/hostname"
  cd "$m"
  mkdir -p .old
  pivot_root . .old
  umount -l /.old
  rmdir /.old
  local etc=/etc/systemd/system
  mkdir -p $etc
  for unit in systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-udev-trigger.service \
    systemd-timesyncd.service systemd-sysctl.service systemd-firstboot.service systemd-remount-fs.service \
    systemd-tmpfiles-clean.timer systemd-update-utmp.service systemd-hwdb-update.service \
    systemd-network-generator.service systemd-networkd.service systemd-resolved.service getty.target \
    console-getty.service dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
    sys-kernel-config.mount sys-fs-fuse-connections.mount tmp.mount modprobe@.service kmod-static-nodes.service \
    systemd-modules-load.service ldconfig.service systemd-pcrphase.service systemd-pcrphase-sysinit.service; do
    ln -sf /dev/null "$etc/$unit"
  done
  if [ ! -e /etc/.sdbox ]; then # first boot: nothing that the machine's own packages enabled may start here
    rm -rf $etc/*.wants/* $etc/*.requires/*
    rm -f /etc/machine-id /var/lib/dbus/machine-id /.dockerenv /usr/sbin/policy-rc.d
    : >/etc/machine-id
    touch /etc/.sdbox
  fi
  ln -sf /lib/systemd/system/multi-user.target $etc/default.target
  for unit in apt-daily apt-daily-upgrade dpkg-db-backup e2scrub_all fstrim man-db logrotate; do
    ln -sf /dev/null "$etc/$unit.timer"
  done
  mkdir -p /etc/systemd/journald.conf.d
  printf '[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\nForwardToSyslog=no\n' \
    >/etc/systemd/journald.conf.d/sdbox.conf
  rm -rf /var/log/journal
  exec env -i container=sdbox PATH="$BOX_PATH" LANG=C.UTF-8 \
    /lib/systemd/systemd --system --show-status=no --log-target="${SDBOX_LOG_TARGET:-journal-or-kmsg}"
}

up() {
  mkdir -p "$dir/root"
  [ -n "$cgroup2" ] || die "no cgroup2 is mounted"
  mkdir -p "$cgroup2/$group"
  local net=--net pid unshare_pid state
  [ "${SDBOX_NET:-private}" != host ] || net=
  # Two stages: PID 1 joins its cgroup first and unshares the cgroup namespace then, so that only processes of
  # the box are in it (a foreign one makes "systemctl status" fail with EIO).
  # shellcheck disable=SC2016,SC2086
  setsid unshare --mount --propagation private --pid --fork --kill-child --uts --ipc $net \
    bash -c 'echo 0 >"$1/cgroup.procs"; shift; exec unshare --cgroup "$@"' _ "$cgroup2/$group" \
    bash "$0" inner "$dir" "$@" </dev/null >"$dir/log" 2>&1 &
  unshare_pid=$!
  for _ in $(seq 2400); do
    pid=$(tr -d ' ' 2>/dev/null <"/proc/$unshare_pid/task/$unshare_pid/children") || true
    if [ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = systemd ]; then
      echo "$pid" >"$dir/pid1"
      state=$(nsenter -t "$pid" -a -- systemctl is-system-running 2>/dev/null) || true
      case $state in running | degraded)
        echo "up: pid1=$pid state=$state"
        exit 0
        ;;
      esac
    fi
    [ -d /proc/$unshare_pid ] || die "it died: $(cat "$dir/log")"
    sleep .05
  done
  die "not running in time: $(cat "$dir/log")"
}

down() {
  local pid
  pid=$(cat "$dir/pid1")
  kill -s 38 "$pid" 2>/dev/null || true # SIGRTMIN+4: poweroff.target
  for _ in $(seq 200); do
    [ -d "/proc/$pid" ] || break
    sleep .05
  done
  [ ! -d "/proc/$pid" ] || kill -9 "$pid"
  for _ in $(seq 300); do # what was killed is gone a little later
    find "$cgroup2/$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
    [ -d "$cgroup2/$group" ] || break
    sleep .1
  done
  [ ! -d "$cgroup2/$group" ] || die "cgroup $group is left"
  echo down
}

enter() { # nsenter's --wd would leave a working directory outside the root
  exec nsenter -t "$(cat "$dir/pid1")" -a --wdns=/ -- env -i PATH="$BOX_PATH" "$@"
}

case $action in
  up) up "$@" ;;
  inner) inner "$@" ;;
  exec) enter HOME=/root LANG=C.UTF-8 TERM=dumb "$@" ;;
  run) enter systemd-run --quiet --pipe --wait --collect -E PATH -E LANG=C.UTF-8 -- "$@" ;;
  down) down ;;
  *) die "unknown action $action" ;;
esac
