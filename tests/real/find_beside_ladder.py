#!/usr/bin/env python3
"""`bench --find` beside an exhaustive ladder on the simulated engine: is its answer within 5 %, in a quarter of the time?

    python3 tests/real/find_beside_ladder.py [users] [rate]

AUTOTUNE names the program (default target/release/autotune). Each ladder has windows as long as the longest of --find, in steps of 5 %.
Its limit is where a straight line through its levels within 20 % of the crossing is at the limit, in logarithms; the highest level that
passed stands beside it. The exit status is 1 where --find is further off, or takes longer. It takes about 20 minutes each.
"""
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

AUTOTUNE = os.environ.get("AUTOTUNE", "target/release/autotune")
TRAFFIC = "--input-tokens 150-250 --output-tokens 16-32 --quiet --json".split()
STEP, WINDOW = 1.05, "20s"
CASES = {
    # name: (limits, the ladder's lowest and highest level, its flag)
    "users": ("ttft_p95=400ms,tpot_p99=30ms", 12, 80, "--concurrency"),
    "rate": ("ttft_p95=150ms,tpot_p99=7ms", 30, 100, "--rates"),
}


def bench(url, *flags):
    begun = time.monotonic()
    run = subprocess.run([AUTOTUNE, "bench", "--url", url, *TRAFFIC, *flags], stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout), time.monotonic() - begun


def limit_of(levels):
    """The level at which the largest margin crosses zero, and the highest level that passed below the first failure."""
    points = []
    for level in levels:
        margins = [limit["margin"] for limit in level["verdict"]["limits"]]
        if all(margin is not None for margin in margins) and not level["verdict"]["saturated"]:
            points.append((math.log(next(iter(level["offered"].values()))), max(margins)))
    passed = [next(iter(level["offered"].values())) for level in levels if level["standing"] == "pass"]
    failed = [next(iter(level["offered"].values())) for level in levels if level["standing"] in ("fail", "saturated")]
    highest = max((p for p in passed if p < min(failed)), default=None)
    centre = math.log(highest)
    for _ in range(5):
        near = [(x, y) for x, y in points if abs(x - centre) < 0.2 and abs(y) < 0.6]
        mx, my = (sum(values) / len(near) for values in zip(*near))
        slope = sum((x - mx) * (y - my) for x, y in near) / sum((x - mx) ** 2 for x, _ in near)
        centre = mx - my / slope
    return math.exp(centre), highest


def case(name, url):
    slo, low, high, flag = CASES[name]
    found, took = bench(url, "--find", name, "--slo", slo)
    answer = found["answers"][0]
    ladder = sorted({round(low * STEP**k, 0 if name == "users" else 1) for k in range(int(math.log(high / low, STEP)) + 1)})
    ladder = ",".join(f"{level:g}" for level in ladder)
    climbed, long = bench(url, flag, ladder, "--slo", slo, "--duration", WINDOW)
    limit, highest = limit_of(climbed["levels"])
    off = answer["level"] / limit - 1
    print(f"{name}: {slo}")
    print(f"  --find: {answer['because']}")
    print(f"          {len(found['levels'])} windows, {took:.0f} s")
    print(f"  ladder: {limit:.1f}, highest that passed {highest:g}; {len(climbed['levels'])} levels, {long:.0f} s")
    print(f"  off by {100 * off:+.1f} % (bound 5), in {100 * took / long:.0f} % of the time (bound 25)", flush=True)
    # A number of users is whole: what lies below the next one is the same answer.
    rounding = 1 / limit if name == "users" else 0
    return -0.05 - rounding <= off <= 0.05 and took <= 0.25 * long


with tempfile.TemporaryFile("w+") as log:
    engine = subprocess.Popen([AUTOTUNE, "sim-engine", "tiny", "--port", "0", "--sim-start-seconds", "0.1"], stdout=log, stderr=log)
    try:
        url = None
        while url is None:
            time.sleep(0.2)
            log.seek(0)
            said = re.search(r"http://127\.0\.0\.1:\d+", text := log.read())
            url = said and "startup complete" in text and said.group()
        kept = [case(name, url) for name in sys.argv[1:] or CASES]
    finally:
        engine.terminate()
        engine.wait()
sys.exit(0 if all(kept) else 1)
