#!/usr/bin/env bash
# Are jobs/ and the workers that we make what Kubernetes 1.33, 1.34, 1.35 and 1.36 publish as their API? Fields that a version does not know are errors.
#   tests/real/kube/schemas.sh [OBJECTS.json ...]      from anywhere; OBJECTS are more files of objects to be checked, one JSON after another
# The OpenAPI documents come from the Go module proxy, 18 MB each version, pinned by version and sum, and stay in .testbeds/kube-schemas.
# Needs Go, Python 3 (its standard library alone) and kubectl of tests/real/kube/setup.sh. Takes seconds; the first time a minute at most.
# env: KUBE (folder of the control plane, .testbeds/kube)
# Exit codes: 0 all is known, 1 something is not, 3 the schemas cannot be had here.
set -euo pipefail
files=(); for file; do files+=("$(realpath "$file")"); done
cd "$(dirname "$0")/../../.."
KUBE=${KUBE:-$PWD/.testbeds/kube}; SCHEMAS=$PWD/.testbeds/kube-schemas
declare -A SUM=(
  [v1.33.13]=h1:bmH31xUdSzeA5vk0wZAK9MZp11mdLuzUSeKk0qN3hPQ=
  [v1.34.4]=h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk=
  [v1.35.4]=h1:o/8dBC/pHVpYoGV4OAIytAlNPZbdYVTXJHoYvXC4qzM=
  [v1.36.3]=h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o=
)
missing() { printf 'schemas: %s\n' "$*" >&2; exit 3; }
for tool in go python3; do command -v $tool > /dev/null || missing "'$tool' is missing"; done
[ -x "$KUBE/bin/kubectl" ] || missing "$KUBE/bin/kubectl is missing: tests/real/kube/setup.sh builds it"
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT

# Version 3 of OpenAPI, not swagger.json of the same module: that one cannot say that a quantity may be a number, nor a port a name.
for version in "${!SUM[@]}"; do
  [ ! -d "$SCHEMAS/$version" ] || continue
  printf 'module schemas\n' > "$out/go.mod"
  got=$(cd "$out" && GOFLAGS=-mod=mod GOWORK=off go mod download -json "k8s.io/kubernetes@$version") || missing "no k8s.io/kubernetes@$version from $(go env GOPROXY): $got"
  read -r sum folder < <(python3 -c 'import json, sys; m = json.load(sys.stdin); print(m["Sum"], m["Dir"])' <<< "$got")
  [ "$sum" = "${SUM[$version]}" ] || { echo "schemas: k8s.io/kubernetes@$version has the sum $sum, expected ${SUM[$version]}" >&2; exit 1; }
  mkdir -p "$SCHEMAS"; rm -rf "$SCHEMAS/$version.new"
  cp -r "$folder/api/openapi-spec/v3" "$SCHEMAS/$version.new"; chmod -R u+w "$SCHEMAS/$version.new"
  mv "$SCHEMAS/$version.new" "$SCHEMAS/$version"
done
mapfile -t versions < <(for version in "${!SUM[@]}"; do echo "$SCHEMAS/$version"; done | sort -V)

# kubectl makes JSON of YAML without a server only on its way to a change: a label.
export KUBECONFIG=/dev/null
json() { "$KUBE/bin/kubectl" label --local -f "$1" schemas=checked -o json; }
"$KUBE/bin/kubectl" kustomize jobs > "$out/jobs.yaml"
json "$out/jobs.yaml" > "$out/jobs.json"
json tests/data/workers/rendered-two.yaml > "$out/rendered-two.json"

# Would it be seen? The same documents, each with one mistake.
mistake() { # SED-EXPRESSION WHAT-IS-TO-BE-SAID
  sed "$1" "$out/jobs.yaml" > "$out/mistake.yaml"
  ! cmp -s "$out/jobs.yaml" "$out/mistake.yaml" || { echo "schemas: jobs/ has no place for the mistake $1" >&2; exit 1; }
  json "$out/mistake.yaml" > "$out/mistake.json"
  local version
  for version in "${versions[@]}"; do
    if python3 tests/real/kube/schemas.py "$version" "$out/mistake.json" > "$out/said"; then echo "schemas: $1 went unnoticed" >&2; exit 1; fi
    grep -qF "$2" "$out/said" || { echo "schemas: $1 is not what was noticed:" >&2; cat "$out/said" >&2; exit 1; }
  done
  echo "  seen: $2"
}
mistake 's/backoffLimit:/backofLimit:/' 'spec.backofLimit: this version knows no such field'
mistake 's/readOnlyRootFilesystem: true/readOnlyRootFilesystem: "yes"/' 'readOnlyRootFilesystem: expected a boolean'
mistake '/restartPolicy:/s/restartPolicy/restartPolcy/' 'spec.template.spec.restartPolcy: this version knows no such field'
mistake 's/^apiVersion: batch\/v1$/apiVersion: batch\/v1beta9/' 'this version knows no batch/v1beta9 Job'
mistake '/^roleRef:/,/^[a-z]*:$/s/  kind: Role/  sort: Role/' 'roleRef.kind: is missing'

failed=0
for version in "${versions[@]}"; do
  python3 tests/real/kube/schemas.py "$version" "$out/jobs.json" "$out/rendered-two.json" tests/data/workers/*.json "${files[@]}" || failed=1
done
exit "$failed"
