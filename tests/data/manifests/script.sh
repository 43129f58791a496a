#!/usr/bin/env bash
# Serves the chat model.
set -euo pipefail

cat > /tmp/notes.txt <<'NOTES'
started with: vllm serve Qwen/Qwen3-8B --max-num-seqs 1
NOTES

if [ -n "${DEBUG:-}" ]; then set -x; fi
export HF_HOME=${HF_HOME:-/models}
exec vllm serve "${MODEL:-Qwen/Qwen3-8B}" \
  --port "${PORT:-8000}" \
  --max_num_seqs=64 \
  "$@"
