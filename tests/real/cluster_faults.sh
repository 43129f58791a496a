#!/usr/bin/env bash
# A fault at each step of `autotune job run` on a real Kubernetes control plane and a kubelet that runs containers as processes: coordinators
# and workers killed, a pod evicted, the API server away, the target deleted, edited or scaled, a GPU that never gets free or that somebody
# else takes, an image that is missing, a quota, objects of ours deleted, a lease taken over. Each time: the scale and the arguments at the
# end, nothing of ours left but the outcome, a documented exit code, a message with the reason, and the time without service.
#   tests/real/cluster_faults.sh [AUTOTUNE [PART...]]   from the project's root; AUTOTUNE is target/release/autotune by default; nine minutes
# The parts are the words behind `part` below; all of them without. FULL=1: the API server is away for two minutes, and a coordinator is killed
# at each line of a run of its own (seven minutes more).
set -euo pipefail
cd "$(dirname "$0")/../.."
# The node outlives an API server that is away, and has a registry without this image.
export KUBELET_OPTIONS="--api-lost 600 --no-image missing:1"
. tests/real/kube/bed.sh
pid=
trap 'kill -KILL $pid 2> /dev/null || true; end' EXIT     # without its cluster it would try to give back for ten minutes

before='["--max-num-seqs","4","--port","0"]'
begins() { afresh; }
killed_at() { # LOG WORDS: a coordinator that is killed the moment it says so
  timeout 120 python3 - "$out/$1.log" "$2" "${job[@]}" <<'PY' || { echo "  FAIL it never said: $2"; cat "$out/$1.log"; failed=1; }
import subprocess, sys
log, words, command = open(sys.argv[1], "wb"), sys.argv[2].encode(), sys.argv[3:]
coordinator = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
for line in coordinator.stderr:
    if words in line:
        coordinator.kill()
    log.write(line)
    log.flush()
sys.exit(coordinator.wait() != -9)
PY
  lease_ends
}
worked() { # the run ended with an answer, and all is as it was
  check "the run ends well" ended_well
  check "the outcome is kept" outcome
  check "the time without service is said" tells "had served nothing for"
  untouched
}
gave_up() { # WHAT WORDS: the run failed, said why, and all is as it was
  check "the run fails" code_is 2
  check "$1" tells "$2"
  check "the time without service is said" tells "had served nothing for"
  untouched
}
untouched() { # as_it_was, and what a plain run never changes
  check "no pod of ours is left" until_true 20 is "" "kubectl get pods -l autotune/target -o name"
  as_it_was
  check "the arguments are as they were" is "$before" arguments
}
worker_pod() { kubectl get pods -l autotune/target=chat --sort-by=.metadata.creationTimestamp -o name | tail -1 | cut -d/ -f2; }
worker_pid() { # of the newest worker's process, as the kubelet started it
  sed -n "s|.*default/$(worker_pod) autotune: pid \([0-9]*\):.*|\1|p" "$out/gpu-node.log" | tail -1
}

lines=("is scaled from" "its pods are gone" "the worker is Job" "req/s" "the outcome is in" "is scaled back to")
if part killed "a coordinator that is killed at one line after the other: ${lines[*]/%/;}"; then
  run_name=
  for i in "${!lines[@]}"; do
    killed_at "killed-$i" "${lines[$i]}"
    run_name=${run_name:-$(named)}
  done
  begin killed-last; ends killed-last
  check "the last one goes on and ends well" ended_well
  check "it was one run from the first to the last" is "$run_name" "kubectl get configmap autotune-chat-outcome -o jsonpath='{.metadata.annotations.autotune/run}'"
  check "with one worker" is 1 "grep -c 'autotune: pid' $out/gpu-node.log"
  check "the outcome is kept" outcome
  check "the time without service is said" grep -qh "had served nothing for" "$out"/killed-*.log
  untouched
fi

