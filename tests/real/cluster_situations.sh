#!/usr/bin/env bash
# Situations of ordinary production, on ONE real Kubernetes control plane and a kubelet that runs containers as processes: targets that must not
# be scaled down are refused, others come back as they were. docs/kubernetes.md lists each with the message that a person sees.
#   tests/real/cluster_situations.sh [AUTOTUNE [PART...]]   from the project's root; AUTOTUNE is target/release/autotune by default; six minutes
# The parts are: unsettled data gpu policy names foreign answers credentials evicted; all of them without.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/real/kube/bed.sh
target() { resource=$1 flag=$1 name=$2; } # as kubectl names it, and the option
get() { kubectl get "$resource" "$name" -o "jsonpath=$1"; }
scale() { get '{.spec.replicas}'; }
state() { get '{.metadata.generation} {.metadata.annotations}'; ours; }
answered() { code_is 0 3 6; }   # a machine that is busy may keep no promise
refused() { # WHAT WORDS [OPTION...]: with and without --dry-run, and nothing is touched
  local what=$1 words=$2 before dry; shift 2
  before=$(state)
  for dry in --dry-run ""; do
    # shellcheck disable=SC2086
    go "$@" $dry
    check "$what: refused${dry:+, in a dry run too}" code_is 2
    check "  it says: $words" tells "$words"
  done
  check "  nothing was touched" is "$before" state
}
as_before() { # REPLICAS: the scale, no note, nothing of ours
  check "  the scale is $1" is "$1" scale
  check "  no note is left" is "" "get '{.metadata.annotations}' | grep -o 'autotune/original-replicas\|autotune/run' || true"
  check "  nothing of ours is left" is "" ours
}
spec() { # REPLICAS LABEL [MORE]: of pods without a GPU that are ready at once
  cat <<Y
  replicas: $1
  selector: {matchLabels: {app: $2}}
  ${3:-}
  template:
    metadata: {labels: {app: $2}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: engine, image: "autotune:test", command: [/autotune, sim-engine, chat-model], args: [--max-num-seqs, "4", --port, "0"]${4:-}}]
Y
}
deployment() { # NAME REPLICAS [MORE]
  printf 'apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s}\nspec:\n%s\n' "$1" "$(spec "$2" "$1" "${3:-}")" | kubectl apply -f - > /dev/null
  kubectl rollout status "deployment/$1" --timeout=60s > /dev/null
}
stateful() { # NAME REPLICAS MORE: with a claim of each pod
  { printf 'apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: %s}\nspec:\n%s\n' "$1" "$(spec "$2" "$1" "$3" ', volumeMounts: [{name: cache, mountPath: /cache}]')"
    echo '  volumeClaimTemplates: [{metadata: {name: cache}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]'; } | kubectl apply -f - > /dev/null
  until_true 60 is "$2" "kubectl get statefulset $1 -o jsonpath='{.status.readyReplicas}'"
}

if part unsettled "targets that would not come back as they were"; then
  target deployment chat
  kubectl set env deployment chat STUCK=1 > /dev/null
  until_true 30 is 2 "kubectl get pods -l app=chat --no-headers | wc -l"
  refused "a new pod waits for the only GPU, the old one serves" "is not settled: 1 of its 2 pods have its newest template (a rollout is under way); pod chat-.* Insufficient nvidia.com/gpu"
  kubectl rollout undo deployment chat > /dev/null 2>&1; serving
  until_true 60 is 1 "kubectl get pods -l app=chat --no-headers | wc -l"
  kubectl rollout pause deployment chat > /dev/null
  refused "a paused Deployment" "is paused (spec.paused), so its pods do not follow its template"
  kubectl rollout resume deployment chat > /dev/null; serving
  stateful db 1 'updateStrategy: {type: OnDelete}'
  kubectl set env statefulset db PENDING=1 > /dev/null
  target statefulset db
  until_true 20 is "db" "kubectl get statefulset db -o jsonpath='{.metadata.name}'"
  refused "OnDelete with a pending change" "with the strategy OnDelete, they stay until somebody deletes them"
  kubectl delete statefulset db > /dev/null; kubectl delete pvc --all > /dev/null
fi

