#!/usr/bin/env bash
# A binary to ship, and its symbols apart: target/dist/bin/kiln and target/dist/bin/kiln.debug, from one build, for only then their
# addresses are the same. Needs objcopy (binutils).
set -euo pipefail
cd "$(dirname "$0")"
cargo build --profile dist --package kiln-command "$@"
built=${CARGO_TARGET_DIR:-target}/dist/kiln
out=${CARGO_TARGET_DIR:-target}/dist/bin
mkdir -p "$out"
# The binary names the file of its symbols, and a checksum of it: so the second comes before the first.
objcopy --only-keep-debug --compress-debug-sections=zlib "$built" "$out/kiln.debug"
chmod 644 "$out/kiln.debug"
objcopy --strip-all --add-gnu-debuglink="$out/kiln.debug" "$built" "$out/kiln"
ls -l "$out"
