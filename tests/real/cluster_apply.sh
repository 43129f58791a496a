#!/usr/bin/env bash
# `autotune job run --apply` on a real Kubernetes control plane: what changes and what does not (by the audit log), conflicts, a target that
# does not become ready with its new arguments, one that a repository keeps, one that is edited meanwhile, and coordinators that die.
#   tests/real/cluster_apply.sh [AUTOTUNE]      from the project's root; AUTOTUNE is target/release/autotune by default; four minutes
set -euo pipefail
cd "$(dirname "$0")/../.."
export AUDIT=1
. tests/real/kube/bed.sh

# A winner that differs from what the Deployment has.
sed -i 's/values = \[4, 16, 64\], default = 4/values = [16, 64], default = 16/' "$out/space.toml"
fresh() { # the Deployment anew, as its owner applies it
  kubectl delete deployment chat --wait > /dev/null 2>&1 || true
  kubectl delete configmap autotune-chat-outcome > /dev/null 2>&1 || true
  kubectl apply --server-side --field-manager=owner -f "$out/chat.yaml" > /dev/null
  serving
}
before='["--max-num-seqs","4","--port","0"]'

echo "== arguments that another manager owns"
fresh
tried conflict run --apply
check "are not taken: a usage mistake" code_is 2
check "which names the manager, the field and the way out" grep -q 'conflict.*"owner".*args.*--force-conflicts' <(tr '\n' ' ' < "$out/conflict.log")
check "nothing was scaled" is 1 replicas
check "nothing of ours is left" is "" ours

echo "== arguments that may be taken"
kubectl get deployment chat -o json > "$out/before.json"
tried apply run --apply --force-conflicts
check "the run ends well" code_is 0
best=$(python3 -c "import json; print(json.load(open('$out/answer/outcome.json'))['best']['parameters']['max-num-seqs'])" || echo none)
check "the Deployment has the winner's arguments" is "[\"--max-num-seqs\",\"$best\",\"--port\",\"0\"]" arguments
check "and says where they come from" is "true: no measurement of a real engine" "kubectl get deployment chat -o jsonpath='{.metadata.annotations.autotune/simulated}'"
check "and which outcome that is: the one that came back" is "sha256:$(sha256sum < "$out/answer/outcome.json" | cut -d' ' -f1)" "kubectl get deployment chat -o jsonpath='{.metadata.annotations.autotune/outcome}'"
check "and that stays in the cluster" is "$(sha256sum < "$out/answer/outcome.json")" "kubectl get configmap autotune-chat-outcome -o jsonpath='{.data.outcome\.json}' | sha256sum"
check "the field manager is ours, by Apply" is "Apply" "kubectl get deployment chat --show-managed-fields -o json | python3 -c 'import json,sys; print(*{m[\"operation\"] for m in json.load(sys.stdin)[\"metadata\"][\"managedFields\"] if m[\"manager\"] == \"autotune\" and \"f:args\" in json.dumps(m)})'"
check "all else is as it was" python3 - "$out/before.json" <(kubectl get deployment chat -o json) "$best" <<'PY'
import json, sys
before, after = (json.load(open(path)) for path in sys.argv[1:3])
before["spec"]["template"]["spec"]["containers"][0]["args"][1] = sys.argv[3]
assert before["spec"] == after["spec"], (before["spec"], after["spec"])
kept = {k: v for k, v in after["metadata"]["annotations"].items() if not k.startswith(("autotune/", "deployment.kubernetes.io/"))}
assert kept == {k: v for k, v in before["metadata"].get("annotations", {}).items() if not k.startswith("deployment.")}, kept
assert before["metadata"]["labels"] == after["metadata"]["labels"]
PY
as_it_was
describe=$(kubectl describe deployment chat)
for reason in AutotuneBorrowed AutotuneTuning AutotuneTuned AutotuneApplied AutotuneGivenBack; do
  check "kubectl describe tells $reason" grep -q "$reason" <<< "$describe"
done
check "the audit log knows of these writes and no other" diff <(user autotune/ | grep -v "^update leases") - <<'T'
create configmaps autotune-chat
create configmaps autotune-chat-outcome
create events *
create jobs autotune-chat
create leases autotune-chat
create pods *
delete configmaps autotune-chat
delete jobs autotune-chat
delete leases autotune-chat
patch configmaps autotune-chat
patch configmaps autotune-chat-outcome
patch deployments chat
patch deployments/scale chat
patch jobs autotune-chat
T

echo "== a target that does not become ready with its new arguments"
fresh
# vLLM wants at least as many tokens in a batch as sequences: with 8, only the old argument starts.
kubectl delete deployment chat --wait > /dev/null
sed 's/args: \[--max-num-seqs, "4"/args: [--max-num-batched-tokens, "8", --max-num-seqs, "4"/' "$out/chat.yaml" | kubectl apply -f - > /dev/null
serving
picky='["--max-num-batched-tokens","8","--max-num-seqs","4","--port","0"]'
tried rollback run --apply --force-conflicts
check "the run fails" code_is 1
check "and says why, in the engine's words" tells "did not become ready with the new arguments.*max-num-batched-tokens\|did not become ready.*code"
check "the former arguments are back" is "$picky" arguments
check "no annotation of ours stays" is "" "kubectl get deployment chat -o jsonpath='{.metadata.annotations}' | grep -o autotune/ || true"
as_it_was

echo "== a target that a repository keeps"
fresh
kubectl annotate deployment chat argocd.argoproj.io/tracking-id=apps:apps/Deployment:default/chat > /dev/null
tried gitops run --apply
check "the run ends well" code_is 0
check "says who keeps it" tells "Argo CD keeps"
check "the arguments are as they were" is "$before" arguments
check "the change is in a file that the server takes" bash -c "kubectl apply --server-side --field-manager=check --force-conflicts --dry-run=server -o jsonpath='{.spec.template.spec.containers[0].args}' -f $out/answer/patch.yaml | grep -v '\"4\"'"
as_it_was

echo "== a target that is edited while the worker tunes"
fresh
begin edited --apply --force-conflicts; says 60 edited "the worker is Job"
kubectl set env deployment chat EDITED=1 > /dev/null
ends edited
check "the run ends well" code_is 0
check "it was noticed at once" tells "somebody edited"
check "the arguments are as they were" is "$before" arguments
as_it_was

for moment in "waiting until its pods" "the worker is Job" "the outcome is in" "has new arguments" "serves with its new"; do
  echo "== a coordinator that is killed when it says: $moment"
  fresh
  begin killed --apply --force-conflicts; says 90 killed "$moment"
  killed
  tried again run --apply --force-conflicts
  check "the next one goes on and ends well" code_is 0
  [ "$code" = 0 ] || cat "$out/killed.log" "$out/again.log"
  check "the Deployment has the winner's arguments" test "$(arguments)" != "$before"
  as_it_was
done

echo "== restored before the new arguments were proved"
fresh
begin killed --apply --force-conflicts; says 90 killed "has new arguments"
killed
check "restore ends well" "$AUTOTUNE" restore --deployment chat
check "the former arguments are back" is "$before" arguments
as_it_was
exit "$failed"