if [ "${FULL:-0}" = 1 ]; then
  for line in "${lines[@]}"; do
    part each "a coordinator that is killed when it says: $line" || continue
    killed_at first "$line"
    begin second; ends second
    check "the next one goes on and ends well" ended_well
    check "the outcome is kept" outcome
    check "the time without service is said" grep -qh "had served nothing for" "$out/first.log" "$out/second.log"
    untouched
  done
fi

for line in "its pods are gone" "req/s"; do
  part restored "a coordinator that is killed when it says: $line; then restore" || continue
  killed_at first "$line"
  check "restore ends well" bash -c "timeout 120 $AUTOTUNE restore --deployment chat > $out/restore.log 2>&1"
  check "the time without service is said" grep -q "had served nothing for" "$out/restore.log"
  untouched
done

if part begun "a coordinator that is killed before it touched the service; then restore"; then
  begin first --patience 10s
  until_true 30 kubectl get lease autotune-chat || failed=1
  killed
  check "restore ends well" timeout 120 "$AUTOTUNE" restore --deployment chat
  untouched
  kubectl create -f - > /dev/null <<Y
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: autotune-chat}
spec: {holderIdentity: "autotune on a machine that is gone", leaseDurationSeconds: 1, renewTime: "$(date -u +%Y-%m-%dT%H:%M:%S.000000Z)"}
Y
  check "restore takes away a lease alone, too" timeout 120 "$AUTOTUNE" restore --deployment chat
  check "nothing of ours is left" is "" ours
fi

if part worker "the worker's process is killed"; then
  begin worker; works worker || failed=1
  first=$(worker_pod); kill -KILL "$(worker_pid)"
  ends worker
  check "another pod did the work" tells "$first: Failed"
  worked
fi

if part evicted "the worker's pod is evicted, with its journal on a claim"; then
  kubectl apply -f - > /dev/null <<'Y'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: results}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
Y
  begin evicted --results results; works evicted || failed=1
  until_true 60 bash -c "[ \$(kubectl logs $(worker_pod) -c autotune | grep -cE '^trial [0-9]+: [0-9.]+ req') -ge 3 ]" || failed=1
  first=$(worker_pod); folder=$out/gpu-node/$(kubectl get pod "$first" -o jsonpath='{.metadata.uid}')
  evict "$first"
  until_true 60 bash -c "kubectl get pods -l autotune/target=chat -o name | grep -v $first" || failed=1
  until_true 60 bash -c "kubectl logs $(worker_pod) -c autotune | grep '^resumed: '" || failed=1
  check "the second one resumes: $(kubectl logs "$(worker_pod)" -c autotune | grep -o '^resumed: .*journal')" bash -c "kubectl logs $(worker_pod) -c autotune | grep '^resumed: [1-9]'"
  ends evicted
  worked
  check "the results stay on the claim" bash -c "ls $out/gpu-node/claims/default-results/*/outcome.json"
  kubectl delete pvc results > /dev/null
fi

away() { # SECONDS: the API server does not answer
  kill -STOP "$apiserver"; sleep "$1"; kill -CONT "$apiserver"
}
apiserver=$(tr '\0' ' ' < /proc/"${pids[0]}"/cmdline > /dev/null; pgrep -P "${pids[0]}" -f kube-apiserver | head -1)
seconds=$([ "${FULL:-0}" = 1 ] && echo 120 || echo 30)
if part away "the API server is away for $seconds s while the worker ends"; then
  begin away; works away || failed=1
  away "$seconds"
  ends away
  check "it was said that the API server is away" tells "the API server is away"
  check "and that it is back" tells "the API server is back"
  worked
fi
if part away-early "the API server is away while the target's pods go, and the worker lives through it"; then
  begin away --budget 8s; says 60 away "is scaled from" || failed=1
  away "$seconds"
  ends away
  check "the run ends well" ended_well
  check "it was said that the API server is away" tells "the API server is away"
  check "the outcome is kept" outcome
  untouched
fi

