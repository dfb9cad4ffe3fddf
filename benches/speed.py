#!/usr/bin/env python3
"""How fast the simulator is, beside ns-3 on the same question, in one run: docs/speed.md.

    benches/speed.py [--rounds 5] [--seconds 60] > docs/speed.md
    benches/speed.py --before REVISION [--rounds 7]     beside an earlier version instead: ratios by case
    benches/speed.py --beside PROGRAM [--rounds 7]      beside another program instead: the clean case only

PROGRAM is a command. The last line that it prints is one number: how many segments of data it carried for each second
of wall time. ROPEWALK_BENCH_SECONDS in its environment is the length of the run in virtual seconds.

Rounds are interleaved and pinned to one core; medians are printed with their ranges. ns-3 takes part if its Debian
package is there (apt-get install libns3-dev g++ pkg-config), instructions are counted if valgrind is.
"""

import argparse
import math
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CASES = ["clean", "loss 1 %", "reordering jitter", "1 Gbit/s x 300 ms", "10000 connections", "10000 x 256 KiB"]
# Of these, what instructions aren't counted of: there is no short run that says the same.
LONG = ["10000 connections"]
TARGET = 4_000_000


def say(text):
    """Reports progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def run(command, **more):
    """Runs a command in the repository; what it printed."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout + done.stderr


def pinned(command):
    """A command that runs on one core, where `taskset` is installed."""
    return (["taskset", "-c", "0"] if shutil.which("taskset") else []) + command


def built():
    """Builds the benchmark and the program; the benchmark's path."""
    out = run(["cargo", "bench", "-p", "ropewalk-sim", "--bench", "speed", "--no-run"])
    speed = os.path.join(ROOT, re.search(r"\((\S+/speed-[0-9a-f]+)\)", out).group(1))
    run(["cargo", "build", "--release", "-p", "ropewalk"])
    return speed


def built_ns3(folder):
    """ns-3's program, or None where its package isn't there."""
    modules = [f"ns3-{name}" for name in ("applications", "internet", "point-to-point", "network", "core")]
    if not shutil.which("pkg-config") or not shutil.which("g++"):
        return None
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", *modules], capture_output=True, text=True)
    if flags.returncode != 0:
        return None
    program = os.path.join(folder, "ns3_bulk")
    # Debian's list names libraries that only other modules need.
    wanted = [flag for flag in flags.stdout.split() if flag.startswith("-lns3")]
    run(["g++", "-O2", "-std=c++17", "-o", program, "benches/peers/ns3_bulk.cc", *dict.fromkeys(wanted)])
    return program


def figures(text):
    """Segments per second by case."""
    return {name.strip(): int(value) for name, value in re.findall(r"^(.{24})\s*(\d+) segments/s", text, re.M)}


def instructions(speed, case):
    """Per segment: two runs of different length, so that the start is left out."""
    counts = []
    for length in (2, 4):
        # Where the number of connections is what counts, what each carries makes the length.
        more = {"ROPEWALK_BENCH_SECONDS": str(length)} | ({"ROPEWALK_BENCH_KIB": str(16 * length)} if "KiB" in case else {})
        with tempfile.NamedTemporaryFile() as out:
            text = run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", speed, case], env=os.environ | more)
        counts.append(
            (int(re.search(r"each\s+(\d+) segments", text).group(1)), int(re.search(r"Collected : (\d+)", text).group(1)))
        )
    (few, less), (many, greater) = counts
    return (greater - less) / (many - few)


def built_at(revision, folder):
    """The benchmark of an earlier version."""
    tree = os.path.join(folder, "tree")
    run(["git", "worktree", "add", "--detach", tree, revision])
    try:
        out = run(
            ["cargo", "bench", "--manifest-path", f"{tree}/Cargo.toml", "-p", "ropewalk-sim", "--bench", "speed", "--no-run"],
            env=os.environ | {"CARGO_TARGET_DIR": os.path.join(folder, "target")},
        )
        built = re.search(r"\((\S+/speed-[0-9a-f]+)\)", out).group(1)
        return shutil.copy(os.path.join(tree, built), os.path.join(folder, "before"))
    finally:
        run(["git", "worktree", "remove", "--force", tree])


def compare_with(revision, rounds):
    """Old and new in turn, each first in every other round: a ratio a round, and their median."""
    now = built()
    with tempfile.TemporaryDirectory() as folder:
        before = built_at(revision, folder)
        # A part of the case's name that both versions have.
        cases = {
            "clean": "clean",
            "loss 1 %": "loss",
            "reordering jitter": "jitter",
            "1 Gbit/s x 300 ms": "Gbit",
            "10000 connections": "10000 connections",
            "10000 x 256 KiB": "KiB",
        }
        ratios = {case: [] for case in cases}
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            for case, part in cases.items():
                speeds = {}
                for program in (now, before) if number % 2 else (before, now):
                    speeds[program] = next(iter(figures(run(pinned([program, part]))).values()))
                ratios[case].append(speeds[now] / speeds[before])
        print(f"Beside {revision}, {rounds} rounds:\n")
        print("| case | segments per second, new over old | instructions per segment, new over old |\n|---|---:|---:|")
        for case, part in cases.items():
            count = "not counted"
            if shutil.which("valgrind") and case not in LONG:
                say(f"counting instructions: {case}")
                count = f"{instructions(now, part) / instructions(before, part):.3f}"
            values = ratios[case]
            low, high = median_interval(values)
            print(f"| {case} | {statistics.median(values):.3f} ({low:.3f} to {high:.3f}) | {count} |")


