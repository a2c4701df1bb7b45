# Makes an image of a container, of three layers that have what layers can have, as an OCI layout; and the tree that it stands for, by GNU
# tar and the rules for whiteouts. No program of the project takes part.

# blob LAYOUT FILE: puts it into the layout and prints its digest.
blob() {
    local digest
    digest=$(sha256sum "$2" | cut -d ' ' -f 1)
    mkdir -p "$1/blobs/sha256"
    cp "$2" "$1/blobs/sha256/$digest"
    echo "sha256:$digest"
}

# The trees of the layers, as $1/{1,2,3}; names with .wh. take away from the layers below.
layer_trees() (
    umask 022
    local number
    mkdir -p "$1/1"/{bin,data/small,dev,etc/becomes-file,home/user,lost/deep/er,opaque/sub,run,same}
    cd "$1/1"
    cp "$(command -v bash)" bin/tool
    ln bin/tool bin/tool-linked
    ln -s tool bin/tool-symlink
    ln -s /nowhere/at/all bin/dangling
    echo setuid >bin/su && chmod 4755 bin/su
    seq 1 300000 >data/numbers
    head -c 1000001 /dev/urandom >data/noise
    head -c 3000000 /dev/zero >data/zeros
    for number in {1..400}; do echo "small file $number" >"data/small/$number"; done
    : >data/empty
    mknod -m 666 dev/null c 1 3
    mknod -m 660 dev/disk b 259 65537
    mkfifo run/pipe
    echo one >etc/config && echo two >etc/changed && echo three >etc/gone && echo four >etc/becomes-dir
    echo five >etc/becomes-file/inside
    echo below >opaque/old && echo below >opaque/sub/old && echo lost >lost/deep/er/file
    echo same >same/kept
    echo 'name with spaces' >'data/name with spaces'
    echo latin >$'data/caf\xe9'
    mkdir -p "data/$(printf 'd%.0s' {1..180})/$(printf 'e%.0s' {1..180})"
    echo long >"data/$(printf 'd%.0s' {1..180})/$(printf 'e%.0s' {1..180})/$(printf 'f%.0s' {1..240})"
    echo home >home/user/file && chown -R 1000:1001 home/user && chmod 700 home/user
    echo far >data/far && chown 4000000000:70000 data/far
    setfattr -n user.note -v 'a note' etc/config
    setfattr -n user.empty etc/config
    setfattr -n user.on-directory -v yes data
    setfattr -n trusted.note -v kept etc/config
    setfattr -n security.capability -v 0x0100000200240000000000000000000000000000 bin/tool
    chmod 1777 run

    mkdir -p "$1/2"/{data,etc/becomes-dir,opaque,dev,same}
    cd "$1/2"
    : >.wh.lost && : >etc/.wh.gone && : >opaque/.wh..wh..opq && : >dev/.wh.disk
    echo new >opaque/new
    echo 'two, changed' >etc/changed && chmod 600 etc/changed
    echo inside >etc/becomes-dir/inside
    echo 'a file now' >etc/becomes-file
    ln etc/changed data/linked-across
    seq 1 100000 | rev >data/more
    chmod 711 same && chown 3:4 same

    mkdir -p "$1/3"/{lost,data,opaque/sub}
    cd "$1/3"
    echo 'here again' >lost/again
    : >data/.wh.more && : >data/.wh.small
    echo upper >opaque/sub/upper
    truncate -s 5M data/sparse && echo end >>data/sparse
    cd "$1"
    find . ! -type d -exec touch -h -d @1500000000.123456789 {} +
    touch -d @4200000000 1/data/numbers
    find . -depth -type d -exec touch -d @1600000000.5 {} +
)

# layer_tar TREE TAR
layer_tar() {
    tar -C "$1" --format=pax --sort=name --numeric-owner --sparse --xattrs --xattrs-include='*' --pax-option=delete=atime,delete=ctime \
        -cf "$2" .
}

# apply_tar TAR TREE: whiteouts first, then the members, each in the place of what is not also a directory.
apply_tar() {
    local member directory name old
    tar --quoting-style=literal -tf "$1" >"$work/members"
    while IFS= read -r member; do
        directory=${member%/*} name=${member##*/}
        case $name in
        .wh..wh..opq) find "$2/$directory" -mindepth 1 -delete ;;
        .wh.*) rm -r "${2:?}/$directory/${name#.wh.}" ;;
        esac
    done <"$work/members"
    while IFS= read -r member; do
        old=$2/${member%/}
        if [ -d "$old" ] && [ ! -L "$old" ] && [ "$member" != "${member%/}" ]; then
            # Attributes of a directory are those of the highest layer that has it, which tar would only add to.
            getfattr -h -m - --absolute-names "$old" | sed -n '/^#/d; /./p' | xargs -r -d '\n' -I NAME setfattr -h -x NAME "$old"
        elif [ -L "$old" ] || [ -e "$old" ]; then
            rm -r "$old"
        fi
    done <"$work/members"
    tar -C "$2" --warning=no-timestamp --numeric-owner --same-owner -p --xattrs --xattrs-include='*' --exclude='.wh.*' -xf "$1"
}

# layout LAYOUT NAME TYPE FILE DIFFID [TYPE FILE DIFFID]...: an image of these layers, the lowest first.
layout() {
    local dir=$1 name=$2 layers= ids= digest
    shift 2
    while [ $# -gt 0 ]; do
        digest=$(blob "$dir" "$2")
        layers+=${layers:+,}"{\"mediaType\":\"$1\",\"digest\":\"$digest\",\"size\":$(stat -c %s "$2")}"
        ids+=${ids:+,}"\"$3\""
        shift 3
    done
    printf '{"architecture":"%s","os":"linux","config":{"Cmd":["/bin/tool"]},"rootfs":{"type":"layers","diff_ids":[%s]}}' \
        "$(go env GOARCH)" "$ids" >"$work/config.json"
    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"%s","size":%s},"layers":[%s]}' \
        "$(blob "$dir" "$work/config.json")" "$(stat -c %s "$work/config.json")" "$layers" >"$work/manifest.json"
    printf '{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"%s","size":%s,"annotations":{"org.opencontainers.image.ref.name":"%s"}}]}' \
        "$(blob "$dir" "$work/manifest.json")" "$(stat -c %s "$work/manifest.json")" "$name" >"$dir/index.json"
    echo '{"imageLayoutVersion":"1.0.0"}' >"$dir/oci-layout"
}

diff_id() { echo "sha256:$(sha256sum "$1" | cut -d ' ' -f 1)"; }
