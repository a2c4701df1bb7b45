#!/usr/bin/env bash
# containerd with its EROFS snapshotter and differ, which call `mkfs.erofs`: kiln. An image is made here, pushed to a registry on this machine,
# pulled, unpacked and mounted; what a container would see must be what its layers say. As root.
#
#   containerd.sh            exit code 77 if the parts cannot be had: Go and its module proxy, a kernel with EROFS
#   containerd.sh --bench    how long containerd unpacks an image with kiln, and with MKFS=path/to/mkfs.erofs
set -euo pipefail
CONTAINERD=v2.4.2 CRANE=v0.20.6
. "$(dirname "$0")/common.sh"
. "$here/image.sh"
need_kernel

tools=$cache/containerd-$CONTAINERD
programs() {
    need go gzip zstd
    # Only what is needed here: no CRI, no drivers of other snapshotters.
    local tags="no_cri no_btrfs no_devmapper no_zfs no_tracing"
    [ -x "$tools/containerd" ] && [ -x "$tools/ctr" ] ||
        CGO_ENABLED=0 GOBIN=$tools timeout 400 go install -p 2 -tags "$tags" \
            github.com/containerd/containerd/v2/cmd/{containerd,ctr}@$CONTAINERD 2>"$work/go.log" ||
        absent "containerd $CONTAINERD cannot be built: $(tail -1 "$work/go.log")"
    [ -x "$tools/crane" ] || CGO_ENABLED=0 GOBIN=$tools timeout 400 go install -p 2 github.com/google/go-containerregistry/cmd/crane@$CRANE \
        2>"$work/go.log" || absent "crane $CRANE cannot be built: $(tail -1 "$work/go.log")"
}

# Debian's registry where apt has it, else that of crane.
registry() {
    local binary=$cache/docker-registry/usr/bin/docker-registry
    if [ ! -x "$binary" ] && command -v apt-get >/dev/null; then
        (cd "$work" && timeout 60 apt-get -qq -o APT::Sandbox::User=root download docker-registry &&
            dpkg-deb -x docker-registry_*.deb "$cache/docker-registry") >"$work/apt.log" 2>&1 || true
    fi
    local log=$work/registry.log
    : >"$log"
    if [ -x "$binary" ]; then
        cat >"$work/registry.yml" <<CONFIG
version: 0.1
storage: {filesystem: {rootdirectory: $work/registry}}
http: {addr: "127.0.0.1:0"}
CONFIG
        "$binary" serve "$work/registry.yml" >"$log" 2>&1 &
    else
        "$tools/crane" registry serve --address 127.0.0.1:0 >"$log" 2>&1 &
    fi
    registry_pid=$!
    await "$log" 'listening on|serving on' "$registry_pid"
    registry=127.0.0.1:$(grep -oE '(127\.0\.0\.1|\[::\]|port):? ?[0-9]+' "$log" | grep -oE '[0-9]+$' | head -1)
}

# await LOG PATTERN PID: until the process has written such a line.
await() {
    grep -qE -m 1 "$2" <(exec timeout 60 tail -n +1 -f --pid="$3" "$1" 2>/dev/null) || {
        tail -20 "$1" >&2
        fail "no line with '$2' came"
    }
}

# end PID: of a daemon that this script has started; what does not end is killed.
end() {
    [ -n "$1" ] || return 0
    kill "$1" 2>/dev/null || true
    timeout 30 tail -s 0.1 -f --pid="$1" /dev/null || kill -9 "$1"
    wait "$1" 2>/dev/null || true
}
registry_pid='' daemon=''
at_exit+=('end "$daemon"; end "$registry_pid"')

# None of them may wait for ever.
ctr() { timeout 120 "$tools/ctr" "$@"; }
crane() { timeout 120 "$tools/crane" "$@"; }

