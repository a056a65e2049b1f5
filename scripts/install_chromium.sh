#!/usr/bin/env bash
# Prints the path of Chromium, for the browser tests; Debian's package is installed
# when there is none.
set -euo pipefail
find_chromium() {
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" && return
  done
  return 1
}
find_chromium && exit 0
command -v apt-get >/dev/null || { echo "install_chromium: there is no Chromium and no apt-get; install Chromium, or set CCMED_TEST_CHROMIUM to its path" >&2; exit 1; }
echo "install_chromium: installing Debian's chromium" >&2
root=()
[ "$(id -u)" = 0 ] || root=(sudo)
"${root[@]}" apt-get update -qq >&2
"${root[@]}" apt-get install -y -qq --no-install-recommends chromium >&2
find_chromium
