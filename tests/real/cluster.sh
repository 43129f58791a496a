#!/usr/bin/env bash
# The GPU of a Deployment is borrowed and given back, on a real Kubernetes control plane and a kubelet that runs containers as processes:
# the whole way, an interrupted coordinator, a killed one, two at once, each right missing, somebody else's scaling.
#   tests/real/cluster.sh [AUTOTUNE]            from the project's root; AUTOTUNE is target/release/autotune by default
# The control plane is built from the Go module proxy where it is missing (tests/real/kube/setup.sh, three to five minutes, Go 1.26).
# KUBE names its folder (default .testbeds/kube).
set -euo pipefail
cd "$(dirname "$0")/../.."
AUTOTUNE=$(realpath "${1:-target/release/autotune}")
KUBE=${KUBE:-$PWD/.testbeds/kube}
tests/real/kube/setup.sh "$KUBE"
out=$(mktemp -d)
pids=()
end() {
  for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2> /dev/null || true; done
  rm -rf "$out"
}
trap end EXIT
export NAME=autotune-$$
SCHEDULER=1 tests/real/kube/run.sh "$KUBE" > "$out/ready" & pids+=($!)
until [ -s "$out/ready" ]; do kill -0 "${pids[0]}"; sleep 0.1; done
KUBECONFIG=$(cat "$out/ready")
export KUBECONFIG PATH=$KUBE/bin:$PATH
python3 tests/real/kube/kubelet.py --node gpu-node --gpus 1 --root "$out/node" --binary-map "/autotune=$AUTOTUNE" > "$out/kubelet.log" 2>&1 & pids+=($!)
until kubectl get node gpu-node > /dev/null 2>&1; do sleep 0.2; done

failed=0
check() { # WHAT COMMAND...
  local what=$1; shift
  if "$@" > "$out/check.log" 2>&1; then echo "  ok   $what"; else echo "  FAIL $what"; sed 's/^/       /' "$out/check.log"; failed=1; fi
}
is() { local got; got=$(eval "$2"); [ "$got" = "$1" ] || { echo "got: $got"; return 1; }; }
replicas() { kubectl get deployment chat -o jsonpath='{.spec.replicas}'; }
# The outcome stays.
ours() { kubectl get jobs,configmaps,leases -o name | grep autotune- | grep -v outcome || true; }
note() { kubectl get deployment chat -o jsonpath='{.metadata.annotations.autotune/original-replicas}'; }
named() { kubectl get deployment chat -o jsonpath='{.metadata.annotations.autotune/run}'; }
serving() { kubectl rollout status deployment chat --timeout=60s > /dev/null; }
job=("$AUTOTUNE" job run --deployment chat --space "$out/space.toml" --image autotune:test --out "$out/answer")
run() { "${job[@]}" "$@"; }

cat > "$out/space.toml" <<'TOML'
[slo]
ttft_p99 = "400ms"
tpot_p99 = "30ms"
[engine]
kind = "simulated"
[workload]
kind = "random"
input_tokens = 200
output_tokens = 24
[parameters]
max-num-seqs = { values = [4, 16, 64], default = 4 }
[search]
precision = "30%"
first_rate = 40.0
[probe]
ramp = "200ms"
window = "600ms"
certify_window = "1s"
[budget]
gpu_time = "15s"
TOML
cat > "$out/chat.yaml" <<'YAML'
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, labels: {app: chat}}
spec:
  replicas: 1
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
        - name: engine
          image: autotune:test
          command: [/autotune, sim-engine, chat-model]
          args: [--max-num-seqs, "4", --port, "0"]
          resources: {limits: {nvidia.com/gpu: "1"}}
YAML
kubectl apply -f "$out/chat.yaml" > /dev/null
serving

echo "== looking without touching"
generation=$(kubectl get deployment chat -o jsonpath='{.metadata.generation}')
check "a dry run prints the worker" run --dry-run
check "and touches nothing" is "$generation" "kubectl get deployment chat -o jsonpath='{.metadata.generation}'; ours"

echo "== the whole way"
code=0; run > "$out/run.log" 2>&1 || code=$?
check "a documented exit code" test "$code" = 0 -o "$code" = 6
check "the outcome came back" python3 -c "import json,sys; o=json.load(open('$out/answer/outcome.json')); assert o['best']['parameters']['max-num-seqs'] in (4, 16, 64), o"
check "and stays in the cluster" is certified "kubectl get configmap autotune-chat-outcome -o jsonpath='{.data.outcome\.json}' | python3 -c 'import json,sys; print(dict(certified=1, uncertified=1).get(json.load(sys.stdin)[\"status\"]) and \"certified\")'"
check "the scale came back" is 1 replicas
check "no note is left on the target" is "" "note; named"
check "nothing of ours is left" is "" ours
check "the service serves again" serving
[ "$failed" = 0 ] || { cat "$out/run.log"; tail -40 "$out/kubelet.log"; }

