# shellcheck shell=bash
# Runs within the virtual machine, as root. Each look at the kernel is a file in /mnt/out/facts.
# shellcheck disable=SC2016 # what units and other shells expand
# PREFLIGHT, UNIT and GUARD are set by the lines that the test puts before this text.
knob=/sys/module/ttm/parameters/pages_limit
place=/var/lib/archon-kernel-test
facts=/mnt/out/facts
mkdir -p $facts $place

# fact NAME COMMAND...: its output and its exit status
fact() {
  local name=$1 code=0
  shift
  "$@" >"$facts/$name" 2>&1 || code=$?
  echo "exit=$code" >>"$facts/$name"
}
show() { cat $knob; }
settings() { printf '%s\n' FORMAT=1 ENDPOINT=vm "$@" >"$place/x.env"; }
# floor MIB: a preflight file that pins so much
floor() { settings RANKS=2 HOST_POOL_MIB=100 NGRAM_TABLE_MIB=$(($1 - 300)) PREFIX_CACHE_MIB=50 MAX_NUM_BATCHED_TOKENS=50 "${@:2}"; }
preflight() { "$PREFLIGHT" "$@" "$place/x.env"; }
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

install -m 755 "$PREFLIGHT" $place/ttm-preflight.sh
PREFLIGHT=$place/ttm-preflight.sh
modprobe ttm

fact total awk '/^MemTotal/ { print $2 }' /proc/meminfo
fact mode stat -c '%a %u:%g' $knob
fact without-device show
floor 1200
fact check-without-device preflight --check
# the preflight waits for the device that the driver makes, and judges what it left
floor 600 DEVICES=/dev/dri/card0
(sleep 1.5 && modprobe bochs) &
fact wait-for-device preflight --raise --wait 60
wait
# what was written before the device was there is not overwritten by the default
fact after-device show
unbind() { echo 0 >/sys/class/vtconsole/vtcon1/bind && modprobe -r bochs drm_vram_helper drm_ttm_helper ttm; }
fact unbind unbind
modprobe ttm
floor 1200
fact raise-without-device preflight --raise
modprobe bochs
fact raised-before-device show
fact unbind-again unbind
modprobe bochs
fact default show
default=$(show)

fact check-short preflight --check
fact nobody-check-short nobody "$PREFLIGHT" --check "$place/x.env"
fact nobody-writes nobody bash -c "echo 1 >$knob"
fact nobody-raises nobody "$PREFLIGHT" --raise --wait 0 "$place/x.env"
fact untouched show
# as the init container of a pod: root without a capability, /sys read-only but for what is mounted over it
pod() {
  unshare --mount bash -c '
    [[ $1 == closed ]] || mount --bind "${2%/*}" "${2%/*}"
    mount -o remount,bind,ro /sys && shift 2 &&
      exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"' - "$1" "$knob" "${@:2}"
}
floor 1200
fact pod-closed pod closed "$PREFLIGHT" --raise --wait 0 "$place/x.env"
fact pod pod open "$PREFLIGHT" --raise --wait 0 "$place/x.env"
fact pod-raised show
fact pod-capabilities pod open grep ^CapEff: /proc/self/status
fact pod-writes-elsewhere pod open bash -c 'echo 1 >/sys/module/printk/parameters/time'
echo "$default" >$knob
floor 1200 TTM_TARGET_MIB=1500
fact raise preflight --raise
fact raised show
fact nobody-check nobody "$PREFLIGHT" --check "$place/x.env"
floor 1900 TTM_TARGET_MIB=100000
fact over-ram preflight --raise
fact over-ram-set show
floor 1200
mount -o remount,ro /sys
echo 1 2>/dev/null >$knob
mount -o remount,rw /sys && echo "$default" >$knob && mount -o remount,ro /sys
fact read-only preflight --raise
mount -o remount,rw /sys
floor 600
echo 18446744073709551615 >$knob
fact absurd preflight --check
fact absurd-raise preflight --raise
echo 1 >$knob
fact tiny preflight --check
fact tiny-raise preflight --raise
fact tiny-raised show

# what the kernel makes of what is written: the reason for the strict grammar
write() {
  echo 4242 >$knob
  { printf '%s' "$1" >$knob; } 2>/dev/null && echo taken || echo refused
  show
}
for text in 010 ' 77' 0x10 +5 -1 abc '' 18446744073709551615 18446744073709551616 0; do fact "write $text" write "$text"; done

