#!/usr/bin/env bash
# Tests kilnfs: builds a wheel, installs it into a new virtual environment, and runs all tests below tests/ with it.
# Then runs torch_root.sh (tests with PyTorch, in a root of its own) and, with KILN_LONG, free_threaded.sh (wheels for
# Python without a global lock).
#
#   run.sh [ARGUMENTS OF pytest]
#
#   PYTHON=python3.13        the interpreter, 3.11 or newer
#   KILN_WHEEL_PROFILE=release   profile of the wheel; the default, "dev", shares artifacts with `cargo test`
#   KILN_LONG=1              with free-threaded wheels, pandas, pyarrow, datasets, zarr, dask, ray and a server of S3
#                            objects, too
#   KILN_SKIP_LOG=FILE       receives a line for each skipped part
#
# Exits with 77 and prints "SKIP:" with the reason if there is no interpreter or no network.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
package=$(dirname "$here") project=$(dirname "$(dirname "$(dirname "$here")")")
work=${CARGO_TARGET_DIR:-$project/target}/python

skip() {
    echo "SKIP: kilnfs: $*"
    [ -z "${KILN_SKIP_LOG:-}" ] || echo "kilnfs: $*" >>"$KILN_SKIP_LOG"
}

python=${PYTHON:-}
for name in ${python:-python3 python3.13 python3.12 python3.11}; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$name
        break
    fi
    python=
done
[ -n "$python" ] || { skip "no Python 3.11 or newer with venv" && exit 77; }

rm -rf "$work"
mkdir -p "$work"
"$python" -m venv "$work/venv"
pip() { "$work/venv/bin/python" -m pip --disable-pip-version-check -q "$@"; }
requirements=$here/requirements.txt
[ -z "${KILN_LONG:-}" ] || requirements=$here/requirements-acceptance.txt
if ! pip install 'maturin>=1.14,<2' -r "$requirements" 2>"$work/pip.log"; then
    skip "packages cannot be fetched: $(tail -1 "$work/pip.log")"
    exit 77
fi

# The tests run with the package that is installed, not with the sources beside them.
cd "$package"
profile=${KILN_WHEEL_PROFILE:-dev} features=()
[ "$profile" != dev ] || features=(--features as-tested)
"$work/venv/bin/maturin" build -q --profile "$profile" "${features[@]}" --interpreter "$work/venv/bin/python" --out "$work/wheels"
pip install --no-deps "$work"/wheels/kilnfs-*.whl
installed=$(cd / && "$work/venv/bin/python" -c 'import os, kilnfs; print(os.path.dirname(kilnfs.__file__))')
"$work/venv/bin/python" -m pytest -q -p no:cacheprovider -c pyproject.toml --rootdir "$package" -o pythonpath= \
    "$installed" "$here" --ignore "$here/with_torch" "$@"

# Wheels for Python without a global lock, with the Pythons that can be had. Building them takes minutes.
if [ -n "${KILN_LONG:-}" ]; then
    status=0
    MATURIN=$work/venv/bin/maturin "$here/free_threaded.sh" test >"$work/free-threaded.log" 2>&1 || status=$?
    # No such line at all is no failure of this script.
    { grep '^SKIP: ' "$work/free-threaded.log" || true; } | sed 's/^SKIP: //' | while read -r reason; do skip "$reason"; done
    case $status in
    0) grep 'passed' "$work/free-threaded.log" ;;
    77) ;;
    *) cat "$work/free-threaded.log" && exit "$status" ;;
    esac
else
    skip "wheels for Python without a global lock: only with --long"
fi

# Another Python has other packages, but this one.
mkdir "$work/only"
ln -s "$installed" "$work/only/kilnfs"
status=0
PYTHONPATH=$work/only "$here/torch_root.sh" run python3 -m pytest -q -p no:cacheprovider -c "$package/pyproject.toml" \
    --rootdir "$package" -o pythonpath= "$here/with_torch" "$@" >"$work/torch.log" 2>&1 || status=$?
case $status in
0) tail -1 "$work/torch.log" ;;
77) skip "with PyTorch: $(grep -m 1 -o 'SKIP: .*' "$work/torch.log" | sed 's/^SKIP: //')" ;;
*) cat "$work/torch.log" && exit "$status" ;;
esac
