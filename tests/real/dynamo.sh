#!/usr/bin/env bash
# The main job on a real Dynamo with its own mocked workers: dynamo.sh PYTHON MODEL-FOLDER [WORKERS]
# PYTHON has ai-dynamo 1.6.1; MODEL-FOLDER has config.json and a tokenizer, no weights. Both router modes are searched. The frontend alone
# is started anew where nothing else is tuned (TUNED=router). It ends with the answer, and with how often that was so.
# TIMING=h200: steps take what the wheel's measurements of an H200 say, in place of the mocker's own formula. LADDER=1: the limit of every point of the
# grid afterwards, beside the answer (dynamo_ladder.py).
# BACKEND=trtllm: one worker with the command line of dynamo.trtllm, whose engine is the mocker (trtllm_on_mocker.py).
set -euo pipefail
[ "${TIMING:-}${BACKEND:-}" != h200trtllm ] || { echo "TIMING=h200 is not for BACKEND=trtllm" >&2; exit 2; }
python=${1:?a Python with ai-dynamo} model=${2:?a folder with config.json and a tokenizer} workers=${3:-1}
autotune=${AUTOTUNE:-$(cd "$(dirname "$0")/../.." && pwd)/target/release/autotune}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
backend=${BACKEND:-mocker}
command="\"$python\""
"$python" "$(dirname "$0")/dynamo_words.py" "$model" "$folder/model"
args='"--model-name", "mock", "--block-size", "16", "--num-gpu-blocks-override", "2048", "--speedup-ratio", "1"'
tpot=40ms
if [ "${TIMING:-}" = h200 ]; then
    # Of one H200 with Llama-3.1-8B FP8. The mocker wants decode steps on a grid: a plane through the 41 measured points.
    "$python" - "$folder/h200.npz" <<'PYTHON'
import importlib.util, numpy, pathlib, sys
folder = pathlib.Path(*importlib.util.find_spec("dynamo").submodule_search_locations) / "planner/tests/data/profiling_results/H200_TP1P_TP1D"
prefill = numpy.load(folder / "selected_prefill_interpolation/raw_data.npz")
decode = numpy.load(folder / "selected_decode_interpolation/raw_data.npz")
most = float(decode["max_kv_tokens"][0])
cached, context = decode["x_kv_usage"] * most, decode["y_context_length"].astype(float)
plane = numpy.linalg.lstsq(numpy.stack([numpy.ones_like(cached), cached / context, cached], 1), decode["z_itl"], rcond=None)[0]
tokens, lengths = numpy.linspace(0, most, 60), numpy.linspace(1, 16384, 60)
steps = [[max(3.0, plane @ [1, t / max(length, 64), t]) for length in lengths] for t in tokens]
numpy.savez(sys.argv[1], prefill_isl=prefill["prefill_isl"].astype(float), prefill_ttft_ms=prefill["prefill_ttft"].astype(float),
            decode_active_kv_tokens=tokens, decode_context_length=lengths, decode_itl=steps)
PYTHON
    args="$args, \"--planner-profile-data\", \"$folder/h200.npz\""
    tpot=15ms
fi
tuned='max-num-seqs = { values = [4, 16, 64], default = 64 }'
# The cache of a worker holds 16 of the 24 prefixes, or all that are routed to it.
prompts='input_tokens = { distribution = "uniform", min = 100, max = 300 }
shared_prefix_tokens = 2048
shared_prefixes = 24'
if [ "$backend" = trtllm ]; then
    workers=1
    command="$command, \"$(cd "$(dirname "$0")" && pwd)/trtllm_on_mocker.py\""
    args='"--served-model-name", "mock"'
    prompts='input_tokens = { distribution = "uniform", min = 300, max = 700 }
shared_prefix_tokens = 256
shared_prefixes = 8'
    tuned='"trtllm.max_batch_size" = { values = [4, 16, 64], default = 64 }
"trtllm.max_num_tokens" = { values = [1024, 8192], default = 8192 }
"trtllm.kv_cache_config.free_gpu_memory_fraction" = { values = [0.5, 0.9, 0.97], default = 0.5 }'
fi
cat >"$folder/space.toml" <<SPACE
[slo]
ttft_p95 = "1s"
tpot_p95 = "$tpot"
[engine]
kind = "dynamo"
backend = "$backend"
workers = $workers
command = [$command]
args = ["--model-path", "$folder/model", $args]
env = { HF_HUB_OFFLINE = "1", TRANSFORMERS_OFFLINE = "1", PYTHONWARNINGS = "ignore" }
start_estimate = "3s"
[workload]
kind = "random"
$prompts
output_tokens = { distribution = "uniform", min = 40, max = 80 }
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
[ -z "${LADDER:-}" ] || "$python" "$(dirname "$0")/dynamo_ladder.py" "$autotune" "$folder/space.toml" "$folder/out"
grep -o '"altered":true' "$folder/out/journal.jsonl" | wc -l | sed 's/$/ trials on a frontend that was started anew/'
