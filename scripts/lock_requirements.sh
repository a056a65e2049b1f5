#!/usr/bin/env bash
# Writes requirements-NAME.txt from requirements-NAME.in: every package that is
# installed, with its version and the hashes of its files, for Python 3.11 and later
# on every platform. The lists are whole: pip installs them with --no-deps. Run it when a .in file changes. Versions stay as they are until
# --upgrade or --upgrade-package NAME asks for new ones.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work"
"$work/bin/pip" install -q --disable-pip-version-check --only-binary :all: --require-hashes -r requirements-uv.txt
for list in requirements-*.in; do
  deps=()
  # These two are installed into environments that have what they need.
  case $list in requirements-gguf.in | requirements-lm-eval.in) deps=(--no-deps) ;; esac
  UV_CUSTOM_COMPILE_COMMAND="scripts/lock_requirements.sh" "$work/bin/uv" pip compile -q --universal --python-version 3.11 \
    --generate-hashes --no-annotate "${deps[@]}" "$@" "$list" -o "${list%.in}.txt"
done
