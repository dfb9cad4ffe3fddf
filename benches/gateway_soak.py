"""The row `soak` of benches/gateway.py: thousands of clients for a long time, while links are cut in turns."""

import collections
import json
import os
import queue
import re
import shlex
import statistics
import subprocess
import sys
import threading
import time

from gateway_stage import BACKEND, KERNEL, SIZES, Pair, end, ready, resident, say

# Downloads until the time is over. Each client keeps its connection for a while before it asks. Prints a JSON value a line:
# each download that has been silent for a while, and at last how it went.
CLIENTS = """
import asyncio, collections, errno, json, os, random, socket, sys, time

minutes, folder, names, clients = float(sys.argv[1]), sys.argv[2], sys.argv[3].split(","), int(sys.argv[4])
end = time.monotonic() + 60 * minutes
counts, durations, failed, live = collections.Counter(), [], [], {}
# Most downloads are small, or the links would be full of few.
files = {}
for name in names:
    with open(os.path.join(folder, name), "rb") as file:
        files[name] = file.read()
shares = [256, 32, 4, 1][:len(names)]

def at():
    return time.monotonic() - end + 60 * minutes

async def connect(one):
    # asyncio's own would ask the resolver about a protocol that it doesn't know.
    if (error := one.connect_ex(("10.0.0.1", 80))) not in (0, errno.EINPROGRESS):
        raise OSError(error, "connect")
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(one, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_writer(one)
    if error := one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(error, "connect")

async def download(name, pause, told):
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as one:
        one.setblocking(False)
        told |= {"stage": "connecting", "at": at(), "silent": 0}
        await connect(one)
        told |= {"stage": "pausing", "port": one.getsockname()[1]}
        await asyncio.sleep(pause)
        told |= {"stage": "asking", "at": at(), "silent": 0}
        await loop.sock_sendall(one, f"GET /{name} HTTP/1.0\\r\\n\\r\\n".encode())
        told |= {"stage": "reading", "received": 0}
        data = bytearray()
        while piece := await loop.sock_recv(one, 65536):
            data += piece
            told |= {"received": len(data), "at": at(), "silent": 0}
        head, _, body = bytes(data).partition(b"\\r\\n\\r\\n")
        if body == files[name]:
            return "right"
        return "cut short" if files[name].startswith(body) else "wrong bytes"

async def client(number):
    draw = random.Random(number)
    await asyncio.sleep(10 * draw.random())
    while time.monotonic() < end:
        begin, pause = time.monotonic(), 40 * draw.random()
        name = draw.choices(names, shares)[0]
        told = live[number] = {"begin": at(), "bytes": int(name), "pause": pause}
        try:
            found = await asyncio.wait_for(download(name, pause, told), pause + 120)
        except Exception as error:
            found = type(error).__name__
        counts[found] += 1
        if found != "right":
            counts[f"{found}: {name} bytes"] += 1
            where = ", ".join(f"{key} {told[key]}" for key in ("stage", "port", "received") if key in told)
            failed.append(f"{told['begin']:.1f} s: {found}, {name} bytes, paused {pause:.1f} s; {where}")
        durations.append(time.monotonic() - begin - pause)
    live.pop(number, None)

async def watch():
    while True:
        await asyncio.sleep(1)
        for told in live.values():
            for after in (20, 70):
                if told.get("stage") in ("connecting", "asking", "reading") and at() - told["at"] >= after > told["silent"]:
                    told["silent"] = after
                    print(json.dumps(told), flush=True)

async def main():
    watching = asyncio.create_task(watch())
    await asyncio.gather(*(client(number) for number in range(clients)))
    watching.cancel()

asyncio.run(main())
print(json.dumps({"counts": counts, "longest_s": max(durations), "failed": failed[:20]}))
"""
# Files of packets that are kept, of 100 MB each: some minutes.
RING = 8
# Most downloads of which the state is collected, and the packets: that takes seconds, and must not become the load itself.
MOST_STATES, MOST_PACKETS = 30, 3


