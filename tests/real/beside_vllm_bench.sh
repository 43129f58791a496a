#!/usr/bin/env bash
# A certified rate beside the engine's own benchmark: serves the chosen and the default arguments in turn and runs `vllm bench serve`
# at the rate that autotune certified.
#   tests/real/beside_vllm_bench.sh autotune-out/vllm-cpu [SECONDS=30]
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1 seconds=${2:-30} H=$PWD/.testbeds/vllm-cpu port=8017
export VLLM_ENABLE_V1_MULTIPROCESSING=0 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_SERVER_DEV_MODE=1
read_json() { python3 -c "import json,sys; o=json.load(open('$out/outcome.json')); print($1)"; }
rate=$(read_json 'o["best"]["certified_rate"] or o["best"]["estimated_rate"]')
for which in best baseline; do
  mapfile -t args < <(read_json "'\n'.join(o['$which']['arguments'])")
  setsid "$H/venv/bin/vllm" serve "$H/models/small" --host 127.0.0.1 --port $port "${args[@]}" > "/tmp/beside-$which.log" 2>&1 &
  server=$!
  trap 'kill -TERM -- -$server 2>/dev/null || true' EXIT
  until curl -sf "http://127.0.0.1:$port/health" > /dev/null; do kill -0 $server; sleep 0.5; done
  for run in warm-up measured; do
    requests=$(python3 -c "print(int($rate * $seconds))"); [ $run = measured ] || requests=32
    "$H/venv/bin/vllm" bench serve --host 127.0.0.1 --port $port --model "$H/models/small" --dataset-name random \
      --random-input-len 256 --random-output-len 32 --random-range-ratio 0.3 --ignore-eos --request-rate "$rate" \
      --num-prompts "$requests" --seed $RANDOM --percentile-metrics ttft,tpot --metric-percentiles 50,99 > "/tmp/beside-$which-$run.txt" 2>&1
  done
  echo "== $which (${args[*]}) at $rate req/s"
  grep -E "Successful|Failed|Request throughput|(Median|P99) (TTFT|TPOT)" "/tmp/beside-$which-measured.txt"
  kill -TERM -- -$server; wait $server 2>/dev/null || true
done
