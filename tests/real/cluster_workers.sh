#!/usr/bin/env bash
# Two workers (`autotune job run --workers 2`) on a real Kubernetes control plane and two nodes of one GPU each: what runs where with which
# words, rights, a worker that is evicted or killed or comes late, coordinators that die, and the Service that goes with it all. Pods that look
# for each other have networks of their own and the names of a cluster.
#   tests/real/cluster_workers.sh [AUTOTUNE [PART...]]  from the project's root; AUTOTUNE is target/release/autotune by default; eight minutes
# The parts are the words behind `part` below; all of them but `compare` without. Exit code 3: no namespaces of Linux can be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."
# The network of the pods: a bridge, in a namespace that ends with its process.
for tool in unshare nsenter ip; do command -v $tool > /dev/null || { echo "'$tool' is missing" >&2; exit 3; }; done
unshare --user --map-root-user --net --mount true 2> /dev/null || { echo "no namespaces" >&2; exit 3; }
wires=$(mktemp)
unshare --user --map-root-user --net sh -ec 'ip link add pods type bridge && ip link set pods up && echo ready && exec sleep infinity' > "$wires" & bridge=$!
trap 'kill $bridge' EXIT
until [ -s "$wires" ]; do kill -0 "$bridge"; sleep 0.1; done
rm "$wires"
export AUDIT=1 KUBELET_OPTIONS="--network $bridge,10.77.1"
. tests/real/kube/bed.sh
pid=
trap 'kill -KILL $pid 2> /dev/null || true; end; kill $bridge' EXIT
# A claim that all nodes can mount.
mkdir -p "$out/gpu-node/claims" "$out/gpu-node-2"
ln -s "$out/gpu-node/claims" "$out/gpu-node-2/claims"
node gpu-node-2 --network "$bridge,10.77.2"
kubectl apply -f - > /dev/null <<'Y'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: results}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
Y
# Long enough for what happens in mid-run: a Job waits ten seconds before it makes a pod in another one's place.
sed 's/window = "600ms"/window = "8s"/; s/certify_window = "1s"/certify_window = "10s"/; s/= \[4, 16, 64\]/= [4, 8, 16, 32, 64]/; s/"15s"/"100s"/' "$out/space.toml" > "$out/long.toml"
job+=(--workers 2)
long() { swapped space.toml long.toml "$@" --results results; } # LOG [OPTION...]
begins() { afresh; }
answered() { # the run ended with an answer, and nothing but that is left
  check "the run ends well" ended_well
  check "the outcome is kept" outcome
  all_back
}
all_back() {
  check "no pod, no Service and no Secret of ours is left" until_true 30 is "" "kubectl get pods,services,secrets -l autotune/target -o name"
  as_it_was
}
worker() { # INDEX [JSONPATH]: of the newest pod of that index
  kubectl get pods -l "autotune/target=chat,batch.kubernetes.io/job-completion-index=$1" --sort-by=.metadata.creationTimestamp -o name | tail -1 | cut -d/ -f2
}
of() { kubectl get pod "$1" -o jsonpath="{$2}"; }
running() { [ "$(of "$(worker "$1")" .status.phase)" = Running ]; } # INDEX
works() { # LOG: both pods run, and the leader shows that it measures
  says 60 "$1" "the worker is Job autotune-chat with 2 pods"
  until_true 60 running 0 && until_true 60 running 1
  says 60 "$1" "^worker 0: .*req/s"
}
another() { [ -n "$(worker "$1")" ] && [ "$(worker "$1")" != "$2" ] && running "$1"; } # INDEX FORMER
process() { # INDEX: of its newest pod, as the kubelet started it
  sed -n "s|.*default/$(worker "$1") autotune: pid \([0-9]*\):.*|\1|p" "$out"/gpu-node*.log | tail -1
}
leaders() { cat "$out"/gpu-node*.log | grep -c 'autotune-chat-0-.* autotune: pid' || true; } # so many were started
words() { grep -h "default/$(worker "$1") autotune: pid" "$out"/gpu-node*.log | tail -1; } # INDEX

