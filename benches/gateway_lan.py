"""What the row `chaos` of benches/gateway.py has beside TCP: a network behind the proxy (`transparent`) with a call, pings and
downloads by QUIC, through the tunnel to a host behind the gateway."""

import json
import os
import shlex
import subprocess
import sys

from gateway_stage import percentile

LAN, LAN_GATEWAY = "10.98.0.2", "10.98.0.1"
WORLD, WORLD_GATEWAY = "10.99.0.2", "10.99.0.1"
CALL, QUIC, PIECE = 5004, 4433, 2_000_000
# A packet that takes longer is lost to a call.
LATE = 0.4

ECHO = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind((sys.argv[1], int(sys.argv[2])))
while True:
    data, peer = one.recvfrom(2048)
    one.sendto(data, peer)
"""

# A call of 50 packets a second, and 5 pings a second; each is answered. A new call, with another port, begins each minute.
# Prints when each was sent that wasn't answered in time, and at last how long the others took.
LOAD = """
import json, os, select, socket, struct, sys, time
seconds, world, port, late = float(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
ping = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
begin, call, number, out = time.time(), None, 0, {}
lost, took = {"call": [], "ping": []}, {"call": [], "ping": []}

def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xffff) + (total >> 16)
    return ~(total + (total >> 16)) & 0xffff

while (now := time.time()) < begin + seconds + late:
    if number % 3000 == 0 and now < begin + seconds:
        before, call = call, socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        call.connect((world, port))
    if now < begin + seconds and now >= begin + number * 0.02:
        kinds = ["call", "ping"] if number % 10 == 0 else ["call"]
        for kind in kinds:
            out[kind, number] = now
            data = struct.pack("!Q", number) + bytes(152)
            try:
                if kind == "call":
                    call.send(data)
                else:
                    head = struct.pack("!BBHHH", 8, 0, 0, os.getpid() & 0xffff, number & 0xffff)
                    ping.sendto(head[:2] + struct.pack("!H", checksum(head + data)) + head[4:] + data, (world, 0))
            except OSError:
                pass
        number += 1
    wait = max(0, begin + number * 0.02 - time.time()) if number else 0
    for one in select.select([ping, *filter(None, (call, before))], [], [], min(wait, 0.02))[0]:
        try:
            data = one.recv(2048)
        except OSError:
            continue
        kind = "call"
        if one is ping:
            data, kind = data[20:], "ping"
            if data[0] != 0 or data[4:6] != struct.pack("!H", os.getpid() & 0xffff):
                continue
            data = data[8:]
        sent = out.pop((kind, struct.unpack_from("!Q", data)[0]), None)
        if sent is not None:
            took[kind].append(time.time() - sent)
    for key, sent in [one for one in out.items() if one[1] < time.time() - late]:
        del out[key]
        lost[key[0]].append(sent)
print(json.dumps({"lost": lost, "took": took, "sent": number}))
"""

# One download by QUIC after the other. Prints when those that failed began and ended, and at last how many were right.
DOWNLOADS = """
import json, subprocess, sys, time
seconds, *command = sys.argv[1:]
end, right, failed, gaps = time.time() + float(seconds), 0, [], []
while time.time() < end:
    begin = time.time()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        told = json.loads(done.stdout)
        right, gaps = right + 1, gaps + [told["gap_ms"]]
    except (subprocess.TimeoutExpired, ValueError):
        failed.append([begin, time.time()])
    time.sleep(1)
