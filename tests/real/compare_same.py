#!/usr/bin/env python3
"""`autotune compare` on simulated engines whose difference is known: the same against the same, and prefix caching off against on.

    python3 tests/real/compare_same.py [REPEATS]

AUTOTUNE names the program (default target/release/autotune). Each repeat (20 unless given) has two new engines and seeds of its own, and takes
half a minute. The exit status is 1 where fewer than nine tenths of the repeats say "no difference", or the caching is not seen to help.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

AUTOTUNE = os.environ.get("AUTOTUNE", "target/release/autotune")
REPEATS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
TRAFFIC = "--input-tokens 150-250 --output-tokens 16-32 --duration 1s --cool-down 1ms --quiet --json".split()


class Engine:
    """A simulated engine on a free port."""

    def __init__(self, *flags):
        self.log = tempfile.TemporaryFile("w+")
        command = [AUTOTUNE, "sim-engine", "tiny", "--port", "0", "--sim-start-seconds", "0.1", *flags]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, "VLLM_SERVER_DEV_MODE": "1"})
        while self.process.poll() is None:
            time.sleep(0.2)
            self.log.seek(0)
            text = self.log.read()
            if "Application startup complete" in text:
                self.url = re.search(r"http://127\.0\.0\.1:\d+", text)[0]
                return
        sys.exit(f"the engine ended: {text}")

    def __enter__(self):
        return self.url

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def compare(a, b, *flags):
    with Engine(*a) as url_a, Engine(*b) as url_b:
        run = subprocess.run([AUTOTUNE, "compare", url_a, url_b, *TRAFFIC, *flags], stdout=subprocess.PIPE, text=True)
        return json.loads(run.stdout)


SAME = "--users 24,32,42 --sweeps 3 --slo ttft_p95=300ms,tpot_p99=30ms".split()
none, widths = 0, []
for repeat in range(REPEATS):
    noise = [["--seed", str(1000 + 2 * repeat + side)] for side in (0, 1)]
    found = compare(*noise, *SAME, "--seed", str(100 + repeat))
    none += found["because"].startswith("no difference is seen")
    if found["difference"]:
        widths.append((found["difference"]["to"] - found["difference"]["from"]) / 2)
    print(f"{repeat + 1}: {found['because']}", flush=True)
print(f"{none} of {REPEATS} say that no difference is seen; median half width of the intervals {100 * sorted(widths)[len(widths) // 2]:.1f} %", flush=True)

caching = "--users 8,16,32,48 --sweeps 4 --slo ttft_p95=300ms,tpot_p99=30ms --with shared_prefix_tokens=300 --require B:cached_share>=0.5".split()
found = compare(["--no-enable-prefix-caching"], [], *caching)
print(f"prefix caching: {found['answers'][0]['because']}")
print(f"                {found['answers'][1]['because']}")
print(f"                {found['because']}")
sys.exit(0 if none >= 0.9 * REPEATS and found["difference"] and found["difference"]["from"] > 0 else 1)
