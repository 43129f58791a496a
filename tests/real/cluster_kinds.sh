#!/usr/bin/env bash
# `autotune job run` on targets that are no Deployments, on a real Kubernetes control plane with a stand-in for their operators (kube/operator.py):
# a component of a DynamoGraphDeployment of either version and one with a scaling adapter, KubeAI's Model, a LeaderWorkerSet, a StatefulSet; each
# looked at, borrowed from and given back, and given new arguments by server-side apply. And targets that are refused: whose scale others hold.
#   tests/real/cluster_kinds.sh [AUTOTUNE [PART...]]    from the project's root; AUTOTUNE is target/release/autotune by default; five minutes
# The parts are: beta alpha adapter two kubeai lws statefulset refused; all of them without.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/real/kube/bed.sh
kubectl delete deployment chat > /dev/null
python3 tests/real/kube/operator.py > "$out/operator.log" 2>&1 & operator=$!; pids+=("$operator")
# A winner that differs from what the targets have.
sed -i 's/values = \[4, 16, 64\], default = 4/values = [16, 64], default = 16/; s/gpu_time = "15s"/gpu_time = "20s"/' "$out/space.toml"

engine='command: [/autotune, sim-engine, chat-model], args: [--max-num-seqs, "4", --port, "0"]'
crd() { # GROUP KIND PLURAL VERSION SCHEMA-OF-SPEC SUBRESOURCES: a minimal CRD, with the keys by which lists are merged
  kubectl apply -f - > /dev/null <<Y
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: $3.$1}
spec:
  group: $1
  scope: Namespaced
  names: {kind: $2, plural: $3, singular: ${3%s}}
  versions:
  - name: $4
    served: true
    storage: true
    subresources: $6
    schema:
      openAPIV3Schema:
        type: object
        properties:
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
          spec: $5
Y
  kubectl wait --for=condition=Established "crd/$3.$1" > /dev/null
}
open='type: object, x-kubernetes-preserve-unknown-fields: true'
whole="{$open}"
scale='{status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}'
by_name() { echo "type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {$open, required: [name], properties: {name: {type: string}$1}}"; }
containers="{$open, properties: {containers: {$(by_name ", args: {type: array, items: {type: string}}")}}}"
pod="{$open, properties: {spec: $containers}}"
beta() { crd nvidia.com DynamoGraphDeployment dynamographdeployments v1beta1 "{$open, properties: {components: {$(by_name ", replicas: {type: integer, minimum: 0}, podTemplate: $pod")}}}" '{status: {}}'; }

