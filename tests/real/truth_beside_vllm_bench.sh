#!/usr/bin/env bash
# The load generator's medians beside those of `vllm bench serve`: the same prompts at the same even pace, in turns, on real vLLM on
# this CPU, whose prefix cache is emptied before each turn.
#   tests/real/truth_beside_vllm_bench.sh [RATE=10] [SECONDS=30] [ROUNDS=3]      with target/release/autotune built
# VLLM_CPU names the test bed that tests/real/vllm-cpu/setup.sh makes (default .testbeds/vllm-cpu). A server that already runs, on a GPU
# say, is named by URL, with VLLM (the program) and TOKENIZER (a model folder); its /reset_prefix_cache wants VLLM_SERVER_DEV_MODE=1.
set -euo pipefail
cd "$(dirname "$0")/../.."
rate=${1:-10} seconds=${2:-30} rounds=${3:-3} H=${VLLM_CPU:-$PWD/.testbeds/vllm-cpu} port=${PORT:-8019}
vllm=${VLLM:-$H/venv/bin/vllm} tokenizer=${TOKENIZER:-$H/models/small} url=${URL:-http://127.0.0.1:$port}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
if [ -z "${URL:-}" ]; then
  PORT=$port setsid "$H/serve.sh" "$H/models/small" > "$out/engine.log" 2>&1 &
  server=$!
  trap 'kill -TERM -- -$server 2>/dev/null || true; wait $server 2>/dev/null || true; rm -rf "$out"' EXIT
  until curl -sf "$url/health" > /dev/null; do kill -0 $server; sleep 0.5; done
fi
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 OMP_NUM_THREADS=1
RATE=$rate SECONDS_=$seconds ROUNDS=$rounds VLLM=$vllm TOKENIZER=$tokenizer URL=$url OUT=$out python3 - <<'PY'
import json, os, random, statistics, subprocess, sys, urllib.request
env = os.environ
rate, seconds, rounds = float(env["RATE"]), int(env["SECONDS_"]), int(env["ROUNDS"])
vllm, tokenizer, url, out = env["VLLM"], env["TOKENIZER"], env["URL"], env["OUT"]
with urllib.request.urlopen(f"{url}/v1/models") as listed:
    model = json.load(listed)["data"][0]["id"]
count = int(rate * seconds)
words = "the of and to in is that for it as was with be by on not he his but at are this have from or had an they".split()

def dataset(turn):
    # Fresh prompts in every turn, the same for both clients.
    path, draw = f"{out}/prompts-{turn}.jsonl", random.Random(turn)
    with open(path, "w") as file:
        for _ in range(count):
            text = " ".join(draw.choice(words) for _ in range(draw.randint(430, 470)))
            file.write(json.dumps({"prompt": text, "output_tokens": 32}) + "\n")
    return path

def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")

def reset():
    urllib.request.urlopen(urllib.request.Request(f"{url}/reset_prefix_cache", method="POST")).read()

def ours(path, chat):
    reset()
    run(["target/release/autotune", "bench", "--url", url, "--dataset", path, "--with", "arrivals=constant", "--with",
         f"endpoint={'chat' if chat else 'completions'}", "--rate", str(rate), "--duration", f"{seconds}s", "--ramp", "1ms", "--quiet",
         "--out", f"{out}/ours"])
    return json.load(open(f"{out}/ours/rate-{rate:g}.json"))

def theirs(path, chat):
    reset()
    kind = ["--backend", "openai-chat", "--endpoint", "/v1/chat/completions"] if chat else ["--backend", "openai"]
    run([vllm, "bench", "serve", *kind, "--base-url", url, "--model", model, "--tokenizer", tokenizer,
         "--dataset-name", "custom", "--dataset-path", path, "--custom-output-len", "-1", "--skip-chat-template", "--disable-shuffle",
         "--ignore-eos", "--temperature", "0", "--request-rate", str(rate), "--burstiness", "1000000", "--num-prompts", str(count),
         "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--save-detailed", "--result-dir", out, "--result-filename", "theirs.json"])
    return json.load(open(f"{out}/theirs.json"))

print(f"{count} prompts of about 450 words at an even {rate:g} requests/s, {rounds} rounds; medians in ms")
for chat in (False, True):
    told = {"autotune": [], "vllm bench": []}
    for turn in range(rounds):
        path = dataset(turn + 100 * chat)
        # Whoever goes first changes from round to round.
        order = [("autotune", ours), ("vllm bench", theirs)]
        for name, client in order if turn % 2 else order[::-1]:
            result = client(path, chat)
            assert result["failed"] == 0 and abs(result["completed"] - count) <= 1, (name, result["completed"], result["failed"])
            told[name].append(result)
    print("chat completions" if chat else "completions")
    for metric in ("ttft", "tpot", "itl", "e2el"):
        of = lambda name: statistics.median(r[f"median_{metric}_ms"] for r in told[name])
        a, b = of("autotune"), of("vllm bench")
        print(f"  {metric:5} autotune {a:7.2f}  vllm bench {b:7.2f}  difference {100 * (a - b) / b:+5.1f} %   "
              f"rounds {[round(r[f'median_{metric}_ms'], 2) for r in told['autotune']]} {[round(r[f'median_{metric}_ms'], 2) for r in told['vllm bench']]}")
    tokens = [sum(r["output_lens"]) / r["completed"] for r in (told["autotune"][0], told["vllm bench"][0])]
    chunks = sum(len(i) for i in told["vllm bench"][0]["itls"]) / told["vllm bench"][0]["completed"]
    reads = sum(len(i) for i in told["autotune"][0]["itls"]) / told["autotune"][0]["completed"]
    print(f"  tokens an answer {tokens[0]:.2f} and {tokens[1]:.2f}; gaps an answer {reads:.2f} and {chunks:.2f}")
PY
