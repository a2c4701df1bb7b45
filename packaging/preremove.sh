#!/bin/sh
set -e
command -v update-alternatives >/dev/null || exit 0
for name in mkfs.erofs fsck.erofs dump.erofs erofsfuse mkcomposefs composefs-info mount.composefs; do
    update-alternatives --remove "$name" /usr/bin/kiln || :
done
