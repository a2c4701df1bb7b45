#!/usr/bin/env bash
# Fuzzes one target, or all of them in turn. Stable Rust is enough; libFuzzer needs a C++ compiler.
#
#   fuzz/run.sh [TARGET [SECONDS]]          default: all targets, 60 seconds each
#
# New inputs go to $KILN_FUZZ_DIR/corpus (default: fuzz/target/fuzz), crashes to
# $KILN_FUZZ_DIR/artifacts. fuzz/minimise.sh merges the useful inputs into fuzz/corpus, which
# `cargo test` replays.
set -euo pipefail
cd "$(dirname "$0")"
target=${1:-}
seconds=${2:-60}
triple=$(rustc -vV | sed -n 's/^host: //p')
work=$(realpath -m "${KILN_FUZZ_DIR:-target/fuzz}")

# Coverage counters by LLVM's own pass. With --target, build scripts and macros have none.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"
cargo build --quiet --release --target "$triple"
built=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/$triple/release

for name in $(cd targets && printf '%s\n' "${target:-*}"* | sed -n 's/\.rs$//p'); do
    [ -z "$target" ] || [ "$name" = "$target" ] || continue
    mkdir -p "$work/corpus/$name" "$work/artifacts" "corpus/$name"
    seeds=("corpus/$name")
    [ "$name" != image ] || seeds+=(images)
    echo "== $name"
    "$built/$name" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=2048 -timeout=20 \
        -artifact_prefix="$work/artifacts/$name-" -print_final_stats=1 "$work/corpus/$name" "${seeds[@]}"
done
