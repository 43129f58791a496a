#!/usr/bin/env bash
# What `autotune export` prints, against a real API server and Kustomize: for each fixture the exported file is one that the server takes, and
# the JSON patch and the Kustomize component lead to the same object as that file.
#   KUBECONFIG=FILE tests/real/manifests.sh [AUTOTUNE]     from anywhere; AUTOTUNE is target/debug/autotune if nothing else is said
# Needs kubectl, python3 and a throwaway cluster without nodes. The namespaces of the fixtures are made and stay; objects are made and deleted.
# Custom kinds that the server does not know get CRDs that take any field, until the script ends: their patches are tried, their fields are not
# checked. Install their own CRDs first, and the fields are checked too. Values files and patch files are named and skipped; units and scripts
# (other than .yaml) are not looked at. FIXTURES="a b" checks those alone. Exit status: 0 all agree, 1 one or more do not, 2 a tool is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
: "${KUBECONFIG:?set KUBECONFIG to a throwaway cluster}"
autotune=${1:-$here/target/debug/autotune}
fixtures=$here/tests/data/manifests
for needed in kubectl python3 "$autotune"; do
  command -v "$needed" >/dev/null || { echo "$needed is missing" >&2; exit 2; }
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cat > "$tmp/outcome.json" <<'J'
{"version": 1, "status": "certified", "because": "a fixture", "simulated": true, "model": "sim-model", "engine_version": "0.32.0+sim",
 "gpus": [], "limits": {"tpot_p99": 0.007, "ttft_p99": 0.15}, "finished": 1795310770.4, "space_file": "space.toml", "seed": 1,
 "cost": {"launches": 1, "probes": 1, "engine_seconds": 1.0}, "left_out": [],
 "best": {"parameters": {"gpu-memory-utilization": 0.94, "max-num-batched-tokens": 256, "max-num-seqs": 16}, "arguments": [],
          "certified_rate": 80.7, "confidence": 0.95}}
J

# The same of a graph with TensorRT-LLM, for fixtures of its workers.
mkdir "$tmp/trtllm"
cat > "$tmp/trtllm/outcome.json" <<'J'
{"version": 1, "status": "certified", "because": "a fixture", "simulated": true, "model": "sim-model", "engine": "dynamo-trtllm",
 "engine_version": "0+sim", "gpus": [], "limits": {"tpot_p99": 0.007, "ttft_p99": 0.15}, "finished": 1795310770.4, "space_file": "space.toml",
 "seed": 1, "cost": {"launches": 1, "probes": 1, "engine_seconds": 1.0}, "left_out": [],
 "best": {"parameters": {"trtllm.kv_cache_config.free_gpu_memory_fraction": 0.8, "trtllm.max_batch_size": 96, "trtllm.max_num_tokens": 4096},
          "arguments": [], "certified_rate": 80.7, "confidence": 0.95}}
J

# kubectl prints several objects one behind the other.
cat > "$tmp/as-list.py" <<'P'
import json, sys
text, decoder, objects, at = sys.stdin.read(), json.JSONDecoder(), [], 0
while text[at:].strip():
    at += len(text[at:]) - len(text[at:].lstrip())
    value, at = decoder.raw_decode(text, at)
    objects += value["items"] if value["kind"] == "List" else [value]
json.dump({"items": objects}, sys.stdout)
P
# What is compared of the objects that kubectl prints: all that a user wrote, and our annotations; KEEP prints the others instead.
cat > "$tmp/essence.py" <<'P'
import json, os, re, sys
objects = json.loads(os.popen(f"{sys.executable} {os.path.dirname(__file__)}/as-list.py").read())["items"]
mine = lambda key: key.startswith("autotune/") != bool(os.environ.get("KEEP"))
def plain(x):
    # What a server makes up anew for each object.
    if isinstance(x, dict): return {k: plain(v) for k, v in x.items() if not k.endswith("controller-uid")}
    if isinstance(x, list): return [plain(v) for v in x]
    return re.sub("^kube-api-access-.*", "kube-api-access", x) if isinstance(x, str) else x
said = {}
for o in map(plain, objects):
    notes = {k: v for k, v in (o["metadata"].get("annotations") or {}).items() if mine(k)}
    rest = {k: v for k, v in o.items() if k not in ("metadata", "status")}
    said[f'{o["kind"]} {o["metadata"]["name"]}'] = {"annotations": notes} if os.environ.get("KEEP") else {"annotations": notes, **rest}
name = os.environ.get("ONLY")
print(json.dumps({k: v for k, v in said.items() if not name or k == name}, indent=1, sort_keys=True))
P

# The patched object with our annotations of the object that `kubectl annotate` printed.
cat > "$tmp/with-annotations.py" <<'P'
import json, sys
patched, annotated = json.load(sys.stdin), json.load(open(sys.argv[1]))
ours = {k: v for k, v in (annotated.get("metadata", {}).get("annotations") or {}).items() if k.startswith("autotune/")}
if ours: patched["metadata"]["annotations"] = {**(patched["metadata"].get("annotations") or {}), **ours}
json.dump(patched, sys.stdout)
P

