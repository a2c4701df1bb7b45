#!/bin/sh
# Offers the names of erofs-utils and composefs as alternatives, below the originals: a machine that has these keeps them.
set -e
command -v update-alternatives >/dev/null || exit 0
for name in mkfs.erofs fsck.erofs dump.erofs erofsfuse mkcomposefs composefs-info mount.composefs; do
    # The original is no alternative; it is never replaced.
    [ -e "/usr/bin/$name" ] && [ ! -L "/usr/bin/$name" ] && continue
    update-alternatives --install "/usr/bin/$name" "$name" /usr/bin/kiln 10
done
