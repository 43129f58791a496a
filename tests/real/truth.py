#!/usr/bin/env python3
"""Drives the chosen point and the defaults of a finished run at shares of their certified rates, each on an engine of its own.

    tests/real/truth.py RUN-FOLDER SPACE.toml [SECONDS=75] [SHARES=0.95,1.0,1.05,1.1]

AUTOTUNE names the program (default target/release/autotune), OUT a folder that keeps `ladder.json`, the numbers of each level and `truth.json`.
ROUNDS says how often each engine is driven (default 1; with 2 in the order A B B A). SIDES says which of them (default best,defaults): with
two GPUs, one process drives each. START_TIMEOUT (default 900) is how many seconds an engine may take until it serves. The engine is the space file's. The limit is the rate, of those that arrived, where a straight line through
log p99 over log rate crosses a promise; the lowest over all promises.
Where that is more than a tenth above the highest rate that arrived, the limit is only known to lie above the latter. Where it is more than a tenth
below the lowest, none is told. The line tells the limit of these windows. A long run has clusters of arrivals that a minute may lack: with conversations the
line has been 8 % above the limit of a long run (`results/h200-8b-multi-turn-second`).
"""
import json, math, os, subprocess, sys, tempfile, tomllib

from serving import free_port, serving

run, space_file = sys.argv[1:3]
seconds = sys.argv[3] if len(sys.argv) > 3 else "75"
shares = [float(share) for share in (sys.argv[4] if len(sys.argv) > 4 else "0.95,1.0,1.05,1.1").split(",")]
program = os.environ.get("AUTOTUNE", "target/release/autotune")
outcome = json.load(open(f"{run}/outcome.json"))
space = tomllib.load(open(space_file, "rb"))
out = os.environ.get("OUT") or tempfile.mkdtemp(prefix="truth.")
os.makedirs(out, exist_ok=True)
limits = outcome["limits"]
# A straight line through few windows says little of rates above the highest times this, or below the lowest divided by this.
FARTHEST = 1.1
START_TIMEOUT = float(os.environ.get("START_TIMEOUT", "900"))
environment = os.environ | {name: str(value) for name, value in space["engine"].get("env", {}).items()}


def engine_command(engine, arguments, port):
    """Of a graph of Dynamo, tuned arguments go to the workers: a tuned flag of the frontend is refused."""
    args = [*engine.get("args", []), *arguments]
    if engine["kind"] != "dynamo":
        return [*engine.get("command", [program, "sim-engine", "any"]), *args, "--port", port]
    if any(word.startswith("--router") for word in arguments):
        sys.exit("a tuned flag of Dynamo's frontend is not driven here: tests/real/dynamo_ladder.py drives routers")
    python = engine.get("command", ["python3"])
    frontend = [*python, "-m", "dynamo.frontend", *engine.get("frontend_args", [])]
    workers = [program, "graph", "--port", port, "--workers", str(engine.get("workers", 1))]
    return [*workers, "--", *frontend, "---", *python, "-m", f"dynamo.{engine['backend']}", *args]


def drive(name, point, seed):
    folder = f"{out}/{name}-{seed}"
    os.makedirs(folder, exist_ok=True)
    rates = [f"{point['certified_rate'] * share:.4g}" for share in shares]
    port = str(free_port())
    command = engine_command(space["engine"], point["arguments"], port)
    with open(f"{folder}/engine.log", "w") as log, serving(command, port, log, environment | point.get("environment", {}), START_TIMEOUT) as url:
        # A short load first: the first requests of an engine compile kernels.
        warm = ["bench", "--url", url, "--workload", space_file, "--quiet"]
        subprocess.run([program, *warm, "--rate", rates[0], "--duration", "10s", "--seed", "99"], stdout=subprocess.DEVNULL)
        subprocess.run([program, *warm, "--rates", ",".join(rates), "--duration", f"{seconds}s", "--seed", str(seed), "--out", folder],
                       stdout=subprocess.DEVNULL)
    levels = []
    for rate in rates:
        (found,) = [f"{folder}/{file}" for file in os.listdir(folder) if file.endswith(".json") and file != "ladder.json"
                    and abs(json.load(open(f"{folder}/{file}"))["request_rate"] - float(rate)) < 1e-6 * float(rate)]
        level = json.load(open(found))
        levels.append({"asked": float(rate), "arrived": level["num_prompts"] / level["duration"], "requests": level["completed"], "failed": level["failed"],
                       **{f"{metric}_p99": level[f"p99_{metric}_ms"] / 1e3 for metric in ("ttft", "tpot")}})
    return levels