if part deleted "the target is deleted while the worker measures"; then
  begin deleted; works deleted || failed=1
  kubectl delete deployment chat > /dev/null
  ends deleted
  check "it was noticed at once" tells "was deleted meanwhile; the worker goes on"
  check "the run ends well" ended_well
  check "it says that there is nothing to restore" tells "chat is gone; there is nothing to restore"
  check "the outcome is kept" outcome
  check "nothing of ours is left" is "" ours
fi

if part changed "the target is edited and scaled while the worker measures"; then
  begin changed; works changed || failed=1
  kubectl set env deployment chat EDITED=1 > /dev/null
  kubectl scale deployment chat --replicas=2 > /dev/null
  check "the scaling was noticed at once" says 30 changed "somebody scaled Deployment chat to 2 meanwhile"
  check "the edit too" says 30 changed "somebody edited Deployment chat meanwhile"
  check "it stays where somebody put it" says 90 changed "was scaled to 2 meanwhile, and stays there"
  check "the scale is theirs" is 2 replicas
  # There is a GPU for one of them alone.
  kubectl scale deployment chat --replicas=1 > /dev/null
  ends changed
  check "the run ends well" ended_well
  check "the time with another scale is said" tells "had served nothing for"
  check "the edit is there" is 1 "kubectl get deployment chat -o jsonpath='{.spec.template.spec.containers[0].env[0].value}'"
  untouched
  kubectl delete deployment chat > /dev/null
fi

if part finalizer "a pod of the target with a finalizer, which ended but stays in the list"; then
  pod=$(kubectl get pods -l app=chat -o name)
  kubectl patch "$pod" --type=merge -p '{"metadata":{"finalizers":["example.com/slow"]}}' > /dev/null
  begin finalizer --patience 30s --budget 8s; ends finalizer
  check "it holds no GPU: the run ends well" ended_well
  kubectl patch "$pod" --type=merge -p '{"metadata":{"finalizers":null}}' > /dev/null
  untouched
fi

if part stuck "the target's pod does not go: its node does not answer"; then
  kill -STOP "${pids[1]}"
  begin stuck --patience 10s; ends stuck
  kill -CONT "${pids[1]}"
  gave_up "the reason and where to look are said" "did not go within 10.0 s (--patience); .kubectl describe pod. says why"
fi

thief='{"apiVersion":"v1","kind":"Pod","metadata":{"name":"thief"},"spec":{"nodeName":"gpu-node","terminationGracePeriodSeconds":1,"containers":[{"name":"c","image":"i","command":["sleep","1000"],"resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}'
if part thief "another pod has the GPU the moment it is free"; then
  begin thief --patience 10s; says 30 thief "is scaled from" || failed=1
  kubectl create -f - <<< "$thief" > /dev/null
  ends thief
  kubectl delete pod thief > /dev/null
  gave_up "the reason is said, in the scheduler's words, and who has it" "did not begin within 10.0 s (--patience): .*Insufficient nvidia.com/gpu.*; pods of this namespace with GPUs: thief on gpu-node"
fi

if part evicted-thief "the worker's pod is evicted, and another pod has the GPU the moment it is free"; then   # a Job waits ten seconds before it makes the next pod
  begin evicted --patience 25s --budget 60s; works evicted || failed=1
  kubectl create -f - <<< "$thief" > /dev/null
  first=$(worker_pod)
  evict "$first"
  until_true 60 gone "$pid" || kill -TERM "$pid"
  ends evicted
  kubectl delete pod thief > /dev/null
  gave_up "the reason is said, in the scheduler's words" "did not begin within 25.0 s (--patience): .*Insufficient nvidia.com/gpu"
fi

if part cordoned "the node is cordoned the moment it is free"; then
  begin cordoned --patience 10s; says 30 cordoned "is scaled from" || failed=1
  kubectl cordon gpu-node > /dev/null
  ends cordoned
  kubectl uncordon gpu-node > /dev/null
  gave_up "the reason is said, in the scheduler's words" "did not begin within 10.0 s (--patience): .*unschedulable"
fi

if part image "our image cannot be pulled"; then
  swapped autotune:test missing:1 image --patience 10s; ends image
  gave_up "the reason is said, in the kubelet's words" "did not begin within 10.0 s (--patience): .*\(ErrImagePull\|ImagePullBackOff\).*missing:1.*not found"