print(json.dumps({"right": right, "failed": failed, "gaps": gaps}))
"""


class Lan:
    """The two networks, and what goes between them."""

    def __init__(self, pair, workdir, options):
        self.pair, self.certificate = pair, workdir.path("certificate")
        self.transfer = os.path.join(os.path.dirname(options.ropewalk), "examples/quic_transfer")
        self.names = [f"ropewalk-bench-{os.getpid()}-{side}" for side in ("world", "lan")]
        self.children, self.loads = [], []

    def __enter__(self):
        ends = ((self.names[0], "wan0", WORLD, WORLD_GATEWAY), (self.names[1], "lan0", LAN, LAN_GATEWAY))
        try:
            for host, (name, device, address, gateway) in zip(self.pair.names, ends, strict=True):
                for line in (
                    f"netns add {name}",
                    f"link add {device} netns {host} type veth peer name eth0 netns {name}",
                    f"-n {host} address add {gateway}/24 dev {device}",
                    f"-n {host} link set {device} up",
                    f"-n {name} address add {address}/24 dev eth0",
                    f"-n {name} link set eth0 up",
                    f"-n {name} link set lo up",
                    f"-n {name} route add default via {gateway}",
                ):
                    subprocess.run(["ip", *line.split()], check=True)
            self.start(0, [sys.executable, "-c", ECHO, WORLD, CALL])
            if os.path.exists(self.transfer):
                self.start(0, [self.transfer, "serve", f"{WORLD}:{QUIC}", self.certificate], stderr=subprocess.DEVNULL)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in self.children + self.loads:
            child.terminate()
            child.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def start(self, side, command, **more):
        """Starts a command in the world or in the network behind the proxy."""
        self.children.append(subprocess.Popen(self.pair.inside(self.names[side], shlex.join(map(str, command))), **more))
        return self.children[-1]

    def load(self, seconds):
        """Begins to call, to ping and to download."""
        commands = [[sys.executable, "-c", LOAD, seconds, WORLD, CALL, LATE]]
        if os.path.exists(self.transfer):
            get = [self.transfer, "get", f"{WORLD}:{QUIC}", self.certificate, PIECE]
            commands.append([sys.executable, "-c", DOWNLOADS, seconds, *get])
        self.loads = [self.start(1, command, stdout=subprocess.PIPE, text=True) for command in commands]
        self.children = self.children[: -len(commands)]

    def told(self, excused, waits):
        """What was lost but for times that are excused: words for a person, what is wrong, and all of it. `waits`: when
        gateway or proxy waited for a processor."""
        told = [json.loads(one.communicate()[0]) for one in self.loads]
        words, wrong, call = [], [], told[0]

        def outside(begin, end, times=excused):
            return not any(begin <= until and end >= since for since, until in times)

        for kind, took in call["took"].items():
            lost = call["lost"][kind]
            unexcused = [at for at in lost if outside(at, at + LATE)]
            times = f"p50 and p99 {1000 * percentile(took, 0.5):.1f} and {1000 * percentile(took, 0.99):.1f} ms"
            waiting = [at for at in unexcused if not outside(at, at + LATE, waits)]
            words.append(
                f"{kind}: {len(took)} answered, {times}, {len(lost)} lost, {len(unexcused)} without a reason,"
                f" {len(waiting)} of these while gateway or proxy waited for a processor"
            )
            call["lost"][kind] = {"all": lost, "unexcused": unexcused, "waiting": waiting}
            del took[:]
        for one in told[1:]:
            failed = [times for times in one["failed"] if outside(*times)]
            wrong += [f"a download by QUIC failed: {times}" for times in failed]
            gaps = f"gap p50 and p99 {percentile(one['gaps'], 0.5):.0f} and {percentile(one['gaps'], 0.99):.0f} ms"
            words.append(f"QUIC: {one['right']} right, {gaps}, {len(one['failed'])} failed, {len(failed)} without a reason")
        return words, wrong, told


def groups(times, begin):
    """When packets were lost, in seconds since the beginning, with how many: those that were lost one after the other."""
    found = []
    for at in times:
        if found and at - found[-1][1] < 1:
            found[-1][1:] = [at, found[-1][2] + 1]
        else:
            found.append([at, at, 1])
    return [f"{first - begin:.1f} s: {count}" for first, _, count in found]
