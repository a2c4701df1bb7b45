#!/usr/bin/env bash
# Fetches every program that the benchmarks compare with, by one command.
#
#   peers.sh [DIR]   into DIR (default $PEERS or ~/peers): programs as DIR/bin/NAME, versions in DIR/versions.txt
#   peers.sh --unpack DEST PACKAGE...   unpacks packages of the stable suite, and all that they need (for corpora.py)
#   peers.sh --fetch DEST PACKAGE...    downloads single packages of that suite (for corpora.py)
#
# Packages come from wherever this machine's apt gets Debian, with another suite: nothing is installed into the system.
# A program runs on its own suite's C library (absolute interpreter and RPATH by patchelf), so it does not depend on the
# machine's release, and no wrapper's time is measured. What is there is kept; what cannot be had is said. Lines of
# versions.txt: `PROGRAM: VERSION (PACKAGE, SUITE)`, or `PROGRAM: no: REASON`.
set -euo pipefail
NEWEST=${NEWEST:-sid}                 # suite of the peers
STABLE=${STABLE:-bookworm}            # suite of the trees, and of peers that the newest suite has dropped
ARCH=$(uname -m)-linux-gnu
DIR=${PEERS:-$HOME/peers}
case ${1:-} in -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit ;; --*) ;; ?*) DIR=$1 ;; esac
mkdir -p "$DIR"; DIR=$(cd "$DIR" && pwd)

say() { echo "peers.sh: $*" >&2; }

# apt_in SUITE COMMAND...: apt with a state of its own, as if nothing were installed: it resolves whole closures
apt_in() {
    local suite=$1 tool=$2 dir=$DIR/apt/$1; shift 2
    if [ ! -e "$dir/ready" ]; then
        mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
        : >"$dir/status"
        if [ -f /etc/apt/sources.list.d/debian.sources ]; then
            awk -v s="$suite" '/^#/{next} /^Suites:/{$0="Suites: " s} {print} /^$/{exit}' \
                /etc/apt/sources.list.d/debian.sources >"$dir/suite.sources"
        else
            awk -v s="$suite" '/^deb /{for (i = 2; i <= NF; i++) if ($i ~ /:\/\//) break; $(i + 1) = s; print; exit}' \
                /etc/apt/sources.list >"$dir/suite.list"
        fi
        cat >"$dir/apt.conf" <<CONF
Dir::Etc::sourcelist "$(ls "$dir"/suite.*)"; Dir::Etc::sourceparts "-";
Dir::State "$dir"; Dir::State::lists "$dir/lists"; Dir::State::status "$dir/status";
Dir::Cache "$dir/cache"; Dir::Cache::pkgcache "$dir/cache/pkg.bin";
DPkg::Post-Invoke ""; APT::Update::Post-Invoke ""; APT::Sandbox::User ""; Acquire::Languages "none";
CONF
        apt-get -c "$dir/apt.conf" -qq -o APT::Update::Error-Mode=any update >/dev/null || return 1
        touch "$dir/ready"
    fi
    "$tool" -c "$dir/apt.conf" "$@"
}

