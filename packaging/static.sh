#!/usr/bin/env bash
# Builds static binaries, with musl: target/dist/ARCH/kiln and its symbols beside it, kiln.debug.
#
#   packaging/static.sh [x86_64] [aarch64]        default: both
#
# Needs rustup, whose linker and musl are used; installs the C compiler of the Python package ziglang below target/.
set -euo pipefail
cd "$(dirname "$0")/.."
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
tools=$target_dir/tools/zig
[ -x "$tools/bin/python" ] || python3 -m venv "$tools"
"$tools/bin/python" -c 'import ziglang' 2>/dev/null || "$tools/bin/pip" install --quiet ziglang
# A C compiler for an architecture. zig has other names of targets than crates that call it. No panic goes through C: its
# functions need no tables for that.
compiler() { # ARCH
    cat >"$tools/bin/cc-$1" <<END
#!/bin/sh
for argument; do
    shift
    case \$argument in --target=*) ;; *) set -- "\$@" "\$argument" ;; esac
done
exec "$tools/bin/python" -m ziglang cc -target $1-linux-musl -fno-sanitize=undefined \
    -fno-unwind-tables -fno-asynchronous-unwind-tables "\$@"
END
    printf '#!/bin/sh\nexec "%s" -m ziglang ar "$@"\n' "$tools/bin/python" >"$tools/bin/ar"
    chmod +x "$tools/bin/cc-$1" "$tools/bin/ar"
}
# Nothing of this machine is in the binary: no path, no time.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
flags="--remap-path-prefix=$PWD=/kiln --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
# Equal functions are there once, and addresses that are relocated take a bit and not 24 bytes.
flags+=" -Clinker=rust-lld -Clinker-flavor=ld.lld -Clink-self-contained=yes"
flags+=" -Clink-arg=--icf=all -Clink-arg=-zpack-relative-relocs"
export RUSTFLAGS=$flags
[ $# -gt 0 ] || set -- x86_64 aarch64
for arch in "$@"; do
    target=$arch-unknown-linux-musl
    rustup target add --toolchain "$(rustup show active-toolchain | cut -d' ' -f1)" "$target" >/dev/null
    compiler "$arch"
    env "CC_${target//-/_}=$tools/bin/cc-$arch" "AR_${target//-/_}=$tools/bin/ar" \
        cargo build --locked --profile dist --target "$target" --package kiln-command
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
