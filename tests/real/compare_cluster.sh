#!/usr/bin/env bash
# `autotune compare --vary` on objects of a real Kubernetes control plane: a Deployment under two values of a flag, the frontend of a
# DynamoGraphDeployment of either version under two values of a variable, and a Model of KubeAI under two load balancers; a comparison that is interrupted, one that is killed, a value that
# does not start, and a router mode that does not show. After each of them the object is as it was.
#   tests/real/compare_cluster.sh [AUTOTUNE]      from the project's root; AUTOTUNE is target/release/autotune by default; five minutes
# Pods share this machine's network, so the engines have fixed ports, which stand for their Services.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/real/kube/bed.sh
kubectl delete deployment chat > /dev/null
python3 tests/real/kube/operator.py > "$out/operator.log" 2>&1 & pids+=($!)
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
port=$(port) graph_port=$(port)
traffic=(--input-tokens 100-200 --output-tokens 16-32 --with shared_prefix_tokens=300 --slo ttft_p95=300ms --duration 2s --sweeps 2)

sed -e "s/\"--max-num-seqs\", \"4\", //; s/--port, \"0\"/--port, \"$port\"/" -e 's/  replicas: 1/  replicas: 1\n  strategy: {type: Recreate}/' "$out/chat.yaml" > "$out/varied.yaml"
fresh() {
  kubectl delete deployment chat --wait > /dev/null 2>&1 || true
  kubectl apply --server-side --field-manager=owner -f "$out/varied.yaml" > /dev/null
  serving
  kubectl get deployment chat -o json > "$out/before.json"
}
chat() { timeout 240 "$AUTOTUNE" compare "http://127.0.0.1:$port" --deployment chat "${traffic[@]}" "$@"; }
in_background() { # LOG: a comparison that measures A
  "$AUTOTUNE" compare "http://127.0.0.1:$port" --deployment chat "${traffic[@]}" --users 8 --vary env.MODE=a,b > "$out/$1.log" 2>&1 & pid=$!
  says 90 "$1" "has the value of A"
}
the_same() { # KIND NAME: what its owner wrote is as it was, and nothing of ours is left
  kubectl get "$1" "$2" -o json | python3 -c '
import json, sys
before, after = json.load(open(sys.argv[1])), json.load(sys.stdin)
assert before["spec"] == after["spec"], (before["spec"], after["spec"])
left = [k for k in after["metadata"].get("annotations", {}) if k.startswith("autotune/")]
assert not left, left' "$out/before.json" && is "" ours
}
as_before() { check "the object is as it was, and nothing of ours is left" the_same "${1:-deployment}" "${2:-chat}"; }

echo "== a Deployment under two values of a flag"
fresh
tried flag chat --users 8,16,32,48 --vary args.enable-prefix-caching=false,true --require 'B:cached_share>=0.5' --out "$out/flag"
check "it is compared" code_is 0 6
sed -n '/replica/p' "$out/flag.log"
check "B keeps more users than A, or all" python3 - "$out/flag/compare.json" <<'P'
import json, sys
found = json.load(open(sys.argv[1]))
a, b = (level for level in found["levels"][-1]["sides"])
assert found["sweeps"] == 2 and a["cached_share"] < 0.1 < 0.5 < b["cached_share"], (a, b)
assert a["ttft"]["p95"] > b["ttft"]["p95"], (a["ttft"], b["ttft"])
P
as_before
check "kubectl describe tells of both values" grep -q AutotuneVaried <(kubectl describe deployment chat)

echo "== a comparison that is interrupted while it measures"
fresh
in_background stopped
kill -TERM "$pid"; ends stopped
check "ends with 5" code_is 5
as_before

echo "== a comparison that is killed"
fresh
in_background killed
killed
check "leaves its value" is a "kubectl get deployment chat -o jsonpath='{.spec.template.spec.containers[0].env[?(@.name==\"MODE\")].value}'"
tried again chat --users 8 --vary env.MODE=a,b
check "the next one is refused, and says how it is brought back" tells "autotune restore --deployment chat -n default"
check "restore ends well" "$AUTOTUNE" restore --deployment chat
serving
as_before

echo "== a value that does not start"
fresh
tried broken chat --users 8 --vary args.max-num-seqs=8,0
check "ends with 4" code_is 4
check "and says why" tells "does not serve with this value"
as_before

crd() { # VERSION
  kubectl apply -f - > /dev/null <<Y
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: dynamographdeployments.nvidia.com}
spec:
  group: nvidia.com
  scope: Namespaced
  names: {kind: DynamoGraphDeployment, plural: dynamographdeployments, singular: dynamographdeployment}
  versions:
  - name: $1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {status: {type: object, x-kubernetes-preserve-unknown-fields: true}, spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {components: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], x-kubernetes-preserve-unknown-fields: true, properties: {name: {type: string}, podTemplate: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {containers: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], x-kubernetes-preserve-unknown-fields: true, properties: {name: {type: string}, env: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], x-kubernetes-preserve-unknown-fields: true, properties: {name: {type: string}}}}}}}}}}}}}}}}}}}
