#!/usr/bin/env bash
# Prints the path of an Ollama server binary: the one on the PATH, else one
# built from Ollama's Go module into the user cache (about 6 minutes on two
# cores, once). Only for the tests and the demo: on a workstation install Ollama
# the usual way. CCMED_OLLAMA_BUILD=1 builds even when one is on the PATH.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${CCMED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ccmed}
version=$(awk '$1=="github.com/ollama/ollama" && $2 ~ /^v/ {print $2} $1=="require" && $2=="github.com/ollama/ollama" {print $3}' "$here/ollama/go.mod")

if [ -z "${CCMED_OLLAMA_BUILD:-}" ] && command -v ollama >/dev/null; then
  command -v ollama
  exit 0
fi
bin=$cache/ollama/$version/ollama
if [ -x "$bin" ]; then
  echo "$bin"
  exit 0
fi

say() { echo "install_ollama: $*" >&2; }
say "no ollama on the PATH; building $version into $cache (about 6 minutes, once)"
mkdir -p "$cache/ollama/$version"
exec 9>"$cache/ollama/lock"
flock 9 # two callers (tests and the demo) build it once
[ -x "$bin" ] && { echo "$bin"; exit 0; }

if [ ! -e /usr/include/nlohmann/json.hpp ] || [ ! -d /usr/include/stb ]; then
  say "installing the headers nlohmann-json3-dev and libstb-dev"
  sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq >&2
  $sudo apt-get install -y -qq nlohmann-json3-dev libstb-dev >&2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(
  cd "$work"
  # pip runs a source package's setup when it fetches it: the hash is checked before.
  echo "miniaudio==1.71 --hash=sha256:ff51e2887bb673e2e757752b586b3dc924d59aa5fbcae9bbc45f4a111bd3262b" >wanted.txt
  python3 -m pip download -q --no-deps --no-binary :all: --require-hashes -d . -r wanted.txt >&2
  tar xzf miniaudio-1.71.tar.gz
  mkdir miniaudio && cp miniaudio-1.71/miniaudio/miniaudio.h miniaudio/
)
cd "$here/ollama"
# Ollama's cgo flags carry no -march: without one ggml runs on baseline SSE.
CGO_ENABLED=1 CGO_CPPFLAGS="-I$work -I/usr/include/stb" \
  CGO_CFLAGS="-O3 -march=native" CGO_CXXFLAGS="-O3 -march=native" \
  go build -buildvcs=false -trimpath -o "$bin.part" github.com/ollama/ollama >&2
mv "$bin.part" "$bin"
echo "$bin"
