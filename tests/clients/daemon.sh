# containerd with its EROFS snapshotter and differ, and a registry on this machine. Sourced behind common.sh and image.sh.

CONTAINERD=v2.4.2 CRANE=v0.20.6
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

passed() { echo "ok: $*"; }

# Makes the image of image.sh and pushes it as tar:1; $work/expected is what a container would see of it.
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
