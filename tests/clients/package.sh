#!/usr/bin/env bash
# containerd runs a container of the image that packaging/packages.sh makes: kiln and nothing else. As root.
#
#   package.sh      exit code 77 if the parts cannot be had: the image, Go and its module proxy, runc, a kernel with EROFS
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$here/image.sh"
. "$here/daemon.sh"
packages=${CARGO_TARGET_DIR:-$here/../../target}/dist/packages
layout=$(find "$packages" -maxdepth 1 -name "kiln-*-oci-$(uname -m)" 2>/dev/null | head -1 || true)
[ -n "$layout" ] || absent "no image of kiln: packaging/packages.sh makes it"
need_kernel
programs
[ -x "$tools/containerd-shim-runc-v2" ] ||
    CGO_ENABLED=0 GOBIN=$tools timeout 400 go install -p 2 -tags no_tracing \
        github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@$CONTAINERD 2>"$work/go.log" ||
    absent "containerd's shim cannot be built: $(tail -1 "$work/go.log")"
if ! command -v runc >/dev/null; then
    (cd "$work" && timeout 60 apt-get -qq -o APT::Sandbox::User=root download runc libseccomp2 &&
        for package in ./*.deb; do dpkg-deb -x "$package" "$cache/runc"; done) >"$work/apt.log" 2>&1 ||
        absent "no program runc: $(tail -1 "$work/apt.log")"
    PATH=$cache/runc/usr/sbin:$cache/runc/usr/bin:$PATH
    export LD_LIBRARY_PATH="$cache/runc/usr/lib/$(uname -m)-linux-gnu"
fi
PATH=$tools:$PATH
registry
crane push "$layout" "$registry/kiln:1" >"$work/out" 2>&1 || fail "crane push: $(tail -1 "$work/out")"
start package
ctr images pull --plain-http "$registry/kiln:1" >"$work/out" 2>&1 || fail "pull: $(tail -1 "$work/out")"
said=$(ctr run --rm "$registry/kiln:1" one /usr/bin/kiln --version 2>"$work/out") || fail "ctr run: $(tail -3 "$work/out")"
[[ $said == kiln\ * ]] || fail "the container says $said"
stop
passed "containerd runs kiln from its own image: $said"
