#!/usr/bin/env bash
# validate.sh DIR|FILE...: are these manifests ones a Kubernetes API server takes?
#
# Needs KUBECONFIG (a throwaway cluster: the namespaces the files name are
# created in it, nothing else is) and kubectl in PATH. Each file whose kinds the
# server knows goes through
#   kubectl apply --dry-run=server --validate=strict
# that is: unknown fields, wrong types and the kinds' own rules. Not duplicate
# keys: kubectl turns YAML into JSON first, and keeps the last of them in silence.
# Files of kinds the server does not know (custom resources, Helm values) are
# named and skipped; install their CRDs first, and they are checked too.
#
# Before that, in a temporary copy, placeholders become values:
#   replicas: ${x} or X_PLACEHOLDER   1
#   ${lower_case}                     lower-case     (Terraform, envsubst)
#   $${                               ${             (Terraform's escape)
#   X_PLACEHOLDER                     x-placeholder
#   a line that is {{ ... }} alone    dropped        (Helm: if, end, include)
#   {{ ... }} within a line           1 after "replicas:" or "...Threshold:", else x
# validate.sh --render FILE prints such a copy and asks nobody.
# Exit status: 0 all checked files taken, 1 one or more refused, 2 wrong use.
set -euo pipefail
render() {
  sed -E \
    -e '/^[[:space:]]*\{\{[^}]*\}\}[[:space:]]*$/d' \
    -e 's/^([[:space:]]*(replicas|[A-Za-z]*Threshold):[[:space:]]*)\{\{[^}]*\}\}/\11/' \
    -e 's/\{\{[^}]*\}\}/x/g' \
    -e 's/^([[:space:]]*replicas:[[:space:]]*)(\$\{[a-z0-9_]+\}|[A-Z0-9_]+_PLACEHOLDER)/\11/' \
    -e 's/\$\$\{/\x01/g' \
    -e ':a; s/\$\{([a-z0-9-]*)_([a-z0-9_-]*)\}/${\1-\2}/; ta' \
    -e 's/\$\{([a-z][a-z0-9-]*)\}/\1/g' \
    -e 's/\x01/${/g' \
    -e ':b; s/([A-Z0-9]+)_([A-Z0-9_]*PLACEHOLDER)/\L\1-\2/; tb' \
    -e 's/-PLACEHOLDER/-placeholder/g' "$1"
}

if [ "${1-}" = --render ] && [ $# -eq 2 ]; then render "$2"; exit; fi
: "${KUBECONFIG:?set KUBECONFIG to a throwaway cluster}"
[ $# -gt 0 ] || { echo "usage: $0 DIR|FILE..." >&2; exit 2; }
command -v kubectl >/dev/null || { echo "kubectl is not in PATH" >&2; exit 2; }

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# the kinds of one apiVersion, asked once each; api-resources would name the
# preferred version of each group only
kubectl get --raw /version >/dev/null || exit 2
serves() { # APIVERSION KIND; a List is kubectl's own
  [ "$1 $2" != "v1 List" ] || return 0
  local path=/apis/$1 list=$tmp/api-${1//\//_}
  [ "$1" = "${1#*/}" ] && path=/api/$1
  [ -f "$list" ] || kubectl get --raw "$path" 2>/dev/null | grep -o '"kind":"[^"]*"' > "$list" || true
  grep -qxF "\"kind\":\"$2\"" "$list"
}

# "apiVersion kind" of each document of a rendered file, read at column 0
kinds() {
  tr -d '\r' < "$1" | awk '
    function out() { if (a != "" || k != "") print (a == "" ? "-" : a), (k == "" ? "-" : k); a = k = "" }
    /^---([[:space:]]|$)/ {out()}
    /^apiVersion:/ {a = $2}
    /^kind:/ {k = $2}
    END {out()}'
}

files=()
for arg in "$@"; do
  if [ -d "$arg" ]; then
    for f in "$arg"/*.yaml "$arg"/*.yml; do [ -f "$f" ] && files+=("$f"); done
  else
    files+=("$arg")
  fi
done

[ ${#files[@]} -gt 0 ] || { echo "no manifests in: $*" >&2; exit 2; }

ok=0 skipped=0 refused=0
for f in "${files[@]}"; do
  r=$tmp/$(basename "$f")
  render "$f" > "$r"
  kinds "$r" > "$tmp/kinds"
  if [ ! -s "$tmp/kinds" ]; then
    echo "skip     $f: no apiVersion and kind (Helm values?)"; skipped=$((skipped+1)); continue
  fi
  unknown=
  while read -r version kind; do
    serves "$version" "$kind" || unknown+="${unknown:+, }$version $kind"
  done < "$tmp/kinds"
  if [ -n "$unknown" ]; then
    echo "skip     $f: not a kind of this server: $unknown"; skipped=$((skipped+1)); continue
  fi
  # a dry run is refused where the namespace is missing
  for ns in $(tr -d '\r' < "$r" | sed -nE 's/^metadata:.*[{ ]namespace: *([a-z0-9-]+).*/\1/p; s/^ {2,4}namespace: *([a-z0-9-]+).*/\1/p' | sort -u); do
    kubectl get namespace "$ns" >/dev/null 2>&1 || kubectl create namespace "$ns" >/dev/null
  done
  if out=$(kubectl apply --dry-run=server --validate=strict -f "$r" 2>&1); then
    echo "ok       $f: $(paste -sd, "$tmp/kinds")"; ok=$((ok+1))
    printf '%s\n' "$out" | grep -i '^warning' | sed 's/^/           /' || true
  else
    echo "refused  $f"; refused=$((refused+1))
    printf '%s\n' "$out" | sed 's/^/           /'
  fi
done
echo "$ok taken, $refused refused, $skipped skipped"
[ "$refused" -eq 0 ]
