#!/usr/bin/env bash
# Builds wheels of the Python package for both architectures, for glibc (manylinux) and musl (musllinux):
# target/dist/wheels. One wheel for each serves all Pythons from 3.11 on (cp311-abi3).
#
#   packaging/wheels.sh [x86_64] [aarch64]        default: both
set -euo pipefail
cd "$(dirname "$0")/.."
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
tools=$target_dir/tools/wheels
if ! [ -x "$tools/bin/maturin" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet maturin ziglang auditwheel
fi
export PATH=$tools/bin:$PATH
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
out=$target_dir/dist/wheels
mkdir -p "$out"
[ $# -gt 0 ] || set -- x86_64 aarch64
for arch in "$@"; do
    for abi in gnu musl; do
        target=$arch-unknown-linux-$abi
        rustup target add --toolchain "$(rustup show active-toolchain | cut -d' ' -f1)" "$target" >/dev/null
        tag=$([ $abi = gnu ] && echo manylinux_2_17 || echo musllinux_1_2)
        (cd crates/python && maturin build --release --zig --quiet --target "$target" --compatibility "$tag" --out "$out")
    done
    # auditwheel looks for the libc of a wheel on this machine, so it can check those for glibc.
    for wheel in "$out"/*manylinux*"$arch".whl; do auditwheel show "$wheel" | grep "manylinux_2_17_$arch" >/dev/null; done
done
ls -l "$out"
