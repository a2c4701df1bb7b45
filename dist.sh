#!/usr/bin/env bash
# Builds the binary to ship and its symbols: target/dist/bin/kiln and target/dist/bin/kiln.debug. Both come from one
# build, because only then their addresses are the same. Needs objcopy (binutils).
set -euo pipefail
cd "$(dirname "$0")"
cargo build --profile dist --package kiln-command "$@"
built=${CARGO_TARGET_DIR:-target}/dist/kiln
out=${CARGO_TARGET_DIR:-target}/dist/bin
mkdir -p "$out"
# The binary names the file of its symbols and the checksum of that file, so the symbols come first.
objcopy --only-keep-debug --compress-debug-sections=zlib "$built" "$out/kiln.debug"
chmod 644 "$out/kiln.debug"
objcopy --strip-all --add-gnu-debuglink="$out/kiln.debug" "$built" "$out/kiln"
ls -l "$out"
