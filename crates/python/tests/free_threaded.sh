#!/usr/bin/env bash
# Builds wheels for Python without a global lock: `cp314t`, for Python 3.14t only, and `abi3t` (PEP 803), for Python
# 3.15 and later, with or without a lock.
#
#   free_threaded.sh wheels [DIR]    builds both into DIR, by default target/python/free-threaded; needs neither Python
#   free_threaded.sh test [ARGS...]  builds and tests them: abi3t with Debian sid's Python 3.15, and each with a Python
#                                    without a lock, if there is one; passes ARGS to pytest. Without KILN_LONG: a part
#                                    of the tests, and cp314t only if there is a Python for it
#
#   PYTHON_T="python3.14t …"         Pythons without a lock; by default those in PATH of 3.14 and later
#   MATURIN=maturin                  1.14 or newer
#   KILN_WHEEL_PROFILE=release       "dev" by default
#
# Exits with 77 and prints "SKIP:" with the reason if maturin is missing or nothing could be tested. Otherwise "SKIP:"
# names a part that was not tested.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
package=$(dirname "$here") project=$(dirname "$(dirname "$(dirname "$here")")")
work=${CARGO_TARGET_DIR:-$project/target}/python/free-threaded
maturin=${MATURIN:-maturin}

skip() {
    echo "SKIP: ${0##*/}: $*"
    exit 77
}

# PyO3 is told of an interpreter by a file, so that none has to be here. Of what `cargo test` has built, PyO3 and the module are built anew.
build() {
    local version=$1 flags=$2 to=$3
    shift 3
    mkdir -p "$work"
    printf '%s\n' implementation=CPython "version=$version" shared=true pointer_width=64 "build_flags=$flags" >"$work/$version.config"
    (cd "$package" && PYO3_CONFIG_FILE=$work/$version.config "$maturin" build -q --profile "${KILN_WHEEL_PROFILE:-dev}" --out "$to" "$@")
}

# What pip goes by: the tags of the wheel, and the name of the module in it.
check() {
    local wheel=$1 module=$2 tag
    shift 2
    python3 -m zipfile -l "$wheel" | grep "kilnfs/$module" >/dev/null || { echo "$wheel: no kilnfs/$module"; return 1; }
    for tag in "$@"; do
        python3 -c 'import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
[name] = [name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL")]
tags = [line.split(": ")[1] for line in wheel.read(name).decode().splitlines() if line.startswith("Tag: ")]
sys.exit(not any(tag.startswith(sys.argv[2]) for tag in tags) and f"{sys.argv[1]}: {tags}, and not {sys.argv[2]}")' "$wheel" "$tag"
    done
}

# Those of the tags "$@" into $1.
wheels() {
    local to=$1
    shift
    command -v "$maturin" >/dev/null || skip "no maturin"
    rm -rf "$to"
    if [[ " $* " = *" cp314t "* ]]; then
        build 3.14 Py_GIL_DISABLED "$to" --interpreter python3.14t
        check "$to"/kilnfs-*-cp314-cp314t-*.whl "_native.cpython-314t" cp314-cp314t
    fi
    build 3.15 "" "$to" --interpreter python3.15 --features abi3t
    check "$to"/kilnfs-*-cp315-abi3.abi3t-*.whl "_native.abi3t" cp315-abi3- cp315-abi3t-
}

# pytest with the package in a directory and nothing of the source tree.
tests=("$here" --ignore "$here/with_torch")
if [ -z "${KILN_LONG:-}" ]; then
    tests=()
    for name in import open os pack builder parts processes samples verify; do tests+=("$here/test_$name.py"); done
fi
options=(-q -p no:cacheprovider -c "$package/pyproject.toml" --rootdir "$package" -o pythonpath= "${tests[@]}")

test_all() {
    local tested=0 python tag status=0
    local tags=(abi3t)
    if [ -n "${KILN_LONG:-}${PYTHON_T:-}" ] || command -v python3.14t >/dev/null; then tags+=(cp314t); fi
    wheels "$work/wheels" "${tags[@]}"
    for tag in "${tags[@]}"; do
        rm -rf "$work/$tag"
        python3 -m zipfile -e "$work"/wheels/kilnfs-*"$tag"-*.whl "$work/$tag"
    done

    PYTHONPATH=$work/abi3t KILN_TORCH_ROOT=${KILN_NEXT_ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/kiln-python-next} \
        KILN_ROOT_PACKAGES="python3.15 python3-pytest python3-typing-extensions" \
        "$here/torch_root.sh" run python3.15 -m pytest "${options[@]}" "$@" >"$work/next.log" 2>&1 || status=$?
    case $status in
    0) echo "abi3t, Python 3.15 with a lock: $(tail -1 "$work/next.log")" && tested=1 ;;
    77) echo "SKIP: abi3t with Python 3.15: $(grep -m 1 -o 'SKIP: .*' "$work/next.log" | sed 's/^SKIP: //')" ;;
    *) cat "$work/next.log" && return "$status" ;;
    esac

    local found=0
    for python in ${PYTHON_T:-python3.14t python3.15t python3.16t}; do
        command -v "$python" >/dev/null || continue
        found=1
        tag=abi3t
        [ "$("$python" -c 'import sys; print(sys.version_info < (3, 15))')" = False ] || tag=cp314t
        "$python" -m venv "$work/venv-${python##*/}"
        "$work/venv-${python##*/}/bin/python" -m pip --disable-pip-version-check -q install pytest || {
            echo "SKIP: $tag with $python: pytest cannot be fetched" && continue
        }
        # A module that is not made for it would turn the lock on.
        PYTHONPATH=$work/$tag "$work/venv-${python##*/}/bin/python" -W error -c 'import sys, kilnfs._native; sys.exit(sys._is_gil_enabled())'
        PYTHONPATH=$work/$tag "$work/venv-${python##*/}/bin/python" -m pytest "${options[@]}" "$@"
        tested=1
    done
    [ "$found" = 1 ] || echo "SKIP: readers in threads without a lock: no Python of a free-threaded build; the wheels are compiled only"
    [ "$tested" = 1 ] || exit 77
}

case ${1:-} in
wheels) wheels "${2:-$work/wheels}" cp314t abi3t && ls "${2:-$work/wheels}" ;;
test) shift && test_all "$@" ;;
*) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
