#!/usr/bin/env bash
# Runs a command with Python 3.14, PyTorch and torchvision: Debian sid's CPU builds, unpacked in their own root
# directory. Nothing is installed into the system. The machine's other directories are visible at their own paths.
#
#   torch_root.sh fetch              downloads and unpacks (1.2 GB unpacked), once
#   torch_root.sh run COMMAND...     e.g. run python3 bench/pyworker/learn.py
#   torch_root.sh test [ARGS...]     pytest of with_torch/, with the kilnfs of this source tree
#   torch_root.sh versions
#
#   KILN_TORCH_ROOT=DIR              default: kiln-torch below XDG_CACHE_HOME or ~/.cache
#   KILN_ROOT_PACKAGES="NAME..."     other packages than PyTorch's, for another root, as in free_threaded.sh
#
# Exits with 77 and prints "SKIP:" with the reason if the builds are not available. Needs apt and dpkg-deb to download,
# unshare and chroot to run: as root, or with user namespaces. It changes the root instead of calling the other root's
# ld.so, so that processes can start Python again by sys.executable, as multiprocessing does for `spawn` and
# `forkserver`.
set -euo pipefail
root=${KILN_TORCH_ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/kiln-torch}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
read -ra packages <<<"${KILN_ROOT_PACKAGES:-python3-torch python3-torchvision python3-numpy python3-pil python3-pytest python3-typing-extensions}"
packages+=(dash bash coreutils)

absent() {
    echo "SKIP: ${0##*/}: $*"
    exit 77
}

# A closure of packages of Debian's newest suite, from where this machine's apt gets Debian, as if none were installed. Files only: no
# maintainer script runs.
unpack_newest() {
    local to=$1 apt=$root.apt deb dir
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || absent "no apt"
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    : >"$apt/status"
    local mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 2>/dev/null | grep -m 1 -iE 'debian/? ' | cut -d ' ' -f 1)
    [ -n "$mirror" ] || absent "apt has no Debian"
    echo "deb $mirror sid main" >"$apt/sources.list"
    cat >"$apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$apt/sources.list"; Dir::Etc::sourceparts "-"; Dir::State "$apt"; Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status"; Dir::Cache "$apt"; Dir::Cache::archives "$apt/archives"; Dir::Cache::pkgcache "$apt/pkg.bin";
DPkg::Post-Invoke ""; APT::Update::Post-Invoke ""; APT::Sandbox::User ""; APT::Install-Recommends "false";
CONF
    { timeout 300 apt-get -c "$apt/apt.conf" -qq update &&
        timeout 1800 apt-get -c "$apt/apt.conf" -qq -y --download-only install "${packages[@]}"; } >"$root.log" 2>&1 ||
        absent "packages cannot be fetched: $(tail -1 "$root.log")"
    mkdir -p "$to"/usr/{bin,sbin,lib,lib64}
    for dir in bin sbin lib lib64; do ln -sfn "usr/$dir" "$to/$dir"; done
    for deb in "$apt/archives"/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$to" --no-same-owner --keep-directory-symlink --warning=no-timestamp
        basename "$deb" >>"$to/packages"
    done
    rm -rf "$apt" "$root.log"
    # what update-alternatives would link
    local lib
    lib=$(dirname "$(find "$to/usr/lib" -name libc.so.6 | head -1)")
    for dir in blas lapack; do
        for deb in "$lib/$dir"/lib*.so.3; do [ -e "$deb" ] && ln -sf "$dir/${deb##*/}" "$lib/${deb##*/}"; done
    done
    mkdir -p "$to"/{etc,proc,sys,dev,tmp,var/tmp}
    echo 'root:x:0:0:root:/:/bin/sh' >"$to/etc/passwd"
    echo 'root:x:0:' >"$to/etc/group"
    [[ " ${packages[*]} " == *" python3-torch "* ]] || return 0
    # torchdata (StatefulDataLoader) is in no suite; it is pure Python. Its tests are skipped where it cannot be had.
    local python
    python=$(find "$to/usr/lib" -maxdepth 1 -name 'python3.*' | sort -V | tail -1)
    dir=$to/usr/local/lib/${python##*/}/dist-packages
    python3 -m pip --disable-pip-version-check -q install --no-deps --no-compile --target "$dir" torchdata==0.11.0 >"$to/torchdata.log" 2>&1 ||
        rm -rf "$dir"
}

fetch() {
    [ -e "$root/.complete" ] && return
    mkdir -p "$(dirname "$root")"
    exec 9>"$root.lock"
    command -v flock >/dev/null && flock 9
    [ -e "$root/.complete" ] && { exec 9>&-; return; }
    rm -rf "$root" "$root.new"
    unpack_newest "$root.new"
    touch "$root.new/.complete"
    mv "$root.new" "$root"
    exec 9>&-
}

# In a mount namespace of its own: directories of this machine that the root does not have, bound to their paths.
run() {
    fetch
    local own=(--mount)
    [ "$(id -u)" = 0 ] || own+=(--user --map-root-user)
    unshare "${own[@]}" true 2>/dev/null || absent "no namespaces: neither root nor user namespaces"
    exec unshare "${own[@]}" -- /bin/bash -c '
        root=$1; shift
        mount --make-rprivate /
        for path in /* /var/tmp; do
            [ -d "$path" ] && [ ! -L "$path" ] || continue
            case $path in /usr | /bin | /sbin | /lib* | /etc | /var | /boot | /lost+found) continue ;; esac
            # of /proc, /dev and what is mounted below them, all
            mkdir -p "$root$path" && mount --rbind "$path" "$root$path" || { echo "SKIP: torch_root.sh: $path cannot be bound"; exit 77; }
        done
        exec chroot "$root" /usr/bin/env -i HOME=/tmp PATH=/usr/bin:/bin LC_ALL=C.UTF-8 LANG=C.UTF-8 TMPDIR="${TMPDIR:-/tmp}" \
            PYTHONPATH="${PYTHONPATH:-}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}" \
            /bin/sh -c "cd \"\$0\" && exec \"\$@\"" "$PWD" "$@"' run "$root" "$@"
}

case ${1:-} in
fetch) fetch ;;
run) shift; run "$@" ;;
test)
    shift
    export PYTHONPATH=$here/../python
    run python3 -m pytest -p no:cacheprovider "${@:-$here/with_torch}"
    ;;
versions)
    run python3 -c 'import sys, torch, torchvision, numpy, PIL; print("Python", sys.version.split()[0], "torch", torch.__version__,
        "torchvision", torchvision.__version__, "numpy", numpy.__version__, "Pillow", PIL.__version__)'
    ;;
*) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
