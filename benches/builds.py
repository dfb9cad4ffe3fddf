#!/usr/bin/env python3
"""How heavy the programs are to build, beside an earlier version: docs/fresh-machine.md.

    benches/builds.py REVISION [--rounds 1]

For both versions, in turn, each in a clean clone with an empty build folder and the crates already fetched: the README's first
command up to its answer; the size of what it installs and how many crates it is made of; the same of the daemon, where it is a
program of its own; and what `cargo build` of the daemon takes again after one line of the proxy was changed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WAY = ["--locked", "--quiet", "--path"]


def say(text):
    """Reports progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def run(command, folder):
    """Runs a command in a folder; what it printed, and its seconds."""
    start = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout, time.monotonic() - start


def crates(package, folder):
    """How many crates a package's program is made of, itself included."""
    tree = ["cargo", "tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}", "--package", package]
    return len({line.split(" (")[0] for line in run(tree, folder)[0].splitlines() if line})


class Figures(dict):
    """Figures that are told as they come."""

    def __setitem__(self, key, value):
        say(f"  {key}: {value:.0f}")
        super().__setitem__(key, value)


def measured(revision, folder):
    """What one version takes, in a clean clone."""
    os.mkdir(folder)
    clone = os.path.join(folder, "clone")
    run(["git", "clone", "--quiet", ROOT, clone], folder)
    run(["git", "checkout", "--quiet", revision], clone)
    run(["cargo", "fetch", "--locked", "--quiet"], clone)
    result = Figures()
    place = os.path.join(folder, "installed")
    _, building = run(["cargo", "install", *WAY, "crates/cli", "--root", place], clone)
    program = os.path.join(place, "bin", "ropewalk")
    _, answering = run([program, "compare"], folder)
    result["first command, s"] = building + answering
    result["laboratory, MB"] = os.path.getsize(program) / 1e6
    result["laboratory, crates"] = crates("ropewalk", clone)
    own = os.path.isdir(os.path.join(clone, "crates/daemon"))
    package, binary = ("ropewalkd", "ropewalkd") if own else ("ropewalk", "ropewalk")
    result["daemon, crates"] = crates(package, clone)
    build = ["cargo", "build", "--locked", "--quiet", "--package", package]
    run(build, clone)
    with open(os.path.join(clone, "crates/gateway/src/proxy/mod.rs"), "a") as file:
        file.write("\n// One line more.\n")
    _, result["daemon again, s"] = run(build, clone)
    run([*build, "--release"], clone)
    result["daemon, MB"] = os.path.getsize(os.path.join(clone, "target/release", binary)) / 1e6
    return result


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the earlier version")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    results = {options.revision: [], "HEAD": []}
    for number in range(options.rounds):
        for revision, found in results.items():
            say(f"round {number + 1} of {options.rounds}: {revision}")
            with tempfile.TemporaryDirectory() as folder:
                found.append(measured(revision, os.path.join(folder, "version")))
    before, now = ({key: statistics.median(one[key] for one in found) for key in found[0]} for found in results.values())
    print(f"| | {options.revision} | now | of it |\n|---|---:|---:|---:|")
    for key, value in now.items():
        print(f"| {key} | {before[key]:.0f} | {value:.0f} | {100 * value / before[key]:.0f} % |")


if __name__ == "__main__":
    main()
