#!/usr/bin/env bash
# A Deployment with more than one pod, on a real Kubernetes control plane and two nodes of one GPU each: with --keep-replicas one pod serves all
# the time, and the worker has the GPU of the other.
#   tests/real/cluster_nodes.sh [AUTOTUNE]      from the project's root; AUTOTUNE is target/release/autotune by default; two minutes
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/real/kube/bed.sh
node gpu-node-2
kubectl scale deployment chat --replicas=2 > /dev/null
serving
pods() { # uid, node and whether it is ready, of each pod of the service
  kubectl get pods -l app=chat -o jsonpath='{range .items[*]}{.metadata.uid} {.spec.nodeName} {.status.conditions[?(@.type=="Ready")].status} {.metadata.deletionTimestamp}{"\n"}{end}'
}
ready() { pods | awk 'NF == 3 && $3 == "True" {print $1}' | sort; }
watch() { # the pods that were ready all the time, in the file `always`
  ready > "$out/always"
  while sleep 0.3; do
    ready > "$out/now" && comm -12 "$out/always" "$out/now" > "$out/both" && mv "$out/both" "$out/always"
  done
}
watched() { # COMMAND...: its exit status in $code
  watch & local watcher=$!
  tried run "$@"
  kill "$watcher"; wait "$watcher" 2> /dev/null || true
}
as_two() {
  check "the scale came back" is 2 replicas
  check "no note is left on the target" is "" "note; kubectl get deployment chat -o jsonpath='{.metadata.annotations.autotune/kept-replicas}'"
  check "nothing of ours is left" is "" ours
  check "both pods serve again" serving
}

echo "== keeping as many pods as there are"
tried run run --keep-replicas 2
check "is a usage mistake" code_is 2
check "and says so" tells "keeping 2 of them frees no GPU"
as_two

echo "== keeping one of two"
worker_node() { kubectl get pods -l autotune/target=chat -o jsonpath='{.items[0].spec.nodeName}'; }
( until_true 60 bash -c "[ -n \"\$(kubectl get pods -l autotune/target=chat -o jsonpath='{.items[0].spec.nodeName}' 2> /dev/null)\" ]" && worker_node > "$out/worker-node" && pods > "$out/meanwhile" ) &
watched run --keep-replicas 1
check "the run ends well" ended_well
check "it says that it serves meanwhile" grep -q "serve with 1 of 2 pods" "$out/run.log"
check "and for how long it did" grep -q "had served with 1 of 2 pods for" "$out/run.log"
check "one and the same pod was ready all the time" is 1 "wc -l < $out/always"
check "the worker had the other's node" test -s "$out/worker-node" -a "$(cat "$out/worker-node")" != "$(awk 'NF == 3 {print $2}' "$out/meanwhile" | head -1)"
as_two

echo "== keeping one of two, and the coordinator is killed"
killed_then_restored() { begin killed --keep-replicas 1; says 60 killed "the worker is Job"; killed; "$AUTOTUNE" restore --deployment chat; }
watched killed_then_restored
check "restore ends well" code_is 0
check "one and the same pod was ready all the time" is 1 "wc -l < $out/always"
as_two
exit "$failed"
