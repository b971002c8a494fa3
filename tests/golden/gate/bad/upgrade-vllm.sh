#!/bin/bash
# What a pin bump does to a start script.  archonctl: engine=vllm version=0.10.2
EXTRA="--max-num-seqs 4"
vllm serve Qwen/Qwen3-8B --enable-reasoning --reasoning-parser qwen3 \
  "--max-model-len 32768" --gpu-memory-utilization 1.5 --enforce-eager true \
  --max-num-batched-token 4096 --kv-cache-dtype fp9 $EXTRA