# --- what is checked of each kind: $resource (as kubectl names it), $flag, $name, $pods (the labels of its pods), $scaled and $given (where its
# --- replicas and its arguments stand), $had and $want (the arguments before, and with a winner W)
get() { kubectl get "$resource" "$name" -o "jsonpath=$1"; }
alive() { kubectl get pods -l "$pods" -o json | python3 -c 'import json,sys; print(sum(any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", [])) and "deletionTimestamp" not in p["metadata"] for p in json.load(sys.stdin)["items"]))'; }
serves() { until_true 60 is "$1" alive; }
notes() { get '{.metadata.annotations}' | grep -o 'autotune/[a-z]*-*replicas\|autotune/run' || true; }
as_before() { # the scale, no note, nothing of ours, pods that serve
  check "  the scale is 1" is 1 "get '$scaled'"
  check "  no note is left on it" is "" notes
  check "  nothing of ours is left" is "" ours
  check "  it serves again" serves 1
}
is_refused() { # WHAT WORDS: as a usage mistake, and nothing was touched
  check "$1" tells "$2"
  check "as a usage mistake" code_is 2
  as_before
}
essence() { # what its owner wrote
  kubectl get "$resource" "$name" -o json | python3 -c 'import json,sys; o = json.load(sys.stdin); m = o["metadata"]; print(json.dumps([o["spec"], m.get("labels"), {k: v for k, v in m.get("annotations", {}).items() if not k.startswith("autotune/")}], indent=1, sort_keys=True))'
}
whole_way() {
  check "it serves before" serves 1
  kubectl delete configmap "autotune-$name-outcome" > /dev/null 2>&1 || true
  essence > "$out/before.json"
  local generation; generation=$(get '{.metadata.generation}')
  go --dry-run
  check "a dry run shows the worker" code_is 0
  check "  as a Job without the labels, the ports and the variables of the service" python3 - "$out/go.log" "$pods" <<'PY'
import json, re, sys
text = open(sys.argv[1]).read()
job = json.loads(text[text.index("{"):])
template = job["spec"]["template"]
assert set(template["metadata"]["labels"]) == {"autotune/target", "app.kubernetes.io/name"}, template["metadata"]["labels"]
for container in template["spec"]["containers"] + template["spec"]["initContainers"]:
    bad = [e["name"] for e in container.get("env", []) if re.match("DYN_|ETCD_|NATS_", e["name"])]
    assert not bad, bad
    assert not {"ports", "livenessProbe", "readinessProbe", "startupProbe"} & set(container), container
[tuner] = template["spec"]["containers"]
assert tuner["resources"]["limits"]["nvidia.com/gpu"] == "1", tuner["resources"]
assert "nodeName" not in template["spec"]
PY
  check "  and touches nothing" is "$generation" "get '{.metadata.generation}'; ours"

  go --budget 8s & local pid=$!
  until_true 60 grep -q "the worker is Job" "$out/go.err" || failed=1
  until_true 30 bash -c "kubectl get pods -l autotune/target=$name -o jsonpath='{.items[0].status.phase}' | grep -q Running" || failed=1
  check "while the worker runs, no pod has the labels of the service" is "" "kubectl get pods -l '$pods' -o name"
  wait "$pid"; code=$(sed -n 's/^exit //p' "$out/go.code")
  check "the whole way ends well" code_is 0 6
  check "  its steps are events of it" bash -c "kubectl events --for $resource/$name | grep -q AutotuneGivenBack"
  as_before
  check "  nothing else of it changed" diff <(essence) "$out/before.json"

  go --apply
  check "arguments of another manager are not taken" code_is 2
  check "  the manager, the field and the way out are named" grep -q 'conflict.*"owner".*args.*--force-conflicts' <(tr '\n' ' ' < "$out/go.err")
  check "  nothing was touched" diff <(essence) "$out/before.json"
  go --apply --force-conflicts
  check "with --force-conflicts they are" code_is 0
  winner=$(python3 -c "import json; print(json.load(open('$out/answer/outcome.json'))['best']['parameters']['max-num-seqs'])" || echo none)
  check "  it has the winner's arguments" is "${want/W/$winner}" "get '$given'"
  check "  as an Apply of ours" is Apply "kubectl get $resource $name --show-managed-fields -o json | python3 -c 'import json,sys; print(*{m[\"operation\"] for m in json.load(sys.stdin)[\"metadata\"][\"managedFields\"] if m[\"manager\"] == \"autotune\" and \"f:args\" in json.dumps(m)})'"
  check "  nothing else of it changed" diff <(essence | tr -d ' \n' | sed "s/\"$winner\"/\"4\"/; s/=$winner\"/=4\"/") <(tr -d ' \n' < "$out/before.json")
  check "  its pods run with them" is "$winner" "kubectl get pods -l '$pods' -o jsonpath='{.items[0].spec.containers[0].args}' | grep -o 'seqs[\",=]*[0-9]*' | grep -o '[0-9]*'"
  as_before
}

