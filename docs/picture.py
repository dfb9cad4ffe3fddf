"""Draws docs/compare.svg from a real run:

    cargo run --release -p ropewalk -- compare --json > compare.json
    python3 docs/picture.py compare.json docs/compare.svg        (needs matplotlib)
"""

import json
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "ropewalk"
import matplotlib.pyplot as plt

source, target = sys.argv[1:3]
with open(source, encoding="utf-8") as file:
    data = json.load(file)

rankings = data["rankings"]
figure, axes = plt.subplots(1, len(rankings), figsize=(3.6 * len(rankings), 5.4))
colours = {"multipath": "#3b75af", "first": "#1b9e77", "single": "#b0b0b0", "linux": "#d95f02"}
for axis, ranking in zip(axes if len(rankings) > 1 else [axes], rankings):
    rows = list(reversed(ranking["rows"]))
    for place, row in enumerate(rows):
        kind = "multipath"
        if row["single_path"]:
            kind = "single"
        elif row["scheduler"] == "linux":
            kind = "linux"
        elif place == len(rows) - 1:
            kind = "first"
        mean = row["fct_mean_s"]
        low, high = row["fct_mean_interval_s"] or (mean, mean)
        axis.barh(place, mean, color=colours[kind], height=0.72)
        axis.plot([low, high], [place, place], color="black", linewidth=1.1)
    axis.set_yticks(range(len(rows)), [row["scheduler"] for row in rows], fontsize=8)
    axis.set_title(ranking["workload"], fontsize=10)
    axis.set_xlabel("flow completion time, s", fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
figure.suptitle(
    f"{data['scenario']}: mean of {data['runs']} runs with 95 % interval "
    "(grey: plain TCP on one path, orange: the kernel's scheduler, green: first)",
    fontsize=10,
)
figure.tight_layout()
figure.savefig(target, metadata={"Date": None})
