#!/usr/bin/env bash
# Serves the chat model, with an adapter where one is named.
set -euo pipefail

ARGS=(--port 8000 --max-num-seqs 64)
if [ -n "${ADAPTER:-}" ]; then
  ARGS+=(--enable-lora --lora-modules "chat=$ADAPTER")
fi
[ -z "${QUIET:-}" ] || ARGS+=(--disable-log-stats)

exec vllm serve "${MODEL:-Qwen/Qwen3-8B}" "${ARGS[@]}"
