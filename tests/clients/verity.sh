#!/usr/bin/env bash
# Hash trees and signatures of systemd-repart and of kiln, each verified and made again by the other, without device mapper: repart's partitions
# over images of kiln have the bytes that kiln makes; kiln's image, tree and signature in partitions of repart are right for veritysetup,
# OpenSSL and systemd-dissect. repart knows SHA-256 only. As root.
#
#   verity.sh        exit code 77 if the parts cannot be had: OpenSSL, systemd and cryptsetup of Debian sid, loop devices
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$here/debian.sh"
need base64 cmp od openssl
need_sid bin/systemd-repart bin/systemd-dissect sbin/veritysetup

tree=$work/tree
mkdir -p "$tree"/{usr/lib,etc}
cp "$(command -v bash)" "$tree/usr/lib/shell"
seq 1 100000 >"$tree/etc/numbers"
head -c 300001 /dev/urandom >"$tree/etc/noise"
# By this file systemd-dissect knows a root of an operating system.
echo 'ID=kiln-test' >"$tree/usr/lib/os-release"
find "$tree" -depth -exec touch -h -d @1500000000 {} +
for who in owner stranger; do
    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj "/CN=$who" -keyout "$work/$who.key" -out "$work/$who.crt" 2>"$work/out"
done
"$KILN" pack --quiet --preset balanced "$tree" "$work/balanced.erofs"
"$KILN" pack --quiet --preset plain "$tree" "$work/plain.erofs"

# run WHAT COMMAND...: its output goes to $work/out, and it must succeed.
run() {
    local what=$1
    shift
    "$@" >"$work/out" 2>&1 || {
        tail -10 "$work/out" >&2
        fail "$what: ${*:1:3} has ended with an error"
    }
}

# refused STATUS WHAT COMMAND...: must end with this exit code.
refused() {
    local wanted=$1 what=$2 status=0
    shift 2
    "$@" >"$work/out" 2>&1 || status=$?
    [ "$status" = "$wanted" ] || {
        tail -10 "$work/out" >&2
        fail "$what: exit code $status instead of $wanted"
    }
}

# partition NAME LINE...: one more definition.
definitions=$work/definitions
partition() {
    mkdir -p "$definitions"
    local file=$definitions/$1.conf
    shift
    printf '%s\n' '[Partition]' "$@" >"$file"
}

# repart DISK OPTION...: of the definitions, with the report in $work/report.
repart() {
    local disk=$1
    shift
    of_sid bin/systemd-repart --dry-run=no --offline=yes --definitions="$definitions" --json=pretty "$@" "$disk" >"$work/report" 2>"$work/log" || {
        tail -10 "$work/log" >&2
        fail "systemd-repart has failed for ${disk##*/}"
    }
}

# field NUMBER NAME: of the partition in the report, 0 is the first.
field() { sed -n "s/^.*\"$2\" : \"\\{0,1\\}\\([^\",]*\\).*/\\1/p" "$work/report" | sed -n "$(($1 + 1))p"; }

# cut_out DISK: $work/{data,hash,signature} become the partitions of the report.
cut_out() {
    local name number=0
    for name in data hash signature; do
        tail -c "+$(($(field $number offset) + 1))" "$1" | head -c "$(field $number raw_size)" >"$work/$name" || true
        [ "$(stat -c %s "$work/$name")" = "$(field $number raw_size)" ] || fail "partition $number cannot be cut out of $1"
        number=$((number + 1))
    done
}

# bytes FILE OFFSET LENGTH: as hexadecimal digits.
bytes() { od -An -v -tx1 -j "$2" -N "$3" "$1" | tr -d ' \n'; }
as_uuid() { echo "${1:0:8}-${1:8:4}-${1:12:4}-${1:16:4}-${1:20:12}"; }

