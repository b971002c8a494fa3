#!/usr/bin/env bash
# Starts SGLang with what the machine has.  (pip install "sglang[all]==0.4.6.post1")
set -euo pipefail

MODEL=${1:-Qwen/Qwen2.5-14B-Instruct}
PORT=${PORT:-30000}
TP=$(nvidia-smi -L | wc -l)

args=(
  --model-path "$MODEL"
  --host 0.0.0.0
  --port "$PORT"
  --tp "$TP"
  --mem-fraction-static 0.85
  --context-length 32768   # tokens
)
if [[ ${TRUST:-0} == 1 ]]; then
  args+=(--trust-remote-code)
fi
case "${LOG:-info}" in
  debug) args+=(--log-level debug) ;;
  *) ;;
esac

echo "starting sglang.launch_server on $PORT (not vllm serve --nothing)"
cat <<'DOC'
usage: python -m sglang.launch_server --made-up-flag
DOC
exec python3 -m sglang.launch_server "${args[@]}" "$@" 2>&1 | tee -a /var/log/sglang.log
