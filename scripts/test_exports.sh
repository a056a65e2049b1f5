#!/usr/bin/env bash
# Checks the package in python/ and builds its wheel; exports runs with every format
# and loads them with the packages that the formats are made for, and with the wheel.
# All of it in a virtual environment in the user cache (0.9 GB, a minute, made once
# for each state of this file and of its requirements). CCMED_EXPORTS_PYTHON
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

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R "$here/python" "$work/python" # a build leaves files beside its source
"$python" -m pip wheel -q --disable-pip-version-check --no-index --no-deps --no-build-isolation -w "$work" "$work/python"
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$(echo "$work"/ccmed_runs-*.whl)
(
  cd "$here/python"
  "$python" -m ruff check --no-cache .
  "$python" -m ruff format --no-cache --check .
  PYTHONPATH='' "$python" -m mypy
  "$python" -P -c 'import ccmed_runs as r; assert ".whl" in r.__file__, r.__file__'
  "$python" -P -m pytest # not of this folder: of the wheel
)

cd "$here/.."
export CCMED_EXPORTS_PYTHON=$python CCMED_REQUIRE_PYTHON=1 HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TQDM_DISABLE=1
go test -count=1 -run ExportsLoad "$@" ./cmd/ccmed