class Reporter:
    """Collects what both ends know of a download that is silent: its subflows, the gateway's status, its packets."""

    def __init__(self, pair, options, socket, ring):
        self.pair, self.options, self.socket, self.ring = pair, options, socket, ring
        self.told, self.waiting, self.counts = [], queue.SimpleQueue(), collections.Counter()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        """Collects for one download after the other, until `end`."""
        while told := self.waiting.get():
            try:
                self.collect(told)
            except (OSError, subprocess.CalledProcessError, ValueError, IndexError) as error:
                self.told.append(told | {"error": str(error)})

    def end(self):
        """Waits for what is being collected."""
        self.waiting.put(None)
        self.thread.join()

    def subflows(self, side, port):
        """The subflows of the connection whose first one has this port, as the kernel tells of them."""
        lines = self.pair.run(side, "ss -tniaoO").splitlines()
        first = next((line for line in lines if re.search(rf":{port}\s", line)), None)
        if first is None:
            return []
        tokens = re.search(r"token:(\w+)\(id:\d+\)/(\w+)", first)
        same = tokens and re.compile(rf"token:{tokens[1]}\(id:\d+\)/{tokens[2]}")
        return [line for line in lines if line is first or (same and same.search(line))]

    def status(self, port):
        """The connection in the gateway's status: it tells of the 1,000 oldest."""
        done = subprocess.run([self.options.ropewalkd, "status", "--socket", self.socket, "--json"], capture_output=True)
        connections = json.loads(done.stdout)["connections"] if done.returncode == 0 else []
        return [one for one in connections if one["client"].endswith(f":{port}")]

    def packets(self, ports):
        """The packets of these ports, as text."""
        named = " or ".join(f"port {port}" for port in ports)
        lines = []
        for name in sorted(os.listdir(self.ring)):
            done = subprocess.run(
                ["tcpdump", "-ttn", "-r", os.path.join(self.ring, name), named], capture_output=True, text=True
            )
            lines += done.stdout.splitlines()
        return sorted(lines)

    def on_silence(self, told):
        """Has a silent download's state collected: the clients must not wait for it."""
        self.counts[told["silent"]] += 1
        if self.counts[told["silent"]] <= MOST_STATES:
            self.waiting.put(told)
        say(f"silent: {told}")

    def collect(self, told):
        """Notes a silent download's state at both ends."""
        server, client = self.pair.names
        report = told | {"at_client": self.subflows(client, told.get("port", 0))}
        report["at_server"] = self.subflows(server, told.get("port", 0))
        if self.socket:
            report["at_gateway"] = self.status(told.get("port", 0))
        if self.ring and told["silent"] >= 60 and self.counts["packets"] < MOST_PACKETS:
            self.counts["packets"] += 1
            ports = {int(line.split()[3].rpartition(":")[2]) for line in report["at_client"]}
            report["packets"] = self.packets(ports | {told.get("port", 0)})
        self.told.append(report)


