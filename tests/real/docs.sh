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
[ "$(wc -l < README.md)" -le 150 ] || { echo "README.md has more than 150 lines" >&2; exit 1; }
python3 docs/space-file.py --check
python3 - << 'EOF'
import pathlib, re, sys
wrong = []
pages = {page.resolve(): page.read_text() for page in [*pathlib.Path().glob("*.md"), *pathlib.Path("docs").glob("*.md")]}
prose = {page: re.sub(r"^```.*?^```", "", text, flags=re.M | re.S) for page, text in pages.items()}
anchor = lambda title: re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-")
anchors = {page: {anchor(t) for t in re.findall(r"^#+ (.*)$", text, re.M)} for page, text in prose.items()}
for page, text in prose.items():
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        file, _, name = link.partition("#")
        there = (page.parent / file).resolve() if file else page
        if not there.exists() or (name and name not in anchors.get(there, {name})):
            wrong.append(f"{page.name}: the link {link} leads nowhere")
# The program's own words, without what stands between: placeholders, numbers, and where one message quotes another.
source = "".join(file.read_text() for file in pathlib.Path("src").rglob("*.rs"))
source = re.sub(r"\s+", " ", re.sub(r"\\\n\s*", "", source)).replace("`", "")
table = [line for line in pages[pathlib.Path("docs/troubleshooting.md").resolve()].splitlines() if line.startswith("| ")]
for line in table:
    for message in re.findall(r"`([^`]*)`", line.split(" | ")[0]):
        for words in re.split(r"…|\d+ ?%?|[:;] ", message):
            if len(words.strip(" .,()")) >= 16 and words.strip(" .,()") not in source:
                wrong.append(f"troubleshooting.md: the program does not say: {words.strip()}")
sys.exit("\n".join(wrong) or 0)
EOF

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
