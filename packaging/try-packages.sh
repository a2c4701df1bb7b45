#!/usr/bin/env bash
# Installs each package of this machine's architecture in a root that has nothing else, and uses it there; the static
# binary also in an empty directory, and that of the other architecture by emulation. Needs root.
#
#   KILN_TRIPS=n      number of random trees that make the whole trip by emulation; 24
set -euo pipefail
cd "$(dirname "$0")/.."
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
dist=$target_dir/dist
here=$(uname -m)
place=$(mktemp -d)
# Mounts in the roots, /dev of this machine among them, are gone before anything is removed.
finish() {
    awk -v dir="$place/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | tac | xargs -r -n 1 umount
    rm -rf --one-file-system "$place"
}
trap finish EXIT
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
failed=0

say() { printf '%-60s %s\n' "$1" "$2"; }
try() { # NAME COMMAND…: runs the command, and tells how it went
    local name=$1
    shift
    if "$@" >"$place.log" 2>&1; then say "$name" ok; else say "$name" FAILED; sed 's/^/    /' "$place.log"; failed=1; fi
    rm -f "$place.log"
}

# An empty root: the program, and a tree to pack.
empty=$place/empty
mkdir -p "$empty/tree/dir" "$empty/tmp"
cp "$dist/$here/kiln" "$empty/kiln"
head -c 100000 /dev/zero | tr '\0' 'k' >"$empty/tree/dir/file"
try "static: pack in an empty root" chroot "$empty" /kiln pack --quiet /tree /image.erofs
try "static: check in an empty root" chroot "$empty" /kiln check /image.erofs
try "static: extract in an empty root" chroot "$empty" /kiln extract --quiet /image.erofs /out
try "static: the files are the same" cmp "$empty/tree/dir/file" "$empty/out/dir/file"
try "static: says what is missing" sh -c "chroot '$empty' /kiln mount --via fuse /image.erofs /tmp 2>&1 | grep -q '/dev/fuse'"
try "static: no program interpreter" sh -c "! readelf -l '$empty/kiln' | grep -q INTERP"