if part data "claims and ordinals of a StatefulSet"; then
  target statefulset db
  stateful db 2 'ordinals: {start: 5}'
  kubectl patch statefulset db --type=merge -p '{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete"}}}' > /dev/null
  refused "a StatefulSet that deletes the claims of pods that go" "deletes the claims of pods that it is scaled down by, and their data"
  check "  both claims are there" is 2 "kubectl get pvc --no-headers | wc -l"
  kubectl patch statefulset db --type=merge -p '{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Retain"}}}' > /dev/null
  until_true 20 is 2 "kubectl get statefulset db -o jsonpath='{.status.readyReplicas}'"
  go --dry-run
  check "ordinals that begin at 5: the worker has the claim of the first pod" grep -q '"claimName": "cache-db-5"' "$out/go.log"
  go --dry-run --keep-replicas 1
  check "  with --keep-replicas 1 that of the pod that goes" grep -q '"claimName": "cache-db-6"' "$out/go.log"
  go --keep-replicas 1 --budget 8s
  check "  and it runs so" answered
  as_before 2
  check "  both claims are there" is 2 "kubectl get pvc --no-headers | wc -l"
  kubectl delete statefulset db > /dev/null; kubectl delete pvc --all > /dev/null
fi

if part gpu "GPUs that would be waited for, and what was measured where"; then
  target deployment pair
  deployment pair 2
  refused "--keep-replicas with --apply and no spare GPU" "would wait for ever for a GPU with new arguments" --keep-replicas 1 --apply --force-conflicts
  kubectl delete deployment pair > /dev/null
  kubectl label node gpu-node nvidia.com/gpu.product=TEST-GPU-80GB > /dev/null
  kubectl create quota gpus --hard=requests.nvidia.com/gpu=1 > /dev/null
  target deployment chat
  go --budget 8s
  check "a quota that counts the target's GPU: the run ends well" answered
  check "  the worker stays with the same GPUs" tells "the worker runs where the target does: on gpu-node, or on another node with TEST-GPU-80GB"
  check "  outcome.json names node and GPU" is "[{'name': 'gpu-node', 'gpu_product': 'TEST-GPU-80GB'}]" "python3 -c 'import json; print(json.load(open(\"$out/answer/outcome.json\"))[\"nodes\"])'"
  check "  and so does the summary" grep -q "Simulated engine, on node gpu-node (TEST-GPU-80GB)" "$out/go.log"
  check "  the outcome is said to be in three places" tells "the outcome is in $out/answer/outcome.json, ConfigMap autotune-chat-outcome, this log"
  check "  of which the log is one" is 1 "grep -c '^{\"version\":1,' $out/go.err"
  as_before 1
  kubectl delete quota gpus > /dev/null
  node gpu-other; others=${pids[-1]}
  node gpu-alike
  kubectl label node gpu-other nvidia.com/gpu.product=TEST-GPU-24GB > /dev/null
  kubectl label node gpu-alike nvidia.com/gpu.product=TEST-GPU-80GB > /dev/null
  measured_on() { python3 -c "import json; print(*[node['name'] for node in json.load(open('$out/answer/outcome.json'))['nodes']])"; }
  kubectl cordon gpu-alike > /dev/null
  go --budget 8s
  check "two GPU products, the other one free: the run ends well" answered
  check "  the worker ran where the target does" is gpu-node measured_on
  as_before 1
  kubectl uncordon gpu-alike > /dev/null; kubectl cordon gpu-node > /dev/null
  go --budget 8s
  check "the target's node takes no new pod: the run ends well" answered
  check "  the worker ran on the node with the same product" is gpu-alike measured_on
  as_before 1
  kubectl uncordon gpu-node > /dev/null
  for one in "$others" "${pids[-1]}"; do kill "$one"; wait "$one" 2> /dev/null || true; done
  kubectl delete node gpu-other gpu-alike --ignore-not-found > /dev/null
  kubectl delete pods -l app=chat --force > /dev/null 2>&1; serving
  sed "/kind = \"simulated\"/a args = [\"--generation-config\", \"/$(od -An -vtx1 -N1100 /dev/urandom | tr -d ' \n')\"]" "$out/space.toml" > "$out/lengthy.toml"
  code=0; timeout 240 "${job[@]/space.toml/lengthy.toml}" --budget 8s > "$out/go.log" 2> "$out/go.err" || code=$?
  check "an outcome longer than a termination message: the run ends well" answered
  check "  a fixed argument of 2,201 characters came whole, wherever it stands" is "{2201}" "python3 -c 'import json; o = json.load(open(\"$out/answer/outcome.json\")); print({len(a[1]) for a in [o[\"fixed_arguments\"]]} | {max(map(len, o[a][\"arguments\"])) for a in (\"baseline\", \"best\") if o[a]})'"
  as_before 1
fi

if part policy "what a cluster refuses is refused before the service goes down"; then
  target deployment chat
  refused "a claim that is missing" "there is no PersistentVolumeClaim nowhere (--results); nothing was touched" --results nowhere
  kubectl apply -f - > /dev/null <<'Y'
