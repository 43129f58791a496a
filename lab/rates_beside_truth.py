#!/usr/bin/env python3
"""What certified rates are worth beside the true limits: autotune rehearse FILE --seeds N --json | rates_beside_truth.py [SKIP=0]

SKIP leaves out so many sessions at the front. Rates and limits count once a session where the best point is the defaults.
"""
import json, math, statistics, sys

rehearsal = json.load(sys.stdin)
sessions = rehearsal["sessions"][int(sys.argv[1]) if len(sys.argv) > 1 else 0 :]
defaults = rehearsal["truth"]["baseline_rate"]
chosen = [(entry["point"], entry["true_rate"]) for entry in rehearsal["chosen"]]
of_point = lambda point: next((true for other, true in chosen if other == point), None)
shares, limits, gains = [], [], []
for session in sessions:
    baseline, best = session["baseline"], session["best"]
    moved = best and baseline and best["point"] != baseline["point"]
    for answer, true in [(baseline, defaults), (best if moved else None, best and of_point(best["point"]))]:
        if answer and true and answer["certified_rate"]:
            shares.append(answer["certified_rate"] / true)
            limits.append(abs(math.log(answer["limit"] / true)) < 1.645 * answer["limit_error"])
    stated, true = session["stated"], best and of_point(best["point"])
    if stated and true:
        gains.append(stated["from"] - 1e-9 <= true / defaults - 1 <= stated["to"] + 1e-9)
if not shares:
    sys.exit("no rate is certified, or no true limit is known")
print(f"certified rates {len(shares)}, above the limit {sum(share > 1 for share in shares)}, by more than 3 % {sum(share > 1.03 for share in shares)}")
print(f"certified / limit, median {statistics.median(shares):.3f}")
print(f"limits in their 90 % interval {sum(limits)} of {len(limits)}, gains in theirs {sum(gains)} of {len(gains)}")
