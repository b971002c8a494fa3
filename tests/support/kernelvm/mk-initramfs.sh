#!/usr/bin/env bash
# mk-initramfs.sh KERNEL-DIR OUT INIT MODULE...: an initramfs of busybox, INIT as /init, and the modules in the order of
# their dependencies.
set -euo pipefail
kernel=$(realpath -- "$1") out=$(realpath -m -- "$2") init=$(realpath -- "$3")
shift 3
version=$(ls "$kernel/lib/modules")
tree=$(mktemp -d)
trap 'rm -rf -- "$tree"' EXIT
mkdir -p "$tree"/{bin,proc,sys,dev,newroot,lib/modules}
cp -- "$(command -v busybox)" "$tree/bin/busybox"
: >"$tree/modules"
for module in "$@"; do
  while read -r how path _; do
    name=${path##*/}
    name=${name%.xz}
    [[ $how == insmod && ! -e $tree/lib/modules/$name ]] || continue
    case $path in *.xz) xz -dc -- "$path" ;; *) cat -- "$path" ;; esac >"$tree/lib/modules/$name"
    echo "$name" >>"$tree/modules"
  done < <(modprobe -d "$kernel" -S "$version" --show-depends "$module")
done
install -m 755 -- "$init" "$tree/init"
(cd -- "$tree" && find . -print0 | cpio --null -o -H newc --quiet | gzip -1) >"$out"
