#!/usr/bin/env bash
# Runs all tests. Installs missing programs (on Debian and Ubuntu, as root). Tests that need root, FUSE or a kernel with
# EROFS are skipped without them, with a line that says so, or fail with KILN_NO_SKIP=1.
#
#   ./test.sh [--long] [ARGUMENTS OF cargo test]        --long: thousands of random and damaged images; an hour
#
# Without arguments, the tests of the Python package follow, if Python is installed and its packages can be downloaded;
# with --long, packages are built, installed and used, too.
set -euo pipefail
cd "$(dirname "$0")"
# fusermount3 mounts for users, getfattr reads attributes as another user, python3 runs bench/report and tests kilnfs.
if [ "$(id -u)" = 0 ] && ! { command -v cc && command -v fusermount3 && command -v getfattr && python3 -c "import ensurepip"; } >/dev/null 2>&1 &&
    command -v apt-get >/dev/null; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev fuse3 attr python3 python3-venv util-linux >/dev/null
fi
# Users mount by fusermount3: udev gives the device this mode, and where no udev runs, nobody does.
if [ "$(id -u)" = 0 ] && [ -c /dev/fuse ]; then chmod 0666 /dev/fuse; fi
# Programs that make and read archives and images, for comparison. A test skips missing ones, with a line that says so.
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null &&
    ! { command -v bsdtar && command -v cpio && command -v mkfs.ext4 && command -v zip && command -v mtree &&
        command -v zstd && command -v lz4 && command -v bzip2 && command -v xz && command -v git && command -v setfacl; } >/dev/null 2>&1; then
    apt-get update -qq >/dev/null 2>&1 || true
    for package in libarchive-tools cpio e2fsprogs zip mtree-netbsd zstd lz4 bzip2 xz-utils git acl util-linux-extra; do
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null 2>&1 || true
    done
fi
if [ "${1:-}" = --long ]; then
    shift
    export KILN_LONG=1
fi
KILN_SKIP_LOG=$(mktemp)
export KILN_SKIP_LOG
trap 'rm -f "$KILN_SKIP_LOG"' EXIT
cargo test --workspace "$@" || status=$?
# The Python package: a wheel, in its own virtual environment. Not with arguments, which choose tests of cargo.
if [ $# = 0 ] && [ -z "${status:-}" ]; then
    crates/python/tests/run.sh || { python=$? && [ "$python" = 77 ]; } || status=$python
fi
# The packages, built, and used in roots that have nothing else.
if [ $# = 0 ] && [ -z "${status:-}" ] && [ -n "${KILN_LONG:-}" ]; then
    lacking() { for program in rustup go debootstrap qemu-aarch64-static; do command -v $program >/dev/null || echo "$program"; done; }
    if [ "$(id -u)" = 0 ] && [ -n "$(lacking)" ] && command -v apt-get >/dev/null; then
        apt-get update -qq >/dev/null 2>&1 || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq golang-go debootstrap qemu-user-static >/dev/null 2>&1 || true
    fi
    missing=$(lacking)
    if [ "$(id -u)" != 0 ]; then
        echo "packages: they are tried as root" >>"$KILN_SKIP_LOG"
    elif [ -n "$missing" ]; then
        echo "packages: without" $missing >>"$KILN_SKIP_LOG"
    else
        { packaging/static.sh && packaging/packages.sh && packaging/try-packages.sh; } || status=$?
    fi
fi
if [ -s "$KILN_SKIP_LOG" ]; then
    echo "Skipped, wholly or in part:"
    sort "$KILN_SKIP_LOG" | uniq -c
fi
exit "${status:-0}"
