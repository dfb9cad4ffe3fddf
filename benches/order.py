#!/usr/bin/env python3
"""Whether real time keeps the simulator's order of schedulers: drawn cells, the engine sends to this machine's kernel.

    ropewalk-papers arena --cells drawn --draw 120 --draw-seed 7 --runs 2 --schedulers minrtt,cfs --files cells
    benches/order.py cells [--cells 20] [--runs 5] [--ropewalk target/release/ropewalk] [--json FILE]

Of the folder's scenarios those that the emulator runs: flows of a size, without other traffic or a shared bottleneck. A pair
of schedulers counts if their simulated means differ by more than 3 %; its order is kept if the emulated means, of the same
seeds, have it too. As root.
"""

import argparse
import itertools
import json
import pathlib
import subprocess

APART = 1.03

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--cells", type=int, default=20)
parser.add_argument("--runs", type=int, default=5)
parser.add_argument("--schedulers", default="ropewalk,cfs,minrtt:linux,blest:linux,ecf:linux,linux")
parser.add_argument("--ropewalk", default="target/release/ropewalk")
parser.add_argument("--json", type=pathlib.Path)
options = parser.parse_args()


def means(scenario, *more):
    """Mean completion time of each scheduler, seconds; None if the emulator can't run this."""
    command = [
        options.ropewalk,
        "compare",
        "--scenario",
        scenario,
        "--runs",
        str(options.runs),
        "--schedulers",
        options.schedulers,
        "--json",
        *more,
    ]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode == 2:
        return None
    run.check_returncode()
    rows = json.loads(run.stdout)["rankings"][0]["rows"]
    wanted = options.schedulers.split(",")
    return {row["scheduler"]: row["fct_mean_s"] for row in rows if row["scheduler"] in wanted and not row["unfinished"]}


cells = []
for scenario in sorted(options.folder.glob("*.toml")):
    text = scenario.read_text()
    if len(cells) == options.cells:
        break
    if 'kind = "flow' not in text or "[[background]]" in text or "[[bottleneck]]" in text:
        continue
    emulated = means(scenario, "--world", "emulated", "--receiver", "kernel")
    if emulated is None:
        continue
    simulated = means(scenario)
    pairs = {"kept": [], "equal": [], "reversed": []}
    for fast, slow in itertools.permutations(simulated.keys() & emulated.keys(), 2):
        if simulated[slow] > APART * simulated[fast]:
            ratio = emulated[slow] / emulated[fast]
            pairs["kept" if ratio > 1 else "equal" if ratio > 1 / APART else "reversed"].append((fast, slow, ratio))
    cells.append({"cell": scenario.stem, "simulated": simulated, "emulated": emulated, "pairs": pairs})
    print(
        f"{scenario.stem}: {len(pairs['kept'])} kept, {len(pairs['equal'])} within 3 %, {len(pairs['reversed'])} reversed;",
        ", ".join(
            f"{name} {simulated[name]:.3f}/{emulated[name]:.3f}"
            for name in sorted(simulated, key=simulated.get)
            if name in emulated
        ),
        flush=True,
    )
    if options.json:
        options.json.write_text(json.dumps(cells, indent=1))

count = {kind: sum(len(cell["pairs"][kind]) for cell in cells) for kind in ("kept", "equal", "reversed")}
total = sum(count.values())
print(
    f"{len(cells)} cells, {total} pairs: {count['kept']} kept ({count['kept'] / max(total, 1):.1%}),",
    f"{count['equal']} the other way by less than 3 %, {count['reversed']} by more",
)
