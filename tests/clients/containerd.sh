#!/usr/bin/env bash
# containerd with its EROFS snapshotter and differ, which call `mkfs.erofs`: kiln. An image is made here, pushed to a registry on this machine,
# pulled, unpacked and mounted; what a container would see must be what its layers say. As root.
#
#   containerd.sh            exit code 77 if the parts cannot be had: Go and its module proxy, a kernel with EROFS
#   containerd.sh --bench    how long containerd unpacks an image with kiln, and with MKFS=path/to/mkfs.erofs
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$here/image.sh"
. "$here/daemon.sh"
need_kernel

# One layer at least is so: not all have something to compress.
a_layer_says() {
    layers | xargs -d '\n' -n 1 "$KILN" info >"$work/info"
    grep -q "$1" "$work/info" || fail "no layer says $1"
}

# A report, no test: unpacking 400 MB of programs and documents by kiln and by another mkfs.erofs, in turn.
bench() {
    local peer=${MKFS:?MKFS is to be the other mkfs.erofs} runs=${RUNS:-5} n name options title
    peer=$(realpath "$peer")
    # Four layers of a hundred megabytes: files of BENCH_TREE from its front on.
    mkdir "$work/tars"
    (cd "${BENCH_TREE:-/usr}" && find . -xdev -type f -printf '%s %p\n' | LC_ALL=C sort -k 2) |
        awk -v work="$work" '{ n = int(sum / 1e8) + 1; sum += $1; sub(/^[0-9]+ /, "") } n <= 4 { print >(work "/list-" n) }'
    local layers=()
    for n in 1 2 3 4; do
        tar -C "${BENCH_TREE:-/usr}" --format=pax --numeric-owner -cf "$work/tars/$n.tar" -T "$work/list-$n"
        layers+=(application/vnd.oci.image.layer.v1.tar "$work/tars/$n.tar" "$(diff_id "$work/tars/$n.tar")")
    done
    layout "$work/layout" bench "${layers[@]}"
    crane push "$work/layout" "$registry/bench:1" >/dev/null 2>&1
    echo "$(cat "$work"/list-* | wc -l) files, $(du -cm "$work"/tars/*.tar | tail -1 | cut -f 1) MiB in 4 layers; $runs runs"
    for title in "no compression" "-zzstd,3 -C65536"; do
        options='"-T0", "--mkfs-time", "--sort=none"'
        [ "$title" = "no compression" ] || options+=', "-zzstd,3", "-C65536"'
        : >"$work/times"
        for ((n = 0; n < runs; n++)); do
            for name in kiln peer; do
                if [ $name = peer ]; then ln -sfn "$peer" "$names/mkfs.erofs"; else ln -sfn "$KILN" "$names/mkfs.erofs"; fi
                start "$name-$n" "mkfs_options = [$options]"
                ctr content fetch --plain-http "$registry/bench:1" >/dev/null 2>&1
                mkdir "$case_dir/mnt"
                local begin=$EPOCHREALTIME used
                used=$(ticks "$daemon")
                ctr images mount "$registry/bench:1" "$case_dir/mnt" >"$work/out" 2>&1 || fail "$(tail -1 "$work/out")"
                awk -v name=$name -v begin="$begin" -v end="$EPOCHREALTIME" -v ticks=$(($(ticks "$daemon") - used)) -v hz="$(getconf CLK_TCK)" \
                    -v size="$(layers | xargs -d "\n" stat -c %s | awk '{ sum += $1 } END { print sum }')" \
                    'BEGIN { printf "%s %.3f %.2f %d\n", name, end - begin, ticks / hz, size / 1e6 }' | tee -a "$work/times" >&2
                unmount_below "$case_dir"
                stop
            done
        done
        echo "$title:"
        for name in kiln peer; do
            printf '  %s: wall, median %s s of %s; CPU, median %s s; %s MB\n' $name "$(median $name 2)" \
                "$(awk -v n=$name '$1 == n { printf "%s ", $2 }' "$work/times")" "$(median $name 3)" "$(median $name 4)"
        done
    done
}

