#!/bin/sh
# Runs an install command. Where it fails, the last line says whether the network was missing, and that make goes on from there.
# Usage: scripts/install.sh COMMAND [WORD...]
set -u

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

{ "$@" 2>&1; echo $? >"$work/code"; } | tee "$work/log" >&2
code=$(cat "$work/code" 2>/dev/null)
[ "${code:-1}" = 0 ] && exit 0

# What pip writes when it does not reach its index: refused or no route, no name, no answer, or a proxy that refuses.
signs='NewConnectionError|ConnectionError|NameResolutionError|name resolution|ConnectTimeout|ReadTimeout|timed out|ProxyError|SSLError|Network is unreachable'
if grep -Eq "$signs" "$work/log"; then
    echo 'tfjax: the packages could not be fetched: no network, or the package index is out of reach. With a network, run make again; it goes on from here.' >&2
else
    echo 'tfjax: the install failed for the reason above. When that is mended, run make again; it goes on from here.' >&2
fi
exit "${code:-1}"
