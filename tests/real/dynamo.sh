#!/usr/bin/env bash
# The main job on a real Dynamo with its own mocked workers: dynamo.sh PYTHON MODEL-FOLDER [WORKERS]
# PYTHON has ai-dynamo 1.6.1; MODEL-FOLDER has config.json and a tokenizer, no weights. Both router modes are searched. The frontend alone
# is started anew where nothing else is tuned (TUNED=router). It ends with the answer, and with how often that was so.
# BACKEND=trtllm: one worker with the command line of dynamo.trtllm, whose engine is the mocker (trtllm_on_mocker.py).
set -euo pipefail
python=${1:?a Python with ai-dynamo} model=${2:?a folder with config.json and a tokenizer} workers=${3:-1}
autotune=${AUTOTUNE:-$(cd "$(dirname "$0")/../.." && pwd)/target/release/autotune}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
backend=${BACKEND:-mocker}
command="\"$python\""
args='"--model-name", "mock", "--block-size", "16", "--num-gpu-blocks-override", "2048"'
tuned='max-num-seqs = { values = [4, 16, 64], default = 64 }'
if [ "$backend" = trtllm ]; then
    workers=1
    command="$command, \"$(cd "$(dirname "$0")" && pwd)/trtllm_on_mocker.py\""
    args='"--served-model-name", "mock"'
    tuned='"trtllm.max_batch_size" = { values = [4, 16, 64], default = 64 }
"trtllm.max_num_tokens" = { values = [1024, 8192], default = 8192 }
"trtllm.kv_cache_config.free_gpu_memory_fraction" = { values = [0.5, 0.9, 0.97], default = 0.5 }'
fi
cat >"$folder/space.toml" <<SPACE
[slo]
ttft_p99 = "1s"
tpot_p99 = "40ms"
[engine]
kind = "dynamo"
backend = "$backend"
workers = $workers
command = [$command]
args = ["--model-path", "$model", $args]
env = { HF_HUB_OFFLINE = "1", TRANSFORMERS_OFFLINE = "1", PYTHONWARNINGS = "ignore" }
start_estimate = "3s"
[workload]
kind = "random"
input_tokens = { distribution = "uniform", min = 300, max = 700 }
output_tokens = { distribution = "uniform", min = 40, max = 80 }
shared_prefix_tokens = 256
shared_prefixes = 8
[parameters]
$([ "${TUNED:-}" = router ] || echo "$tuned")
router-mode = { values = ["round-robin", "kv"], default = "round-robin" }
[search]
precision = "10%"
candidates = 3
[probe]
ramp = "2s"
window = "6s"
certify_window = "15s"
[budget]
gpu_time = "${BUDGET:-4m}"
SPACE
"$autotune" check "$folder/space.toml"
"$autotune" --space "$folder/space.toml" --out "$folder/out" --seed 1 || echo "exit code $?"
"$autotune" status "$folder/out"
[ -z "${KEEP:-}" ] || cp -r "$folder/out" "$KEEP"
grep -o '"altered":true' "$folder/out/journal.jsonl" | wc -l | sed 's/$/ trials on a frontend that was started anew/'