# flip FILE OFFSET: one bit, there and back again.
flip() {
    local octal
    octal=$(printf %03o $((0x$(bytes "$1" "$2" 1) ^ 4)))
    printf '%b' "\\0$octal" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# The JSON of a signature partition, without the zeros behind it.
json_of() { tr -d '\0' <"$1" | sed -n "s/.*\"$2\":\"\\([^\"]*\\)\".*/\\1/p"; }

# signature_is_right PARTITION ROOT-HASH: for OpenSSL.
signature_is_right() {
    [ "$(json_of "$1" rootHash)" = "$2" ] || fail "the signature partition has another root hash"
    [ "$(json_of "$1" certificateFingerprint)" = "$(openssl x509 -in "$work/owner.crt" -outform der | sha256sum | cut -d ' ' -f 1)" ] ||
        fail "the signature partition has the fingerprint of another certificate"
    json_of "$1" signature | base64 -d >"$work/of-partition.p7s"
    printf %s "$2" >"$work/content"
    local check=(openssl smime -verify -binary -inform der -in "$work/of-partition.p7s" -content "$work/content" -nointern -noverify)
    run "signature" "${check[@]}" -certfile "$work/owner.crt"
    refused 4 "signature with the certificate of a stranger" "${check[@]}" -certfile "$work/stranger.crt"
}

# of_repart WHAT DATA-BLOCK HASH-BLOCK: what repart has made for the definitions, verified by kiln and made again by it.
of_repart() {
    local what=$1 root_hash salt uuid length
    shift
    rm -f "$work"/{disk,made*}
    repart "$work/disk" --empty=create --size=auto --seed="$seed" --private-key="$work/owner.key" --certificate="$work/owner.crt" \
        ${options[@]+"${options[@]}"}
    cut_out "$work/disk"
    root_hash=$(field 0 roothash)
    # Superblock: UUID at 16, sizes of blocks at 64 and 68, length of the salt at 80, salt at 88.
    [ "$(bytes "$work/hash" 64 8)" = "$(printf %02x%02x0000%02x%02x0000 $(($1 & 255)) $(($1 >> 8)) $(($2 & 255)) $(($2 >> 8)))" ] ||
        fail "$what: repart has made blocks of other sizes"
    uuid=$(as_uuid "$(bytes "$work/hash" 16 16)")
    salt=$(bytes "$work/hash" 88 "$((0x$(bytes "$work/hash" 80 1)))")
    [ -n "$salt" ] || fail "$what: repart's tree has no salt"

    local verify=("$KILN" verity verify --root-hash "$root_hash" "$work/data" "$work/hash")
    local signed=(--signature "$work/signature" --certificate)
    run "$what" "${verify[@]}" "${signed[@]}" "$work/owner.crt"
    refused 1 "$what: certificate of a stranger" "${verify[@]}" "${signed[@]}" "$work/stranger.crt"
    local file at
    for file in data hash; do
        # The last block of the data, and the first digest of the tree.
        at=$([ $file = data ] && echo $(($(stat -c %s "$work/data") - 1)) || echo "$2")
        flip "$work/$file" "$at"
        refused 4 "$what: a bit of $file is flipped" "${verify[@]}"
        flip "$work/$file" "$at"
    done

    run "$what" "$KILN" verity format --salt "$salt" --uuid "$uuid" --data-block-size "$1" --hash-block-size "$2" \
        --root-hash-file "$work/made.roothash" "$work/data" "$work/made"
    [ "$(tr -d '\n' <"$work/made.roothash")" = "$root_hash" ] || fail "$what: kiln finds another root hash"
    length=$(stat -c %s "$work/made")
    cmp -n "$length" "$work/made" "$work/hash" || fail "$what: kiln's tree has other bytes than repart's"
    [ -z "$(tail -c "+$((length + 1))" "$work/hash" | tr -d '\0' | head -c 1)" ] || fail "$what: repart's tree is longer than kiln's"

    run "$what" "$KILN" verity sign --key "$work/owner.key" --certificate "$work/owner.crt" --output "$work/made.p7s" \
        --partition-file "$work/made.signature" "$root_hash"
    cmp "$work/made.signature" "$work/signature" || fail "$what: kiln's signature partition has other bytes than repart's"
    signature_is_right "$work/signature" "$root_hash"
    cmp "$work/made.p7s" "$work/of-partition.p7s" || fail "$what: kiln's signature has other bytes than repart's"
    echo "ok: $what: tree and signature of systemd-repart, verified and made again"
}

# verity_of TYPE DATA-BLOCK HASH-BLOCK LINE...: definitions of three partitions; the lines are those of the data.
verity_of() {
    local type=$1 blocks=("VerityDataBlockSizeBytes=$2" "VerityHashBlockSizeBytes=$3")
    shift 3
    rm -rf "$definitions"
    partition 10-data "Type=$type" Verity=data VerityMatchKey=it "${blocks[@]}" "$@"
    partition 20-hash "Type=$type-verity" Verity=hash VerityMatchKey=it "${blocks[@]}"
    partition 30-signature "Type=$type-verity-sig" Verity=signature VerityMatchKey=it
}

# image_of FILE [LENGTH]: the lines for a partition of its length or of a greater one.
image_of() {
    local length=${2:-$(stat -c %s "$1")}
    printf '%s\n' "CopyBlocks=$1" "SizeMinBytes=$length" "SizeMaxBytes=$length"
}

options=()
seed=00000000-1111-2222-3333-444444444444
mapfile -t lines < <(image_of "$work/balanced.erofs")
verity_of root 4096 4096 "${lines[@]}"
of_repart "blocks of 4096 bytes" 4096 4096
verity_of usr 512 512 "${lines[@]}"
of_repart "blocks of 512 bytes" 512 512
seed=99999999-8888-7777-6666-555555555555
mapfile -t lines < <(image_of "$work/plain.erofs")
verity_of root 4096 1024 "${lines[@]}"
of_repart "blocks of 4096 bytes, hash blocks of 1024, another salt" 4096 1024
mapfile -t lines < <(image_of "$work/balanced.erofs" 8M)
verity_of root 1024 4096 "${lines[@]}"
of_repart "a partition of 8 MiB that is longer than the image, blocks of 1024 bytes" 1024 4096
options=(--root="$tree" --sector-size=4096)
SOURCE_DATE_EPOCH=1700000000
export SOURCE_DATE_EPOCH
verity_of root 4096 4096 Format=erofs CopyFiles=/:/ AddValidateFS=no Minimize=best
of_repart "an image that systemd-repart lets kiln make, sectors of 4096 bytes" 4096 4096
unset SOURCE_DATE_EPOCH
options=()

# The other way: kiln's image, tree and signature.
own=$work/own.raw
"$KILN" pack --quiet --preset balanced --verity="$work/own.verity" --root-hash-file "$work/own.roothash" "$tree" "$own"
root_hash=$(tr -d '\n' <"$work/own.roothash")
run "kiln verity sign" "$KILN" verity sign --key "$work/owner.key" --certificate "$work/owner.crt" --output "$work/own.roothash.p7s" \
    --partition-file "$work/own.signature" "$work/own.roothash"

# in_partitions DISK ROOT-HASH: copies them into partitions, whose UUIDs are those of the root hash.
in_partitions() {
    rm -rf "$definitions"
    partition 10-data Type=root "CopyBlocks=$own" "UUID=$(as_uuid "${2:0:32}")"
    partition 20-hash Type=root-verity "CopyBlocks=$work/own.verity" "UUID=$(as_uuid "${2:32}")"
    partition 30-signature Type=root-verity-sig "CopyBlocks=$work/own.signature"
    repart "$1" --empty=create --size=auto --seed="$seed"
    cut_out "$1"
}
# listed IMAGE PATTERN...: systemd-dissect shows such a line for each pattern. It fails behind its table, as it cannot mount the image.
listed() {
    local image=$1 pattern
    shift
    of_sid bin/systemd-dissect --no-pager "$image" >"$work/out" 2>&1 || true
    for pattern; do
        grep -qE "^ro $pattern" "$work/out" || {
            tail -10 "$work/out" >&2
            fail "systemd-dissect shows no '$pattern'"
        }
    done
}

# What it finds must be a root with hash tree and signature, not less.
dissect=(of_sid bin/systemd-dissect --validate --image-policy=root=signed)
in_partitions "$work/own.disk" "$root_hash"
run "veritysetup" of_sid sbin/veritysetup verify "$work/data" "$work/hash" "$root_hash"
flip "$work/data" 5000
refused 2 "veritysetup, a bit is flipped" of_sid sbin/veritysetup verify "$work/data" "$work/hash" "$root_hash"
signature_is_right "$work/signature" "$root_hash"
run "systemd-dissect" "${dissect[@]}" "$work/own.disk"
listed "$work/own.disk" 'root .* erofs .* signed' 'root-verity .* DM_verity_hash ' 'root-verity-sig .* verity_hash_signature '
# Without device mapper it recognises the parts, but compares none with another: this is what the programs above are for.
rm "$definitions/30-signature.conf"
repart "$work/unsigned.disk" --empty=create --size=auto --seed="$seed"
refused 1 "systemd-dissect, no signature" "${dissect[@]}" "$work/unsigned.disk"
echo "ok: image, tree and signature of kiln in partitions of systemd-repart, for veritysetup, OpenSSL and systemd-dissect"

# Files beside the image, with the names that kiln gives them.
run "systemd-dissect, files" "${dissect[@]}" "$own"
listed "$own" 'root .* erofs .* external '
rm "$work/own.roothash.p7s"
refused 1 "systemd-dissect, no file with a signature" "${dissect[@]}" "$own"
echo "ok: image, tree, root hash and signature of kiln beside each other, for systemd-dissect"

# A signature that is made elsewhere: repart leaves its partition out, and joins kiln's later.
mapfile -t lines < <(image_of "$own")
verity_of root 4096 4096 "${lines[@]}"
repart "$work/signed.disk" --empty=create --size=auto --seed="$seed" --private-key="$work/owner.key" --certificate="$work/owner.crt"
repart "$work/joined.disk" --empty=create --size=auto --seed="$seed" --certificate="$work/owner.crt" --defer-partitions=root-verity-sig
root_hash=$(field 0 roothash)
run "kiln verity sign" "$KILN" verity sign --key "$work/owner.key" --certificate "$work/owner.crt" --output "$work/joined.p7s" "$root_hash"
! cmp -s "$work/signed.disk" "$work/joined.disk" || fail "systemd-repart has not left the signature out"
repart "$work/joined.disk" --seed="$seed" --certificate="$work/owner.crt" --join-signature="$root_hash:$work/joined.p7s"
cmp "$work/signed.disk" "$work/joined.disk" || fail "a disk with kiln's signature has other bytes than one that systemd-repart signs"
echo "ok: kiln's signature, joined by systemd-repart: the bytes of a disk that it signs itself"

modprobe dm_verity 2>/dev/null || true
if [ -e /sys/module/dm_verity ]; then
    mkdir "$work/mnt"
    run "systemd-dissect --mount" of_sid bin/systemd-dissect --mount --read-only --image-policy=root=verity "$work/unsigned.disk" "$work/mnt"
    cmp "$tree/etc/noise" "$work/mnt/etc/noise" || fail "mounted by dm-verity, a file has other contents"
else
    echo "SKIP: verity.sh: images of kiln mounted by systemd-dissect with dm-verity: the kernel has none"
fi