# Kinds of a file that the server stores in another version without a converter: it would leave out what that version does not know.
cat > "$tmp/stored.py" <<'P'
import json, sys
crds, asked = json.load(open(sys.argv[1]))["items"], json.load(sys.stdin)
for o in asked.get("items", [asked]):
    group, _, version = o["apiVersion"].rpartition("/")
    for crd in (c["spec"] for c in crds):
        stored = next(v["name"] for v in crd["versions"] if v["storage"])
        converts = crd.get("conversion", {}).get("strategy", "None") != "None"
        open_to_all = all(v["schema"]["openAPIV3Schema"].get("x-kubernetes-preserve-unknown-fields") for v in crd["versions"])
        if (crd["group"], crd["names"]["kind"]) == (group, o["kind"]) and stored != version and not converts and not open_to_all:
            print(f'{o["kind"]} {version} is stored as {stored} here, and nothing converts it')
P

# CRDs for the kinds of the fixtures that the server does not know, open to all fields.
cat > "$tmp/unknown.py" <<'P'
import json, sys
known = {(c["spec"]["group"], c["spec"]["names"]["kind"]) for c in json.load(open(sys.argv[1]))["items"]}
kinds = {}
for line in sys.stdin:
    api, kind = line.split()
    group, _, version = api.rpartition("/")
    # Groups of Kubernetes itself have no dot or end with .k8s.io, as does that of a Kustomization, which is no object of a cluster.
    if "." in group and not group.endswith(".k8s.io") and (group, kind) not in known:
        kinds.setdefault((group, kind), set()).add(version)
schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
crds = []
for (group, kind), versions in sorted(kinds.items()):
    plural = kind.lower() + "s"
    crds.append({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{group}"}, "spec": {
        "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
        "versions": [{"name": v, "served": True, "storage": v == max(versions), "schema": schema} for v in sorted(versions)]}})
json.dump({"apiVersion": "v1", "kind": "List", "items": crds}, sys.stdout)
P
kubectl get crd -o json > "$tmp/crds.json"
sed -s -e 's/\r$//' -e '$a\' "$fixtures"/*.yaml | awk '/^apiVersion:/ {a = $2} /^kind:/ && a {print a, $2; a = ""}' | sort -u |
  python3 "$tmp/unknown.py" "$tmp/crds.json" > "$tmp/made.json"
if grep -q CustomResourceDefinition "$tmp/made.json"; then
  trap 'kubectl delete --ignore-not-found -f "$tmp/made.json" > /dev/null; rm -rf "$tmp"' EXIT
  kubectl create -f "$tmp/made.json" > /dev/null
  kubectl wait --for=condition=Established --timeout=60s -f "$tmp/made.json" > /dev/null
fi
kubectl get crd -o json > "$tmp/crds.json"

export_as() { # FORM FILE
  "$autotune" export --outcome "$measured" --manifest "$2" --form "$1" "${containers[@]}" 2> "$tmp/said"
}
same() { # WHAT A B
  if diff -u "$2" "$3" > "$tmp/diff"; then line+=", $1 agrees"; else line+=", $1 DIFFERS"; bad=1; fi
}