if part look "looking without touching"; then
  generation=$(kubectl get deployment chat -o jsonpath='{.metadata.generation}')
  check "a dry run prints the worker and the Service" bash -c "${job[*]} --dry-run > $out/dry.json 2> $out/dry.log"
  check "which the server takes" kubectl apply --dry-run=server --validate=strict -f "$out/dry.json"
  check "and which holds no token" grep -q '"token": "\[redacted\]"' "$out/dry.json"
  check "it is a Job of two" is "Indexed 2 2 0" "kubectl apply --dry-run=client -f $out/dry.json -o json | python3 -c 'import json,sys; s=json.load(sys.stdin)[\"items\"][0][\"spec\"]; print(s[\"completionMode\"], s[\"completions\"], s[\"parallelism\"], s[\"successPolicy\"][\"rules\"][0][\"succeededIndexes\"])'"
  check "it says that a GPU must be free elsewhere" grep -q "2 workers tune at once.*gives the GPUs of 1, and the other needs free ones elsewhere" "$out/dry.log"
  check "and touches nothing" is "$generation" "kubectl get deployment chat -o jsonpath='{.metadata.generation}'; ours"
  check "what autotune job render prints, the server takes" bash -c "'$AUTOTUNE' job render --deployment chat --workers 2 --space $out/space.toml --image autotune:test --results results | kubectl apply --dry-run=server --validate=strict -f -"
  tried strategy run --strategy bisect
  check "a strategy that cannot use them is a usage mistake" code_is 2
  check "and named" tells "the strategy bisect waits for each answer"
  tried none "${job[@]:0:${#job[@]}-1}" 0
  check "no worker at all is a usage mistake" code_is 2
  kubectl create service clusterip autotune-chat --tcp=80 > /dev/null
  tried theirs run
  check "a Service of that name that is somebody else's is in the way" tells "there is a Service autotune-chat that is not ours"
  check "it stays" kubectl delete service autotune-chat
  all_back
fi

if part rights "a Role without Services"; then
  kubectl create serviceaccount tuner > /dev/null
  kubectl kustomize jobs | python3 -c '
import sys
text = "".join(f"---{part}" for part in sys.stdin.read().split("---") if "kind: Role\n" in part and "name: tune-chat\n" in part)
print(text.replace("namespace: llm", "namespace: default").replace("- services", "- nothing"))' | kubectl apply -f - > /dev/null
  kubectl create rolebinding tuner --role=tune-chat --serviceaccount=default:tuner > /dev/null
  tests/real/kube/run.sh sa-kubeconfig default tuner "$KUBE" > "$out/tuner.kubeconfig"
  generation=$(kubectl get deployment chat -o jsonpath='{.metadata.generation}')
  KUBECONFIG=$out/tuner.kubeconfig tried right run
  check "is refused" code_is 2
  check "by name" tells "missing rights in the namespace default: create services, get services autotune-chat; nothing was touched"
  check "before anything is touched" is "$generation" "kubectl get deployment chat -o jsonpath='{.metadata.generation}'; ours"
  check "and is enough for one worker" bash -c "KUBECONFIG=$out/tuner.kubeconfig ${job[*]:0:${#job[@]}-2} --dry-run > $out/one.json"
  kubectl kustomize jobs | kubectl apply --dry-run=client -o json -f - | python3 -c '
import json, sys
[role] = [o for o in json.load(sys.stdin)["items"] if (o["kind"], o["metadata"]["name"]) == ("Role", "tune-chat")]
print(json.dumps({**role, "metadata": {"name": "tune-chat", "namespace": "default"}}))' | kubectl apply -f - > /dev/null
  check "that of jobs/ is enough for two" bash -c "KUBECONFIG=$out/tuner.kubeconfig ${job[*]} --dry-run"
  check "which is no indexed Job" bash -c "! grep -q 'Indexed\|subdomain\|7787' $out/one.json"
fi

