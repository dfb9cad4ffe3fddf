"""Makes docs/decision-cost.md and docs/decision-cost.svg from the benchmark's output:

    cargo bench -p ropewalk-engine --bench schedulers | python3 docs/decision-cost.py docs

The fastest of each row's samples, in nanoseconds: the one that was disturbed least. Needs
nothing but Python.
"""

import re
import sys

folder = sys.argv[1]
UNITS = {"ps": 0.001, "ns": 1.0, "µs": 1000.0, "ms": 1e6}
row = re.compile(r"[├╰]─ (\S+)\s+([\d.]+) (ps|ns|µs|ms)\s+│")
size = re.compile(r"[├╰]─ (\d+)\s+│")

costs, bench, subflows = {}, None, None
for line in sys.stdin:
    if "new_data" in line or "end_of_data" in line:
        bench = "new_data" if "new_data" in line else "end_of_data"
    elif bench == "new_data" and (found := size.search(line)):
        subflows = int(found[1])
    elif bench == "new_data" and subflows and (found := row.search(line)):
        costs.setdefault(found[1], {})[subflows] = float(found[2]) * UNITS[found[3]]
if not costs:
    sys.exit("no rows of `new_data` on standard input: run the benchmark as the first lines of this file say")

sizes = sorted({n for cost in costs.values() for n in cost})
order = sorted(costs, key=lambda name: costs[name][sizes[-1]])

with open(f"{folder}/decision-cost.md", "w", encoding="utf-8") as page:
    page.write(
        "# Cost of a scheduling decision\n\n"
        "Nanoseconds of `Scheduler::select` by number of subflows: the minimum of 100 samples of 2000 decisions each, on\n"
        "states of a connection in mid-transfer.\n"
        "Made by `cargo bench -p ropewalk-engine --bench schedulers | python3 docs/decision-cost.py docs` on a loaded\n"
        "two-core machine. Compare ratios; absolute numbers depend on the machine.\n\n"
        "![Nanoseconds per decision over subflows](decision-cost.svg)\n\n"
        "A decision is O(subflows): the lines in the picture are straight. (`daps` makes a plan in O(subflows^2), once for\n"
        "some dozens of segments per subflow.)\n\n"
    )
    # The picture has the others.
    shown = [n for n in sizes if n in (2, 8, 16)]
    page.write("| scheduler | " + " | ".join(map(str, shown)) + " |\n")
    page.write("|---|" + "---:|" * len(shown) + "\n")
    for name in order:
        cost = costs[name]
        cells = " | ".join(f"{cost[n]:.0f}" for n in shown)
        page.write(f"| `{name}` | {cells} |\n")

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 460, 46, 28, 150, 40
most = max(max(cost.values()) for cost in costs.values())
top = 50 * (int(most / 50) + 1)


def x(n):
    """Place of a number of subflows."""
    return LEFT + (WIDTH - LEFT - RIGHT) * n / sizes[-1]


def y(ns):
    """Place of a cost."""
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * ns / top


colours = ["#1f6fb4", "#e08a1e", "#2a9d6f", "#8d5fb0", "#c2185b", "#6b6b6b", "#a5761d", "#17889c"]
parts = [
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="10">',
    f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    f'<text x="{LEFT}" y="16" font-weight="bold">Nanoseconds per decision over subflows</text>',
]
for step in range(0, top + 1, 50):
    parts.append(f'<path d="M{LEFT} {y(step):.0f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
    parts.append(f'<text x="{LEFT - 6}" y="{y(step) + 3:.0f}" text-anchor="end">{step}</text>')
for n in sizes:
    parts.append(f'<text x="{x(n):.0f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{n}</text>')
parts.append(f'<text x="{x(sizes[-1] / 2):.0f}" y="{HEIGHT - 8}" text-anchor="middle">subflows</text>')
# Labels beside the lines' ends, moved apart where they would overlap.
label = HEIGHT - 6.0
for place, name in enumerate(order):
    colour = colours[place % len(colours)]
    points = " ".join(f"{x(n):.1f},{y(costs[name][n]):.1f}" for n in sizes)
    parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
    end = y(costs[name][sizes[-1]])
    label = min(end + 3, label - 11)
    edge = WIDTH - RIGHT
    parts.append(f'<path d="M{edge} {end:.1f}L{edge + 14} {label - 3:.1f}" stroke="{colour}" stroke-width="0.5"/>')
    parts.append(f'<text x="{edge + 17}" y="{label:.1f}" fill="{colour}">{name}</text>')
parts.append("</svg>\n")
with open(f"{folder}/decision-cost.svg", "w", encoding="utf-8") as picture:
    picture.write("\n".join(parts))
