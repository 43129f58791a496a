# A Kubernetes control plane with a node of one GPU, for the checks of tests/real/cluster*.sh, which source this from the project's root with
# their arguments, [AUTOTUNE [PART...]]: functions to check with, a folder $out, kubectl on PATH, KUBECONFIG, and a Deployment `chat` of the simulated engine that serves.
# All of it ends with the script. KUBELET_OPTIONS are more options of the node's kubelet, and KUBE names the control plane's folder (default
# .testbeds/kube), built by setup.sh where it is missing.
set -euo pipefail
AUTOTUNE=$(realpath "${1:-target/release/autotune}")
parts=("${@:2}")
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
node() { # NAME [OPTION...]: a node with one GPU, of a kubelet that runs containers as processes; its process is the last of $pids
  python3 tests/real/kube/kubelet.py --node "$1" --gpus 1 --root "$out/$1" --binary-map "/autotune=$AUTOTUNE" "${@:2}" > "$out/$1.log" 2>&1 & pids+=($!)
  until kubectl get node "$1" > /dev/null 2>&1; do sleep 0.2; done
}

failed=0
check() { # WHAT COMMAND...
  local what=$1; shift
  if "$@" > "$out/check.log" 2>&1; then echo "  ok   $what"; else echo "  FAIL $what"; sed 's/^/       /' "$out/check.log"; failed=1; fi
}
is() { local got; got=$(eval "$2"); [ "$got" = "$1" ] || { echo "got: $got"; return 1; }; }
until_true() { # SECONDS COMMAND...
  local until=$((SECONDS + $1)); shift
  until "$@" > /dev/null 2>&1; do [ "$SECONDS" -lt "$until" ] || { echo "waited in vain: $*"; return 1; }; sleep 0.2; done
}
part() { # NAME TITLE: whether this part was asked for
  [ "${#parts[@]}" = 0 ] || [[ " ${parts[*]} " = *" $1 "* ]] || return 1
  echo "== $2"
  begins
}
begins() { :; } # what a script does before each of its parts
afresh() { # a service that serves, and no outcome
  kubectl delete configmap autotune-chat-outcome > /dev/null 2>&1 || true
  if [ -n "$(note 2> /dev/null; ours)" ]; then          # left by a part that failed
    kubectl delete deployment/chat job/autotune-chat configmap/autotune-chat lease/autotune-chat --ignore-not-found > /dev/null
  fi
  kubectl apply -f "$out/chat.yaml" > /dev/null && serving
}
replicas() { kubectl get deployment chat -o jsonpath='{.spec.replicas}'; }
# The outcome stays.
ours() { kubectl get jobs,configmaps,leases,services,secrets -o name | grep autotune- | grep -v outcome || true; }
note() { kubectl get deployment chat -o jsonpath='{.metadata.annotations.autotune/original-replicas}'; }
named() { kubectl get deployment chat -o jsonpath='{.metadata.annotations.autotune/run}'; }
arguments() { kubectl get deployment chat -o jsonpath='{.spec.template.spec.containers[0].args}'; }
serving() { kubectl rollout status deployment chat --timeout=60s > /dev/null; }
as_it_was() { # what every end of a run must leave: the scale, no note, nothing of ours, a service that serves
  check "the scale came back" is 1 replicas
  check "no note is left on the target" is "" "note; named"
  check "nothing of ours is left" is "" ours
  check "the service serves again" serving
}
user() { # AGENT: with AUDIT=1, what programs that call themselves so wrote
  python3 - "$KUBE/run-$NAME/audit.log" "$1" <<'PY'
import json, sys
seen = set()
for line in open(sys.argv[1]):
    entry = json.loads(line)
    if entry["verb"] in ("create", "update", "patch", "delete", "deletecollection") and entry.get("userAgent", "").startswith(sys.argv[2]):
        ref = entry["objectRef"]
        if "selfsubjectaccessreviews" == ref["resource"]:
            continue
        name = ref.get("name") or entry.get("requestObject", {}).get("metadata", {}).get("name") or "*"
        if ref["resource"] == "events":
            name = "*"
        seen.add(f'{entry["verb"]} {ref["resource"]}{"/" + ref["subresource"] if ref.get("subresource") else ""} {name}')
print("\n".join(sorted(seen)))
PY
}
job=("$AUTOTUNE" job run --deployment chat --space "$out/space.toml" --image autotune:test --out "$out/answer")
run() { "${job[@]}" "$@"; }
says() { until_true "$1" grep -q -e "$3" "$out/$2.log" || { cat "$out/$2.log"; return 1; }; } # SECONDS LOG WORDS
# What ran last: its exit status in $code, its words in the file $said.
code=0 said=/dev/null
tried() { # LOG COMMAND...
  code=0 said=$out/$1.log; "${@:2}" > "$said" 2>&1 || code=$?
}
go() { # [OPTION...]: a coordinator of the target --$flag $name; its output in go.log, its words in go.err, and in go.code how it ended
  code=0 said=$out/go.err
  timeout 240 "$AUTOTUNE" job run --"$flag" "$name" --space "$out/space.toml" --image autotune:test --out "$out/answer" "$@" > "$out/go.log" 2> "$said" || code=$?
  echo "exit $code" > "$out/go.code"
}
tells() { grep -q -e "$1" "$said" || { cat "$said"; return 1; }; }
code_is() { # CODE...
  [[ " $* " = *" $code "* ]] || { echo "exit code $code"; cat "$said"; tail -n 5 "$out"/pod-* 2> /dev/null || true; return 1; }
}
ended_well() { code_is 0 6; }
outcome() { kubectl get configmap autotune-chat-outcome -o jsonpath='{.data.outcome\.json}' | python3 -c 'import json,sys; assert json.load(sys.stdin)["best"]'; }
# A coordinator in the background: its process is $pid, and what it says is in $out/LOG.log.
begin() { swapped "" "" "$@"; } # LOG [OPTION...]
swapped() { # FROM TO LOG [OPTION...]: with TO in the place of FROM among its words
  local words=("${job[@]/"$1"/"$2"}")
  "${words[@]}" "${@:4}" > "$out/$3.log" 2>&1 & pid=$!
}
killed() { kill -KILL "$pid" 2> /dev/null || true; wait "$pid" 2> /dev/null || true; lease_ends; }
# A holder that is dead is waited for; cluster.sh waits for the whole minute.
lease_ends() { kubectl patch lease autotune-chat --type=merge -p '{"spec":{"leaseDurationSeconds":1}}' > /dev/null 2>&1 || true; }
works() { # the worker of the coordinator $1 shows that it measures
  says 60 "$1" "the worker is Job"
  says 60 "$1" "req/s"
}
evict() { # POD
  kubectl create --raw "/api/v1/namespaces/default/pods/$1/eviction" -f - > /dev/null <<< \
    "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"$1\",\"namespace\":\"default\"}}"
}
gone() { ! kill -0 "$1" 2> /dev/null; }
ends() { # LOG: waits for the coordinator; its exit status in $code
  until_true 180 gone "$pid" > /dev/null || { echo "  FAIL the coordinator does not end"; failed=1; kill -KILL "$pid"; }
  code=0 said=$out/$1.log; wait "$pid" 2> /dev/null || code=$?
}

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
# shellcheck disable=SC2086
node gpu-node ${KUBELET_OPTIONS:-}
kubectl apply -f "$out/chat.yaml" > /dev/null
serving
