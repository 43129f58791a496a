#!/usr/bin/env bash
# The binary that jobs/Dockerfile builds, in a root file system that holds nothing else: read-only but for one folder, as UID 1000 and
# process 1, without a shell, /etc/passwd, HOME, PATH or libraries. It helps, checks, installs itself, tunes, stops, and finds an API server.
#   tests/real/portable.sh [AUTOTUNE]      without AUTOTUNE it builds the binary, below target/portable (five minutes, and seconds once it is there)
# Takes two minutes besides. Needs Linux namespaces (root, or a kernel that lets anybody have them), cc with a static libc, readelf, python3, openssl.
# Exit codes: 0 all is well, 1 something is not, 3 it cannot be tried here.
set -euo pipefail
skip() { printf 'portable: not tried here: %s\n' "$*" >&2; exit 3; }

if [ "${1:-}" != --inside ]; then
  if [ $# -gt 0 ]; then AUTOTUNE=$(realpath "$1"); fi
  cd "$(dirname "$0")/../.."
  for tool in unshare setpriv chroot mount cc readelf python3 openssl; do command -v $tool > /dev/null || skip "'$tool' is missing"; done
  own=(); [ "$(id -u)" = 0 ] || own=(--user --map-root-user)
  spaces=("${own[@]}" --mount --net --pid --fork --kill-child --mount-proc)
  unshare "${spaces[@]}" true 2> /dev/null || skip "no namespaces: neither root, nor a kernel that lets anybody have them"
  if [ $# = 0 ]; then
    # The very line of the Dockerfile, in a folder of its own: other flags would build everything else anew.
    build=$(sed -n 's/^RUN //p' jobs/Dockerfile)
    echo "== $build"
    CARGO_TARGET_DIR=$PWD/target/portable bash -c "$build"
    AUTOTUNE=$PWD/target/portable/x86_64-unknown-linux-gnu/dist/autotune
  fi
  exec unshare "${spaces[@]}" bash tests/real/portable.sh --inside "$AUTOTUNE" "${#own[@]}"
fi

AUTOTUNE=$2; unprivileged=$3
failed=0
check() { # WHAT COMMAND...
  local what=$1; shift
  if "$@" > "$out/check.log" 2>&1; then echo "  ok   $what"; else echo "  FAIL $what"; sed 's/^/       /' "$out/check.log" | tail -30; failed=1; fi
}
out=$(mktemp -d); peers=
end() { if [ -n "$peers" ]; then kill "$peers" 2> /dev/null || true; wait "$peers" 2> /dev/null || true; fi; umount -R "$out/root" 2> /dev/null || true; rm -rf "$out"; }
trap end EXIT

echo "== the file"
# A static program that may lie anywhere in memory has a dynamic section too, of relocations; it names no library.
check "no interpreter" bash -c "! readelf -lW '$AUTOTUNE' | grep INTERP"
check "no library" bash -c "! readelf -dW '$AUTOTUNE' | grep NEEDED"

# An empty root: the program, the kernel's /proc, /dev/null, and what a test puts there. It is read-only whenever the program runs.
root=$out/root; mkdir "$root"; mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir "$root"/{proc,dev,etc,work,opt}; : > "$root/dev/null"; mount --bind /dev/null "$root/dev/null"
cp "$AUTOTUNE" "$root/autotune"; cp search-spaces/quickstart.toml "$root/space.toml"
mount -t tmpfs -o mode=755 tmpfs "$root/work"; mkdir "$root/work/tmp"
[ "$unprivileged" != 0 ] || chown -R 1000:1000 "$root/work"
put() { mount -o remount,bind,rw "$root"; mkdir -p "$(dirname "$root/$1")"; cat > "$root/$1"; mount -o remount,bind,ro "$root"; }
mount -o remount,bind,ro "$root"
# Nothing of the environment but what stands in VARS. Without root, user 0 here becomes user 1000 of one more user namespace.
export ROOT=$root UNPRIVILEGED=$unprivileged VARS=TMPDIR=/work/tmp
enter() {
  mount -t proc proc "$ROOT/proc"
  # shellcheck disable=SC2086  # words without blanks
  if [ "$UNPRIVILEGED" = 0 ]; then exec env -i $VARS "$(command -v setpriv)" --no-new-privs "$(command -v chroot)" --userspec=+1000:+1000 "$ROOT" /autotune "$@"
  else exec env -i $VARS "$(command -v unshare)" --user --map-user=1000 --map-group=1000 --root="$ROOT" --wd=/ /autotune "$@"; fi
}
alone() { unshare --mount --pid --fork --kill-child bash -c 'enter "$@"' enter "$@"; } # ARGUMENTS...   as process 1
export -f enter alone
code() { local wanted=$1 got=0; shift; "$@" || got=$?; [[ " $wanted " == *" $got "* ]] || { echo "exit code $got"; return 1; }; }
ip link set lo up 2> /dev/null || python3 -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 0x41))'