def crossing(levels):
    """The lowest rate at which some p99 crosses its promise, and False; or the highest rate that arrived, and True where the crossing lies far above it.
    0 where a promise broke, and its line crosses it nowhere or far below the lowest rate: the limit lies lower, or something else broke it.
    No promise and 0 where only one rate was asked for, which gives no line."""
    if len({level["asked"] for level in levels}) == 1:
        return None, 0.0, False
    crossed = {}
    for promise, limit in limits.items():
        if not all(level.get(promise) for level in levels):
            continue
        x = [math.log(level["arrived"]) for level in levels]
        y = [math.log(level[promise] / limit) for level in levels]
        mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
        slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / sum((a - mean_x) ** 2 for a in x)
        crossed[promise] = math.exp(mean_x - mean_y / slope) if slope > 0 else (math.inf if max(y) < 0 else 0.0)
    promise, limit = min(crossed.items(), key=lambda item: item[1])
    arrived = [level["arrived"] for level in levels]
    lowest, highest = min(arrived), max(arrived)
    if limit < lowest / FARTHEST:
        return promise, 0.0, False
    return (promise, limit, False) if limit <= FARTHEST * highest else (promise, highest, True)


sides = {"best": outcome["best"], "defaults": outcome["baseline"]}
chosen = os.environ.get("SIDES", "best,defaults").split(",")
sides = {name: point for name, point in sides.items() if name in chosen and point and point.get("certified_rate")}
if len(sides) == 2 and outcome["best"]["parameters"] == outcome["baseline"]["parameters"]:
    sides.pop("defaults", None)
if not sides:
    sys.exit(f"no rate of {', '.join(chosen)} is certified in {run}: SIDES may name best and defaults")
rounds = [list(sides), list(sides)[::-1]][: int(os.environ.get("ROUNDS", "1"))]
driven = {name: [] for name in sides}
for seed, order in enumerate(rounds, 1):
    for name in order:
        try:
            driven[name] += drive(name, sides[name], seed)
        except RuntimeError as why:
            sys.exit(f"{name}: {why} (START_TIMEOUT is {START_TIMEOUT:.0f} s)")
result = {}
print(f"{'side':9} {'asked':>7} {'arrived':>7} {'of certified':>12} {'requests':>8} {'failed':>6}  " + "  ".join(f"{promise} (limit)" for promise in limits))
for name, levels in driven.items():
    for level in levels:
        told = "  ".join(f"{1e3 * level[promise]:7.1f} ({1e3 * limit:.0f})" for promise, limit in limits.items() if promise in level)
        print(f"{name:9} {level['asked']:7.2f} {level['arrived']:7.2f} {level['arrived'] / sides[name]['certified_rate']:12.2f} {level['requests']:8} {level['failed']:6}  {told}")
    promise, limit, above = crossing(levels)
    certified = sides[name]["certified_rate"]
    result[name] = {"certified": certified, "limit": limit or None, "above": above, "binding": promise,
                    "certified_of_limit": certified / limit if limit and not above else None, "levels": levels}
    if not limit:
        broke = f"{promise} broke, and its line crosses the promise nowhere, or more than a tenth below the lowest rate that arrived. Drive lower rates, or a quieter machine."
        print(f"{name}: certified {certified:.2f} req/s; no limit can be told: {broke if promise else 'one share gives no line. Name two or more.'}")
        continue
    if above:
        print(f"{name}: certified {certified:.2f} req/s; the limit lies above {limit:.2f} req/s, the highest rate that arrived: certified / limit is below {certified / limit:.3f}. Drive higher rates.")
        continue
    print(f"{name}: certified {certified:.2f} req/s, limit of these windows about {limit:.2f} req/s by {promise}: certified / limit = {certified / limit:.3f}")
if len(result) == 2 and all(side["certified_of_limit"] for side in result.values()):
    print(f"gain: {result['best']['limit'] / result['defaults']['limit'] - 1:+.1%} driven, {outcome['gain']:+.1%} stated")
json.dump(result, open(f"{out}/truth.json", "w"), indent=1)
