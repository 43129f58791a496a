#!/usr/bin/env bash
# Runs every `sh` block of README.md, CONTRIBUTING.md and docs/ as it is printed, from the root of a clean clone, in the order of the files.
#   tests/real/docs.sh [AUTOTUNE=target/release/autotune]
# AUTOTUNE stands on the PATH, as `cargo install` would put it. A word behind `sh` says what a block needs: such blocks are listed as skipped.
# It also checks the links, the quoted messages of troubleshooting.md, and the page that is made from the schema. Takes four minutes; needs git,
# curl, python3 and the free port 8000. What is not committed is not checked. Exit status: 3 where the port is taken.
set -euo pipefail
cd "$(dirname "$0")/../.."
AUTOTUNE=$(realpath "${1:-target/release/autotune}")
[ -x "$AUTOTUNE" ] || { echo "docs: there is no program $AUTOTUNE; cargo build --release makes it" >&2; exit 1; }
if (exec 3<> /dev/tcp/127.0.0.1/8000) 2> /dev/null; then echo "docs: something listens on port 8000, which the documents use" >&2; exit 3; fi
[ -z "$(git status --porcelain)" ] || echo "docs: what is not committed is not checked" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! git clone -q . "$work/clone" 2> /dev/null; then
  echo "docs: git does not clone this folder, so a copy of it is checked" >&2
  mkdir -p "$work/clone"
  tar -cf - --exclude=./target --exclude=./.git --exclude=./.testbeds . | tar -xf - -C "$work/clone"
fi
mkdir "$work/bin" "$work/blocks" "$work/home"
ln -s "$AUTOTUNE" "$work/bin/autotune"
cd "$work/clone"

echo "== links, messages, generated pages"
python3 docs/check.py

# One file a block: its number, what it needs behind a dash, and where it stands.
awk -v to="$work/blocks" '
  FNR == 1 { inside = 0 }
  /^ *```/ && !inside {
    inside = 1; file = ""
    if ($1 ~ /^```(bash|shell|console|zsh)$/) { print FILENAME ":" FNR ": commands stand in blocks of the language sh" > "/dev/stderr"; exit 1 }
    if ($1 == "```sh") { file = sprintf("%s/%03d%s", to, ++number, $2 == "" ? "" : "-" $2); print "# " FILENAME ":" FNR > file }
    next
  }
  /^ *```/ { inside = 0; next }
  inside && file != "" { print > file }
' README.md CONTRIBUTING.md docs/*.md

skipped=()
for block in "$work"/blocks/*; do
  where=$(sed -n '1s/^# //p' "$block") needs=${block##*/} needs=${needs:4}
  case $needs in
    "") ;;
    needs-gpu | needs-cluster | needs-vllm | needs-build | needs-data | installs)
      skipped+=("$where ($needs): $(sed -n 2p "$block")")
      continue
      ;;
    *) echo "$where: nobody knows what '$needs' means" >&2; exit 1 ;;
  esac
  echo "== $where"
  sed 1d "$block"
  code=0 begun=$SECONDS
  # timeout leads a process group of its own: what a block leaves running ends with it.
  env -u KUBECONFIG -u CUDA_VISIBLE_DEVICES HOME="$work/home" PATH="$work/bin:$PATH" timeout 180 bash -eu "$block" > "$work/output" 2>&1 & group=$!
  wait "$group" || code=$?
  kill -- "-$group" 2> /dev/null || true
  # 6 is an honest answer of a busy machine: the quickstart was not certified.
  if [ "$code" != 0 ] && [ "$code" != 6 ]; then
    cat "$work/output"
    echo "$where ended with code $code" >&2
    exit 1
  fi
  echo "-- code $code after $((SECONDS - begun)) s"
done
echo "== skipped"
printf '%s\n' "${skipped[@]}"
echo "== every other command of the documents ran, in $SECONDS s"