if part whole "the whole way"; then
  begin whole --results results; works whole || failed=1
  check "the pods are on different nodes" bash -c "[ '$(of "$(worker 0)" .spec.nodeName)' != '$(of "$(worker 1)" .spec.nodeName)' ]"
  check "they have names" is "autotune-chat-0.autotune-chat autotune-chat-1.autotune-chat" "for i in 0 1; do of \$(worker \$i) '.spec.hostname}.{.spec.subdomain'; echo; done | xargs"
  check "which lead to them" is "$(of "$(worker 0)" .status.podIP) $(of "$(worker 1)" .status.podIP)" "awk '\$2 ~ /^autotune-chat-[01]\.autotune-chat\$/ {print \$2, \$1}' $out/gpu-node/hosts-default | sort | awk '{print \$2}' | xargs"
  for i in 0 1; do
    check "worker $i has its words" grep -q -e "--workers http://autotune-chat-0.autotune-chat:7787,http://autotune-chat-1.autotune-chat:7787 --rank $i'" <(words $i)
  done
  check "the Service selects the pods of this Job" is "$(kubectl get job autotune-chat -o jsonpath='{.metadata.uid}')" "kubectl get service autotune-chat -o jsonpath='{.spec.selector.batch\.kubernetes\.io/controller-uid}'"
  for kind in service secret; do
    check "the $kind belongs to it" is "$(kubectl get job autotune-chat -o jsonpath='{.metadata.uid}')" "kubectl get $kind autotune-chat -o jsonpath='{.metadata.ownerReferences[0].uid}'"
  done
  check "the token is in the Secret alone" bash -c "! { kubectl get job,pods,configmaps -o yaml; cat $out/whole.log; } | grep -q \"\$(kubectl get secret autotune-chat -o jsonpath='{.data.token}' | base64 -d)\""
  for i in 0 1; do kubectl logs -f "$(worker $i)" -c autotune > "$out/pod-$i" 2>&1 || true & done
  first=$(worker 0)
  ends whole
  answered
  check "the outcome is the leader's" tells "worker 0: "
  check "it stays on the claim" bash -c "ls $out/gpu-node/claims/default-results/*/outcome.json"
  check "the audit log knows of these writes and no other" diff <(user autotune/ | grep -v "^update leases") - <<'T'
create configmaps autotune-chat
create configmaps autotune-chat-outcome
create events *
create jobs autotune-chat
create leases autotune-chat
create pods *
create secrets autotune-chat
create services autotune-chat
delete configmaps autotune-chat
delete jobs autotune-chat
delete leases autotune-chat
patch configmaps autotune-chat-outcome
patch deployments chat
patch deployments/scale chat
patch jobs autotune-chat
T
fi

for end in evicted killed; do
  part "lender-$end" "the pod that lends its engine is $end in mid-run" || continue
  long lender; works lender || failed=1
  former=$(worker 1)
  if [ $end = evicted ]; then evict "$former"; else kill -KILL "$(process 1)"; fi
  check "another one comes in its place" until_true 60 another 1 "$former"
  check "the leader stays" running 0
  ends lender
  answered
done

if part leader "the pod that leads is evicted in mid-run, with its journal on a claim"; then
  long leader; works leader || failed=1
  former=$(worker 0)
  until_true 60 bash -c "[ \$(kubectl logs $former -c autotune | grep -cE '^trial [0-9]+: [0-9.]+ req') -ge 2 ]" || failed=1
  evict "$former"
  check "another one comes in its place" until_true 60 another 0 "$former"
  check "and resumes" until_true 60 bash -c "kubectl logs $(worker 0) -c autotune | grep '^resumed: [1-9]'"
  ends leader
  answered
fi

if part late "only one GPU is free, and the second comes in mid-run"; then
  taken=$(kubectl get pods -l app=chat -o jsonpath='{.items[0].spec.nodeName}')
  free=$(kubectl get nodes -o name | cut -d/ -f2 | grep -v "^$taken\$")
  kubectl cordon "$free" > /dev/null
  long late --patience 15s
  check "the worker that waits is named" says 60 late "^worker 1: pod autotune-chat-1-.* waits: not scheduled: .*Insufficient nvidia.com/gpu"
  check "the leader has its GPU" until_true 30 running 0
  sleep 20
  check "nobody gives up for that" bash -c "! grep -q 'did not begin' $out/late.log && kill -0 $pid"
  check "it was said once" is 1 "grep -c '^worker 1: pod autotune-chat-1-.*Insufficient' $out/late.log"
  kubectl uncordon "$free" > /dev/null
  check "it gets the second" until_true 60 running 1
  ends late
  answered
