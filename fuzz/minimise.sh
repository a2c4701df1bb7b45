#!/usr/bin/env bash
# Updates fuzz/corpus from the inputs that fuzz/run.sh has found: for each target the smallest inputs
# that reach all of the known coverage, within a budget. Inputs named found-* showed a bug once and
# always stay.
#
#   fuzz/minimise.sh [TARGET]          default: all targets
set -euo pipefail
cd "$(dirname "$0")"
triple=$(rustc -vV | sed -n 's/^host: //p')
work=$(realpath -m "${KILN_FUZZ_DIR:-target/fuzz}")
built=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/$triple/release
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

for name in ${1:-$(cd targets && ls | sed -n 's/\.rs$//p')}; do
    case $name in
        image) budget=300000 ;;
        patched-image | map) budget=150000 ;;
        *) budget=60000 ;;
    esac
    mkdir -p "$new/$name" "corpus/$name" "$work/corpus/$name"
    "$built/$name" -merge=1 -max_len=16384 -timeout=20 "$new/$name" "$work/corpus/$name" "corpus/$name" 2>/dev/null
    find "corpus/$name" -type f ! -name 'found-*' -delete
    # Smallest first, until the budget of bytes or of files is used up.
    find "$new/$name" -type f -printf '%s %f\n' | sort -n | head -n 400 | while read -r len file; do
        budget=$((budget - len))
        [ "$budget" -ge 0 ] || break
        cp "$new/$name/$file" "corpus/$name/$file"
    done
    printf '%s: %s inputs\n' "$name" "$(ls "corpus/$name" | wc -l)"
done
