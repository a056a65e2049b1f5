#!/usr/bin/env bash
# Compares the embedded engine's hidden states with transformers': four tiny
# random models, made here, and SmolLM2; takes one of the tiny ones through
# probe extract, train, apply and report; and holds the effects of edits against
# models in which they are known. Arguments go to `go test`.
# CCMED_TEST_MODEL names SmolLM2's file; without it get_smollm2.sh fetches it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
model=${CCMED_TEST_MODEL:-$("$here/get_smollm2.sh")}
python=$("$here/test_python.sh")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

export HF_HUB_OFFLINE=1 TQDM_DISABLE=1
"$python" "$here/tiny_models.py" "$model" "$dir"
"$python" "$here/planted_models.py" "$model" "$dir"
text="Kenji waits for the others to speak first, and Anna takes his silence for a lack of interest. \
She says so in front of everyone; he bows, and the room goes quiet."
"$python" "$here/hf_states.py" "$model" "$text" "$dir/smollm2.json"

cd "$here/.."
CCMED_REQUIRE=1 CCMED_REQUIRE_PYTHON=1 CCMED_TEST_PYTHON=$python CCMED_TEST_MODEL=$model CCMED_TINY_MODELS=$dir \
  go test -count=1 -run 'AgainstTransformers|TinyProbes|Planted|ThousandForms' "$@" ./infer/llamacpp ./cmd/ccmed