def compare_beside(program, rounds):
    """The clean case and another program in turn, each first in every other round: a ratio a round, and their median."""
    speed = built()
    commands = {"clean": [speed, "clean"], "beside": shlex.split(program)}
    rates = {name: [] for name in commands}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for name in reversed(commands) if number % 2 else commands:
            done = subprocess.run(pinned(commands[name]), stdout=subprocess.PIPE, text=True)
            if done.returncode != 0:
                sys.exit(f"{shlex.join(commands[name])} ended with {done.returncode}")
            out = done.stdout
            rates[name].append(figures(out)["clean"] if name == "clean" else float(out.splitlines()[-1]))
    ratios = [clean / other for clean, other in zip(*rates.values(), strict=True)]
    print(f"{rounds} rounds:\n\n| program | segments per second of wall time |\n|---|---:|")
    print(f"| clean | {spread(rates['clean'])} |\n| `{program}` | {spread(rates['beside'])} |")
    print(f"| clean over `{program}` | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")


def median_interval(values):
    """The 95 % interval of the median, from the binomial distribution of ranks; with fewer than 6 values their range."""
    ordered, left_out, tail = sorted(values), 0, 0.5 ** len(values)
    while tail <= 0.025:
        left_out += 1
        tail += math.comb(len(ordered), left_out) * 0.5 ** len(ordered)
    first = max(left_out - 1, 0)
    return ordered[first], ordered[-1 - first]


def spread(values):
    """The median and the range, as text."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def scaling():
    """Seconds of `compare` with one worker and with two, and whether both print the same bytes."""
    ropewalk = os.path.join(ROOT, "target/release/ropewalk")
    times, texts = {1: [], 2: []}, set()
    for _ in range(3):
        for jobs in times:
            start = time.monotonic()
            text = run([ropewalk, "compare", "--json", "--jobs", str(jobs)])
            texts.add(re.sub(r'"command": ".*"', "", text))
            times[jobs].append(time.monotonic() - start)
    one, two = (statistics.median(times[jobs]) for jobs in (1, 2))
    return one, two, len(texts) == 1


def main():
    """Measures and prints the page, or compares with an earlier version."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=int, default=60, help="virtual seconds of each timed run")
    other = options.add_mutually_exclusive_group()
    other.add_argument("--before", metavar="REVISION", help="an earlier version to time this one beside")
    other.add_argument("--beside", metavar="PROGRAM", help="a command to time the clean case beside")
    options = options.parse_args()
    os.environ["ROPEWALK_BENCH_SECONDS"] = str(options.seconds)
    if options.before:
        # Two versions, each often: a second of 10,000 connections is enough.
        os.environ.setdefault("ROPEWALK_BENCH_CROWD_MS", "1000")
    say("building")
    if options.before:
        return compare_with(options.before, options.rounds)
    if options.beside:
        return compare_beside(options.beside, options.rounds)
    speed = built()
    with tempfile.TemporaryDirectory() as folder:
        ns3 = built_ns3(folder)
        rates = {case: [] for case in CASES}
        peers = []
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            for case in CASES:
                rates[case].append(figures(run(pinned([speed, case])))[case])
            if ns3:
                peers.append(int(re.search(r"(\d+) data segments per second", run(pinned([ns3, "--megabytes=40"]))).group(1)))
    memory = run([speed, "memory"]).strip().split(": ", 1)[1]
    clean = statistics.median(rates["clean"])
    print("# Speed of the simulator\n")
    print(
        "Made by `benches/speed.py`: rounds interleaved, one core, medians with their ranges. A counted segment is one\n"
        "full packet of new data, with its own place in the queue, its loss and jitter draws, timestamps, DSS and RACK\n"
        "state, and one ACK per two. Both ends, the links, and every event are included.\n"
    )
    print("| case | segments per second of wall time | of clean | aim | instructions per segment |\n|---|---:|---:|---:|---:|")
    for case in CASES:
        count = "not counted"
        if shutil.which("valgrind") and case not in LONG:
            say(f"counting instructions: {case}")
            count = f"{instructions(speed, case):,.0f}"
        part = statistics.median(rates[case]) / clean
        aim = {"clean": f"{TARGET:,}", "10000 x 256 KiB": "none"}.get(case, "0.5 of clean")
        print(f"| {case} | {spread(rates[case])} | {part:.2f} | {aim} | {count} |")
    if peers:
        print(
            f"| ns-3, the clean case with plain TCP on each path | {spread(peers)} | "
            f"{statistics.median(peers) / clean:.3f} | | not counted |"
        )
    else:
        print("\nns-3 wasn't installed.")
    print(f"\nMemory of 10,000 idle connections of two subflows: {memory}.\n")
    one, two, same = scaling()
    print(
        f"`compare` without arguments: {one:.2f} s with one worker, {two:.2f} s with two ({one / two:.2f} times as fast); "
        f"the same bytes: {'yes' if same else 'NO'}.\n"
    )
    print(
        f"The aim is {TARGET / 1e6:.0f} million segments a second in the clean case; "
        f"{'reached' if clean >= TARGET else f'{clean / TARGET:.0%} of it is reached'}."
    )


main()