fi

if part quota "a quota that lets the target be and no worker"; then
  kubectl delete deployment chat > /dev/null
  sed 's/resources: {limits/resources: {requests: {cpu: 10m}, limits/' "$out/chat.yaml" | kubectl apply -f - > /dev/null
  serving
  kubectl create quota small --hard=requests.cpu=50m > /dev/null
  begin quota --patience 10s; ends quota
  gave_up "the reason is said, in the server's words" "the worker cannot begin: .*exceeded quota: small"
  kubectl delete quota small > /dev/null
  kubectl delete deployment chat > /dev/null
fi

if part job "somebody deletes the Job"; then
  begin job; works job || failed=1
  kubectl delete job autotune-chat > /dev/null
  ends job
  gave_up "the reason is said" "somebody deleted the worker, Job autotune-chat"
fi

if part lease-deleted "somebody deletes the Lease"; then
  begin lease; says 60 lease "the worker is Job" || failed=1
  kubectl delete lease autotune-chat > /dev/null
  ends lease
  check "the run ends well" ended_well
  check "the outcome is kept" outcome
  untouched
fi

take_lease() { kubectl patch lease autotune-chat --type=merge -p "{\"spec\":{\"holderIdentity\":\"somebody\",\"renewTime\":\"$(date -u +%Y-%m-%dT%H:%M:%S.000000Z)\"}}" > /dev/null; }
if part lease "somebody else takes the Lease over"; then
  begin lease --budget 60s; says 60 lease "the worker is Job" || failed=1
  take_lease || failed=1
  ends lease
  check "the run fails" code_is 2
  check "it says who has taken over" tells "somebody has taken over (lease autotune-chat), and gives the GPU back"
  check "the scale is left to the new holder" is 0 replicas
  check "and the worker" kubectl get job autotune-chat
  check "and the lease" is somebody "kubectl get lease autotune-chat -o jsonpath='{.spec.holderIdentity}'"
  lease_ends
  check "once that one is dead, restore ends well" timeout 120 "$AUTOTUNE" restore --deployment chat
  untouched
fi
if part lease-late "somebody else takes the Lease over while the coordinator sleeps and the worker ends"; then
  begin lease --budget 8s; says 60 lease "^trial 1" || failed=1
  kill -STOP "$pid"
  until_true 60 bash -c "kubectl get job autotune-chat -o jsonpath='{.status.conditions[*].type}' | grep -E 'Complete|Failed'" || failed=1
  take_lease || failed=1
  kill -CONT "$pid"; ends lease
  check "the run fails" code_is 2
  check "it says who has taken over" tells "somebody has taken over (lease autotune-chat), and gives the GPU back"
  check "the other one's lease is not deleted" is somebody "kubectl get lease autotune-chat -o jsonpath='{.spec.holderIdentity}'"
  lease_ends
  check "once that one is dead, restore ends well" timeout 120 "$AUTOTUNE" restore --deployment chat
  untouched
fi

if part asleep "a coordinator falls asleep, and restore takes over"; then
  begin asleep; says 60 asleep "the worker is Job" || failed=1
  kill -STOP "$pid"; lease_ends
  check "restore ends well" timeout 120 "$AUTOTUNE" restore --deployment chat
  kill -CONT "$pid"; ends asleep
  check "the coordinator that wakes up fails" code_is 2
  check "and says why" tells "somebody deleted the worker"
  untouched
fi

if part interrupted "a coordinator that is interrupted while the target's pods come back"; then
  begin interrupted --budget 8s; says 60 interrupted "^trial 1" || failed=1
  kubectl cordon gpu-node > /dev/null
  says 90 interrupted "Deployment chat: 0 of 1 pods are ready" || failed=1
  kill -TERM "$pid"
  check "it ends at once" until_true 10 gone "$pid"
  kubectl uncordon gpu-node > /dev/null
  killed
  untouched
fi
exit "$failed"