graph_labels='nvidia.com/dynamo-graph-deployment-name=graph,nvidia.com/dynamo-component=Decode'
of_graph() { resource=dynamographdeployment flag=dynamo-graph name=graph pods=$graph_labels want='["--max-num-seqs","W","--port","0"]'; }
beta_graph() { # ADAPTER
  kubectl apply --server-side --field-manager=owner -f - > /dev/null <<Y
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: graph, labels: {team: chat}, annotations: {nvidia.com/enable-grove: "false"}}
spec:
  backendFramework: vllm
  env: [{name: NATS_CREDS, value: c}]
  components:
  - {name: Frontend, type: frontend, replicas: 1, podTemplate: {spec: {containers: [{name: main, image: "autotune:test", command: [sleep, "100000"], args: [], env: [{name: DYN_ROUTER_MODE, value: kv}]}]}}}
  - name: Decode
    type: worker
    replicas: 1
    $1
    podTemplate:
      spec:
        terminationGracePeriodSeconds: 5
        containers:
        - {name: main, image: "autotune:test", $engine, env: [{name: HF_HOME, value: /models}, {name: DYN_LOG, value: debug}], resources: {limits: {nvidia.com/gpu: "1"}}}
        - {name: helper, image: "autotune:test", command: [sleep, "100000"]}
Y
}
no_graph() { kubectl delete dynamographdeployment graph > /dev/null; until_true 30 is "" "kubectl get pods -l nvidia.com/dynamo-graph-deployment-name=graph -o name"; kubectl delete crd dynamographdeployments.nvidia.com > /dev/null; }

if part beta "DynamoGraphDeployment, nvidia.com/v1beta1"; then
  beta; beta_graph ""; of_graph
  scaled='{.spec.components[?(@.name=="Decode")].replicas}' given='{.spec.components[?(@.name=="Decode")].podTemplate.spec.containers[?(@.name=="main")].args}'
  frontend=$(until_true 60 bash -c "kubectl get pods -l nvidia.com/dynamo-component=Frontend -o name | grep ." ; kubectl get pods -l nvidia.com/dynamo-component=Frontend -o jsonpath='{.items[0].metadata.uid}')
  whole_way
  check "its Frontend is the same pod as before" is "$frontend" "kubectl get pods -l nvidia.com/dynamo-component=Frontend -o jsonpath='{.items[0].metadata.uid}'"
  no_graph
fi

if part alpha "DynamoGraphDeployment, nvidia.com/v1alpha1"; then
  crd nvidia.com DynamoGraphDeployment dynamographdeployments v1alpha1 "$whole" '{status: {}}'
  kubectl apply --server-side --field-manager=owner -f - > /dev/null <<Y
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: graph}
spec:
  envs: [{name: NATS_CREDS, value: c}]
  services:
    Frontend: {componentType: frontend, replicas: 1, envs: [{name: DYN_ROUTER_MODE, value: kv}], extraPodSpec: {mainContainer: {image: "autotune:test", command: [sleep, "100000"]}}}
    Decode:
      componentType: worker
      replicas: 1
      envs: [{name: HF_HOME, value: /models}]
      resources: {limits: {gpu: "1"}}
      extraPodSpec: {terminationGracePeriodSeconds: 5, mainContainer: {image: "autotune:test", $engine}}
Y
  of_graph; scaled='{.spec.services.Decode.replicas}' given='{.spec.services.Decode.extraPodSpec.mainContainer.args}'
  whole_way
  no_graph
fi

if part adapter "a graph whose component has a scaling adapter"; then
  beta
  crd nvidia.com DynamoGraphDeploymentScalingAdapter dynamographdeploymentscalingadapters v1alpha1 "$whole" "$scale"
  beta_graph "scalingAdapter: {}"; of_graph
  scaled='{.spec.components[?(@.name=="Decode")].replicas}'
  serves 1; until_true 20 kubectl get dynamographdeploymentscalingadapter graph-decode
  essence > "$out/before.json"
  go
  check "the whole way ends well" code_is 0 6
  as_before
  check "the adapter asks for 1" is 1 "kubectl get dynamographdeploymentscalingadapter graph-decode -o jsonpath='{.spec.replicas}'"
  check "we never wrote the graph's own scale" is 0 "kubectl get dynamographdeployment graph --show-managed-fields -o json | python3 -c 'import json,sys; print(sum(m[\"manager\"] == \"autotune\" and \"f:replicas\" in json.dumps(m) for m in json.load(sys.stdin)[\"metadata\"][\"managedFields\"]))'"
  check "nothing else of it changed" diff <(essence) "$out/before.json"
  echo "== an adapter whose operator does not answer"
  kill -STOP "$operator"
  go --patience 6s
  check "the run fails" code_is 2
  check "and says that the pods do not go" tells "did not go within 6.0* *s"
  check "the adapter asks for 1 again" is 1 "kubectl get dynamographdeploymentscalingadapter graph-decode -o jsonpath='{.spec.replicas}'"
  kill -CONT "$operator"; sleep 2
  as_before
  kubectl autoscale dynamographdeploymentscalingadapter graph-decode --min=1 --max=2 > /dev/null 2>&1 || kubectl apply -f - > /dev/null <<Y
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: graph-decode}
spec: {minReplicas: 1, maxReplicas: 2, scaleTargetRef: {apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeploymentScalingAdapter, name: graph-decode}}
Y
  go
  is_refused "an autoscaler of the adapter is noticed before anything is touched" "HorizontalPodAutoscaler graph-decode"
  kubectl delete hpa graph-decode > /dev/null
  no_graph