agree=0 differ=0 skipped=0
for fixture in "$fixtures"/*.yaml; do
  name=$(basename "$fixture" .yaml)
  case $name in dgd-trtllm*) measured=$tmp/trtllm ;; *) measured=$tmp ;; esac
  [[ -z ${FIXTURES:-} || " $FIXTURES " == *" $name "* ]] || continue
  case $name in
    dgd-v1alpha1-disagg) containers=(--container VllmDecodeWorker) ;;
    dgd-v1beta1-disagg) containers=(--container prefill --container decode) ;;
    llminferenceservice-args) containers=(--container main --container prefill) ;;
    values-llm-d|stormservice) containers=(--container decode) ;;
    kustomize-patch) echo "skip     $name: a part of an object"; skipped=$((skipped+1)); continue ;;
    *) containers=() ;;
  esac
  line="" bad=0
  work=$tmp/$name
  mkdir -p "$work/base" "$work/component"
  export_as file "$fixture" > "$work/$name.yaml" || { echo "FAILED   $name: $(cat "$tmp/said")"; differ=$((differ+1)); continue; }
  taken=$("$fixtures/validate.sh" "$work/$name.yaml") || bad=1
  case $taken in
    ok*) line+="the file is taken" ;;
    skip*) echo "skip     $name: ${taken#*: }" | head -1; skipped=$((skipped+1)); continue ;;
    *) line+="the file is REFUSED: $taken" ;;
  esac

  # Patches are of what is in the cluster: placeholders become values before.
  original=$work/base/original.yaml exported=$work/exported.yaml
  "$fixtures/validate.sh" --render "$fixture" > "$original"
  export_as file "$original" > "$exported"
  stored=$(kubectl create --dry-run=client -o json -f "$original" | python3 "$tmp/as-list.py" | python3 "$tmp/stored.py" "$tmp/crds.json" | sort -u)
  if [ -n "$stored" ]; then echo "part     $name: $line; no patch tried: $stored"; skipped=$((skipped+1)); continue; fi
  kubectl delete --ignore-not-found -f "$original" >/dev/null
  kubectl create --dry-run=server -o json -f "$exported" | python3 "$tmp/essence.py" > "$work/wanted.json"

  if export_as kustomize "$original" > "$work/component/kustomization.yaml"; then
    printf '%s\n' 'resources: [original.yaml]' 'components: [../component]' > "$work/base/kustomization.yaml"
    kubectl kustomize "$work/base" > "$work/kustomized.yaml" || bad=1
    kubectl create --dry-run=server -o json -f "$work/kustomized.yaml" | python3 "$tmp/essence.py" > "$work/kustomized.json" || bad=1
    same "the component" "$work/wanted.json" "$work/kustomized.json"
    [ "$bad" = 0 ] || cat "$tmp/diff"
  else
    line+=", no component ($(grep ^error: "$tmp/said"))"
  fi

  if export_as json-patch "$original" > "$work/patch.json"; then
    # The component names its target.
    of_target() { sed -n "/^  - target:/,/^    patch:/s/^      $1: //p" "$work/component/kustomization.yaml"; }
    kind=$(of_target kind) object=$(of_target name) group=$(of_target group)
    export ONLY="$kind $object"
    python3 "$tmp/essence.py" < <(kubectl create --dry-run=server -o json -f "$exported") > "$work/wanted.json"
    kubectl apply -f "$original" >/dev/null 2>&1
    namespace=$(kubectl get -o json -f "$original" | ONLY="" python3 -c '
import json, sys
o = json.load(sys.stdin)
for i in o.get("items", [o]):
    if i["kind"] == sys.argv[1] and i["metadata"]["name"] == sys.argv[2]: print(i["metadata"].get("namespace", "default"))' "$kind" "$object")
    patch() { kubectl patch "$@" --type=json -p "$(cat "$work/patch.json")" -o json; }
    # Where the file has no annotations, the patch leaves ours out, and a command is printed that adds them: it is run as it is printed.
    annotate=$(grep -o 'kubectl annotate .*' "$tmp/said" || true)
    echo '{}' > "$work/annotated.json"
    [ -z "$annotate" ] || eval "$annotate --dry-run=server -o json" > "$work/annotated.json" || bad=1
    case $kind in
      Pod|Job)
        # The server lets nobody change a running one: the patch is tried on the file.
        kubectl get -o json "$kind" "$object" -n "$namespace" > "$work/live.json"
        patch -f "$work/live.json" --local | python3 "$tmp/with-annotations.py" "$work/annotated.json" > "$work/patched.out"
        kubectl delete -f "$original" --force >/dev/null 2>&1
        python3 "$tmp/essence.py" < "$work/patched.out" > "$work/patched.json"
        python3 - "$work/wanted.json" "$work/patched.json" <<'P'
import json, sys
# What the server fills in by itself as the object lives is no matter of the patch.
for file in sys.argv[1:]:
    said = json.load(open(file))
    for o in said.values():
        o["spec"].pop("selector", None); o["spec"].get("template", {}).pop("metadata", None)
        for pod in (o["spec"], o["spec"].get("template", {}).get("spec", {})):
            for key in ("volumes", "tolerations", "nodeName", "serviceAccount", "serviceAccountName"): pod.pop(key, None)
            for c in pod.get("containers", []): c.pop("volumeMounts", None)
    json.dump(said, open(file, "w"), indent=1, sort_keys=True)
P
        ;;
      *)
        # Of the version that the file has: paths in another one are other paths.
        resource=$kind${group:+.$(of_target version).$group}
        kubectl get "$resource" "$object" -n "$namespace" -o json > "$work/live.json"
        patch "$resource" "$object" -n "$namespace" --dry-run=server \
          | python3 "$tmp/with-annotations.py" "$work/annotated.json" > "$work/patched.out" || bad=1
        kubectl delete -f "$original" >/dev/null
        python3 "$tmp/essence.py" < "$work/patched.out" > "$work/patched.json" || bad=1
        ;;
    esac
    same "the patch" "$work/wanted.json" "$work/patched.json"
    [ "$bad" = 0 ] || cat "$tmp/diff"
    KEEP=1 python3 "$tmp/essence.py" < "$work/live.json" > "$work/others"
    KEEP=1 python3 "$tmp/essence.py" < "$work/patched.out" > "$work/others-after"
    same "every other annotation" "$work/others" "$work/others-after"
    unset ONLY
  else
    line+=", no patch ($(grep ^error: "$tmp/said"))"
  fi
  if [ "$bad" = 0 ]; then agree=$((agree+1)); echo "ok       $name: $line"; else differ=$((differ+1)); echo "WRONG    $name: $line"; fi
done
echo "$agree agree, $differ do not, $skipped skipped or in part"
[ "$differ" -eq 0 ]
