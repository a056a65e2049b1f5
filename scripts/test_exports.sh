#!/usr/bin/env bash
# Exports runs with every format and loads them with the packages that the formats
# are made for, in a virtual environment in the user cache (0.7 GB, a minute, made
# once for each state of this file and of its requirements). CCMED_EXPORTS_PYTHON
# names another one to use. Arguments go to go test.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${CCMED_EXPORTS_PYTHON:-}
if [ -z "$python" ]; then
  cache=${CCMED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ccmed}
  venv=$cache/python/exports-$(cat "$here"/requirements-{exports,lm-eval}.txt "$0" | sha256sum | cut -c1-12)
  mkdir -p "$cache/python"
  exec 9>"$cache/python/exports.lock"
  flock 9
  if [ ! -e "$venv/complete" ]; then
    echo "test_exports: installing inspect_ai, lm-eval and others into $venv (a minute, once)" >&2
    rm -rf "$cache"/python/exports-*
    python3 -m venv "$venv" >&2
    install=(install -q --disable-pip-version-check --only-binary :all: --require-hashes --no-deps)
    "$venv/bin/pip" "${install[@]}" -r "$here/requirements-exports.txt" >&2
    "$venv/bin/pip" "${install[@]}" -r "$here/requirements-lm-eval.txt" >&2
    touch "$venv/complete"
  fi
  exec 9>&-
  python=$venv/bin/python
fi
cd "$here/.."
export CCMED_EXPORTS_PYTHON=$python CCMED_REQUIRE_PYTHON=1 HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TQDM_DISABLE=1
exec go test -count=1 -run ExportsLoad "$@" ./cmd/ccmed