fi

if part two "a graph with two engines, and a coordinator that dies"; then
  beta; beta_graph ""; of_graph
  kubectl patch dynamographdeployment graph --type=json --field-manager=owner -p '[{"op":"add","path":"/spec/components/-","value":{"name":"Prefill","type":"prefill","replicas":2,
    "podTemplate":{"spec":{"containers":[{"name":"main","image":"autotune:test","command":["sleep","100000"]}]}}}}]' > /dev/null
  scaled='{.spec.components[?(@.name=="Decode")].replicas}' other='{.spec.components[?(@.name=="Prefill")].replicas}'
  dies() { # of a run on Decode, while its worker runs
    timeout 100 "$AUTOTUNE" job run --dynamo-graph graph --component Decode --space "$out/space.toml" --image autotune:test --out "$out/answer" 2> "$out/dies.err" > /dev/null & local pid=$!
    until_true 60 grep -q "the worker is Job" "$out/dies.err" || failed=1
    kill -KILL "$(pgrep -P "$pid")" || true; { wait "$pid" || true; } 2> /dev/null
    kubectl patch lease autotune-graph --type=merge -p '{"spec":{"leaseDurationSeconds":1}}' > /dev/null || failed=1
  }
  restore() { code=0; timeout 100 "$AUTOTUNE" restore --dynamo-graph graph "$@" > "$out/go.err" 2>&1 || code=$?; }
  serves 1; go
  check "which of them is meant must be said" tells "the engines are Decode and Prefill: say which with --component"
  dies
  restore --component Prefill
  check "restore of the other one is refused" code_is 2
  check "and names the one that is borrowed from" tells "Decode"
  go --component Prefill
  check "a run on the other one too" code_is 2
  check "the other one was not touched" is 2 "get '$other'"
  restore --component Decode
  check "restore of the one ends well" code_is 0
  as_before
  dies; kubectl delete job autotune-graph > /dev/null; until_true 30 is "" "kubectl get pods -l autotune/target=graph -o name"
  go --component Decode
  check "without a pod, and so without a template, the next run says that restore comes first" tells "autotune restore"
  restore --component Decode
  as_before
  check "the other one was not touched" is 2 "get '$other'"
  no_graph
fi

if part kubeai "Model of KubeAI"; then
  crd kubeai.org Model models v1 "$whole" "$scale"
  kubectl apply --server-side --field-manager=owner -f - > /dev/null <<'Y'
apiVersion: kubeai.org/v1
kind: Model
metadata: {name: llama}
spec: {engine: VLLM, url: "hf://m", features: [TextGeneration], resourceProfile: "nvidia-gpu-h100:1", replicas: 1, minReplicas: 1, maxReplicas: 3, args: ["--max-num-seqs=4"], env: {HF_HOME: /models}}
Y
  resource=model flag=kubeai-model name=llama pods=model=llama scaled='{.spec.replicas}' given='{.spec.args}' want='["--max-num-seqs=W"]'
  serves 1; go
  is_refused "with its autoscaler it is refused, with the remedy" "autoscalingDisabled to true"
  kubectl patch model llama --type=merge --field-manager=owner -p '{"spec":{"autoscalingDisabled":true}}' > /dev/null
  whole_way
  kubectl delete model llama > /dev/null
  until_true 30 is "" "kubectl get pods -l model=llama -o name"