# The other architecture packs the same bytes.
other=$([ "$here" = x86_64 ] && echo aarch64 || echo x86_64)
if [ -x "$dist/$other/kiln" ] && emulator=$(command -v "qemu-$other-static" || command -v "qemu-$other"); then
    for options in "" "--preset archive" "--preset fast" "-z lzma" "-z deflate,9" "--kernel 6.17"; do
        # shellcheck disable=SC2086 # words
        try "$other: pack $options" "$emulator" "$dist/$other/kiln" pack --quiet --force $options "$empty/tree" "$empty/other.erofs"
        # shellcheck disable=SC2086
        "$dist/$here/kiln" pack --quiet --force $options "$empty/tree" "$empty/image.erofs"
        try "$other: the same bytes $options" cmp "$empty/image.erofs" "$empty/other.erofs"
    done
    for image in crates/read/tests/golden/*.erofs; do
        [ -e "${image%.erofs}.blob" ] && continue
        # What one of the two refuses, both refuse, in the same words.
        try "$other: check $(basename "$image")" sh -c "
            '$dist/$here/kiln' check '$image' >'$place/one' 2>&1; a=\$?
            '$emulator' '$dist/$other/kiln' check '$image' >'$place/two' 2>&1; b=\$?
            [ \$a = \$b ] && cmp '$place/one' '$place/two'"
    done
    # Random trees: the same bytes, and back again.
    cargo build --quiet --package kiln-tests --bin random-tree
    rows=("" "--preset archive" "-z lz4hc -C 16k" "-z lzma" "--preset dataset" "-z deflate -C 64k" "--preset fast" "--kernel 5.4")
    trip() { # SEED OPTIONS…
        local seed=$1 tree=$place/trip/tree
        shift
        rm -rf "$place/trip"
        mkdir -p "$tree"
        "$target_dir/debug/random-tree" "$seed" "$tree"
        "$dist/$here/kiln" pack --quiet "$@" "$tree" "$place/trip/here.erofs"
        "$emulator" "$dist/$other/kiln" pack --quiet "$@" "$tree" "$place/trip/other.erofs"
        cmp "$place/trip/here.erofs" "$place/trip/other.erofs"
        "$emulator" "$dist/$other/kiln" check "$place/trip/other.erofs"
        "$emulator" "$dist/$other/kiln" extract --quiet "$place/trip/other.erofs" "$place/trip/out"
        "$dist/$here/kiln" diff --quiet "$tree" "$place/trip/out"
    }
    for ((seed = 0; seed < ${KILN_TRIPS:-24}; seed++)); do
        # A function that is called in a condition does not end at the first failure by itself.
        # shellcheck disable=SC2086 # words
        try "$other: random tree $seed" bash -c 'set -e; eval "$1"; shift; trip "$@"' trip \
            "$(declare -p target_dir dist here other emulator place; declare -f trip)" "$seed" ${rows[seed % ${#rows[@]}]}
    done
else
    say "$other" "skipped: no binary, or no emulator"
fi

# A Debian root with nothing but dpkg's own needs.
deb=$(ls "$dist"/packages/kiln_*_"$(dpkg --print-architecture 2>/dev/null || echo none)".deb 2>/dev/null | head -n 1)
if [ -n "$deb" ] && command -v debootstrap >/dev/null; then
    root=$place/debian
    try "deb: a root" debootstrap --variant=minbase stable "$root"
    cp "$deb" "$root/kiln.deb"
    mkdir -p "$root/tree" && cp README.md "$root/tree/"
    mkdir "$root/mnt/image"
    mount --bind /dev "$root/dev"
    begun=$(date +%s%N)
    try "deb: install, pack and mount" chroot "$root" sh -c "
        dpkg -i /kiln.deb && kiln pack --quiet /tree /first.erofs && mount -t proc proc /proc &&
        kiln mount --quiet /first.erofs /mnt/image && cmp /tree/README.md /mnt/image/README.md"
    say "deb: from the package to a mounted image" "$((($(date +%s%N) - begun) / 1000000)) ms"
    umount "$root/mnt/image" "$root/proc" 2>/dev/null || :
    try "deb: pack" chroot "$root" kiln pack --quiet /tree /image.erofs
    try "deb: mkfs.erofs is kiln" sh -c "chroot '$root' mkfs.erofs --version | grep -q kiln"
    try "deb: pages" test -e "$root/usr/share/man/man1/kiln-pack.1.gz"
    try "deb: mount -t kiln" chroot "$root" sh -c "mount -t proc proc /proc; mount -t kiln /image.erofs /mnt/image && cmp /tree/README.md /mnt/image/README.md; umount /mnt/image"
    umount "$root/dev" "$root/proc" 2>/dev/null || :
    try "deb: remove" chroot "$root" dpkg -r kiln
    try "deb: nothing is left" sh -c "! ls '$root'/usr/bin/kiln '$root'/usr/bin/mkfs.erofs '$root'/usr/sbin/mount.kiln 2>/dev/null"
else
    say "deb" "skipped: no package, or no debootstrap"
fi

# Roots with nothing at all: the program is static. The scripts of packages need a shell, so they do not run.
rpm=$(ls "$dist"/packages/kiln-*."$here".rpm 2>/dev/null | head -n 1)
if [ -n "$rpm" ] && command -v rpm >/dev/null; then
    root=$place/rpm
    mkdir -p "$root/tree" && cp README.md "$root/tree/"
    try "rpm: a root" rpm --root "$root" --initdb
    try "rpm: install" rpm --root "$root" --install --nodeps --noscripts --ignoresize "$rpm"
    try "rpm: verify" rpm --root "$root" --verify --nodeps --noscripts kiln
    try "rpm: pack" chroot "$root" /usr/bin/kiln pack --quiet /tree /image.erofs
    try "rpm: read" sh -c "chroot '$root' /usr/bin/kiln cat /image.erofs /README.md | cmp - README.md"
    try "rpm: remove" rpm --root "$root" --erase --noscripts kiln
    try "rpm: nothing is left" sh -c "! ls '$root'/usr/bin/kiln '$root'/usr/sbin/mount.kiln 2>/dev/null"
else
    say "rpm" "skipped: no package, or no rpm"
fi
apk=$(ls "$dist"/packages/kiln_*_"$here".apk 2>/dev/null | head -n 1)
if [ -n "$apk" ]; then
    root=$place/apk
    mkdir -p "$root/tree" && cp README.md "$root/tree/"
    # Three archives, one behind the other: signature, description, files. apk itself is not on other systems.
    try "apk: description" sh -c "tar -xOzf '$apk' .PKGINFO | grep -q '^pkgname = kiln'"
    try "apk: unpack" tar -xzf "$apk" --warning=no-unknown-keyword -C "$root"
    try "apk: pack" chroot "$root" /usr/bin/kiln pack --quiet /tree /image.erofs
    try "apk: read" sh -c "chroot '$root' /usr/bin/kiln cat /image.erofs /README.md | cmp - README.md"
else
    say "apk" "skipped: no package"
fi

archive=$dist/packages/kiln-$version-linux-$here.tar.zst
if [ -e "$archive" ]; then
    mkdir "$place/unpacked"
    try "tar.zst: unpack" tar -C "$place/unpacked" --zstd -xf "$archive"
    try "tar.zst: run" "$place/unpacked/kiln-$version-linux-$here/kiln" --version
    try "checksums" sh -c "cd '$dist/packages' && sha256sum --quiet -c SHA256SUMS"
fi
layout=$dist/packages/kiln-$version-oci-$here
if [ -d "$layout" ]; then
    try "container: the program in it" sh -c "'$dist/$here/kiln' pack --quiet --force --from oci '$layout' '$place/oci.erofs' && '$dist/$here/kiln' cat '$place/oci.erofs' /usr/bin/kiln | cmp - '$dist/$here/kiln'"
    try "container: run" "$dist/$here/kiln" run --at "$place/unpacked" --chroot "$place/oci.erofs" -- /usr/bin/kiln --version
fi
exit $failed
