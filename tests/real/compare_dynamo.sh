#!/usr/bin/env bash
# Router modes of a real Dynamo with its own mocked workers, compared: compare_dynamo.sh PYTHON MODEL-FOLDER [WORKERS]
# PYTHON has ai-dynamo 1.6.1; MODEL-FOLDER has config.json and a tokenizer, no weights. First round-robin against kv over three sweeps; then the
# same by a variable that Dynamo does not know, so that the mode does not take effect: it must end with code 7 and what was seen.
set -euo pipefail
python=${1:?a Python with ai-dynamo} model=${2:?a folder with config.json and a tokenizer} workers=${3:-4}
autotune=${AUTOTUNE:-$(cd "$(dirname "$0")/../.." && pwd)/target/release/autotune}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/space.toml" <<SPACE
[slo]
ttft_p95 = "${TTFT:-400ms}"
[engine]
kind = "dynamo"
backend = "mocker"
workers = $workers
command = ["$python"]
args = ["--model-path", "$model", "--model-name", "mock", "--block-size", "16", "--num-gpu-blocks-override", "${BLOCKS:-4096}"]
env = { HF_HUB_OFFLINE = "1", TRANSFORMERS_OFFLINE = "1", PYTHONWARNINGS = "ignore" }
[workload]
kind = "conversations"
starters = 8
starter_tokens = 1500
turns = 4
question_tokens = 40
output_tokens = { distribution = "uniform", min = 30, max = 60 }
[parameters]
max-num-seqs = { values = [64], default = 64 }
SPACE
out=${OUT:-$folder/out}
"$autotune" compare "$folder/space.toml" --vary args.router-mode=round-robin,kv --users "${USERS:-64,128,256}" \
  --duration "${SECONDS_OF_A_LEVEL:-10}s" --sweeps "${SWEEPS:-3}" --out "$out" || echo "exit code $?"
code=0
"$autotune" compare "$folder/space.toml" --vary env.ROUTER_MODE=round-robin,kv --require 'B:kv_events>0' --users 8 --duration 5s --sweeps 1 || code=$?
[ $code = 7 ] || { echo "a router mode that did not take effect was compared all the same: code $code"; exit 1; }
