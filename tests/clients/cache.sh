#!/usr/bin/env bash
# containerd with caches of layers that `kiln pack --layers --containerd-cache` has filled: a pull takes the images from there, and converts
# only what the cache does not have. mkfs.erofs is a wrapper that counts its calls. As root.
#
#   cache.sh        exit code 77 if the parts cannot be had: Go and its module proxy, a kernel with EROFS
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$here/image.sh"
. "$here/daemon.sh"
need_kernel
programs
registry
make_image

# Questions for the help are no conversions: containerd asks them when it starts.
mkdir "$work/counting"
cat >"$work/counting/mkfs.erofs" <<WRAPPER
#!/bin/sh
case " \$* " in *" --help "* | *" --version "*) ;; *) echo "\$*" >>"$work/calls" ;; esac
exec "$names/mkfs.erofs" "\$@"
WRAPPER
chmod +x "$work/counting/mkfs.erofs"
PATH=$work/counting:$PATH

# pull CONVERSIONS WHAT: pulls the image into the containerd that runs; the tree must be right, and so many layers must have been converted.
pull() {
    pull_and_compare tar:1 "$1"
    [ "$(wc -l <"$work/calls")" = "$1" ] || {
        cat "$work/calls" >&2
        fail "$2: $(wc -l <"$work/calls") calls of mkfs.erofs instead of $1"
    }
}

# start_with CASE CACHE LINE...: a containerd with this cache; lines are options of the snapshotter.
start_with() {
    local name=$1 dir=$2
    shift 2
    : >"$work/calls"
    start "$name" 'mkfs_options = ["-T0", "--mkfs-time", "--sort=none"]' '[plugins."io.containerd.snapshotter.v1.erofs"]' \
        "layer_content_caches = [\"$work/not-there\", \"$dir\"]" "$@"
}

# Images of a cache, by their paths in it.
images_in() { (cd "$1" && find . -name '*.erofs' | sort); }

# Images of caches that snapshots stand for, by the labels that containerd gives them.
used() {
    ctr snapshots ls | awk 'NR > 1 { print $1 }' | while read -r name; do ctr snapshots info "$name"; done |
        sed -n 's|.*"io.containerd.erofs.v1/blob.ref": *"\([^"]*\)".*|\1|p' | sort
}
same_images() {
    used >"$work/used"
    (cd "$1" && find "$PWD" -name '*.erofs' | sort) | diff - "$work/used" >&2 || fail "$2: snapshots are not the images of the cache"
}

for kind in plain trees; do
    "$KILN" pack --quiet --layers --containerd-cache "$work/$kind" ${verity:+"$verity"} "$work/layout"
    verity=--verity
done
[ "$(images_in "$work/trees" | wc -l)" = 3 ] || fail "three layers have not become three images"

# The counter counts, and containerd's own tool makes a cache of the same names; its trees are right for kiln.
start_with none "$work/not-there-either"
pull 3 "no cache"
ctr images build-erofs-cache --dmverity "$registry/tar:1" "$work/of-containerd" >"$work/out" 2>&1 ||
    fail "ctr images build-erofs-cache: $(tail -1 "$work/out")"
stop
diff <(images_in "$work/of-containerd") <(images_in "$work/trees") >&2 || fail "containerd gives the images of a cache other names"
images_in "$work/of-containerd" | while read -r image; do
    sidecar=$work/of-containerd/$image.dmverity
    "$KILN" verity verify --quiet --root-hash "$(sed -n 's/.*"roothash": "\(.*\)".*/\1/p' "$sidecar")" "$work/of-containerd/$image" ||
        fail "the tree of containerd is wrong for kiln"
    # Of the same form, but for the values.
    diff <(sed 's/: "\?[0-9a-f]*/: /' "$sidecar") <(sed 's/: "\?[0-9a-f]*/: /' "$work/trees/$image.dmverity") >&2 ||
        fail "the file with the root hash has another form than that of containerd"
done
passed "no cache: 3 layers are converted; a cache of containerd has the same names, its trees are right"

start_with full "$work/plain"
pull 0 "full cache"
same_images "$work/plain" "full cache"
for tar in 1.tar 2.tar.gz 3.tar.zst; do
    digest=$(diff_id "$work/tars/$tar")
    ! ctr content ls -q | grep -q "$digest" || fail "full cache: layer $tar has been fetched"
done
stop
passed "full cache: no layer is fetched or converted"

start_with trees "$work/trees" 'dmverity_mode = "off"'
pull 0 "full cache with hash trees"
same_images "$work/trees" "full cache with hash trees"
stop
passed "full cache with hash trees: no layer is converted"

for n in 1 2 3; do
    hex=$(diff_id "$work/tars/$n.tar")
    hex=${hex#*:}
    mv "$work/plain/sha256/${hex:0:2}/$hex.erofs" "$work/aside"
    start_with "without-$n" "$work/plain"
    pull 1 "cache without layer $n"
    same_images "$work/plain" "cache without layer $n"
    stop
    mv "$work/aside" "$work/plain/sha256/${hex:0:2}/$hex.erofs"
done
passed "cache without one layer: this one is converted, whichever it is"

modprobe dm_verity 2>/dev/null || true
if [ -e /sys/module/dm_verity ]; then
    start_with verified "$work/trees" 'dmverity_mode = "on"'
    pull 0 "dm-verity"
    stop
    passed "full cache with hash trees: mounted by dm-verity"
else
    echo "SKIP: cache.sh: images of the cache mounted by dm-verity: the kernel has none"
fi