fi

if part fails "promises that nothing keeps: the leader ends with a documented exit code, and with it the Job"; then
  sed 's/400ms/10us/' "$out/space.toml" > "$out/never.toml"
  before=$(leaders)
  swapped space.toml never.toml fails; ends fails
  check "the exit code is the leader's" code_is 3
  check "nobody was tried again" is $((before + 1)) leaders
  all_back
fi

if part follows "a coordinator that is killed in mid-run, and run again"; then
  long first; works first || failed=1
  before=$(kubectl get job,pods -l autotune/target=chat -o jsonpath='{.items[*].metadata.uid}')
  killed
  kubectl delete service autotune-chat > /dev/null
  long second
  check "the next one goes on with the same Job" says 90 second "goes on with its worker, Job autotune-chat"
  check "and makes the Service that is missing" until_true 30 kubectl get service autotune-chat
  check "the pods are the same" is "$before" "kubectl get job,pods -l autotune/target=chat -o jsonpath='{.items[*].metadata.uid}'"
  ends second
  answered
fi

if part restored "a coordinator that is killed in mid-run; then restore"; then
  long restored; works restored || failed=1
  killed
  check "restore ends well" timeout 120 "$AUTOTUNE" restore --deployment chat
  all_back
fi

if part job "the coordinator is a Job, as autotune job render prints it"; then
  kubectl create namespace llm > /dev/null
  kubectl scale deployment chat --replicas=0 > /dev/null
  kubectl -n llm apply -f "$out/chat.yaml" > /dev/null
  kubectl -n llm rollout status deployment chat --timeout=60s > /dev/null
  check "its manifests are taken" bash -c "'$AUTOTUNE' job render --deployment chat -n llm --workers 2 --space $out/space.toml --image autotune:test --results autotune-results | kubectl apply -f -"
  check "the Job completes" kubectl -n llm wait --for=condition=complete job/tune-chat --timeout=180s
  check "it had two workers" bash -c "kubectl -n llm logs job/tune-chat | grep 'the worker is Job autotune-chat with 2 pods'"
  check "the outcome stays" kubectl -n llm get configmap autotune-chat-outcome
  check "the scale came back" is 1 "kubectl -n llm get deployment chat -o jsonpath='{.spec.replicas}'"
  [ "$failed" = 0 ] || kubectl -n llm logs job/tune-chat
  kubectl delete namespace llm --wait > /dev/null
fi

# Only where it is asked for: it shows, and checks little. The quickstart with three seeds, by one worker and by two.
if [[ " ${parts[*]} " = *" compare "* ]] && part compare "one worker and two: certified rate, engine time, time from begin to end"; then
  job=("${job[@]:0:${#job[@]}-2}")
  for seed in 1 2 3; do
    sed "s/^\[search\]/[search]\nseed = $seed/" search-spaces/quickstart.toml > "$out/compare.toml"
    for workers in 1 2; do
      kubectl delete configmap autotune-chat-outcome > /dev/null 2>&1 || true
      swapped space.toml compare.toml compare --workers $workers; ends compare
      check "seed $seed on $workers ends well" ended_well
      kubectl get configmap autotune-chat-outcome -o jsonpath='{.data.outcome\.json}' | python3 -c '
import json, sys
o = json.load(sys.stdin)
best, cost = o["best"], o["cost"]
rate = best["certified_rate"]
print("       {} worker(s): {} req/s certified at {}; {:.0f} s of engine time, {:.0f} s from begin to end".format(
    o["workers"], rate and round(rate, 1), best["parameters"], cost["engine_seconds"], o["elapsed"]))'
    done
  done
fi
exit "$failed"