echo "== alone in an empty root"
alone --version > "$out/version" 2>&1 || { cat "$out/version"; skip "the program cannot be started in a root of its own"; }
check "it can write nowhere else" code 1 alone install /opt/autotune
check "--help" bash -c 'alone --help | cmp - tests/data/help.txt'
check "check" code 0 alone check --space /space.toml
mkdir "$root/work/bin"; chmod 777 "$root/work/bin"
check "install" code 0 alone install /work/bin/autotune
check "what it installed is itself" cmp "$AUTOTUNE" "$root/work/bin/autotune"
check "a program that may be run" test -x "$root/work/bin/autotune"
# Which is user 0 out here where a user namespace maps it.
check "and belongs to user 1000" test "$(stat -c %u "$root/work/bin/autotune" || true)" = "$((unprivileged ? 0 : 1000))"

echo "== the quickstart"
cat > "$out/zombies.py" <<'PY'
import os, sys, time
seen, before = set(), set()
while os.getppid() == int(sys.argv[1]):
    dead = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z": dead.add(pid)
        except OSError: pass
    # A process that has just ended is one for a moment, until it is waited for.
    seen |= dead & before; before = dead
    print(len(seen), file=open(sys.argv[2], "w"))
    time.sleep(1)
PY
python3 "$out/zombies.py" $$ "$out/zombies" & zombies=$!
check "it ends with a documented code" code "0 6" alone --space /space.toml --out /work/quickstart --listen 127.0.0.1:0
kill "$zombies"; wait "$zombies" 2> /dev/null || true
check "with an answer" python3 -c "import json; o = json.load(open('$root/work/quickstart/outcome.json')); assert o['best']['parameters'] and o['simulated'], o"
check "no process stayed dead without being waited for" grep -qx 0 "$out/zombies"
check "nothing is left in the temporary folder" bash -c "[ -z \"\$(ls -A '$root/work/tmp')\" ]"

echo "== as process 1: a signal, and a guardian that is killed"
living() { python3 - "$1" <<'PY'
import os, sys
# Of the process with that number and all below it: number, state and command line.
def stat(pid): return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
pids = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try: pids[int(pid)] = (int(stat(pid)[1]), stat(pid)[0], open(f"/proc/{pid}/cmdline").read().replace("\0", " "))
    except OSError: pass
family = {int(sys.argv[1])}
while len(family) != len(family := family | {p for p, (parent, *_) in pids.items() if parent in family}): pass
for pid in sorted(family & pids.keys()): print(pid, *pids[pid][1:])
PY
}
start() { alone "$@" > "$out/session.log" 2>&1 & session=$!; }
until_said() { local n; for n in $(seq 300); do if grep -q "$1" "$out/session.log"; then return; fi; sleep 0.1; done; cat "$out/session.log"; return 1; }
start --space /space.toml --out /work/stopped --verbose
until_said "trial 1: ready"
one=$(living "$session" | awk '$3 == "/autotune" && $4 == "--space" {print $1}')
kill -KILL "$(living "$one" | awk '$4 == "guardian" {print $1; exit}')"
until_said "trial 3: \(probing\|sending\)"
living "$one" > "$out/family"
check "what a killed guardian leaves is ended and waited for" bash -c "! grep ' Z ' '$out/family'"
kill -TERM "$one"
got=0; wait "$session" || got=$?
check "SIGTERM: it stops its engine and says how to go on" bash -c "[ $got = 5 ] || { echo code $got; cat '$out/session.log'; false; }"
check "nothing is left in the temporary folder" bash -c "[ -z \"\$(ls -A '$root/work/tmp')\" ]"
check "and goes on" code "0 6" alone --space /space.toml --out /work/stopped --resume --quiet

