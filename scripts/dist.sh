#!/usr/bin/env bash
# Builds the archives of a release in a new folder: a binary with man pages and shell
# completions for each platform, the modules in it as a CycloneDX file, and SHA256SUMS.
# The same commit and the same Go make the same archives.
#
#   scripts/dist.sh VERSION [FOLDER [PLATFORM...]]    platforms as linux/amd64
set -euo pipefail
version=${1:?usage: scripts/dist.sh VERSION [FOLDER [PLATFORM...]]}
folder=${2:-dist}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
cyclonedx=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0

root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
[ -z "$(ls -A "$folder")" ] || { echo "dist: $folder is not empty; remove it, or name a new folder" >&2; exit 1; }
cd "$root"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CGO_ENABLED=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { # OS ARCH FILE
  GOOS=$1 GOARCH=$2 go build -trimpath -buildvcs=true -ldflags "-s -w -X main.release=$version" -o "$3" ./cmd/ccmed
}
build "$(go env GOHOSTOS)" "$(go env GOHOSTARCH)" "$work/ccmed"
"$work/ccmed" docs man "$work/man"
mkdir "$work/completions"
for shell in bash zsh fish; do
  "$work/ccmed" completion "$shell" >"$work/completions/ccmed.$shell"
done

for platform in "$@"; do
  os=${platform%/*} arch=${platform#*/}
  name=ccmed_${version}_${os}_$arch
  echo "dist: $name" >&2
  mkdir "$work/$name"
  build "$os" "$arch" "$work/$name/ccmed"
  cp -r LICENSE README.md CHANGELOG.md CITATION.cff "$work/man" "$work/completions" "$work/$name"
  chmod -R u=rwX,go=rX "$work/$name"
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -cf - "$name" | gzip -n9 >"$folder/$name.tar.gz"
done
go run "$cyclonedx" bin -json -noserial -std -version "v$version" -output "$folder/ccmed_$version.cdx.json" "$work/ccmed" 2>"$work/log" ||
  { cat "$work/log" >&2; exit 1; }
cd "$folder"
sha256sum -- * >"$work/sums"
mv "$work/sums" SHA256SUMS
