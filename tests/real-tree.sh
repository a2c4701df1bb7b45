#!/usr/bin/env bash
# Pack a real tree, mount the image by the kernel and by FUSE, and compare both with the tree. Needs
# root. Takes minutes, so it is not part of the quick tests.
#
#   tests/real-tree.sh [DIRECTORY [PACK OPTION...]]        default: /usr
set -euo pipefail
cd "$(dirname "$0")/.."
tree=${1:-/usr}
shift || true

cargo build --release --quiet --package kiln-command --package kiln-tests
work=$(mktemp -d "${TMPDIR:-/var/tmp}/kiln-real-tree.XXXXXX")
trap 'target/release/kiln umount "$work/mnt" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/mnt"

target/release/kiln pack "$@" "$tree" "$work/image.erofs"
target/release/kiln check "$work/image.erofs"
for via in kernel fuse; do
    target/release/kiln mount --via "$via" "$work/image.erofs" "$work/mnt"
    target/release/compare-trees "$tree" "$work/mnt"
    target/release/kiln umount "$work/mnt"
done
