#!/usr/bin/env bash
# Makes include/kiln.h from the sources; with --check, compares it. Needs cbindgen (cargo install cbindgen).
set -euo pipefail
cd "$(dirname "$0")"
if [ "${1:-}" = --check ]; then
    cbindgen --quiet | diff -u include/kiln.h -
else
    cbindgen --quiet --output include/kiln.h
fi
