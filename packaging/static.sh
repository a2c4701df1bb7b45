#!/usr/bin/env bash
# Builds static binaries, with musl: target/dist/ARCH/kiln and its symbols beside it, kiln.debug.
#
#   packaging/static.sh [x86_64] [aarch64]        default: both
#
# Needs rustup; installs the compilers of the Python packages ziglang and cargo-zigbuild below target/.
set -euo pipefail
cd "$(dirname "$0")/.."
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
tools=$target_dir/tools/zig
if ! [ -x "$tools/bin/cargo-zigbuild" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet cargo-zigbuild ziglang
fi
export PATH=$tools/bin:$PATH
# Nothing of this machine is in the binary: no path, no time.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export RUSTFLAGS="--remap-path-prefix=$PWD=/kiln --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
[ $# -gt 0 ] || set -- x86_64 aarch64
for arch in "$@"; do
    target=$arch-unknown-linux-musl
    rustup target add --toolchain "$(rustup show active-toolchain | cut -d' ' -f1)" "$target" >/dev/null
    cargo zigbuild --locked --profile dist --target "$target" --package kiln-command
    out=$target_dir/dist/$arch
    mkdir -p "$out"
    # The binary names the file of its symbols and the checksum of that file, so the symbols come first. objcopy of
    # another architecture need not be there: that of LLVM, which rustup has, knows all.
    objcopy=$(command -v llvm-objcopy || find "$(rustc --print sysroot)" -name 'rust-objcopy' | head -n 1)
    "${objcopy:-objcopy}" --only-keep-debug "$target_dir/$target/dist/kiln" "$out/kiln.debug"
    "${objcopy:-objcopy}" --strip-all --add-gnu-debuglink="$out/kiln.debug" "$target_dir/$target/dist/kiln" "$out/kiln"
    chmod 644 "$out/kiln.debug"
    ls -l "$out/kiln"
done
