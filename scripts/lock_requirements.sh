#!/usr/bin/env bash
# Writes requirements-NAME.txt from requirements-NAME.in: every package that is
# installed, with its version and the hashes of its files, for Python 3.11 and later
# on every platform. Run it when a .in file changes. Versions stay as they are until
# --upgrade or --upgrade-package NAME asks for new ones.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work"
"$work/bin/pip" install -q --disable-pip-version-check --only-binary :all: --require-hashes -r requirements-uv.txt
for list in requirements-*.in; do
  how=()
  case $list in
    # These two are installed into environments that have what they need.
    requirements-gguf.in | requirements-lm-eval.in) how=(--no-deps) ;;
    # Here pip takes packages that are wanted with an extra for others without a version.
    requirements-exports.in) how=(--no-strip-extras) ;;
  esac
  UV_CUSTOM_COMPILE_COMMAND="scripts/lock_requirements.sh" "$work/bin/uv" pip compile -q --universal --python-version 3.11 \
    --generate-hashes --no-annotate "${how[@]}" "$@" "$list" -o "${list%.in}.txt"
done