def soak(workdir, options):
    """Runs clients for some minutes while links are cut in turns; tells what failed, what was left, and the memory."""
    names, memory = ",".join(map(str, SIZES.values())), []
    with Pair(links=2) as pair:
        server, client = pair.names
        for name in pair.names:
            for i in pair.links:
                pair.run(name, f"tc qdisc add dev eth{i} root tbf rate 100mbit burst 100k latency 50ms")
        if options.narrow:
            for name in pair.names:
                pair.run(name, f"ip link set eth1 mtu {options.narrow}")
        if options.memory:
            pair.run(client, f"sysctl -qw 'net.ipv4.tcp_rmem=4096 131072 {options.memory}'")
        pair.run(client, "ip mptcp endpoint add 10.0.1.2 dev eth1 subflow")
        nginx = pair.start(workdir.nginx(f"127.0.0.1:{BACKEND}"), 1)
        way, socket, ring, dump = options.schedulers[0], None, None, None
        command = workdir.front(way, "10.0.0.1", options.ropewalkd)
        if way == KERNEL:
            pair.run(server, "ip mptcp endpoint add 10.0.1.1 dev eth1 signal")
        else:
            socket = workdir.path("gateway.sock")
            command += f" --address 10.0.1.1 --metrics 127.0.0.1:9100 --status {socket}"
        gateway = pair.start(command, 0)
        if options.packets:
            ring = workdir.path("ring")
            os.mkdir(ring)
            line = f"tcpdump -Z root -qni any -s 160 -C 100 -W {RING} -w {ring}/packets tcp"
            dump = subprocess.Popen(pair.inside(client, line), stderr=subprocess.DEVNULL)

        def open_now():
            """The gateway's connections, by scheduler."""
            if way == KERNEL:
                return [len(pair.run(server, "ss -tnHO state established sport = :80").splitlines())]
            metrics = pair.run(server, "curl -s --max-time 10 http://127.0.0.1:9100/metrics")
            return list(map(int, re.findall(r"^ropewalk_gateway_connections\S* (\d+)", metrics, re.MULTILINE)))

        reporter, cut, most, left, result = Reporter(pair, options, socket, ring), None, 0, [], None
        try:
            subprocess.run(pair.inside(client, f"sh -c {shlex.quote(ready('10.0.0.1'))}"), check=True)
            line = [sys.executable, "-c", CLIENTS, options.minutes, workdir.path("files"), names, options.clients]
            clients = subprocess.Popen(pair.inside(client, shlex.join(map(str, line))), stdout=subprocess.PIPE, text=True)
            begin, turns, lines = time.monotonic(), 0, []

            def listen():
                for line in clients.stdout:
                    lines.append(json.loads(line))
                    if "silent" in lines[-1]:
                        reporter.on_silence(lines[-1])

            listener = threading.Thread(target=listen)
            listener.start()
            while clients.poll() is None:
                time.sleep(options.cut if cut else options.between)
                if cut:
                    pair.run(client, "nft delete table inet cut")
                    cut = None
                elif time.monotonic() - begin < 60 * options.minutes - 5:
                    cut, turns = f"eth{turns % 2}", turns + 1
                    rules = " ".join(
                        f"chain {hook} {{ type filter hook {hook} priority 0; {word} {cut} drop; }};"
                        for hook, word in (("input", "iifname"), ("output", "oifname"))
                    )
                    pair.run(client, f"nft {shlex.quote('table inet cut { ' + rules + ' }')}")
                memory.append((time.monotonic() - begin, resident(gateway.pid)))
                if len(memory) % 12 == 0:
                    say(f"{memory[-1][0]:.0f} s: {memory[-1][1]:.1f} MiB, {sum(open_now())} connections")
                most = max(most, sum(open_now()))
            listener.join()
            result = lines[-1]
            reporter.end()
            # What peers have left behind ends within the keep-alive's two minutes.
            begin = time.monotonic()
            while any(left := open_now()) and time.monotonic() - begin < 150:
                time.sleep(1)
        finally:
            reporter.waiting.put(None)
            for child in (gateway, nginx, *([dump] if dump else [])):
                end(child)
    early = [one for at, one in memory if 30 <= at < 90] or [one for _, one in memory[:5]]
    late = [one for _, one in memory[-12:]]
    longest = f"the longest {result['longest_s']:.1f} s"
    print(f"{result['counts']}, {longest}, links cut {turns} times, up to {most} connections at a time")
    silent = f"silent for 20 s: {reporter.counts[20]} downloads, for 70 s: {reporter.counts[70]}"
    print(f"{silent} (--json has the state of both ends)")
    for failure in result["failed"]:
        print(f"failed after {failure}")
    medians = f"{statistics.median(early):.1f} MiB in the first minutes, {statistics.median(late):.1f} MiB in the last"
    print(f"memory: {medians}, at most {max(one for _, one in memory):.1f} MiB")
    print(f"connections left: {sum(left)}; the gateway's exit code: {gateway.returncode}")
    return result | {"memory": memory, "left": left, "exit": gateway.returncode, "silent": reporter.told}
