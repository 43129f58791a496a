#!/usr/bin/env bash
# The GPU of a Deployment is borrowed and given back, on a real Kubernetes control plane and a kubelet that runs containers as processes:
# the whole way, an interrupted coordinator, a killed one, two at once, each right missing, somebody else's scaling.
#   tests/real/cluster.sh [AUTOTUNE]            from the project's root; AUTOTUNE is target/release/autotune by default
# The control plane is built from the Go module proxy where it is missing (tests/real/kube/setup.sh, three to five minutes, Go 1.26).
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/real/kube/bed.sh

echo "== looking without touching"
generation=$(kubectl get deployment chat -o jsonpath='{.metadata.generation}')
check "a dry run prints the worker" run --dry-run
check "and touches nothing" is "$generation" "kubectl get deployment chat -o jsonpath='{.metadata.generation}'; ours"

echo "== the whole way"
tried run run
check "a documented exit code" ended_well
check "the outcome came back" python3 -c "import json,sys; o=json.load(open('$out/answer/outcome.json')); assert o['best']['parameters']['max-num-seqs'] in (4, 16, 64), o"
check "and stays in the cluster" is certified "kubectl get configmap autotune-chat-outcome -o jsonpath='{.data.outcome\.json}' | python3 -c 'import json,sys; print(dict(certified=1, uncertified=1).get(json.load(sys.stdin)[\"status\"]) and \"certified\")'"
as_it_was
[ "$failed" = 0 ] || { cat "$out/run.log"; tail -40 "$out/gpu-node.log"; }

echo "== two at once"
"${job[@]}" > "$out/first.log" 2>&1 & first=$!
until kubectl get job autotune-chat > /dev/null 2>&1; do sleep 0.2; done
code=0; run > "$out/second.log" 2>&1 || code=$?
check "the second says who is at it" grep -q "process $first, .* is at it" "$out/second.log"
check "and fails as a usage mistake" test "$code" = 2
echo "== a coordinator that is interrupted"
kill -TERM "$first"; code=0; wait "$first" || code=$?
check "it fails" test "$code" != 0
as_it_was

echo "== a coordinator that is killed"
"${job[@]}" > "$out/killed.log" 2>&1 & killed=$!
until_true 60 grep -q "the worker is Job" "$out/killed.log"
kill -KILL "$killed"; wait "$killed" || true
check "the target is still borrowed" is 0 replicas
check "and says from how much" is 1 note
check "once its lease has ended, it is restored" "$AUTOTUNE" restore --deployment chat
as_it_was
check "restoring twice does nothing" "$AUTOTUNE" restore --deployment chat

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
[rules] = [o["rules"] for o in objects if o["kind"] == "Role" and o["metadata"]["name"] == "tune-chat"]
assert len(rules) == 14, rules
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
for rule in $(seq 14); do
  role "$rule"; sleep 0.5
  workers=$((rule > 10 ? 2 : 1))
  code=0; as_tuner run --workers $workers > "$out/right.log" 2>&1 || code=$?
  check "without rule $rule: $(grep -o 'missing rights.*; nothing' "$out/right.log" | sed 's/missing rights in the namespace default: //; s/; nothing//')" \
    test "$code" = 2 -a "$(replicas)" = 1 -a -n "$(grep -o 'missing rights' "$out/right.log")"
done
role 0; sleep 0.5
tried rights as_tuner run
check "with all of them it runs" ended_well
check "the scale came back" is 1 replicas
check "other objects are refused by the server" bash -c "! KUBECONFIG=$out/tuner.kubeconfig kubectl scale deployment other --replicas=0 2> /dev/null"

echo "== jobs/, as a new user applies it: the coordinator is a Job"
kubectl create namespace llm > /dev/null
cp -r jobs "$out/jobs"
cp "$out/space.toml" "$out/jobs/space.toml"
check "jobs/ is what the server takes" bash -c "kubectl kustomize jobs | kubectl apply --dry-run=server --validate=strict -f -"
kubectl scale deployment chat --replicas=0 > /dev/null   # the only GPU is for the other namespace now
kubectl -n llm apply -f "$out/chat.yaml" > /dev/null
kubectl -n llm rollout status deployment chat --timeout=60s > /dev/null
check "kubectl apply -k jobs/" kubectl apply -k "$out/jobs"
check "the Job completes" kubectl -n llm wait --for=condition=complete job/tune-chat --timeout=120s
check "its log tells the whole way" bash -c "kubectl -n llm logs job/tune-chat | grep -c 'is scaled from 1 to 0\|the worker is Job\|the outcome is in\|is scaled back to 1\|serves again' | grep -x 5"
check "the outcome stays" python3 -c "import json,subprocess; o=json.loads(subprocess.check_output(['kubectl', '-n', 'llm', 'get', 'configmap', 'autotune-chat-outcome', '-o', 'jsonpath={.data.outcome\\.json}'])); assert o['best']['parameters']['max-num-seqs'] in (4, 16, 64), o"
check "the scale came back" is 1 "kubectl -n llm get deployment chat -o jsonpath='{.spec.replicas}'"
check "the journal stays on the claim" bash -c "ls $out/gpu-node/claims/llm-autotune-results-chat/*/journal.jsonl"
[ "$failed" = 0 ] || kubectl -n llm logs job/tune-chat
check "and what autotune job render prints does the same" bash -c "kubectl -n llm delete job tune-chat > /dev/null && kubectl -n llm delete configmap autotune-chat-outcome > /dev/null &&
  '$AUTOTUNE' job render --deployment chat -n llm --space '$out/space.toml' --image autotune:test --results autotune-results | kubectl apply -f - &&
  kubectl -n llm wait --for=condition=complete job/tune-chat --timeout=120s && kubectl -n llm get configmap autotune-chat-outcome"
kubectl delete namespace llm --wait > /dev/null
kubectl scale deployment chat --replicas=1 > /dev/null

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
