#!/usr/bin/env bash
# Makes all packages of the static binaries in target/dist: deb, rpm and apk (by nfpm), a tar.zst, a container image
# (by kiln itself); adds the wheels of packaging/wheels.sh, if there are any, and checksums of all.
#
#   packaging/packages.sh [x86_64] [aarch64]        default: the architectures that packaging/static.sh has built
#
# Needs Go, by which nfpm is installed below target/.
set -euo pipefail
cd "$(dirname "$0")/.."
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
dist=$target_dir/dist
nfpm=$target_dir/tools/go/bin/nfpm
[ -x "$nfpm" ] || GOBIN=$target_dir/tools/go/bin go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export VERSION SOURCE_DATE_EPOCH
# Pages and completions are the same for all architectures; this machine's binary makes them.
native=$dist/$(uname -m)/kiln
[ $# -gt 0 ] || set -- $(cd "$dist" && for arch in x86_64 aarch64; do [ -x "$arch/kiln" ] && echo "$arch"; done)
packages=$dist/packages
rm -rf "$packages"
mkdir -p "$packages"
for arch in "$@"; do
    OUT=$dist/$arch
    export OUT
    rm -rf "$OUT/man" "$OUT/completions"
    mkdir -p "$OUT/completions"
    "$native" generate man "$OUT/man"
    gzip -n9 "$OUT"/man/*
    for shell in bash zsh fish; do "$native" generate completions $shell >"$OUT/completions/kiln.$shell"; done
    case $arch in x86_64) ARCH=amd64 ;; aarch64) ARCH=arm64 ;; esac
    export ARCH
    for kind in deb rpm apk; do "$nfpm" package --config packaging/nfpm.yaml --packager $kind --target "$packages"; done

    # The same for people who unpack: one directory.
    name=kiln-$VERSION-linux-$arch
    stage=$dist/stage/$name
    rm -rf "$dist/stage"
    mkdir -p "$stage"
    cp -r "$OUT/kiln" "$OUT/man" "$OUT/completions" LICENSE-MIT LICENSE-APACHE THIRD-PARTY.md README.md CHANGELOG.md \
        packaging/systemd "$stage"
    "$native" pack --quiet --all-root --mtime "$SOURCE_DATE_EPOCH" "$dist/stage" "$dist/stage.erofs" --force
    "$native" export --quiet --force "$dist/stage.erofs" "$packages/$name.tar.zst"

    # A container image with nothing but the program.
    mkdir -p "$dist/root/usr/bin"
    cp "$OUT/kiln" "$dist/root/usr/bin/kiln"
    layout=$packages/kiln-$VERSION-oci-$arch
    "$native" pack --quiet --force --all-root --mtime "$SOURCE_DATE_EPOCH" "$dist/root" "$dist/root.erofs"
    "$native" oci pack --quiet --media-type containerd --tag "kiln:$VERSION" --as-platform "linux/$ARCH" \
        "$dist/root.erofs" "$layout"
    rm -rf "$dist/root" "$dist/root.erofs" "$dist/stage" "$dist/stage.erofs"
done
cp "$dist"/wheels/*.whl "$packages" 2>/dev/null || echo "packages.sh: no wheels: packaging/wheels.sh builds them" >&2
packaging/sbom.py >"$packages/kiln-$VERSION-sbom.json"
(cd "$packages" && find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
ls -l "$packages"
