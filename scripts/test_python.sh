#!/usr/bin/env bash
# Prints the path of a Python with the packages of requirements-test.txt, in a
# virtual environment in the user cache, made once for each state of that file
# (torch is a download of 3 GB). CCMED_TEST_PYTHON names another one to use.
set -euo pipefail
if [ -n "${CCMED_TEST_PYTHON:-}" ]; then
  echo "$CCMED_TEST_PYTHON"
  exit 0
fi
requirements=$(cd "$(dirname "$0")" && pwd)/requirements-test.txt
cache=${CCMED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ccmed}
venv=$cache/python/tests-$(sha256sum "$requirements" | cut -c1-12)
mkdir -p "$cache/python"
exec 9>"$cache/python/lock"
flock 9
if [ ! -e "$venv/complete" ]; then
  echo "test_python: installing torch, transformers and others into $venv (3 GB, a few minutes, once)" >&2
  rm -rf "$cache"/python/tests-*
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: --require-hashes --no-deps -r "$requirements" >&2
  touch "$venv/complete"
fi
echo "$venv/bin/python"
