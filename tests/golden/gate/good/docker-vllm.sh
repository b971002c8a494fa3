#!/bin/bash
docker run -d --name vllm --runtime nvidia --gpus '"device=0,1"' \
    -v ~/.cache/huggingface:/root/.cache/huggingface \
    --env "HUGGING_FACE_HUB_TOKEN=${HF_TOKEN}" --env HF_HOME \
    -p 8000:8000 --ipc=host --shm-size 16g --stop-timeout 60 --restart unless-stopped \
    vllm/vllm-openai:v0.8.5.post1 \
    --model mistralai/Mistral-7B-Instruct-v0.3 --tokenizer-mode auto --dtype bfloat16 \
    --max-model-len=16384 --enable-auto-tool-choice --tool-call-parser mistral -tp 2
