#!/usr/bin/env python3
"""Whether the answer is the same whatever the seed: `ropewalk compare` with 30 master seeds.

    benches/stability.py [--ropewalk target/release/ropewalk] [--seeds 30] [--budget 10s] [options of compare ...]

For each seed: who is named, who is in the group (not shown to be slower), why it ended. At the end: how often the most
frequent one is named, and by how many names the groups differ from the most frequent group. Exits with 1 if fewer than
28 of 30 name the same, or a group differs by more than two names.
"""

import argparse
import collections
import json
import subprocess
import sys

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--ropewalk", default="target/release/ropewalk")
parser.add_argument("--seeds", type=int, default=30)
parser.add_argument("--budget", default="10s")
options, more = parser.parse_known_args()

named, groups = collections.Counter(), []
for number in range(options.seeds):
    # Far enough apart that no two master seeds share a run.
    seed = 1 + number * 100_000
    command = [options.ropewalk, "compare", "--seed", str(seed), "--budget", options.budget, "--json", *more]
    document = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    decision = document["decision"]
    group = frozenset(one["scheduler"] for one in decision["candidates"] if one["standing"] != "slower")
    equal = sum(one["standing"] == "equal" for one in decision["candidates"])
    named[decision["named"]] += 1
    groups.append(group)
    print(
        f"seed {seed}: {decision['named']}, group of {len(group)} ({equal} shown equal), {decision['runs']} runs,",
        f"ended: {decision['ended']}",
        flush=True,
    )

usual = collections.Counter(groups).most_common(1)[0][0]
farthest = max(len(group ^ usual) for group in groups)
name, count = named.most_common(1)[0]
print(f"named: {dict(named)}; the usual group: {', '.join(sorted(usual))}")
print(f"the same name in {count} of {options.seeds}; groups differ from the usual one by {farthest} names at most")
sys.exit(count * 30 < 28 * options.seeds or farthest > 2)
