#!/bin/sh
# archonctl: engine=llamacpp version=b11434
cd "$(dirname "$0")" || exit 1
: "${MODEL_DIR:=/srv/models}"
export LLAMA_ARG_THREADS=8
LLAMA_SERVER=./build/bin/llama-server
[ -x "$LLAMA_SERVER" ] || LLAMA_SERVER=$(command -v llama-server)
nohup ./build/bin/llama-server -m "$MODEL_DIR/gemma-3-12b-it-q4_0.gguf" -c 16384 -ngl 99 --host 0.0.0.0 --port 8081 \
  -ub 512 -b 2048 -ctk q8_0 -ctv q8_0 --temp 0.7 --alias gemma --slots --jinja >llama.log 2>&1 &
echo $! >llama.pid
