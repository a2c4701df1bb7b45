#!/usr/bin/env bash
# From a fresh machine to a mounted image: installs what is missing (Debian and Ubuntu, as root or with sudo), builds kiln,
# packs a directory and mounts the image on ./mnt.
#
#   ./try.sh [DIRECTORY]        default: /usr/share
set -euo pipefail
cd "$(dirname "$0")"
source_dir=${1:-/usr/share}

if ! { command -v cc && command -v fusermount3; } >/dev/null 2>&1; then
    as_root=$([ "$(id -u)" = 0 ] || echo sudo)
    $as_root apt-get update -qq
    $as_root apt-get install -y -qq gcc libc6-dev fuse3 >/dev/null
fi
command -v cargo >/dev/null || { echo "Rust is missing: install it from https://rustup.rs" >&2; exit 1; }

cargo build --profile try --quiet --package kiln-command
kiln=target/try/kiln
$kiln pack --force "$source_dir" tree.erofs
mkdir -p mnt
$kiln mount tree.erofs mnt
ls -l mnt | head
echo "Mounted on $PWD/mnt. When done: $kiln umount mnt"