# CPU time of a process and of its children that have ended.
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 + $14 + $15 }' "/proc/$1/stat"; }
median() { awk -v n="$1" -v c="$2" '$1 == n { print $c }' "$work/times" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

programs
[ "$(command -v mkfs.erofs)" = "$names/mkfs.erofs" ]
registry
if [ "${1:-}" = --bench ]; then
    bench
    exit
fi
make_image

options='mkfs_options = ["-T0", "--mkfs-time", "--sort=none"]'
start plain "$options"
pull_and_compare tar:1 3
stop
passed "tar layers"

start zstd 'mkfs_options = ["-T0", "--mkfs-time", "--sort=none", "-zzstd,3", "-C65536"]'
pull_and_compare tar:1 3
a_layer_says zstd
stop
passed "tar layers, -zzstd,3 -C65536"

start index "$options" 'enable_tar_index = true'
pull_and_compare tar:1 3
stop
passed "tar layers, enable_tar_index"

# What containerd makes of a container's changes: a layer of a directory with whiteouts of overlayfs.
start commit "$options"
pull_and_compare tar:1 3
mnt=$case_dir/writable
mkdir "$mnt" "$case_dir/committed"
ctr images mount --rw "$registry/tar:1" "$mnt" >"$work/out" 2>&1 || fail "no writable mount: $(tail -1 "$work/out")"
rm -r "$mnt/same" "$mnt/etc/config"
echo changed >"$mnt/bin/su"
mkdir "$mnt/same" && echo new >"$mnt/same/new"
ln "$mnt/same/new" "$mnt/etc/new-link"
setfattr -n user.changed -v yes "$mnt/etc"
describe "$mnt" >"$work/expected-changed"
ctr images unmount "$mnt" >/dev/null
ctr snapshots commit changed "$mnt"
ctr snapshots view look changed >/dev/null
eval "$(ctr snapshots mounts "$case_dir/committed" look)"
same_tree "$work/expected-changed" "$case_dir/committed"
[ "$(layers | wc -l)" = 4 ] || fail "the changes have not become a layer"
stop
passed "changes of a container, committed"

for preset in plain balanced; do
    "$KILN" oci convert --quiet --media-type containerd --preset "$preset" "$work/layout" "$work/converted-$preset"
    crane push "$work/converted-$preset" "$registry/converted:$preset" >"$work/out" 2>&1 || fail "crane push: $(tail -1 "$work/out")"
    "$KILN" oci pack --quiet --media-type containerd --preset "$preset" "$work/tree" "$work/packed-$preset"
    crane push "$work/packed-$preset" "$registry/packed:$preset" >"$work/out" 2>&1 || fail "crane push: $(tail -1 "$work/out")"
    start "native-$preset" "$options"
    pull_and_compare "converted:$preset" 3
    pull_and_compare "packed:$preset" 4
    stop
    passed "native layers, kiln oci convert and kiln oci pack, --preset $preset"
done

# The types of the specification, which containerd does not take yet: through the registry and back.
"$KILN" oci convert --quiet "$work/layout" "$work/converted-spec"
crane push "$work/converted-spec" "$registry/converted:spec" >"$work/out" 2>&1 || fail "crane push: $(tail -1 "$work/out")"
crane manifest "$registry/converted:spec" | grep -q '"application/vnd.erofs"' || fail "no layers of type application/vnd.erofs"
crane pull --format=oci "$registry/converted:spec" "$work/pulled" >"$work/out" 2>&1 || fail "crane pull: $(tail -1 "$work/out")"
"$KILN" pack --quiet --from oci "$work/pulled" "$work/pulled.erofs"
"$KILN" diff "$work/pulled.erofs" "$work/tree" >"$work/out" || fail "kiln oci convert: $(head -5 "$work/out")"
passed "native layers of type application/vnd.erofs, pushed and pulled by crane"

for compression in raw zstd; do
    start "convert-$compression" "$options"
    ctr images pull --plain-http "$registry/tar:1" >"$work/out" 2>&1 || fail "pull: $(tail -1 "$work/out")"
    ctr images convert --erofs "$compression" --erofs-compressors zstd,3 --erofs-mkfs-options=-Efragments,dedupe \
        "$registry/tar:1" "$registry/by-ctr:1" >"$work/out" 2>&1 || fail "ctr images convert --erofs: $(tail -1 "$work/out")"
    ctr images push --plain-http "$registry/by-ctr:1" >"$work/out" 2>&1 || fail "push: $(tail -1 "$work/out")"
    stop
    start "converted-$compression" "$options"
    pull_and_compare by-ctr:1 3
    stop
    passed "ctr images convert --erofs $compression, pushed and pulled"
done
