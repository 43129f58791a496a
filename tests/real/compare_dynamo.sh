#!/usr/bin/env bash
# Router modes of a real Dynamo with its own mocked workers, compared: compare_dynamo.sh PYTHON MODEL-FOLDER [WORKERS [repeats]]
# PYTHON has ai-dynamo 1.6.1; MODEL-FOLDER has config.json and a tokenizer of whole words (tokenizer.json), no weights. Round-robin is compared with
# kv over three sweeps. With `repeats`, ten comparisons of one sweep follow, five of which begin with round-robin, and the three sweeps' interval is
# set beside their spread. At last a variable that Dynamo does not know must end with code 7 and what was seen. Results are in OUT.
set -euo pipefail
python=${1:?a Python with ai-dynamo} model=${2:?a folder with config.json and a tokenizer} workers=${3:-4} mode=${4:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
autotune=${AUTOTUNE:-$root/target/release/autotune}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
out=${OUT:-$folder/out}
mkdir -p "$out"
"$python" "$root/tests/real/dynamo_words.py" "$model" "$folder/model"
# Workers at half their speed, so that two cores are enough for the load generator beside them. A worker holds 21 of the starters.
cat >"$folder/space.toml" <<SPACE
[slo]
ttft_p95 = "${TTFT:-1s}"
tpot_p95 = "${TPOT:-70ms}"
[engine]
kind = "dynamo"
backend = "mocker"
workers = $workers
command = ["$python"]
args = ["--model-path", "$folder/model", "--model-name", "mock", "--block-size", "16", "--num-gpu-blocks-override", "${BLOCKS:-4096}", "--speedup-ratio", "${SPEED:-0.5}"]
env = { HF_HUB_OFFLINE = "1", TRANSFORMERS_OFFLINE = "1", PYTHONWARNINGS = "ignore" }
[workload]
kind = "conversations"
starters = ${STARTERS:-48}
starter_tokens = 3072
turns = 4
question_tokens = 256
output_tokens = { distribution = "uniform", min = 30, max = 60 }
[parameters]
max-num-seqs = { values = [64], default = 64 }
SPACE
# compared NAME SWEEPS SEED VALUES [FLAG...]
compared() {
  local name=$1 sweeps=$2 seed=$3 values=$4
  shift 4
  "$autotune" compare "$folder/space.toml" --vary "args.router-mode=$values" --users "${USERS:-12,30,75}" --duration "${SECONDS_OF_A_LEVEL:-12}s" \
    --cool-down 1s --sweeps "$sweeps" --seed "$seed" --out "$out/$name" "$@" || echo "$name: exit code $?"
  sed "s/^/$name: load average /" /proc/loadavg
}
compared sweeps "${SWEEPS:-3}" 1 round-robin,kv
if [ "$mode" = repeats ]; then
  for repeat in 1 2 3 4 5; do
    # The side that a requirement was checked on last is measured first.
    compared "kv-first-$repeat" 1 $((10 + repeat)) round-robin,kv --quiet >>"$out/repeats.log" 2>&1
    compared "kv-last-$repeat" 1 $((15 + repeat)) kv,round-robin --require 'B:cached_share>=0' --quiet >>"$out/repeats.log" 2>&1
  done
  python3 - "$out" <<'PYTHON'
import json, math, pathlib, statistics, sys
out = pathlib.Path(sys.argv[1])

def told(name):
    """Every difference of kv against round-robin, as logarithms: what it is of, then its value and its interval."""
    got = json.loads((out / name / "compare.json").read_text())
    found = {f"{key} at {list(level['offered'].values())[0]} users": it for level in got["levels"] for key, it in level["differences"].items()}
    if got["difference"]:
        found["limit"] = got["difference"]
    turn = -1 if name.startswith("kv-last") else 1
    return {key: sorted(turn * math.log1p(it[part]) for part in ("from", "ratio", "to")) for key, it in found.items()}

one = told("sweeps")
runs = [told(path.name) for path in sorted(out.glob("kv-*"))]
percent = lambda log: f"{math.expm1(log) * 100:+.0f} %"
print(f"{'kv against round-robin':28} {'one comparison (90 %)':30} {'runs of one sweep, from their least to their most':52} median  in the interval")
for key, (low, ratio, high) in one.items():
    single = [run[key][1] for run in runs if key in run]
    if len(single) > 1:
        spread = f"{percent(min(single))} to {percent(max(single))}, sd {statistics.stdev(single) * 100:.1f} %, of {len(single)}"
        print(f"{key:28} {percent(ratio) + f' ({percent(low)} to {percent(high)})':30} {spread:52} {percent(statistics.median(single)):7} {sum(low <= one <= high for one in single)}")
PYTHON
fi
code=0
"$autotune" compare "$folder/space.toml" --vary env.ROUTER_MODE=round-robin,kv --require 'B:kv_events>0' --users 8 --duration 5s --sweeps 1 || code=$?
[ $code = 7 ] || { echo "a router mode that did not take effect was compared all the same: code $code"; exit 1; }
echo "a router mode that did not take effect ended with code 7"
