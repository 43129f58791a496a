#!/bin/sh
# Serves the chat model.
set -e

SEQS=64
export LIMITS="--max-num-batched-tokens 2048 \
  --max-model-len ${LENGTH:-8192}"
CLIENT="--max-num-seqs 4"

if [ "$ROLE" = client ]; then
  exec python3 client.py $CLIENT
fi
exec vllm serve Qwen/Qwen3-8B --max-num-seqs "$SEQS" --port 8000 $LIMITS
