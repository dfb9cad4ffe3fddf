#!/usr/bin/env python3
"""The gateway beside HAProxy on the kernel's Multipath TCP, as root: docs/gateway-measured.md.

    benches/gateway.py [ROW ...] [--rounds 5] [--schedulers ropewalk,minrtt,blest] [--ropewalk PROGRAM | --release]
                       [--json FILE]
    benches/gateway.py soak [--minutes 20] [--clients 2000] [--cut 2] [--between 3] [--packets]

completion   downloads of 64 KiB to 4 MiB from nginx over emulated paths, by the kernel's client (mptcpize, curl): behind the
             gateway with each scheduler, and behind `mptcpize run haproxy` (the kernel's scheduler `default`). The scheduler
             `pair` is the gateway with `ropewalk`, and curl through `ropewalkd proxy --gateway-ready 2 --gateway-early`
connections  connections per second, one request each (wrk, `Connection: close`), the program in front of nginx on one core;
             `--before PROGRAM` measures an earlier ropewalkd in turn
latency      what the program adds to a small request on an open connection
soak         2,000 clients that connect, download a file, compare each byte, close and begin again, over two links of which one
             is cut every five seconds for two: memory, failures, connections left over, and the state of both ends of downloads
             that were silent for 20 s and for 70 s (in --json). `--schedulers haproxy`: with HAProxy in place of the gateway
throughput   a download without a limit through proxy and gateway, through HAProxy on the kernel's Multipath TCP at both ends,
             and `ropewalk perf` with the engine at both ends: rate, CPU per GB
idle         10,000 idle connections: memory of each, processor time while nothing happens
switch       links that die in silence under a download through proxy and gateway: how long nothing arrives
cut          200 MB through proxy and gateway, a link cut for good: every byte, the longest stall
ssh          keystrokes over ssh through proxy and gateway, one of two links lossy: times of their echoes (openssh-server,
             socat)
http3        HTTP/3 through SOCKS5's UDP ASSOCIATE (pip install aioquic)
attack       strangers beside honest clients of gateway and proxy: SYN floods, joins, clients that read nothing, half TLS
             hellos, wrong passwords, nonsense; handshake times, failures, log and memory
chaos        honest clients for `--minutes`, while attacks, link changes, reloads, restarts and flushed rules come at random by
             `--seed`: what was lost, what was left, and whether memory stays flat. A network behind the proxy calls, pings and
             downloads by QUIC (cargo build --release -p ropewalk-gateway --example quic_transfer)
frames       video and games by TCP through proxy and gateway, in pieces as another network brings them: when each frame is
             whole; `--before PROGRAM` measures an earlier ropewalkd in turn
cfs          the wget and curl experiments of the paper cfs-2019, with real curl through the gateway, every scheduler

Without a row: completion, connections and latency.

The programs are measured in turns, each round with another seed of the paths. All use cubic. Needs nginx, haproxy, mptcpize,
curl, wrk and ip (apt-get install nginx-light haproxy mptcpize curl wrk iproute2), and two cores.
"""

import argparse
import collections
import functools
import json
import math
import os
import re
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import gateway_attack
import gateway_cfs
import gateway_chaos
import gateway_frames
import gateway_pair
import gateway_soak
from gateway_stage import BACKEND, KERNEL, OR_END, PAIR, ROOT, SIZES, Allowed, Pair, Workdir, end, percentile, ready, say, table

UNEQUAL = ["wifi-lte", "small-buffers", "fast-slow", "bad-third-link", "satellite-lte", "blest-2016-3g-wlan"]
EQUAL = "equal-paths"