fi

if part lws "LeaderWorkerSet"; then
  crd leaderworkerset.x-k8s.io LeaderWorkerSet leaderworkersets v1 "{$open, properties: {leaderWorkerTemplate: {$open, properties: {leaderTemplate: $pod, workerTemplate: $pod}}}}" "$scale"
  set_of() { kubectl apply --server-side --field-manager=owner -f - > /dev/null <<Y
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: llama}
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: $1
    workerTemplate:
      metadata: {labels: {role: leader}}
      spec: {terminationGracePeriodSeconds: 5, containers: [{name: vllm, image: "autotune:test", $engine, resources: {limits: {nvidia.com/gpu: "1"}}}]}
Y
  }
  resource=leaderworkerset flag=leader-worker-set name=llama pods=leaderworkerset.sigs.k8s.io/name=llama scaled='{.spec.replicas}'
  given='{.spec.leaderWorkerTemplate.workerTemplate.spec.containers[0].args}' want='["--max-num-seqs","W","--port","0"]'
  set_of 2; serves 1; go
  check "groups of two pods are refused, with the reason" tells "over 2 pods (leaderWorkerTemplate.size)"
  check "as a usage mistake" code_is 2
  set_of 1
  whole_way
  kubectl delete leaderworkerset llama > /dev/null
  until_true 30 is "" "kubectl get pods -l $pods -o name"
fi

if part statefulset "StatefulSet"; then
  kubectl apply --server-side --field-manager=owner -f - > /dev/null <<Y
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: chat}
spec:
  replicas: 1
  serviceName: chat
  selector: {matchLabels: {app: stateful}}
  template:
    metadata: {labels: {app: stateful}}
    spec:
      terminationGracePeriodSeconds: 5
      containers: [{name: vllm, image: "autotune:test", $engine, resources: {limits: {nvidia.com/gpu: "1"}}, volumeMounts: [{name: models, mountPath: /models}]}]
  volumeClaimTemplates: [{metadata: {name: models}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
Y
  resource=statefulset flag=statefulset name=chat pods=app=stateful scaled='{.spec.replicas}' given='{.spec.template.spec.containers[0].args}' want='["--max-num-seqs","W","--port","0"]'
  whole_way
  go --dry-run
  check "the worker has the claim of the first pod" grep -q '"claimName": "models-chat-0"' "$out/go.log"
  kubectl delete statefulset chat > /dev/null
  until_true 30 is "" "kubectl get pods -l $pods -o name"
fi

if part refused "a Deployment that belongs to a controller"; then
  kubectl apply -f "$out/chat.yaml" > /dev/null; serving
  resource=deployment flag=deployment name=chat pods=app=chat scaled='{.spec.replicas}'
  uid=$(kubectl create configmap owner -o jsonpath='{.metadata.uid}')
  kubectl patch deployment chat --type=merge -p "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"serving.kserve.io/v1beta1\",\"kind\":\"InferenceService\",\"name\":\"my-service\",\"uid\":\"$uid\",\"controller\":true}]}}" > /dev/null
  go
  is_refused "is refused, with its owner" "Deployment chat belongs to InferenceService my-service"
  kubectl patch deployment chat --type=merge -p '{"metadata":{"ownerReferences":null}}' > /dev/null
  echo "== a Deployment that KEDA scales"
  kubectl apply -f - > /dev/null <<Y
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: keda-hpa-busy
  ownerReferences: [{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, name: busy, uid: "$uid", controller: true}]
spec: {minReplicas: 1, maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}}
Y
  go
  is_refused "is refused, with the ScaledObject and the way to pause it" "kubectl annotate scaledobject busy autoscaling.keda.sh/paused=true"
fi
exit "$failed"
