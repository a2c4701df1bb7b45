#!/usr/bin/env bash
# Run all scripts in this directory, which test real programs that call kiln by its drop-in names.
# Fails if one fails, and lists the skipped ones at the end.
set -euo pipefail
[ -z "${KILN:-}" ] || KILN=$(realpath "$KILN") # else each script builds it
export KILN
cd "$(dirname "$0")"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
for script in containerd cache package repart verity; do
    status=0
    # A script that hangs has failed.
    timeout -k 30 900 "./$script.sh" > >(tee -a "$log") || status=$?
    case $status in 0 | 77) ;; *) failed+=("$script.sh") ;; esac
done
wait
if grep -q '^SKIP: ' "$log"; then
    echo "Clients that were skipped, wholly or in part:"
    grep '^SKIP: ' "$log" | sed 's/^SKIP: /  /'
fi
[ ${#failed[@]} = 0 ] || { echo "FAILED: ${failed[*]}" >&2 && exit 1; }
