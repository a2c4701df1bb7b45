#!/usr/bin/env bash
# Packs all crates as the registry would get them, in the order of their dependencies, and builds each from its package.
# Nothing is published.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo package --workspace --locked --exclude kiln-tests --exclude kiln-python "$@"
ls -l "${CARGO_TARGET_DIR:-target}"/package/*.crate
