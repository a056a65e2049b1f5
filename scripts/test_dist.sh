#!/usr/bin/env bash
# Builds this machine's archive of a release in a temporary folder and looks whether it
# is whole: sums, version with commit, pages, completions, and the modules in the binary.
set -euo pipefail
version=${1:?usage: scripts/test_dist.sh VERSION}
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$here/dist.sh" "$version" "$dir/dist" "$(go env GOHOSTOS)/$(go env GOHOSTARCH)"
cd "$dir/dist"
sha256sum --check --strict --quiet SHA256SUMS
tar -xzf "ccmed_${version}_$(go env GOHOSTOS)_$(go env GOHOSTARCH).tar.gz"
cd "ccmed_${version}"_*/
says=$(./ccmed --version)
commit=$(git -C "$here" rev-parse --short=12 HEAD)
[[ $says == "ccmed $version $commit"* ]] || { echo "test_dist: the binary says $says, not $version $commit" >&2; exit 1; }
for file in LICENSE README.md CITATION.cff man/ccmed.1 man/ccmed-timing.1 completions/ccmed.{bash,zsh,fish}; do
  [ -s "$file" ] || { echo "test_dist: the archive has no $file" >&2; exit 1; }
done
bash -n completions/ccmed.bash
for module in $(go version -m ccmed | awk '$1 == "dep" { print $2 "@" $3 }'); do
  grep -qF "pkg:golang/$module" "../ccmed_$version.cdx.json" || { echo "test_dist: $module is not in the list of modules" >&2; exit 1; }
done