apiVersion: v1
kind: LimitRange
metadata: {name: small}
spec: {limits: [{type: Container, max: {memory: 128Mi}}]}
Y
  refused "a LimitRange" "the worker's pod would be refused: .*maximum memory usage per Container is 128Mi"
  kubectl delete limitrange small > /dev/null
  kubectl apply -f - > /dev/null <<'Y'
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: team}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods, configmaps]}]}
  matchConditions: [{name: ours, expression: "object.metadata.?labels[?'autotune/target'].hasValue()"}]
  validations:
  - {expression: "object.metadata.?labels[?'team'].hasValue() && object.metadata.?annotations[?'contact'].hasValue()", message: every object needs a team and a contact}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: team}
spec: {policyName: team, validationActions: [Deny]}
Y
  until_true 20 bash -c "kubectl run probe --image=i --labels=autotune/target=x --dry-run=server 2>&1 | grep -q 'needs a team'"
  refused "a policy that asks for labels" "the worker's pod would be refused: .*every object needs a team and a contact"
  go --budget 8s --labels team=ml,cost=7 --annotations contact=sre --requests cpu=10m,memory=32Mi --limits memory=512Mi --image-pull-secret registry
  check "  with --labels and --annotations it runs" answered
  as_before 1
  check "  the outcome has them too" is "ml sre" "kubectl get configmap autotune-chat-outcome -o jsonpath='{.metadata.labels.team} {.metadata.annotations.contact}'"
  refused "labels of the target itself" "would have the labels of Deployment chat (--labels)" --labels app=chat
  kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy team > /dev/null
  until_true 20 kubectl run probe --image=i --labels=autotune/target=x --dry-run=server
  kubectl create quota files --hard=count/configmaps=1 > /dev/null
  until_true 20 is 1 "kubectl get quota files -o jsonpath='{.status.hard.count/configmaps}'"
  before=$(state); go
  check "a quota on ConfigMaps" tells "exceeded quota: files"
  check "  the run fails" code_is 1 2
  check "  nothing was touched" is "$before" state
  kubectl delete quota files > /dev/null
fi

if part names "a name that is too long for jobs/ is refused as it is applied"; then
  long=llama-3-1-70b-instruct-fp8-with-a-long-context
  cp -r jobs "$out/long"; sed -i "s/target=chat/target=$long/; s/namespace: llm/namespace: default/" "$out/long/kustomization.yaml"
  check "by the server, with the remedy" bash -c "kubectl apply -k $out/long --dry-run=server 2>&1 | grep -q 'use-job-render-for-$long.*63'"
  rm -r "$out/long"; cp -r jobs "$out/long"; sed -i "s/target=chat/target=${long:0:44}/; s/namespace: llm/namespace: default/" "$out/long/kustomization.yaml"
  check "one of 44 letters is taken" kubectl apply -k "$out/long" --dry-run=server
fi

if part foreign "what others do meanwhile"; then
  target deployment chat
  printf 'apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: chat-canary}\nspec:\n%s\n' "$(spec 1 chat | sed 's/app: chat}/app: chat, track: canary}/')" | kubectl apply -f - > /dev/null
  kubectl run debug --image=autotune:test --labels=app=chat --command -- sleep 100000 > /dev/null
  kubectl apply -f - > /dev/null <<'Y'
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: inject}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: ours, expression: "object.metadata.?labels[?'autotune/target'].hasValue()"}]
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >
        [JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "mesh", image: "autotune:test", command: ["sleep", "100000"]}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: inject}
spec: {policyName: inject}
Y
  until_true 20 bash -c "kubectl run probe --image=i --labels=autotune/target=x --dry-run=server -o yaml 2>&1 | grep -q mesh"
  started=$SECONDS
  begin foreign; says 60 foreign "the worker is Job" || failed=1
  check "a sidecar is in the worker's pod" until_true 30 is "autotune mesh" "kubectl get pods -l autotune/target=chat -o jsonpath='{.items[0].spec.containers[*].name}'"
  kubectl annotate deployment chat autotune/original-replicas- autotune/run- autotune/kept-replicas- > /dev/null
  kubectl patch lease autotune-chat --type=merge -p '{"spec":{"holderIdentity":""}}' > /dev/null
  ends foreign
  check "with a sidecar, a canary and a debug pod of the same labels, a note and a Lease that somebody emptied, it ends well" answered
  check "  nobody was waited for: $((SECONDS - started)) s" test $((SECONDS - started)) -lt 120
  check "  the outcome came through" grep -q "the outcome is in" "$out/foreign.log"
  check "  it says that it serves again, and it does" grep -q "Deployment chat serves again" "$out/foreign.log"
  as_before 1
  kubectl delete mutatingadmissionpolicybinding,mutatingadmissionpolicy inject > /dev/null
  kubectl delete deployment/chat-canary pod/debug --wait=false > /dev/null
