#!/usr/bin/env bash
# systemd-repart, which calls `mkfs.erofs` for a partition: kiln. Partitions are made of a tree, mounted by the kernel and compared with it;
# with SOURCE_DATE_EPOCH a disk has the same bytes whenever it is made. As root. Debian's stable systemd-repart does not know EROFS, so that of
# Debian sid is unpacked beside the system.
#
#   repart.sh        exit code 77 if the parts cannot be had: systemd-repart 255 or newer, a kernel with EROFS, loop devices
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$here/debian.sh"
need losetup od cmp
need_kernel

need_sid bin/systemd-repart

tree=$work/tree
mkdir -p "$tree"/{bin,etc/empty,home,special}
cp "$(command -v bash)" "$tree/bin/shell"
ln "$tree/bin/shell" "$tree/bin/shell-linked"
ln -s shell "$tree/bin/sh"
chmod 4755 "$tree/bin/shell"
setfattr -n security.capability -v 0x0100000200240000000000000000000000000000 "$tree/bin/shell"
seq 1 200000 >"$tree/etc/numbers"
setfattr -n user.note -v 'a note' "$tree/etc/numbers"
head -c 300001 /dev/urandom >"$tree/etc/noise"
for number in {1..200}; do echo "small file $number" >"$tree/etc/$number"; done
echo mine >"$tree/home/file" && chown -R 1000:1001 "$tree/home" && chmod 700 "$tree/home"
mknod -m 666 "$tree/special/null" c 1 3
mkfifo "$tree/special/pipe"
find "$tree" -depth -exec touch -h -d @1500000000 {} +
describe "$tree" >"$work/expected"

# disk FILE OFFLINE LINE...: a disk with one partition, whose definition has these lines beside the common ones.
disk() {
    local file=$1 offline=$2
    shift 2
    rm -rf "$work/definitions"
    mkdir "$work/definitions"
    printf '%s\n' '[Partition]' Type=root Format=erofs CopyFiles=/:/ AddValidateFS=no "$@" >"$work/definitions/10-root.conf"
    of_sid bin/systemd-repart --empty=create --size=auto --dry-run=no --offline="$offline" --root="$tree" --definitions="$work/definitions" \
        --seed=00000000-1111-2222-3333-444444444444 --json=pretty ${sector:+--sector-size="$sector"} "$file" >"$work/report" 2>"$work/out" || {
        tail -10 "$work/out" >&2
        fail "systemd-repart has failed for $*"
    }
}

# Mounts the partition and compares what the kernel shows.
compare() {
    local device
    device=$(losetup --find --show --read-only --sector-size "${sector:-512}" --offset "$(partition_offset "$1")" "$1")
    at_exit+=("losetup -d $device 2>/dev/null")
    mkdir -p "$work/mnt"
    mount -t erofs -o ro "$device" "$work/mnt" || fail "the kernel does not mount the partition: $(dmesg | tail -1)"
    same_tree "$work/expected" "$work/mnt"
    umount "$work/mnt"
    losetup -d "$device"
}

# Prints the offset of the first partition according to the GPT: its header in block 1 has the block
# of the table at byte 72, and an entry has its first block at byte 32.
number_at() { od -An -tu8 -j "$2" -N 8 "$1" | tr -d ' '; }
partition_offset() {
    local block=${sector:-512}
    echo $(($(number_at "$1" $(($(number_at "$1" $((block + 72))) * block + 32))) * block))
}

both_ways() {
    local offline what=$1
    shift
    for offline in yes no; do
        disk "$work/disk" "$offline" "$@"
        compare "$work/disk"
        mv "$work/disk" "$work/first"
        disk "$work/disk" "$offline" "$@"
        cmp "$work/first" "$work/disk" || fail "$what: two disks with one SOURCE_DATE_EPOCH are different"
        rm "$work/first" "$work/disk"
        echo "ok: $what, offline=$offline, twice the same bytes"
    done
}

export SOURCE_DATE_EPOCH=1700000000
[ "$(command -v mkfs.erofs)" = "$names/mkfs.erofs" ]
both_ways "as small as it gets" Minimize=best
both_ways "as small as it gets, zstd" Minimize=best Compression=zstd CompressionLevel=3
both_ways "lz4hc in a partition of 16 MiB" SizeMinBytes=16M Compression=lz4hc
sector=4096
both_ways "sectors of 4096 bytes" SizeMinBytes=16M
