#!/usr/bin/env bash
# demo.sh MODEL [flags]: timing and mediation of a real local model on the
# embedded sample, the tables of both, and a report. Run by `make demo`.
set -euo pipefail
model=$1
shift
ccmed=$(cd "$(dirname "$0")/.." && pwd)/bin/ccmed
out=${DEMO_OUT:-runs}/demo-$(date -u +%Y%m%dT%H%M%S)

cat <<'B'
------------------------------------------------------------------------
 Demo: SmolLM2-135M-Instruct on the embedded sample. A model of 135M
 parameters shows that the tool works, not how well models mediate: read
 the lines and counts below as a pipeline check, not as a finding.
------------------------------------------------------------------------
B
"$ccmed" timing --model "$model" --data sample --out "$out-timing" "$@"
"$ccmed" mediate --model "$model" --data sample --limit 4 --rubric none --card-items 2 \
  --max-tokens 60 --sim-max-tokens 32 --out "$out-mediation" "$@"
"$ccmed" report "$out-timing" "$out-mediation" --title "Demo: SmolLM2-135M-Instruct on the sample" --out "$out.html"
echo
echo "Runs: $out-timing and $out-mediation; to read in a browser: $out.html"
echo "Next: docs/tutorial.md; $ccmed doctor; $ccmed timing --help"
