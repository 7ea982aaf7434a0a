#!/bin/sh
# Prints the path of a Python that can make the project's virtual environment, or says what was tried.
# A candidate counts only if it really runs: a shim on PATH may exist and fail, and a distribution may leave out ensurepip.
set -u

probe='import sys, venv, ensurepip
if sys.version_info < (3, 12): sys.exit("is Python %d.%d, needs 3.12 or newer" % sys.version_info[:2])'
tried=''

note() {
    tried="$tried
  $1: $2"
}

reason() {
    case $1 in
        Traceback*) printf '%s\n' "$1" | tail -n 1 ;;
        '') echo 'did not run' ;;
        *) printf '%s\n' "$1" | head -n 1 ;;
    esac
}

try() {
    path=$(command -v "$1" 2>/dev/null) || path=''
    if [ -z "$path" ]; then
        note "$1" 'not found'
        return
    fi
    if answer=$("$path" -c "$probe" 2>&1 </dev/null); then
        printf '%s\n' "$path"
        exit 0
    fi
    note "$path" "$(reason "$answer")"
}

try_versions() {
    found=no
    for python in "$1"/versions/3.*/bin/python; do
        [ -e "$python" ] || continue
        found=yes
        try "$python"
    done
    [ "$found" = yes ] || note "$1/versions/3.*/bin/python" 'no such file'
}

install_line() {
    if command -v pyenv >/dev/null 2>&1; then
        echo 'pyenv install 3.12'
    elif command -v brew >/dev/null 2>&1; then
        echo 'brew install python@3.12'
    elif command -v apt-get >/dev/null 2>&1; then
        echo 'sudo apt-get install python3.12 python3.12-venv'
    elif command -v dnf >/dev/null 2>&1; then
        echo 'sudo dnf install python3.12'
    else
        echo 'install Python 3.12 or newer and name it: make PYTHON=/path/to/python3.12'
    fi
}

if [ -n "${PYTHON:-}" ]; then
    try "$PYTHON"
    printf 'PYTHON=%s is not usable, looking for another:%s\n' "$PYTHON" "$tried" >&2
fi
for name in python3.12 python3.13 python3.14 python3; do
    try "$name"
done
[ -z "${PYENV_ROOT:-}" ] || try_versions "$PYENV_ROOT"
if pyenv=$(command -v pyenv 2>/dev/null); then
    try_versions "$(dirname "$(dirname "$pyenv")")"
fi

printf 'No usable Python >= 3.12 (one that can import venv and ensurepip) was found. Tried:%s\n' "$tried" >&2
printf 'To install one: %s\n' "$(install_line)" >&2
exit 1