# huge pages and limits of control groups and of locked memory: real ones
echo "$default" >$knob
sysctl -q vm.nr_hugepages=200
settings RAM_NEED_MIB=1700
fact hugepages preflight --check
sysctl -q vm.nr_hugepages=0
settings RAM_NEED_MIB=300 MEMLOCK_NEED_MIB=64
# unit NAME LINE...: a service with those lines, started once; it has its own limits
unit() {
  local name=$1
  shift
  printf '%s\n' '[Service]' Type=oneshot "StandardOutput=append:$facts/$name.said" "StandardError=append:$facts/$name.said" "$@" \
    >"/run/systemd/system/$name.service"
  systemctl start "$name"
}
fact group unit group MemoryMax=200M "ExecStart=$PREFLIGHT --check $place/x.env"
fact group-high unit group-high MemoryHigh=200M "ExecStart=$PREFLIGHT --check $place/x.env"
fact memlock-short unit memlock-short User=nobody LimitMEMLOCK=1M "ExecStart=$PREFLIGHT --inside $place/x.env"
fact memlock unit memlock User=nobody LimitMEMLOCK=infinity "ExecStart=$PREFLIGHT --inside $place/x.env"
# root's command within a unit of an account: it raises the limit, and does not get the unit's memlock
floor 1200 TTM_TARGET_MIB=1300
fact unit unit endpoint User=nobody LimitMEMLOCK=1M \
  "ExecStartPre=-+$PREFLIGHT --raise --verdict /run/archon/vm.preflight $place/x.env" \
  'ExecStartPre=+/bin/bash -c "echo memlock of root: $(ulimit -l)"' \
  'ExecStartPre=/bin/bash -c "echo memlock of the account: $(ulimit -l)"' \
  "ExecStart=/bin/sh -c 'read -r word invocation </run/archon/vm.preflight; test \"\$word \$invocation\" = \"ok \$INVOCATION_ID\"'"
fact unit-raised show

# the unit's own policy against a real out-of-memory kill, the real limit of locked memory, and a step of the clock
oom_unit() {
  echo '[Unit]'
  grep '^StartLimit' "$UNIT"
  echo '[Service]'
  grep -E '^(Restart|Limit|KillMode|OOMPolicy|TimeoutStartFailureMode)' "$UNIT" | sed 's/^RestartSec=.*/RestartSec=10ms/'
  printf '%s\n' User=nobody MemoryMax=32M MemorySwapMax=0 "StandardOutput=append:/run/$1-said"
  echo "ExecStart=/bin/sh -c 'grep \"Max locked\" /proc/self/limits; $2'"
}
oom_unit oom 'exec tail /dev/zero' >/run/systemd/system/archon@oom.service
oom_unit oom-worker 'tail /dev/zero & sleep 1000' >/run/systemd/system/oom-worker.service
systemctl daemon-reload
for name in archon@oom oom-worker; do
  systemctl start "$name"
  for _ in $(seq 300); do
    [[ $(systemctl show -p ActiveState --value "$name") != failed ]] || break
    sleep 0.2
  done
done
fact oom-worker systemctl show oom-worker -p ActiveState -p NRestarts
fact oom-worker-said cat /run/oom-worker-said
fact oom systemctl show archon@oom -p ActiveState -p Result -p NRestarts
fact oom-said cat /run/oom-said
fact oom-kernel-lines sh -c "dmesg --notime 2>/dev/null | grep oom-kill: || dmesg | grep oom-kill:"
fact oom-kernel sh -c "dmesg | grep -c 'Memory cgroup out of memory'"
date -s '+400 days' >/dev/null
sleep 1
date -s '-800 days' >/dev/null
sleep 1
fact oom-after-clock-steps systemctl show archon@oom -p ActiveState -p Result -p NRestarts
fact oom-said-after wc -l /run/oom-said

# the guard's unit with keys that only root can read: what its account sees of them
getent passwd archon-guard || useradd --system archon-guard
install -m 600 /dev/stdin $place/guard.keys <<<'alice:sk-alice-0123456789'
install -m 644 "$GUARD" /run/systemd/system/archon-guard@.service
install -d /run/systemd/system/archon-guard@vm.service.d
cat >/run/systemd/system/archon-guard@vm.service.d/keys.conf <<UNIT
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
Restart=no
LoadCredential=keys:$place/guard.keys
ExecStart=
ExecStart=/bin/sh -c 'id -un; ls "\$CREDENTIALS_DIRECTORY"; cat "\$CREDENTIALS_DIRECTORY/keys"; cat $place/guard.keys'
StandardOutput=file:$facts/guard-credential
StandardError=null
UNIT
systemctl daemon-reload
fact guard-started systemctl start archon-guard@vm
