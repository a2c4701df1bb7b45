# Programs of Debian sid, which are newer than those of the system, unpacked beside it. Sourced behind common.sh.

sid=$cache/debian-sid
# Those of all scripts, so that they are fetched once; what a program only recommends must be named.
sid_packages='systemd-repart systemd-container libcryptsetup12 cryptsetup-bin'

# The newest suite of where this machine's apt gets Debian; a closure of packages as if none were installed.
unpack_newest() {
    local apt=$cache/apt-sid deb dir mirror root=$1 what=$2
    shift 2
    { command -v apt-get && command -v dpkg-deb; } >/dev/null || absent "$what: no apt"
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    : >"$apt/status"
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 2>/dev/null | grep -m 1 -iE 'debian/? ' | cut -d ' ' -f 1)
    [ -n "$mirror" ] || absent "$what: apt has no Debian"
    echo "deb $mirror sid main" >"$apt/sources.list"
    cat >"$apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$apt/sources.list"; Dir::Etc::sourceparts "-"; Dir::State "$apt"; Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status"; Dir::Cache "$apt"; Dir::Cache::archives "$apt/archives"; Dir::Cache::pkgcache "$apt/pkg.bin";
DPkg::Post-Invoke ""; APT::Update::Post-Invoke ""; APT::Sandbox::User ""; APT::Install-Recommends "false";
CONF
    { timeout 120 apt-get -c "$apt/apt.conf" -qq update && timeout 240 apt-get -c "$apt/apt.conf" -qq -y --download-only install "$@"; } \
        >"$work/apt.log" 2>&1 || absent "$what cannot be fetched: $(tail -1 "$work/apt.log")"
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
    for dir in bin sbin lib lib64; do ln -sfn "usr/$dir" "$root/$dir"; done
    for deb in "$apt/archives"/*.deb; do dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --keep-directory-symlink; done
    rm -rf "$apt"
}

# need_sid PROGRAM...: programs by their paths below /usr.
need_sid() {
    local program
    if [ "$(cat "$sid/.complete" 2>/dev/null)" != "$sid_packages" ]; then
        rm -rf "$sid"
        # shellcheck disable=SC2086
        unpack_newest "$sid" "${1##*/}" $sid_packages
        echo "$sid_packages" >"$sid/.complete"
    fi
    sid_lib=$(dirname "$(find "$sid/usr/lib" -name libc.so.6 | head -1)")
    sid_loader=$(find "$sid/usr/lib64/" "$sid_lib" -name 'ld-linux*' | head -1)
    for program; do
        of_sid "$program" --version >"$work/out" 2>&1 || absent "${program##*/} of Debian sid does not run here: $(tail -1 "$work/out")"
    done
}

# of_sid PROGRAM ARGUMENT...: a program of the other suite with the C library of the other suite.
of_sid() {
    local program=$1
    shift
    "$sid_loader" --library-path "$sid_lib:$sid_lib/systemd" "$sid/usr/$program" "$@"
}
