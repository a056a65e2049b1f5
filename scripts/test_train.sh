#!/usr/bin/env bash
# Tests the training scripts with pytest. Arguments go to pytest.
# CCMED_TEST_MODEL names SmolLM2's file; without it get_smollm2.sh fetches it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
CCMED_TEST_MODEL=${CCMED_TEST_MODEL:-$("$here/get_smollm2.sh")}
python=$("$here/test_python.sh")
export CCMED_TEST_MODEL HF_HUB_OFFLINE=1 TQDM_DISABLE=1 OMP_NUM_THREADS=1
cd "$here"
"$python" -m ruff check .
"$python" -m ruff format --check .
"$python" -m mypy
exec "$python" -m pytest "$@"
