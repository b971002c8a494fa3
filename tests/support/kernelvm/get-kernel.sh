#!/usr/bin/env bash
# get-kernel.sh DIR: Debian's kernel unpacked into DIR, as far as the virtual machine needs it (50 MB of 400).
# Does nothing where that was done before. Needs the packages that scripts/test installs.
set -euo pipefail
folder=$(realpath -m -- "$1")
[[ ! -e $folder/complete ]] || exit 0
rm -rf -- "$folder"
mkdir -p -- "$folder"
cd -- "$folder"
newest() { apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends:/ { print $2; exit }'; }
package=$(newest)
[[ $package ]] || apt-get -qq update
package=${package:-$(newest)}
[[ $package ]] || { echo "no linux-image-amd64 among the packages of this system" >&2 && exit 1; }
apt-get -o APT::Sandbox::User=root download -qq "$package"
wanted=('./boot/vmlinuz*' './lib/modules/*/modules.*')
for part in drivers/gpu/drm drivers/video/fbdev/core drivers/i2c drivers/virtio drivers/char fs/9p fs/netfs fs/fscache net/9p fs/overlayfs; do
  wanted+=("./lib/modules/*/kernel/$part/*" "./lib/modules/*/kernel/$part")
done
dpkg-deb --fsys-tarfile ./"$package"_*.deb | tar -x --wildcards "${wanted[@]}" 2>tar.log || grep -q 'Not found' tar.log
rm -f -- "$package"_*.deb tar.log
depmod -b "$folder" "$(ls lib/modules)"
touch complete
