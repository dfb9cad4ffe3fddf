"""The row `cfs` of benches/gateway.py: a paper's experiments with real programs."""

import collections
import json
import os
import re
import statistics
import subprocess
import sys

from gateway_pair import file_of
from gateway_stage import BACKEND, SETTINGS, ready, say, table

# The pages of cfs-2019's section 5.2, KiB (its Table 5), fetched by curl and by wget.
PAGES = {"Wikipedia": 76, "Google": 220, "Amazon": 742, "Huffington Post": 1146}


def cfs(workdir, options):
    """Fetches the pages of cfs-2019, section 5.2, over its testbed's paths, with real curl and wget, behind the gateway."""
    listed = subprocess.run([options.ropewalk, "list", "--json"], check=True, capture_output=True, text=True)
    schedulers = [one["name"] for one in json.loads(listed.stdout)["schedulers"]]
    for kib in PAGES.values():
        file_of(workdir, kib << 10, f"page-{kib}")
    rows, found = [], {}
    programs = {
        "curl": "curl -sf -o /dev/null --max-time 60 -w '%{time_total}' http://10.127.255.1/page-",
        "wget": "wget -q -O /dev/null --timeout=60 --tries=1 http://10.127.255.1/page-",
    }
    scenario = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "papers/cfs-2019/web.toml")
    for scheduler in schedulers:
        samples = collections.defaultdict(list)
        for round in range(options.rounds):
            with open(workdir.path("peer.sh"), "w") as file:
                front = workdir.front(scheduler, "10.127.255.1", options.ropewalkd)
                file.write(f"{SETTINGS}\n{workdir.nginx(f'127.0.0.1:{BACKEND}')} &\nexec {front}\n")
            with open(workdir.path("client.sh"), "w") as file:
                lines = [SETTINGS, ready("10.127.255.1"), "sleep 0.3"]
                for program, command in programs.items():
                    for kib in PAGES.values():
                        begin, took = "b=$(date +%s%N)", "$(( $(date +%s%N) - b ))"
                        fetch = f"mptcpize run {command}{kib} > /dev/null"
                        lines.append(f"{begin}; {fetch} && echo {program} {kib} {took}; sleep 0.2")
                file.write("\n".join(lines) + "\n")
            command = [options.ropewalk, "emulate", "--scenario", scenario, "--seed", str(round + 1), "--quiet"]
            command += ["--peer", f"sh {workdir.path('peer.sh')}", "--", "sh", workdir.path("client.sh")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            lines = re.findall(r"^(curl|wget) (\d+) (\d+)$", done.stdout, re.MULTILINE)
            if len(lines) != len(programs) * len(PAGES):
                sys.exit(f"cfs, {scheduler}: {done.stdout}{done.stderr}")
            for program, kib, nanos in lines:
                samples[program, int(kib)].append(int(nanos) / 1e9)
        found[scheduler] = {f"{program} {kib}": times for (program, kib), times in samples.items()}
        medians = [statistics.median(samples[program, kib]) for program in programs for kib in PAGES.values()]
        rows.append([scheduler, *(f"{1000 * seconds:.0f} ms" for seconds in medians)])
        say(f"cfs, {scheduler}: {rows[-1][1:]}")
    table(["scheduler", *(f"{program}, {name}" for program in programs for name in PAGES)], rows)
    return found