echo "== two at once"
"${job[@]}" > "$out/first.log" 2>&1 & first=$!
until kubectl get job autotune-chat > /dev/null 2>&1; do sleep 0.2; done
code=0; run > "$out/second.log" 2>&1 || code=$?
check "the second says who is at it" grep -q "process $first is at it" "$out/second.log"
check "and fails as a usage mistake" test "$code" = 2
echo "== a coordinator that is interrupted"
kill -TERM "$first"; code=0; wait "$first" || code=$?
check "it fails" test "$code" != 0
check "the scale came back" is 1 replicas
check "nothing of ours is left" is "" ours
check "the service serves again" serving

echo "== a coordinator that is killed"
"${job[@]}" > "$out/killed.log" 2>&1 & killed=$!
until kubectl get job autotune-chat > /dev/null 2>&1; do sleep 0.2; done
kill -KILL "$killed"; wait "$killed" || true
check "the target is still borrowed" is 0 replicas
check "and says from how much" is 1 note
code=0; "$AUTOTUNE" restore --deployment chat > "$out/restore.log" 2>&1 || code=$?
check "right afterwards the dead one still counts as living" grep -q "is at it" "$out/restore.log"
kubectl patch lease autotune-chat --type=merge -p '{"spec":{"leaseDurationSeconds":1}}' > /dev/null; sleep 2
check "once its lease has ended, it is restored" "$AUTOTUNE" restore --deployment chat
check "the scale came back" is 1 replicas
check "no note is left on the target" is "" note
check "nothing of ours is left" is "" ours
check "restoring twice does nothing" "$AUTOTUNE" restore --deployment chat
check "the service serves again" serving

echo "== each right is needed: the Role of jobs/"
kubectl create serviceaccount tuner > /dev/null
kubectl kustomize jobs | kubectl create --dry-run=client -o json -f - > "$out/jobs.json"
role() { # the number of the rule that is left out; 0 leaves out none
  python3 - "$1" "$out/jobs.json" <<'PY' | kubectl apply -f - > /dev/null
import json, sys
decoder, text, at, objects = json.JSONDecoder(), open(sys.argv[2]).read(), 0, []
while text[at:].strip():
    value, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
    objects += value["items"] if value["kind"] == "List" else [value]
[rules] = [o["rules"] for o in objects if o["kind"] == "Role" and o["metadata"]["name"] == "autotune"]
assert len(rules) == 9, rules
rules = [r for i, r in enumerate(rules, 1) if i != int(sys.argv[1])]
meta = {"name": "tuner", "namespace": "default"}
print(json.dumps({"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rules},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta,
     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tuner"},
     "subjects": [{"kind": "ServiceAccount", "name": "tuner", "namespace": "default"}]}]}))
PY
}
as_tuner() { KUBECONFIG=$out/tuner.kubeconfig "$@"; }
role 0
tests/real/kube/run.sh sa-kubeconfig default tuner "$KUBE" > "$out/tuner.kubeconfig"
for rule in 1 2 3 4 5 6 7 8 9; do
  role "$rule"; sleep 0.5
  code=0; as_tuner run > "$out/right.log" 2>&1 || code=$?
  check "without rule $rule: $(grep -o 'missing rights.*; nothing' "$out/right.log" | sed 's/missing rights in the namespace default: //; s/; nothing//')" \
    test "$code" = 2 -a "$(replicas)" = 1 -a -n "$(grep -o 'missing rights' "$out/right.log")"
done
role 0; sleep 0.5
code=0; as_tuner run > "$out/rights.log" 2>&1 || code=$?
check "with all of them it runs" test "$code" = 0 -o "$code" = 6
[ "$code" = 0 ] || [ "$code" = 6 ] || cat "$out/rights.log"
check "the scale came back" is 1 replicas
check "other objects are refused by the server" bash -c "! KUBECONFIG=$out/tuner.kubeconfig kubectl scale deployment other --replicas=0 2> /dev/null"

kubectl create namespace llm > /dev/null
check "jobs/ is what the server takes" bash -c "kubectl kustomize jobs | kubectl apply --dry-run=server --validate=strict -f -"

echo "== somebody else scales the target"
serving
kubectl autoscale deployment chat --min=1 --max=3 --cpu=50% > /dev/null 2>&1 || kubectl autoscale deployment chat --min=1 --max=3 --cpu-percent=50 > /dev/null
code=0; run > "$out/hpa.log" 2>&1 || code=$?
check "an autoscaler is noticed before anything is touched" grep -q "HorizontalPodAutoscaler chat" "$out/hpa.log"
check "the scale is as it was" is 1 replicas

echo "== exported manifests, which nobody runs: the kubelet is stopped"
kill "${pids[1]}"; wait "${pids[1]}" || true
unset "pids[1]"
tests/real/manifests.sh "$AUTOTUNE"
exit "$failed"
