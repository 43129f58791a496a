docker run -d --rm --name vllm --gpus all \
  -v ~/.cache/huggingface:/root/.cache/huggingface \
  -p 8000:8000 --ipc=host \
  vllm/vllm-openai:v0.24.0 \
  --model Qwen/Qwen3-8B --max-num-seqs 64