def geometric(values):
    """Geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


def download(workdir, scenario, way, seed, options):
    """The completion times of one round, by size: seconds."""
    # The proxy names the server to the gateway, which doesn't connect to loopback.
    server, url = ("10.127.255.1", f"10.127.255.1:{BACKEND}") if way == PAIR else ("127.0.0.1", "10.127.255.1")
    with open(workdir.path("peer.sh"), "w") as file:
        front = workdir.front(way, "10.127.255.1", options.ropewalkd)
        file.write(f"{OR_END}\n{workdir.nginx(f'{server}:{BACKEND}')} &\nexec {front}\n")
    client = "curl --proxy socks5://127.0.0.1:1080" if way == PAIR else "mptcpize run curl"
    once = client + " -sf -o /dev/null --max-time 60 -w '%{size_download} %{time_total}\\n' http://" + url + "/"
    with open(workdir.path("client.sh"), "w") as file:
        lines = [OR_END, ready(url), "sleep 0.3"]
        if way == PAIR:
            # All paths but loopback are its uplinks.
            uplinks = '$(ip -br link | awk \'$1 != "lo" { print "--via", $1 }\')'
            gateway = f"--gateway 10.127.255.1:5124 --gateway-cookie {workdir.path('cookie')} --gateway-ready 2 --gateway-early"
            lines += [f"{options.ropewalkd} proxy {uplinks} {gateway} --metrics 127.0.0.1:9464 & proxy=$!"]
            lines += [ready(url, "curl --proxy socks5://127.0.0.1:1080"), "sleep 1"]
        lines += [f"{once}{size}; sleep 0.2" for size in SIZES.values() for _ in range(options.repeat)]
        # Multipath TCP, or the comparison is of something else.
        if way == PAIR:
            total = "awk '/^ropewalk_MPTcpExtMPJoinSynAckRx/ { sum += $2 } END { print \"joins\", sum }'"
            lines += [f"curl -s http://127.0.0.1:9464/metrics | {total}", "kill -INT $proxy; wait $proxy"]
        else:
            lines += ["echo joins $(nstat -asz MPTcpExtMPJoinSynAckRx | awk '/MPJoin/ { print $2 }')"]
        file.write("\n".join(lines) + "\n")
    command = [options.ropewalk, "emulate", "--scenario", scenario, "--seed", str(seed), "--quiet"]
    command += ["--peer", f"sh {workdir.path('peer.sh')}", "--", "sh", workdir.path("client.sh")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    times = collections.defaultdict(list)
    for size, seconds in re.findall(r"^(\d+) ([\d.]+)$", done.stdout, re.MULTILINE):
        if int(size) in SIZES.values():
            times[int(size)].append(float(seconds))
    joins = re.search(r"^joins (\d+)", done.stdout, re.MULTILINE)
    expected = len(SIZES) * options.repeat
    if sum(map(len, times.values())) != expected or not joins or int(joins[1]) < expected // 2:
        sys.exit(f"{scenario}, {way}: {done.stdout}{done.stderr}")
    return times


def completion(workdir, options):
    """Completion times of downloads over emulated paths."""
    ways = [*options.schedulers, KERNEL]
    scenarios = [*UNEQUAL, EQUAL]
    mean, rows = {}, []
    for scenario in scenarios:
        samples = {way: collections.defaultdict(list) for way in ways}
        for round in range(options.rounds):
            for way in ways:
                say(f"{scenario}, round {round + 1}, {way}")
                for size, times in download(workdir, scenario, way, round + 1, options).items():
                    samples[way][size] += times
        for name, size in SIZES.items():
            row = {way: statistics.fmean(samples[way][size]) for way in ways}
            mean |= {(scenario, name, way): seconds for way, seconds in row.items()}
            rows.append([scenario, name, *(f"{1000 * row[way]:.0f} ms" for way in ways)])
    table(["paths", "size", *(f"gateway, {way}" for way in options.schedulers), "HAProxy, kernel"], rows)

    def ratio(way, of):
        return geometric([mean[scenario, name, way] / mean[scenario, name, KERNEL] for scenario in of for name in SIZES])

    best = min(options.schedulers, key=lambda way: ratio(way, UNEQUAL))
    found = {way: [ratio(way, UNEQUAL), ratio(way, [EQUAL])] for way in options.schedulers}
    for way, (unequal, equal) in found.items():
        print(f"{way}: {unequal:.3f} of HAProxy's mean completion time on unequal paths, {equal:.3f} on equal ones")
    print(f"best: {best} (asked: 0.85 on unequal paths, within 2 % on equal ones)")
    return {"ratios": found, "best": best, "milliseconds": [row for row in rows]}


def served(pair, workdir, way, options, measure):
    """Measures with the program in front of nginx, or nginx alone, on core 0; nginx is on core 1."""
    children = [pair.start(workdir.nginx(f"127.0.0.1:{BACKEND}"), 1)]
    if way == "nginx":
        children.append(pair.start(workdir.nginx("10.0.0.1:80", "direct"), 0))
    else:
        children.append(pair.start(workdir.front(way, "10.0.0.1", options.ropewalkd), 0))
    try:
        subprocess.run(pair.inside(pair.names[1], f"sh -c {shlex.quote(ready('10.0.0.1'))}"), check=True)
        time.sleep(0.3)
        return measure()
    finally:
        for child in reversed(children):
            end(child)


def connections(workdir, options):
    """Connections per second, one request each, and how long each keeps the program's core busy."""
    results = collections.defaultdict(list)

    def busy():
        """Seconds that core 0 was busy."""
        with open("/proc/stat") as file:
            user, nice, system, _, _, interrupts, soft, *_ = map(int, re.search(r"cpu0 (.*)", file.read())[1].split())
        return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")

    def measure(wrapper):
        command = f"{wrapper}wrk -t1 -c64 -d5s -H 'Connection: close' http://10.0.0.1/small"
        with_core = ["taskset", "-c", "1", *pair.inside(pair.names[1], command)]
        before = busy()
        text = subprocess.run(with_core, check=True, capture_output=True, text=True).stdout
        spent = busy() - before
        failures = re.search(r"Socket errors: (.*)", text)
        if failures:
            say(f"  {failures[0]}")
        requests = int(re.search(r"(\d+) requests in", text)[1])
        return float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]), 1e6 * spent / requests

    ways = {"gateway": (options.schedulers[0], options), "HAProxy": (KERNEL, options)}
    if options.before:
        earlier = argparse.Namespace(**{**vars(options), "ropewalkd": os.path.abspath(options.before)})
        ways["before"] = (options.schedulers[0], earlier)
    with Pair() as pair:
        # Where the client closes first, connections in TIME_WAIT hold its ports: findings/half-of-the-ports.sh.
        for name in pair.names:
            pair.run(name, "sysctl -qw net.ipv4.tcp_max_tw_buckets=1000")
        for round in range(options.rounds):
            for name, (way, program) in ways.items():
                for client, wrapper in (("TCP", ""), ("Multipath TCP", "mptcpize run ")):
                    say(f"connections, round {round + 1}, {name}, {client}")
                    done = served(pair, workdir, way, program, functools.partial(measure, wrapper))
                    results[client, name].append(done)
    rows = []
    for client in ("TCP", "Multipath TCP"):
        ours = statistics.median(rate for rate, _ in results[client, "gateway"])
        for name in ways:
            rate, core = (statistics.median(values) for values in zip(*results[client, name], strict=True))
            rows.append([client, name, f"{rate:.0f}", f"{core:.0f} us", f"{ours / rate:.2f}"])
    table(["client", "program", "connections/s", "of a core for each", "the gateway over it"], rows)
    return rows


