# Functions that the scripts in this directory share and source. $work is a temporary directory of the
# script; $names has kiln's drop-in names of erofs-utils, first in PATH; $cache keeps programs that were
# fetched or built from run to run.
#
#   KILN=PATH                  the kiln to test; without it one is built
#   KILN_CLIENTS_CACHE=DIR     default: kiln-clients below XDG_CACHE_HOME or ~/.cache

# Skips the script because a part is not available; the caller counts it.
absent() {
    echo "SKIP: ${0##*/}: $*"
    exit 77
}

fail() {
    echo "FAIL: ${0##*/}: $*" >&2
    exit 1
}

need() {
    local program
    for program in "$@"; do command -v "$program" >/dev/null || absent "no program $program"; done
}

# Commands that the end of the script runs, the last one first.
at_exit=()
finish() {
    local status=$? i
    set +e
    for ((i = ${#at_exit[@]} - 1; i >= 0; i--)); do eval "${at_exit[i]}"; done
    exit "$status"
}

# Prints all visible properties of a tree as lines to compare: types, permissions, owners, times,
# targets, device numbers, contents, attributes, and hard links. Uses GNU programs only, none of
# kiln's. Link counts of directories are left out, because overlayfs has its own.
describe() (
    cd "$1"
    export LC_ALL=C
    {
        find . -type d -printf 'directory %m %U %G %T@ %p\n'
        find . -type l -printf 'symlink %U %G %T@ %p -> %l\n'
        find . ! -type d ! -type l -printf '%y %m %U %G %n %s %T@ %p\n'
        find . \( -type b -o -type c \) -exec stat -c 'device %t:%T %n' {} +
        find . -type f -exec sha256sum {} +
        find . ! -type d -links +1 -printf '%i %p\n' | sort -k 2 | awk '!($1 in first) { first[$1] = $2 } { print "link", $2, first[$1] }'
        find . -exec getfattr -h -d -m - -e hex {} + | awk '/^# file: / { file = substr($0, 9); next } NF { print "xattr", file, $0 }'
    } | sort
)

# same_tree EXPECTED ACTUAL: EXPECTED is a description.
same_tree() {
    describe "$2" >"$work/actual"
    [ -s "$1" ] && diff "$1" "$work/actual" >"$work/difference" || {
        head -40 "$work/difference" >&2
        fail "$2 is not as expected"
    }
}

# All mounts below a directory, the last one first.
unmount_below() {
    local point
    awk -v dir="$1/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | tac | while read -r point; do umount "$point"; done
}

# True if the kernel of this machine can mount EROFS, possibly after loading a module.
need_kernel() {
    mkdir "$work/probe" "$work/probe/mnt"
    "$KILN" pack --quiet --preset balanced "$here" "$work/probe/image"
    mount -t erofs -o ro,loop "$work/probe/image" "$work/probe/mnt" 2>"$work/out" ||
        absent "the kernel mounts no EROFS image with zstd: $(tail -1 "$work/out")"
    umount "$work/probe/mnt"
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${KILN_CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kiln-clients}
[ "$(id -u)" = 0 ] || absent "mounting needs root"
need awk find getfattr setfattr sha256sum tar
mkdir -p "$cache"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/kiln-clients.XXXXXX")
at_exit+=('unmount_below "$work"; rm -rf --one-file-system "$work"')
trap finish EXIT
trap 'exit 130' INT TERM
if [ -z "${KILN:-}" ]; then
    cargo build --release --quiet --manifest-path "$here/../../Cargo.toml" --package kiln-command
    KILN=${CARGO_TARGET_DIR:-$here/../../target}/release/kiln
fi
KILN=$(realpath "$KILN")
names=$work/names
mkdir "$names"
"$KILN" install-names "$names" >/dev/null
PATH=$names:$PATH
