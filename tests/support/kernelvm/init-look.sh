#!/bin/busybox sh
# The first process of a machine that only looks: what the kernel's ttm module makes of the memory, on the console.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
knob=/sys/module/ttm/parameters/pages_limit
while read -r module; do
  insmod "/lib/modules/$module"
  [ "$module" != ttm.ko ] || echo "alone=$(cat $knob)"
done </modules
sed -n 's/^MemTotal: *\([0-9]*\) kB/total_kib=\1/p' /proc/meminfo
echo "pages_limit=$(cat $knob)"
poweroff -f
