#!/bin/busybox sh
# The first process of the virtual machine: this machine's own root (9p, read-only) under an overlay in memory, then its
# own systemd. The job is /mnt/out/guest; its status goes to /mnt/out/status.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/lib/modules/$module"; done </modules
options=trans=virtio,version=9p2000.L,msize=262144
mkdir -p /lower /upper
mount -t 9p -o "$options,ro,cache=loose" root /lower
mount -t tmpfs -o mode=755 upper /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work root /newroot || exec sh
root=/newroot
mkdir -p $root/usr/lib/modules $root/mnt/out
mount -t 9p -o "$options,ro,cache=loose" kernel-modules $root/usr/lib/modules
mount -t 9p -o "$options" out $root/mnt/out
mount -t tmpfs -o mode=1777 tmp $root/tmp
mount -t tmpfs -o mode=755 run $root/run
units=$root/etc/systemd/system
rm -rf $units/*.wants
for unit in systemd-timesyncd systemd-firstboot systemd-remount-fs systemd-update-utmp systemd-hwdb-update systemd-logind \
  systemd-networkd systemd-resolved systemd-pcrphase systemd-pcrphase-sysinit ldconfig systemd-udev-trigger systemd-udevd \
  systemd-random-seed systemd-fsck-root systemd-journal-flush modprobe@ systemd-sysctl systemd-tmpfiles-setup \
  systemd-tmpfiles-setup-dev dbus; do
  ln -sf /dev/null $units/$unit.service
done
for unit in getty.target tmp.mount sys-fs-fuse-connections.mount systemd-udevd-kernel.socket systemd-udevd-control.socket \
  systemd-tmpfiles-clean.timer systemd-ask-password-wall.path dbus.socket; do
  ln -sf /dev/null $units/$unit
done
cat >$units/job.target <<'UNIT'
[Unit]
Wants=job.service
UNIT
cat >$units/job.service <<'UNIT'
[Unit]
DefaultDependencies=no
After=systemd-journald.service
[Service]
StandardOutput=append:/mnt/out/said
StandardError=append:/mnt/out/said
ExecStart=/bin/bash -c 'bash /mnt/out/guest; echo $$? >/mnt/out/status; sync'
ExecStopPost=/bin/systemctl --force --force poweroff
UNIT
rm -f $root/etc/machine-id $root/var/lib/dbus/machine-id $root/.dockerenv
: >$root/etc/machine-id
: >$root/etc/fstab
umount /sys /proc
mount -o move /dev $root/dev
exec switch_root $root /lib/systemd/systemd --unit=job.target --show-status=no
