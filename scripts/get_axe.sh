#!/usr/bin/env bash
# Prints the path of axe-core's script (MPL-2.0), fetched once by npm into the user
# cache. The browser tests run it in a report: an accessibility check that is not
# ours. It is no part of the program.
set -euo pipefail
version=4.14.1
sum=e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
cache=${CCMED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ccmed}
axe=$cache/axe-core-$version/axe.min.js
if [ -f "$axe" ]; then
  echo "$axe"
  exit 0
fi
command -v npm >/dev/null || { echo "get_axe: npm is missing; install it (Debian: apt-get install npm)" >&2; exit 1; }
echo "get_axe: fetching axe-core $version (once)" >&2
mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch-axe.XXXXXX")
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent "axe-core@$version" >&2)
echo "$sum  $work/axe-core-$version.tgz" | sha256sum -c --quiet >&2
tar -xzf "$work/axe-core-$version.tgz" -C "$work" package/axe.min.js package/LICENSE
rm -rf "$cache/axe-core-$version"
mv "$work/package" "$cache/axe-core-$version"
echo "$axe"
