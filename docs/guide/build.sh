#!/usr/bin/env bash
# Builds the guide and the documents of docs/ as web pages: target/guide/book/index.html. Installs mdBook below target/
# if it is not there.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
repository=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)/blob/main
export PATH=$PATH:$target/tools/bin
command -v mdbook >/dev/null || cargo install --quiet --locked --root "$target/tools" mdbook
rm -rf "$target/guide"
mkdir -p "$target/guide"
cp -r docs "$target/guide/src"
cp docs/guide/book.toml "$target/guide/"
mv "$target/guide/src/guide/contents.txt" "$target/guide/src/SUMMARY.md"
# A README would be rendered as an index, to which no link leads.
mv "$target/guide/src/results/README.md" "$target/guide/src/results/index.md"
sed -i 's#results/README\.md#results/index.md#g' "$target"/guide/src/*.md "$target"/guide/src/guide/*.md
# The pages of results are below that of all.
for page in "$target"/guide/src/results/*.md; do
    name=${page##*/}
    [ "$name" = index.md ] || sed -n "/^# /{s|^# \(.*\)|  - [\1](results/$name)|p;q}" "$page" >>"$target/guide/src/SUMMARY.md"
done
rm -rf "$target/guide/src/results/data" "$target/guide/src/results/report.html"
# Links that leave the documents lead to the repository.
sed -i "s#](\.\./#]($repository/#g" "$target"/guide/src/*.md
sed -i "s#](\.\./\.\./#]($repository/#g" "$target"/guide/src/*/*.md
mdbook build "$target/guide" >/dev/null
echo "$target/guide/book/index.html"