# unpack SUITE DEST PACKAGE...: the packages and all that they need, files only, no script of theirs has run. Packages
# that the suite lacks are left out.
unpack() {
    local suite=$1 dest=$2 deb package known=(); shift 2
    for package; do
        if [ -n "$(apt_in "$suite" apt-cache -q show --no-all-versions "$package" 2>/dev/null)" ]; then
            known+=("$package")
        else
            say "no package $package in suite $suite"
        fi
    done
    [ "$(cat "$dest.asked" 2>/dev/null)" = "${known[*]}" ] && return
    [ ${#known[@]} -gt 0 ] || return 1
    rm -rf "$dest" "$dest.packages" "$DIR/apt/$suite/cache/archives"/*.deb
    mkdir -p "$dest"/usr/{bin,sbin,lib,lib64}
    for d in bin sbin lib lib64; do ln -sfn "usr/$d" "$dest/$d"; done
    apt_in "$suite" apt-get -qq -y --download-only -o APT::Install-Recommends=false install "${known[@]}" >/dev/null ||
        return 1
    for deb in "$DIR/apt/$suite/cache/archives"/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$dest" --keep-directory-symlink --warning=no-timestamp || return 1
        basename "$deb" >>"$dest.packages"
    done
    rm -f "$DIR/apt/$suite/cache/archives"/*.deb
    echo "${known[*]}" >"$dest.asked"
}

fetch() {
    local suite=$1 dest=$2; shift 2
    (cd "$dest" && apt_in "$suite" apt-get -qq download "$@")
}

patch_elf() {
    local root=$DIR/newest
    "$root"/usr/lib64/ld-linux-*.so.? --library-path "$root/usr/lib/$ARCH" "$root/usr/bin/patchelf" "$@"
}

missing() {
    echo "$1: no: $2" >>"$DIR/versions.new"
    say "$1: $2"
}

# version SUITE PROGRAM PACKAGE: writes a line of versions.txt
version() {
    local root=newest deb
    [ "$1" = "$NEWEST" ] || root=stable
    deb=$(grep -m1 "^$3_" "$DIR/$root.packages" | sed 's/%3a/:/g')
    deb=${deb#*_}
    echo "$2: ${deb%_*} ($3, $1)" >>"$DIR/versions.new"
}

# expose SUITE PACKAGE PROGRAM...: copies of the package's programs in DIR/PACKAGE/bin, bound to their suite's libraries
expose() {
    local suite=$1 package=$2 root=$DIR/newest folder=$DIR/$2/bin name from; shift 2
    [ "$suite" = "$NEWEST" ] || root=$DIR/stable
    [ "$package" = erofs-utils ] && folder=$DIR/erofs/bin
    mkdir -p "$folder" "$DIR/bin"
    local libs=$root/usr/lib/$ARCH:$root/usr/lib:$root/usr/lib/$ARCH/ceph
    for name in "$@"; do
        for from in "$root/usr/bin/$name" "$root/usr/sbin/$name" ""; do [ -f "$from" ] && break; done
        [ -n "$from" ] || { missing "$name" "not in package $package of suite $suite"; continue; }
        if [ "$folder/$name" -ot "$from" ] || [ ! -e "$folder/$name" ] || [ "$folder/$name" -ot "$root.asked" ]; then
            cp -L "$from" "$folder/$name.new"
            # A program without an interpreter is static, and stays as it is.
            patch_elf --print-interpreter "$folder/$name.new" >/dev/null 2>&1 &&
                patch_elf --set-interpreter "$(echo "$root"/usr/lib64/ld-linux-*.so.?)" \
                    --force-rpath --set-rpath "$libs" "$folder/$name.new"
            mv "$folder/$name.new" "$folder/$name"
        fi
        ln -sfn "$folder/$name" "$DIR/bin/$name"
        version "$suite" "$name" "$package"
    done
}

# wrapper NAME LINE...: a program in DIR/bin that needs its environment set
wrapper() {
    local name=$1; shift
    rm -f "$DIR/bin/$name"
    printf '%s\n' '#!/bin/sh' "$@" >"$DIR/bin/$name"
    chmod +x "$DIR/bin/$name"
}

# pip_peer PROGRAM PACKAGE: a Python package in an environment of its own
pip_peer() {
    local venv=$DIR/$2 log=$DIR/$2.log pip
    pip="$venv/bin/pip --disable-pip-version-check"
    if [ ! -e "$venv/ready" ]; then
        { python3 -m venv "$venv" && $pip -q install "$2" && touch "$venv/ready"; } >"$log" 2>&1 ||
            { missing "$1" "pip cannot install $2: $(tail -n 1 "$log" | cut -c -120)"; return; }
    fi
    echo "$1: $($pip list --format freeze | sed -n "s/^$2==//p") ($2, pip)" >>"$DIR/versions.new"
    case $1 in
        ratarmount)
            wrapper "$1" "export FUSE_LIBRARY_PATH=$DIR/stable/usr/lib/$ARCH/libfuse.so.2" \
                "exec $venv/bin/ratarmount \"\$@\"" ;;
        python-*) wrapper "$1" "exec $venv/bin/python3 \"\$@\"" ;;
    esac
}

peers() {
    : >"$DIR/versions.new"
    unpack "$NEWEST" "$DIR/newest" patchelf erofs-utils erofsfuse squashfs-tools squashfs-tools-ng squashfuse \
        composefs archivemount fio restic borgbackup python3 xfsprogs btrfs-progs e2fsprogs zstd lz4 xdelta3 bsdiff \
        rsync zip unzip cryptsetup-bin time fuse3 || say "packages of suite $NEWEST cannot be had"
    unpack "$STABLE" "$DIR/stable" fuse-zip || say "packages of suite $STABLE cannot be had"
    local lib
    # Ceph's libraries carry a RUNPATH, which would hide ours from fio.
    for lib in librados.so.2 librbd.so.1 ceph/libceph-common.so.2; do
        [ ! -e "$DIR/newest/usr/lib/$ARCH/$lib" ] || patch_elf --remove-rpath "$DIR/newest/usr/lib/$ARCH/$lib"
    done
    expose "$NEWEST" erofs-utils mkfs.erofs fsck.erofs dump.erofs
    expose "$NEWEST" erofsfuse erofsfuse
    expose "$NEWEST" squashfs-tools mksquashfs unsquashfs sqfstar sqfscat
    expose "$NEWEST" squashfs-tools-ng gensquashfs rdsquashfs tar2sqfs sqfs2tar
    expose "$NEWEST" squashfuse squashfuse squashfuse_ll
    expose "$NEWEST" composefs mkcomposefs mount.composefs composefs-info
    expose "$NEWEST" archivemount archivemount
    expose "$STABLE" fuse-zip fuse-zip
    expose "$NEWEST" fio fio
    expose "$NEWEST" restic restic
    expose "$NEWEST" xfsprogs mkfs.xfs xfs_repair
    expose "$NEWEST" btrfs-progs mkfs.btrfs btrfs
    expose "$NEWEST" e2fsprogs mkfs.ext4 fsck.ext4 tune2fs dumpe2fs
    expose "$NEWEST" zstd zstd
    expose "$NEWEST" lz4 lz4
    expose "$NEWEST" xdelta3 xdelta3
    expose "$NEWEST" bsdiff bsdiff bspatch
    expose "$NEWEST" rsync rsync
    expose "$NEWEST" zip zip
    expose "$NEWEST" unzip unzip
    expose "$NEWEST" cryptsetup-bin veritysetup
    expose "$NEWEST" time time
    expose "$NEWEST" fuse3 fusermount3
    # borg is a script: it runs on its suite's Python, which patchelf would break.
    if [ -e "$DIR/newest/usr/bin/borg" ]; then
        local loader=$DIR/newest/usr/lib64/ld-linux-*.so.?
        wrapper borg "usr=$DIR/newest/usr" \
            "PYTHONHOME=\$usr exec $(echo $loader) --library-path \$usr/lib/$ARCH \\" \
            "    \$usr/bin/python3 \$usr/bin/borg \"\$@\""
        version "$NEWEST" borg borgbackup
    else
        missing borg "not in package borgbackup of suite $NEWEST"
    fi
    pip_peer ratarmount ratarmount
    pip_peer python-lmdb lmdb
    missing mkdwarfs "no package has it: the distribution has no DwarFS"
    missing dwarfs "no package has it: the distribution has no DwarFS"
    mv "$DIR/versions.new" "$DIR/versions.txt"
    [ ! -e "$DIR/erofs/bin" ] || ln -sfn "$DIR/erofsfuse/bin/erofsfuse" "$DIR/erofs/bin/erofsfuse"
}

case ${1:-} in
    --unpack | --fetch) "${1#--}" "$STABLE" "${@:2}" ;;
    --*) say "$1: no such option"; exit 2 ;;
    *) peers; echo "$DIR/versions.txt" ;;
esac
