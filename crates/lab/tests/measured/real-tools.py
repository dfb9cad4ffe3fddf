"""Count how often the ranges that `ropewalk advise` reads from real tools hold the truth.

Links are drawn at random and emulated; each tool measures each of them.

    python3 real-tools.py ROPEWALK [LINKS]      as root, with ping, fping, mtr, irtt, iperf3 and chrt; about 40 s for each link
"""

import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

ROPEWALK = sys.argv[1] if len(sys.argv) > 1 else "ropewalk"
LINKS = int(sys.argv[2]) if len(sys.argv) > 2 else 10
SERVER, CLIENT = "10.127.255.1", "10.127.0.2"
# Runs a program before all that isn't of real time.
SOON = "chrt -f 50"

# What measures, what runs at the other end, the file that has the result, and the quantities that it tells.
TOOLS = {
    "ping": (f"ping -I {CLIENT} -c 30 -i 0.2 {SERVER} > FILE", "", "rtt loss"),
    "fping": (f"fping -S {CLIENT} -c 30 -p 100 {SERVER} > FILE 2>&1", "", "rtt loss"),
    "mtr": (f"mtr -a {CLIENT} -r -j -c 30 -i 0.2 {SERVER} > FILE", "", "rtt loss"),
    # It times its own waking up too, which a busy machine makes late.
    "irtt": (
        f"{SOON} irtt client -i 100ms -d 3s -o FILE --local={CLIENT} {SERVER} > /dev/null",
        f"{SOON} irtt server",
        "rtt loss",
    ),
    "iperf3 -R": (f"iperf3 -B {CLIENT} -R -t 10 --json -c {SERVER} > FILE", "iperf3 -s", "down"),
    "iperf3": (f"iperf3 -B {CLIENT} -t 10 --json -c {SERVER} > FILE", "iperf3 -s", "up"),
    "iperf3 -R -P 8": (f"iperf3 -B {CLIENT} -R -P 8 -t 5 -c {SERVER} > FILE", "iperf3 -s", "down"),
    "iperf3 -u -R -b": (f"iperf3 -B {CLIENT} -u -R -b BOTH -t 5 --json -c {SERVER} > FILE", "iperf3 -s", "down"),
}


def log(least: float, most: float) -> float:
    """Draw uniformly in the logarithm."""
    return least * (most / least) ** random.random()


def draw() -> dict[str, float]:
    """Draw a link: Mbit/s, milliseconds, per cent."""
    down = log(2, 40)
    loss = log(0.05, 2) if random.random() < 0.5 else 0.0
    return {"down": down, "up": down * log(0.2, 1), "rtt": log(10, 150), "loss": loss}


def path(name: str, link: dict[str, float]) -> str:
    """Write a link as `--path` reads it."""
    loss = f", {link['loss']:.3f} %" if link["loss"] else ""
    return f"{name}: {link['down']:.3f}/{link['up']:.3f} Mbit/s, {link['rtt']:.2f} ms{loss}"


def ranges(file: pathlib.Path, stated: str) -> dict[str, tuple[float, float]]:
    """Read the ranges of a file, joined with what is stated."""
    command = [ROPEWALK, "advise", "--path", "y: 1 Mbit/s, 300 ms", "--path", stated, "--measured", f"x={file}"]
    command += ["--size", "16 KiB", "--schedulers", "linux", "--budget", "1ms", "--json"]
    read = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["read"][0]
    found = {"rtt": read["rtt_ms"], "loss": [share * 100 for share in read["loss"]]}
    for way in ("down", "up"):
        low, high = (bits / 1e6 for bits in read[f"{way}_bit_per_s"])
        found[way] = (low, math.inf if read[f"{way}_at_least"] else high)
    return found


def main() -> None:
    """Measure all links with all tools, and count."""
    random.seed(1)
    held: dict[tuple[str, str], list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(LINKS):
            link = draw()
            stated = {name: value * math.exp(random.gauss(0, 0.7 if name == "loss" else 0.15)) for name, value in link.items()}
            for tool, (command, peer, quantities) in TOOLS.items():
                # irtt compresses what has another ending.
                file = pathlib.Path(folder) / f"{number}-{tool.replace(' ', '')}.json"
                command = command.replace("FILE", str(file)).replace("BOTH", f"{2 * link['down']:.2f}M")
                emulate = [ROPEWALK, "emulate", "--quiet", "--seed", str(number + 1), "--path", path("x", link)]
                emulate += ["--path", "y: 10 Mbit/s, 40 ms"] + (["--peer", peer] if peer else [])
                subprocess.run([*emulate, "--", "sh", "-c", f"sleep 0.5; {command}"], check=False, stderr=subprocess.DEVNULL)
                try:
                    found = ranges(file, path("x", stated))
                except subprocess.CalledProcessError as error:
                    print(f"{number} {tool}: not read: {error.stderr.splitlines()[:1]}")
                    continue
                for name in quantities.split():
                    if name == "loss" and not link["loss"]:
                        continue
                    low, high = found[name]
                    fits = low <= link[name] <= high
                    held.setdefault((tool, name), []).append(fits)
                    if not fits:
                        print(f"{number} {tool}: {name} {link[name]:.3f} is not in {low:.3f} .. {high:.3f} ({path('x', link)})")
    for (tool, name), fits in held.items():
        print(f"{tool:16} {name:5} {sum(fits)}/{len(fits)}", flush=True)


if __name__ == "__main__":
    main()
