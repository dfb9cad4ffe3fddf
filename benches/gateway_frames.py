"""Frames by TCP through proxy and gateway, written in pieces as another network brings them: when each is whole."""

import json
import os
import shlex
import statistics
import subprocess
import sys

from gateway_stage import SETTINGS, percentile, say, table

# Two links by their round trips.
LINKS = """
workload = {{ kind = "flow", size = "1 MiB" }}
path = [
  {{ name = "wifi", rate = "20 Mbit/s", rtt = "{} ms +-2 ms" }},
  {{ name = "lte", rate = "15 Mbit/s", rtt = "{} ms +-4 ms" }},
]
"""
FAR, PORT = "10.127.255.1", 8080

# Tells how long after its making each frame was whole: both ends read the same clock.
RECEIVER = """
import json, socket, struct, sys, time
stream, _ = socket.create_server((sys.argv[1], int(sys.argv[2]))).accept()
delays, left = [], b""
while data := stream.recv(1 << 20):
    now, left = time.monotonic(), left + data
    while len(left) >= 12 and len(left) >= (frame := struct.unpack("!Id", left[:12]))[0]:
        delays.append(now - frame[1])
        left = left[frame[0]:]
with open(sys.argv[3], "w") as file:
    json.dump(delays, file)
"""

# Frames of so many bytes, so many a second, each thirtieth so large; in pieces of 1,448 bytes so far apart.
SENDER = """
import os, socket, struct, sys, time
far, port, usual, key, rate, between, seconds = sys.argv[1], *map(float, sys.argv[2:])
stream = socket.create_connection(("127.0.0.1", 1080))
stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
stream.sendall(f"CONNECT {far}:{int(port)} HTTP/1.1\\r\\nHost: {far}\\r\\n\\r\\n".encode())
assert b" 200 " in stream.recv(1000)
begin = time.monotonic()
for number in range(int(seconds * rate)):
    time.sleep(max(0, begin + number / rate - time.monotonic()))
    size, now = int(usual if number % 30 else key), time.monotonic()
    data = struct.pack("!Id", size, now) + os.urandom(size - 12)
    for piece in range(0, size, 1448):
        while time.monotonic() < now + piece / 1448 * between / 1e6:
            pass
        stream.sendall(data[piece:piece + 1448])
stream.shutdown(socket.SHUT_WR)
time.sleep(3)
"""

# A name; bytes of a frame, of each thirtieth, frames a second, microseconds between pieces.
KINDS = [
    ("video, 10 and 100 KB, LAN of 1 Gbit/s", 10_000, 100_000, 30, 12),
    ("video, LAN of 50 Mbit/s", 10_000, 100_000, 30, 232),
    ("gaming, 20 KB, LAN of 50 Mbit/s", 20_000, 20_000, 60, 232),
    ("frames of 75 KB, LAN of 24 Mbit/s", 75_000, 75_000, 40, 480),
]


def once(workdir, options, ropewalkd, trips, kind, seed):
    """The delays of one run's frames, seconds."""
    delays = workdir.path("delays.json")
    for name, text in [("links.toml", LINKS.format(*trips)), ("receiver.py", RECEIVER), ("sender.py", SENDER)]:
        with open(workdir.path(name), "w") as file:
            file.write(text)
    receiver = shlex.join([sys.executable, workdir.path("receiver.py"), FAR, str(PORT), delays])
    sender = shlex.join([sys.executable, workdir.path("sender.py"), FAR, str(PORT), *map(str, kind[1:]), "8"])
    gateway = (
        f"{ropewalkd} gateway --listen {FAR}:5124 --convert '{FAR} {PORT}' --cookie {workdir.path('cookie')} --status none"
        " --scheduler ropewalk --log warn"
    )
    proxy = (
        f"{ropewalkd} proxy --via wifi --via lte --gateway {FAR}:5124 --gateway-cookie {workdir.path('cookie')} --status none"
        f" --usage {workdir.path('usage.json')}"
    )
    for name, lines in [
        ("frames-peer.sh", [SETTINGS, f"{receiver} &", f"exec {gateway}"]),
        ("frames.sh", [SETTINGS, f"{proxy} &", "sleep 2", sender]),
    ]:
        with open(workdir.path(name), "w") as file:
            file.write("\n".join(lines) + "\n")
    command = [options.ropewalk, "emulate", "--scenario", workdir.path("links.toml"), "--seed", str(seed), "--quiet"]
    command += ["--peer", f"sh {workdir.path('frames-peer.sh')}", "--", "sh", workdir.path("frames.sh")]
    if os.path.exists(delays):
        os.remove(delays)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if not os.path.exists(delays):
        sys.exit(f"frames, {kind[0]}: {done.stdout[-500:]} {done.stderr[-2000:]}")
    with open(delays) as file:
        return json.load(file)


def frames(workdir, options):
    """Delays of frames by this build, and in turn by an earlier one (`--before`)."""
    ways = [("this build", options.ropewalkd)] + ([("before", options.before)] if options.before else [])
    rows, found = [], {}
    for trips in [(30, 60), (8, 16)]:
        for kind in KINDS:
            delays = {name: [] for name, _ in ways}
            for seed in range(1, options.rounds + 1):
                for name, ropewalkd in ways:
                    delays[name] += once(workdir, options, ropewalkd, trips, kind, seed)
            for name, all in delays.items():
                cells = [f"{1000 * value:.1f} ms" for value in (statistics.mean(all), percentile(all, 0.99))]
                say(f"frames, {trips}, {kind[0]}, {name}: {cells}")
                rows.append([kind[0], f"{trips[0]} and {trips[1]} ms", name, *cells])
                found[f"{kind[0]}, {trips[0]}, {name}"] = all
    table(["frames", "round trips", "", "mean", "p99"], rows)
    return found


ROWS = {"frames": frames}