def latency(workdir, options):
    """What the program adds to a small request on an open connection."""
    results = collections.defaultdict(list)
    asking = b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n"
    program = f"""
import socket, time
one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
one.connect(("10.0.0.1", 80))
one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for turn in range(3200):
    begin = time.perf_counter_ns()
    one.sendall({asking!r})
    text = b""
    while not text.endswith(b"ok\\n"):
        text += one.recv(4096)
    if turn >= 200:
        print(time.perf_counter_ns() - begin)
    time.sleep(0.0005)
"""

    def measure():
        command = ["taskset", "-c", "1", *pair.inside(pair.names[1], shlex.join([sys.executable, "-c", program]))]
        return [int(line) / 1000 for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]

    ways = ["nginx", KERNEL, options.schedulers[0]]
    with Pair() as pair:
        for round in range(options.rounds):
            for way in ways:
                say(f"latency, round {round + 1}, {way}")
                results[way].append(served(pair, workdir, way, options, measure))
    rows = []
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        value = {way: statistics.median(percentile(times, share) for times in results[way]) for way in ways}
        added = [f"{value[way] - value['nginx']:.0f} us" for way in ways[1:]]
        rows.append([name, f"{value['nginx']:.0f} us", *added])
    table(["", "nginx alone", "HAProxy adds", "the gateway adds"], rows)
    return rows