fi

if part answers "two targets of one namespace whose names have 44 letters in common; the answers 3 and 6"; then
  long=llama-3-1-70b-instruct-fp8-with-a-long-context-window
  sed 's/ttft_p99 = "400ms"/ttft_p99 = "1ms"/' "$out/space.toml" > "$out/unreachable.toml"
  sed 's/gpu_time = "15s"/gpu_time = "6s"/; s/certify_window = "1s"/certify_window = "60s"/' "$out/space.toml" > "$out/short.toml"
  for place in eu us; do deployment "$long-$place" 1; done
  "$AUTOTUNE" job render --deployment "$long-eu" -n default --space "$out/unreachable.toml" --image autotune:test | kubectl apply -f - > /dev/null
  "$AUTOTUNE" job render --deployment "$long-us" -n default --space "$out/short.toml" --image autotune:test | kubectl apply -f - > /dev/null
  jobs_of() { kubectl get jobs -o name | grep /tune-llama; }
  check "they have two Jobs" is 2 "jobs_of | wc -l"
  for which in $(jobs_of); do
    check "$which fails" kubectl wait --for=condition=failed "$which" --timeout=180s
    check "  with its first pod" is 1 "kubectl get pods -l batch.kubernetes.io/job-name=${which#*/} --no-headers | wc -l"
  done
  check "the answers are 3 and 6" is "3 6" "kubectl get pods -l batch.kubernetes.io/job-name -o jsonpath='{range .items[*]}{.metadata.name} {.status.containerStatuses[0].state.terminated.exitCode}{\"\n\"}{end}' | grep ^tune-llama | awk '{print \$2}' | sort | xargs"
  for place in eu us; do
    target deployment "$long-$place"
    check "$place: it was borrowed once" is 1 "kubectl get events --field-selector reason=AutotuneBorrowed,involvedObject.name=$name --no-headers | wc -l"
    as_before 1
  done
  check "each has an outcome of its own" is 2 "kubectl get configmaps -o name | grep -c 'autotune-llama.*-outcome'"
  # shellcheck disable=SC2046
  kubectl delete $(jobs_of) deployment/"$long-eu" deployment/"$long-us" > /dev/null
fi

if part credentials "the coordinator's service account is deleted while the worker works (401)"; then
  target deployment chat
  "$AUTOTUNE" job render --deployment chat -n default --space "$out/space.toml" --image autotune:test | awk 'BEGIN {RS = ORS = "---\n"} !/kind: Job/' > "$out/rights.yaml"
  kubectl apply -f "$out/rights.yaml" > /dev/null
  token() { tests/real/kube/run.sh sa-kubeconfig default tune-chat "$KUBE" > "$out/tuner"; sed -n 's/.*{token: \([^}]*\)}.*/\1/p' "$out/tuner" | tr -d '\n' > "$out/token"; test -s "$out/token"; }
  token && sed "s|{token: [^}]*}|{tokenFile: $out/token}|" "$out/tuner" > "$out/tuner.kubeconfig"
  KUBECONFIG=$out/tuner.kubeconfig begin credentials; works credentials || failed=1
  kubectl delete serviceaccount tune-chat > /dev/null
  check "it says what a person can do" says 60 credentials "does not accept our credentials any more.*make the service account or the token again"
  kubectl apply -f "$out/rights.yaml" > /dev/null; token
  ends credentials
  check "with the account made again it ends well" answered
  as_before 1
  kubectl delete -f "$out/rights.yaml" > /dev/null
fi

if part evicted "the coordinator's pod is evicted"; then
  target deployment chat
  kubectl delete configmap autotune-chat-outcome --ignore-not-found > /dev/null
  "$AUTOTUNE" job render --deployment chat -n default --space "$out/space.toml" --image autotune:test --results results > "$out/evicted.yaml"
  kubectl apply -f "$out/evicted.yaml" > /dev/null
  coordinator() { kubectl get pods -l batch.kubernetes.io/job-name=tune-chat --sort-by=.metadata.creationTimestamp -o name | tail -1 | cut -d/ -f2; }
  until_true 60 bash -c "kubectl logs job/tune-chat 2> /dev/null | grep -q 'req/s'" || failed=1
  first=$(coordinator)
  evict "$first"
  check "its Job starts another one, which ends well" kubectl wait --for=condition=complete job/tune-chat --timeout=180s
  check "  another pod" test "$(coordinator)" != "$first"
  check "  it went on in the same folder of the claim" is 1 "ls -d $out/gpu-node/claims/default-results/*/journal.jsonl | wc -l"
  as_before 1
  kubectl delete -f "$out/evicted.yaml" > /dev/null
fi
exit "$failed"