echo "== GPU memory"
cat > "$out/nvidia-smi.c" <<'C'
#include <stdio.h>
#include <string.h>
int main(int n, char **words) { puts(n > 1 && strstr(words[1], "memory") ? "512" : "NVIDIA Test"); return 0; }
C
cc -static -o "$out/nvidia-smi" "$out/nvidia-smi.c"
named() { rm -rf "$root/work/gpu"; alone --space /space.toml --out /work/gpu --budget 8s --quiet > "$out/gpu.log" 2>&1 || true; grep -A1 '"gpus"' "$root/work/gpu/outcome.json" | tr -d ' \n'; }
check "without nvidia-smi there is no GPU" test "$(named)" = '"gpus":[],"limits":{'
put opt/nvidia-smi < "$out/nvidia-smi"; mount -o remount,bind,rw "$root"; chmod 755 "$root/opt/nvidia-smi"; mount -o remount,bind,ro "$root"
VARS+=' PATH=/opt'
check "with one on the PATH there is" test "$(named)" = '"gpus":["NVIDIATest"'
VARS=TMPDIR=/work/tmp
put usr/local/nvidia/bin/nvidia-smi < "$out/nvidia-smi"; mount -o remount,bind,rw "$root"; chmod 755 "$root/usr/local/nvidia/bin/nvidia-smi"; mount -o remount,bind,ro "$root"
check "and with one where device plugins put it, off the PATH" test "$(named)" = '"gpus":["NVIDIATest"'

# Hosts files and DNS are inside glibc since 2.34, also where it is static: neither a resolver of our own nor musl is needed for names. Only
# modules that nsswitch.conf names beyond those would have to be loaded, and are passed over.
echo "== the API server of a pod: by address, by a name in /etc/hosts, and by DNS"
printf 'subjectAltName=IP:127.0.0.1,DNS:kubernetes.default.svc,DNS:in-hosts.test\n' > "$out/names"
{ openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout "$out/ca.key" -out "$out/ca.pem"
  openssl req -newkey rsa:2048 -nodes -subj /CN=kubernetes -keyout "$out/key.pem" -out "$out/request.pem"
  openssl x509 -req -days 2 -in "$out/request.pem" -CA "$out/ca.pem" -CAkey "$out/ca.key" -CAcreateserial -extfile "$out/names" -out "$out/cert.pem"; } 2> /dev/null
for file in token namespace; do printf test | put "var/run/secrets/kubernetes.io/serviceaccount/$file"; done
put var/run/secrets/kubernetes.io/serviceaccount/ca.crt < "$out/ca.pem"
cat > "$out/peers.py" <<'PY'
"""An API server that allows nothing, and a name server that knows one name."""
import http.server, json, socket, ssl, struct, sys, threading
class Refusing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": {"allowed": False}}).encode()
        self.send_response(201); self.send_header("content-type", "application/json"); self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST
    def log_message(self, *_): pass
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); names.bind(("127.0.0.1", 53))
def answer():
    while True:
        asked, who = names.recvfrom(512)
        at, labels = 12, []
        while asked[at]: labels.append(asked[at + 1:at + 1 + asked[at]].decode()); at += 1 + asked[at]
        kind, known = struct.unpack(">H", asked[at + 1:at + 3])[0], ".".join(labels) == "kubernetes.default.svc"
        record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 5, 4) + bytes([127, 0, 0, 1]) if known and kind == 1 else b""
        names.sendto(asked[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, bool(record), 0, 0) + asked[12:at + 5] + record, who)
threading.Thread(target=answer, daemon=True).start()
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain(sys.argv[1], sys.argv[2])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 6443), Refusing); server.socket = context.wrap_socket(server.socket, server_side=True)
print("ready", flush=True); server.serve_forever()
PY
python3 "$out/peers.py" "$out/cert.pem" "$out/key.pem" > "$out/peers.log" 2>&1 & peers=$!
until grep -q ready "$out/peers.log"; do kill -0 "$peers"; sleep 0.1; done
reaches() { # NAME
  local got=0
  VARS="TMPDIR=/work/tmp KUBERNETES_SERVICE_HOST=$1 KUBERNETES_SERVICE_PORT=6443" timeout 10 \
    bash -c 'alone job run --deployment chat --space /space.toml --image a:1 --dry-run' > "$out/reached" 2>&1 || got=$?
  cat "$out/reached"; [ "$got" = 2 ] && grep -q "missing rights" "$out/reached"
}
check "an address, without any file in /etc" reaches 127.0.0.1
put etc/hosts <<< "127.0.0.1 in-hosts.test"
check "a name in /etc/hosts" reaches in-hosts.test
put etc/resolv.conf <<< "nameserver 127.0.0.1"
check "a name by DNS" reaches kubernetes.default.svc
printf 'nameserver 127.0.0.1\nsearch llm.svc.cluster.local svc.cluster.local\noptions ndots:5\n' | put etc/resolv.conf
check "a name by DNS, with the search list of a pod" reaches kubernetes.default.svc
printf 'passwd: files systemd sss\nhosts: files mdns4_minimal [NOTFOUND=return] resolve [!UNAVAIL=return] myhostname dns\n' | put etc/nsswitch.conf
check "a name by DNS, where nsswitch.conf names modules that are not here" reaches kubernetes.default.svc
check "a name in /etc/hosts there" reaches in-hosts.test
exit "$failed"