def main():
    """Runs the rows of the command line."""

    all_rows = {"completion": completion, "connections": connections, "latency": latency, "soak": gateway_soak.soak}
    all_rows |= gateway_pair.ROWS | {"cfs": gateway_cfs.cfs, "attack": gateway_attack.attack}
    all_rows |= {"chaos": gateway_chaos.chaos} | gateway_frames.ROWS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[*all_rows, []], default=[])
    parser.add_argument(
        "--ropewalk", default=os.path.join(ROOT, "target/release/ropewalk"), help="the program [default: %(default)s]"
    )
    parser.add_argument(
        "--release", action="store_true", help="build the programs first (cargo build --release -p ropewalk -p ropewalkd)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=2, help="downloads of each size in a round")
    parser.add_argument("--schedulers", default="ropewalk,minrtt,blest", type=lambda text: text.split(","))
    parser.add_argument("--minutes", type=float, default=20, help="how long the soak lasts")
    parser.add_argument("--clients", type=int, default=2000, help="the soak's connections at a time")
    parser.add_argument("--cut", type=float, default=2, help="seconds for which the soak cuts a link")
    parser.add_argument("--between", type=float, default=3, help="seconds between two such cuts")
    parser.add_argument("--narrow", type=int, metavar="MTU", help="MTU of the soak's second link")
    parser.add_argument("--memory", type=int, metavar="BYTES", help="largest receive buffer of the soak's clients (tcp_rmem)")
    parser.add_argument("--packets", action="store_true", help="the soak tells the packets of downloads that fail (tcpdump)")
    parser.add_argument("--deaths", type=int, default=24, help="how often `switch` cuts a link")
    parser.add_argument("--idle", type=int, default=10_000, help="idle connections")
    parser.add_argument("--seconds", type=float, default=20, help="how long each attack of `attack` lasts")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="what happens in `chaos` [default: the time]")
    parser.add_argument(
        "--before", metavar="PROGRAM", help="an earlier ropewalkd, which `connections` and `frames` measure, too"
    )
    parser.add_argument("--keys", type=int, default=200, help="keystrokes of each round of `ssh`")
    parser.add_argument("--json", metavar="FILE", help="also write what was measured to a file")
    options = parser.parse_args()
    if options.release:
        subprocess.run(["cargo", "build", "--release", "-p", "ropewalk", "-p", "ropewalkd"], cwd=ROOT, check=True)
    options.ropewalk = os.path.abspath(options.ropewalk)
    # The daemon is built beside it.
    options.ropewalkd = options.ropewalk + "d"
    # Programs with thousands of connections inherit it.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    needed = ["nginx", "haproxy", "mptcpize", "curl", "wrk", "ip", "taskset", "nstat", options.ropewalkd]
    # Some rows are of the daemon alone.
    needed += [options.ropewalk] if not options.rows or set(options.rows) - {"attack", "chaos", "soak", "idle"} else []
    missing = [name for name in needed if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        sys.exit(f"missing: {', '.join(missing)}" if missing else "run it as root: it makes network namespaces")
    found = {}
    with Allowed(), tempfile.TemporaryDirectory(prefix="ropewalk-bench-") as folder:
        workdir = Workdir(folder)
        subprocess.run([options.ropewalkd, "keys", "cookie", workdir.path("cookie")], check=True, stdout=subprocess.DEVNULL)
        for name, row in all_rows.items():
            if name in (options.rows or ["completion", "connections", "latency"]):
                print(f"\n== {name}", flush=True)
                found[name] = row(workdir, options)
            if options.json:
                # After each row: what was measured isn't lost with a later one.
                with open(options.json, "w") as file:
                    json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
