#!/usr/bin/env bash
# Builds all that is shipped, below target/dist: static binaries and their symbols, wheels, packages, checksums; then
# packs the crates, and publishes nothing. packaging/README.md describes the parts.
#
#   ./dist.sh [x86_64] [aarch64]        default: both
set -euo pipefail
cd "$(dirname "$0")"
packaging/static.sh "$@"
packaging/wheels.sh "$@"
packaging/packages.sh "$@"
packaging/crates.sh
