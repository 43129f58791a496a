#!/usr/bin/env python3
"""Every point of a graph's grid beside the answer of a session: dynamo_ladder.py AUTOTUNE SPACE.toml RUN-FOLDER

Each point is launched with exactly its arguments, and `bench --find rate` looks for its limit under the same traffic and promises, from two fifths to
four times of what the session certified. The last lines set the certified rate and the chosen point beside these limits. FIND_BUDGET is the time for each point (default 60s).
"""
import itertools, json, os, subprocess, sys, tempfile, tomllib

from serving import free_port, get, serves_a_model, serving

autotune, space_file, run = sys.argv[1:]
space = tomllib.load(open(space_file, "rb"))
engine, grid = space["engine"], space["parameters"]
outcome = json.load(open(f"{run}/outcome.json"))
highest = max((outcome[side] or {}).get("certified_rate") or 8 for side in ("best", "baseline"))
between = f"{highest / 2.5:.3g},{highest * 4:.3g}"
promises = ",".join(f"{promise}={value}" for promise, value in space["slo"].items())


def words(point, of_frontend):
    return [word for name, value in point.items() if name.startswith("router-") == of_frontend for word in (f"--{name}", str(value))]


def whole(url):
    """Whether the graph serves a model with all its workers."""
    workers = (instance["endpoint"] == "generate" for instance in get(f"{url}/health")["instances"])
    return serves_a_model(url) and sum(workers) >= engine["workers"]


def limit(point):
    """The limit of one point with its interval, or why it is not told."""
    with tempfile.TemporaryDirectory() as folder, open(f"{run}/ladder.log", "a") as log:
        port, python = str(free_port()), engine["command"]
        command = [autotune, "graph", "--port", port, "--workers", str(engine["workers"]), "--", *python, "-m", "dynamo.frontend", *words(point, True)]
        command += ["---", *python, "-m", "dynamo." + engine["backend"], *engine["args"], *words(point, False)]
        environment = os.environ | engine["env"] | {"DYN_LOG": "warn", "TMPDIR": folder}
        try:
            with serving(command, port, log, environment, patience=120, ready=whole) as url:
                find = [autotune, "bench", "--url", url, "--workload", space_file, "--slo", promises, "--find", "rate", "--between", between, "--seed", "3"]
                find += ["--duration", "6s", "--precision", "5%", "--budget", os.environ.get("FIND_BUDGET", "60s"), "--out", f"{folder}/find", "--quiet"]
                done = subprocess.run(find, stdout=log, stderr=subprocess.PIPE, text=True)
        except RuntimeError as why:
            return {"status": str(why)}
        log.write(done.stderr)
        found = f"{folder}/find/find.json"
        return json.load(open(found))["answers"][0] if os.path.exists(found) else {"status": done.stderr.strip().split("\n")[0]}


limits = {}
for values in itertools.product(*(parameter["values"] for parameter in grid.values())):
    point = dict(zip(grid, values))
    answer = limit(point)
    limits[values] = answer.get("level")
    told = f"{answer['level']:6.1f} req/s (90 %: {answer['from']:.1f} to {answer['to']:.1f})" if answer.get("level") else f"not told: {answer['status']}"
    print(f"ladder  {'  '.join(f'{name}={value}' for name, value in point.items()):45} {told}  load average {os.getloadavg()[0]:.1f}", flush=True)
highest = max(filter(None, limits.values()), default=None)
for side in ("best", "baseline"):
    chosen = outcome[side]
    if not chosen:
        continue
    own = limits[tuple(chosen["parameters"][name] for name in grid)]
    certified = chosen.get("certified_rate")
    share = lambda of, by: f"{of / by:.2f}" if of and by else "not known"
    point = "  ".join(f"{name}={chosen['parameters'][name]}" for name in grid)
    print(f"{side:9}{point:45} certified {certified or 0:6.1f} req/s: {share(certified, own)} of its limit, whose limit is {share(own, highest)} of the highest")