# start CASE DIFFER-OPTION...: a containerd of its own, without images.
start() {
    case_dir=$work/case-$1
    shift
    mkdir "$case_dir"
    local option
    {
        cat <<CONFIG
version = 3
imports = []
root = "$case_dir/root"
state = "$case_dir/state"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.blockfile"]
[grpc]
address = "$case_dir/socket"
[ttrpc]
address = "$case_dir/socket.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
path = "$case_dir/opt"
[plugins."io.containerd.service.v1.diff-service"]
default = ["erofs", "walking"]
# Snapshots that no container has yet are not to be collected while they are looked at.
[plugins."io.containerd.gc.v1.scheduler"]
startup_delay = "1h"
schedule_delay = "1h"
[plugins."io.containerd.transfer.v1.local"]
unpack_config = [{platform = "linux", snapshotter = "erofs", differ = "erofs"}]
[plugins."io.containerd.differ.v1.erofs"]
CONFIG
        for option; do echo "$option"; done
    } >"$case_dir/config.toml"
    : >"$case_dir/log"
    "$tools/containerd" --config "$case_dir/config.toml" >"$case_dir/log" 2>&1 &
    daemon=$!
    await "$case_dir/log" 'containerd successfully booted' "$daemon"
    export CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=1 CONTAINERD_ADDRESS=$case_dir/socket CONTAINERD_SNAPSHOTTER=erofs
    ctr plugins ls >"$work/plugins"
    local plugin
    for plugin in snapshotter.v1 differ.v1 mount-handler.v1; do
        grep -qE "^io\.containerd\.$plugin +erofs +.* ok" "$work/plugins" || {
            grep erofs "$case_dir/log" >&2
            fail "containerd has not loaded its erofs $plugin"
        }
    done
}

stop() {
    end "$daemon"
    daemon=
    unmount_below "$case_dir"
    rm -rf --one-file-system "$case_dir"
}

# Pulls an image and compares what a container would see with the expected tree; so many layers must be images then.
pull_and_compare() {
    local image=$registry/$1 layers=$2
    ctr images pull --plain-http "$image" >"$work/out" 2>&1 || {
        tail -5 "$work/out" "$case_dir/log" >&2
        fail "$1 cannot be pulled"
    }
    compare_mounted "$image"
    [ "$(layers | wc -l)" = "$layers" ] || fail "$1 has not become $layers layers"
}

# compare_mounted IMAGE [EXPECTED]
compare_mounted() {
    local mnt; mnt=$(mktemp -d "$case_dir/mnt.XXXXXX")
    ctr images mount "$1" "$mnt" >"$work/out" 2>&1 || {
        tail -5 "$work/out" "$case_dir/log" >&2
        dmesg | tail -3 >&2
        fail "$1 cannot be mounted"
    }
    same_tree "${2:-$work/expected}" "$mnt"
    ctr images unmount --rm "$mnt" >/dev/null
}

# The images of layers. containerd removes directories of other snapshots meanwhile, which find cannot read then.
layers() { find "$case_dir/root" -name layer.erofs 2>/dev/null || true; }

# One layer at least is so: not all have something to compress.
a_layer_says() {
    layers | xargs -d '\n' -n 1 "$KILN" info >"$work/info"
    grep -q "$1" "$work/info" || fail "no layer says $1"
}

passed() { echo "ok: $*"; }

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
make_image() {
    layer_trees "$work/layers"
    local n ids=()
    mkdir "$work/tree" "$work/tars"
    for n in 1 2 3; do
        layer_tar "$work/layers/$n" "$work/tars/$n.tar"
        apply_tar "$work/tars/$n.tar" "$work/tree"
        ids+=("$(diff_id "$work/tars/$n.tar")")
    done
    describe "$work/tree" >"$work/expected"
    gzip -kn "$work/tars/2.tar"
    zstd -q "$work/tars/3.tar"
    local type=application/vnd.oci.image.layer.v1.tar
    layout "$work/layout" test "$type" "$work/tars/1.tar" "${ids[0]}" "$type+gzip" "$work/tars/2.tar.gz" "${ids[1]}" \
        "$type+zstd" "$work/tars/3.tar.zst" "${ids[2]}"
    crane push "$work/layout" "$registry/tar:1" >"$work/out" 2>&1 || fail "crane push: $(tail -1 "$work/out")"
}
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
