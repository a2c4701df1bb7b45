#!/usr/bin/env bash
# Builds the guide as web pages in target/guide. Installs mdBook below target/ if it is not there.
set -euo pipefail
cd "$(dirname "$0")"
target=$(cd ../.. && pwd)/target
command -v mdbook >/dev/null || PATH=$target/tools/bin:$PATH
command -v mdbook >/dev/null || cargo install --quiet --locked --root "$target/tools" mdbook
mdbook build
echo "$target/guide/index.html"
