#!/bin/sh
# Checks the wheel as a user gets it: built, installed into an environment of its own, and looked at from an empty folder outside the
# clone, because import-linter and mypy see the mapped packages only in an installed wheel.
# Usage: scripts/check_wheel.sh PYTHON   (a Python in which the dependencies are installed)
set -eu

repo=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
case $1 in
    */*) python=$(CDPATH='' cd -- "$(dirname -- "$1")" && pwd)/$(basename -- "$1") ;;
    *) python=$1 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The wheel is built from what git tracks, in a copy: a file that is not committed cannot hide in it, and no stale build folder can.
mkdir "$work/source" "$work/dist" "$work/empty"
(cd "$repo" && git ls-files -z | tar -cf - --null -T -) | tar -xf - -C "$work/source"

echo 'check: building the wheel'
"$python" -m pip --disable-pip-version-check --quiet wheel --no-deps --no-build-isolation --no-index -w "$work/dist" "$work/source"

echo 'check: installing it into an environment of its own'
"$python" -m venv --without-pip "$work/venv"
"$python" -m pip --disable-pip-version-check --quiet --python "$work/venv/bin/python" \
    install --no-deps --no-index "$work"/dist/tfjax-*.whl
# The dependencies are taken from the first environment. A folder named in a .pth file is searched last and its own .pth files are
# not read, so the editable tfjax there stays out of sight.
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    > "$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"

cd "$work/empty"
installed=$("$work/venv/bin/python" -c 'import tfjax; print(tfjax.__file__)')
case $installed in
    "$work"/venv/*) ;;
    *) echo "check: the installed tfjax was expected, found $installed" >&2; exit 1 ;;
esac

echo 'check: import floors'
"$work/venv/bin/python" -c 'import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())' \
    "$repo/pyproject.toml" --no-cache
echo 'check: types'
"$work/venv/bin/python" -m mypy --config-file "$repo/pyproject.toml" --cache-dir "$work/mypy" -p tfjax
echo 'check: types of the benchmarks'
# They lie in no package and see tfjax as it is installed; nothing else of the clone may stand beside them.
mkdir "$work/scripts"
cp -R "$work/source/benchmarks" "$work/scripts/benchmarks"
(cd "$work/scripts" && "$work/venv/bin/python" -m mypy --config-file "$repo/pyproject.toml" --cache-dir "$work/mypy" -p benchmarks)
echo 'check: command line'
"$work/venv/bin/python" -m tfjax.serve --help >/dev/null
"$work/venv/bin/tfjax" --version
