#!/usr/bin/env bash
# All tests. Installs what they need if it is missing (Debian and Ubuntu, as root). Tests that need root, FUSE or a kernel
# with EROFS are skipped with a line that says so where these are missing, unless KILN_NO_SKIP=1.
#
#   ./test.sh [--long] [ARGUMENTS OF cargo test]        --long: random and damaged images by the thousand; an hour
set -euo pipefail
cd "$(dirname "$0")"
# fusermount3 mounts for users, getfattr reads attributes as another user, python3 makes documents of measurements.
if [ "$(id -u)" = 0 ] && ! { command -v cc && command -v fusermount3 && command -v getfattr && command -v python3; } >/dev/null 2>&1 &&
    command -v apt-get >/dev/null; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev fuse3 attr python3 util-linux >/dev/null
fi
if [ "${1:-}" = --long ]; then
    shift
    export KILN_LONG=1
fi
exec cargo test --workspace "$@"
