#!/usr/bin/env bash
# Runs a command against an Ollama server of its own:
#   scripts/with_ollama.sh MODEL_NAME FILE.gguf COMMAND [ARG...]
# The server listens on a free port, keeps its models in a temporary folder, and
# holds the GGUF under the name. It has four slots: --concurrency 4 uses them.
# COMMAND finds it by OLLAMA_HOST. At the end the server is stopped by its own
# process id. CCMED_OLLAMA_BIN names the server's
# binary; without it install_ollama.sh finds or builds one.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,3s/^# *//p' "$0" >&2; exit 2; }
name=$1 gguf=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
[ -r "$gguf" ] || { echo "with_ollama: no GGUF file at $gguf" >&2; exit 4; }
bin=${CCMED_OLLAMA_BIN:-$("$here/install_ollama.sh")}

dir=$(mktemp -d)
server=
stop() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export OLLAMA_HOST=127.0.0.1:$port
HOME="$dir" OLLAMA_MODELS="$dir/models" OLLAMA_NUM_PARALLEL=4 OLLAMA_KEEP_ALIVE=30m \
  "$bin" serve >"$dir/log" 2>&1 &
server=$!
for i in $(seq 200); do
  kill -0 "$server" 2>/dev/null || { echo "with_ollama: the server ended at once:" >&2; tail -n 20 "$dir/log" >&2; exit 1; }
  "$bin" list >/dev/null 2>&1 && break
  [ "$i" -lt 200 ] || { echo "with_ollama: the server does not answer:" >&2; tail -n 20 "$dir/log" >&2; exit 1; }
  sleep 0.1
done
echo "FROM $(cd "$(dirname "$gguf")" && pwd)/$(basename "$gguf")" >"$dir/Modelfile"
HOME="$dir" "$bin" create "$name" -f "$dir/Modelfile" >"$dir/create.log" 2>&1 || { cat "$dir/create.log" >&2; exit 1; }
"$@"