Y
  kubectl wait --for=condition=Established crd/dynamographdeployments.nvidia.com > /dev/null
}
frontend="command: [/autotune, sim-engine, chat-model], args: [--port, \"$graph_port\"]"
graph() { timeout 240 "$AUTOTUNE" compare "http://127.0.0.1:$graph_port" --dynamo-graph graph "${traffic[@]}" --users 8,16 "$@"; }
for version in v1beta1 v1alpha1; do
  echo "== the frontend of a DynamoGraphDeployment, $version"
  crd $version
  if [ $version = v1beta1 ]; then
    spec="components: [{name: Frontend, type: frontend, replicas: 1, podTemplate: {spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: \"autotune:test\", $frontend, env: [{name: DYN_LOG, value: info}], readinessProbe: {httpGet: {path: /health, port: $graph_port}}}]}}}, {name: Decode, type: worker, replicas: 1, podTemplate: {spec: {containers: [{name: main, image: \"autotune:test\", command: [sleep, \"100000\"], resources: {limits: {nvidia.com/gpu: \"1\"}}}]}}}]"
  else
    spec="services: {Frontend: {componentType: frontend, replicas: 1, envs: [{name: DYN_LOG, value: info}], extraPodSpec: {terminationGracePeriodSeconds: 1, mainContainer: {image: \"autotune:test\", $frontend, readinessProbe: {httpGet: {path: /health, port: $graph_port}}}}}, Decode: {componentType: worker, replicas: 1, resources: {limits: {gpu: \"1\"}}, extraPodSpec: {mainContainer: {image: \"autotune:test\", command: [sleep, \"100000\"]}}}}"
  fi
  kubectl delete deployment chat --wait > /dev/null 2>&1 || true
  printf 'apiVersion: nvidia.com/%s\nkind: DynamoGraphDeployment\nmetadata: {name: graph}\nspec: {%s}\n' $version "$spec" | kubectl apply --server-side --field-manager=owner -f - > /dev/null
  until_true 60 curl -sf "http://127.0.0.1:$graph_port/health"
  until_true 60 is successful "kubectl get dynamographdeployment graph -o jsonpath='{.status.state}'"
  kubectl get dynamographdeployment graph -o json > "$out/before.json"
  tried mode graph --vary Frontend:env.DYN_LOG=warn,debug --out "$out/$version"
  check "two values of a variable are compared" code_is 0 3 6
  check "over both sweeps" is 2 "python3 -c 'import json; print(json.load(open(\"$out/$version/compare.json\"))[\"sweeps\"])'"
  as_before dynamographdeployment graph
  tried mode graph --vary Frontend:env.DYN_ROUTER_MODE=round_robin,kv
  check "a router mode that does not show ends with 7" code_is 7
  check "and what was seen" tells "kv_events"
  as_before dynamographdeployment graph
  kubectl delete dynamographdeployment graph > /dev/null
  until_true 30 is "" "kubectl get pods -l nvidia.com/dynamo-graph-deployment-name=graph -o name"
  kubectl delete crd dynamographdeployments.nvidia.com > /dev/null
done

echo "== a Model of KubeAI under two load balancers, and under two values of a variable"
# Of the real definition what is read here; KubeAI's own proxy, which balances, is not there: the address is that of the only pod.
kubectl apply -f - > /dev/null <<'Y'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: models.kubeai.org}
spec:
  group: kubeai.org
  scope: Namespaced
  names: {kind: Model, plural: models, singular: model}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas.all}}
    schema: {openAPIV3Schema: {type: object, properties: {status: {type: object, x-kubernetes-preserve-unknown-fields: true}, spec: {type: object, properties: {engine: {type: string}, url: {type: string}, features: {type: array, items: {type: string}}, resourceProfile: {type: string}, replicas: {type: integer}, minReplicas: {type: integer}, autoscalingDisabled: {type: boolean}, args: {type: array, items: {type: string}}, env: {type: object, additionalProperties: {type: string}}, loadBalancing: {type: object, default: {}, properties: {strategy: {type: string, enum: [LeastLoad, PrefixHash], default: LeastLoad}}}}}}}}
Y
kubectl wait --for=condition=Established crd/models.kubeai.org > /dev/null
model_port=$(port)
kubectl apply --server-side --field-manager=owner -f - > /dev/null <<Y
apiVersion: kubeai.org/v1
kind: Model
metadata: {name: llama}
spec: {engine: VLLM, url: "hf://m", features: [TextGeneration], resourceProfile: "nvidia-gpu-h100:1", replicas: 1, minReplicas: 1, autoscalingDisabled: true, args: ["--port=$model_port"]}
Y
until_true 60 curl -sf "http://127.0.0.1:$model_port/health"
kubectl get model llama -o json > "$out/before.json"
model() { timeout 240 "$AUTOTUNE" compare "http://127.0.0.1:$model_port" --kubeai-model llama "${traffic[@]}" --users 8,16 "$@"; }
pods() { kubectl get pods -l model=llama -o jsonpath='{.items[*].metadata.uid}'; }
first=$(pods)
tried balancer model --vary loadBalancing.strategy=LeastLoad,PrefixHash
check "two load balancers are compared" code_is 0 3 6
check "and no pod was replaced for them" is "$first" pods
as_before model llama
tried unknown model --vary loadBalancing.strategem=LeastLoad,PrefixHash
check "a field that it does not have is refused" tells "field not declared in schema"
as_before model llama
tried variable model --vary env.MODE=a,b
check "two values of a variable are compared" code_is 0 3 6
as_before model llama
exit "$failed"
