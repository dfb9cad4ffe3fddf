"""The row `attack` of benches/gateway.py: strangers beside honest clients, one kind after the other, then all at once."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

from gateway_stage import BACKEND, Pair, Workdir, end, percentile, ready, resident, say, table

PORT, CONVERT, PROXY, METRICS = 80, 5124, 1080, 9464
# The attackers' addresses, which lead back to the client's host and to nobody there.
NETWORK = "10.66.0.0/16"
# What the gateway's connections may hold.
MEMORY = 64
# Asked of honest connections: 99 of 100 are open within so many milliseconds.
ASKED = 20

# What attackers have alike: packets of their own, and sockets that don't wait.
COMMON = """
import asyncio, os, random, socket, struct, sys, time
draw = random.Random(7)
# How long it lasts, and the share of its clients or rate.
seconds, share = map(float, sys.argv[1:3])
end = time.monotonic() + seconds
def checksum(data):
    data += b"\\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xffff)
    return ~(total + (total >> 16)) & 0xffff
def syn(options):
    source, port = f"10.66.{draw.randrange(256)}.{draw.randrange(1, 255)}", draw.randrange(1024, 65535)
    ends = socket.inet_aton(source) + socket.inet_aton("10.0.0.1")
    options += b"\\1" * (-len(options) % 4)
    head = struct.pack("!HHIIBBHHH", port, 80, draw.getrandbits(32), 0, (20 + len(options)) // 4 << 4, 2, 64240, 0, 0) + options
    total = checksum(ends + struct.pack("!BBH", 0, 6, len(head)) + head)
    tcp = head[:16] + struct.pack("!H", total) + head[18:]
    return struct.pack("!BBHHHBBH", 69, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + ends + tcp
def flood(rate, options):
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    begin, sent = time.monotonic(), 0
    while (now := time.monotonic()) < end:
        for _ in range(int((now - begin) * rate * share) - sent):
            raw.sendto(syn(options()), ("10.0.0.1", 0))
            sent += 1
        time.sleep(0.002)
    print(sent)
"""
# A kind of attack, what it is, and its program.
ATTACKS = {
    "SYN flood": (
        "5,000 SYN a second with MP_CAPABLE, from 65,000 addresses",
        COMMON + "flood(5000, lambda: bytes([2, 4, 5, 180, 30, 4, 1, 0]))",
    ),
    "bad joins": (
        "30,000 joins with guessed tokens, 5,000 a second",
        COMMON + "end = time.monotonic() + 6\nflood(5000, lambda: bytes([2, 4, 5, 180, 30, 12, 0, 1]) + draw.randbytes(8))",
    ),
    "clients that stop reading": (
        "1,000 at a time that ask for 4 MiB and read nothing; who is reset comes again",
        COMMON
        + """
async def connect(client):
    # asyncio's own would ask the resolver about a protocol that it doesn't know.
    if (error := client.connect_ex(("10.0.0.1", 80))) not in (0, 115):
        raise OSError(error, "connect")
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(client, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_writer(client)
    if error := client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(error, "connect")
async def one(number):
    loop = asyncio.get_running_loop()
    await asyncio.sleep(number / 500)
    while time.monotonic() < end:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as client:
            client.setblocking(False)
            client.bind((f"10.66.1.{1 + number % 250}", 0))
            counts["opened"] += 1
            try:
                await asyncio.wait_for(connect(client), 5)
                await loop.sock_sendall(client, b"GET /4194304 HTTP/1.0\\r\\n\\r\\n")
                # The state: established, or closed by the far end.
                while time.monotonic() < end and client.getsockopt(socket.IPPROTO_TCP, 11, 1)[0] in (1, 8):
                    await asyncio.sleep(0.5)
                counts["ended"] += 1
            except (OSError, asyncio.TimeoutError):
                counts["refused"] += 1
                await asyncio.sleep(0.5)
counts = dict(opened=0, ended=0, refused=0)
async def main():
    await asyncio.gather(*(one(number) for number in range(int(1000 * share))))
asyncio.run(main())
print(counts)
""",
    ),
    "half TLS hellos": (
        "3,000 connections to the converter, with half a TLS hello each",
        COMMON
        + """
async def one(number):
    await asyncio.sleep(number / 1000)
    while time.monotonic() < end:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection("10.0.0.1", 5124), 5)
            writer.write(bytes([22, 3, 1, 1, 44, 1, 0, 1, 40, 3, 3]) + bytes(100))
            counts["opened"] += 1
            await asyncio.wait_for(reader.read(100), max(end - time.monotonic(), 0.1))
            writer.close()
        except (OSError, asyncio.TimeoutError):
            await asyncio.sleep(0.2)
counts = dict(opened=0)
async def main():
    await asyncio.gather(*(one(number) for number in range(int(3000 * share))))
asyncio.run(main())
print(counts)
""",
    ),
    "password guesser": (
        "100 connections at a time to the proxy, a wrong password each",
        COMMON
        + """
async def one(number):
    while time.monotonic() < end:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection("10.0.1.2", 1080), 5)
            writer.write(b"\\5\\1\\2\\1\\3van\\6" + b"%06d" % draw.randrange(10 ** 6))
            counts["guessed"] += 1
            answer = await asyncio.wait_for(reader.read(100), 12)
            answer += await asyncio.wait_for(reader.read(100), 12)
            counts["heard"] += answer[2:3] == b"\\1"
            writer.close()
        except (OSError, asyncio.TimeoutError):
            await asyncio.sleep(0.1)
counts = dict(guessed=0, heard=0)
async def main():
    await asyncio.gather(*(one(number) for number in range(int(100 * share))))
asyncio.run(main())
print(counts)
""",
    ),
    "log filler": (
        "50 at a time that send 100 bytes of nonsense to the converter, again and again",
        COMMON
        + """
async def one(number):
    while time.monotonic() < end:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection("10.0.0.1", 5124), 5)
            writer.write(draw.randbytes(100))
            counts["sent"] += 1
            await asyncio.wait_for(reader.read(100), 5)
            writer.close()
        except (OSError, asyncio.TimeoutError):
            await asyncio.sleep(0.01)
counts = dict(sent=0)
async def main():
    await asyncio.gather(*(one(number) for number in range(int(50 * share))))
asyncio.run(main())
print(counts)
""",
    ),
}

# Honest clients: connect by Multipath TCP, ask for a small file, compare; by the proxy as well. Prints handshake times.
HONEST = """
import json, socket, sys, time
end, connects, failed, proxied = time.monotonic() + float(sys.argv[1]), [], [], []
def ask(client):
    client.sendall(b"GET /65536 HTTP/1.0\\r\\n\\r\\n")
    data = b""
    while piece := client.recv(65536):
        data += piece
    if len(data.partition(b"\\r\\n\\r\\n")[2]) != 65536:
        raise OSError(f"{len(data)} bytes only")
turn = 0
while time.monotonic() < end:
    turn += 1
    begin = time.perf_counter()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as client:
            client.settimeout(5)
            client.connect(("10.0.0.1", 80))
            connects.append(1000 * (time.perf_counter() - begin))
            ask(client)
    except OSError as error:
        failed.append(f"gateway: {error}")
    if turn % 10 == 0:
        begin = time.perf_counter()
        try:
            with socket.create_connection(("127.0.0.1", 1080), 5) as client:
                client.sendall(b"\\5\\1\\2\\1\\3van\\6secret")
                client.recv(2), client.recv(2)
                client.sendall(b"\\5\\1\\0\\1" + socket.inet_aton("10.0.0.1") + (80).to_bytes(2, "big"))
                if client.recv(10)[1:2] != b"\\0":
                    raise OSError("refused")
                ask(client)
            proxied.append(1000 * (time.perf_counter() - begin))
        except OSError as error:
            failed.append(f"proxy: {error}")
    time.sleep(0.01)
print(json.dumps({"connects": connects, "proxied": proxied, "failed": failed}))
"""


class Logged:
    """A daemon with its log, and the most memory that it was seen to have."""

    def __init__(self, pair, side, command, log):
        self.log = log
        with open(log, "w") as file:
            self.child = subprocess.Popen(pair.inside(pair.names[side], command), stderr=file, start_new_session=True)
        self.most = 0

    def watch(self):
        """Notes its memory until it ends."""
        while self.child.poll() is None:
            try:
                self.most = max(self.most, resident(self.child.pid))
            except (OSError, TypeError):
                return
            time.sleep(0.1)

    def size(self):
        """Bytes that it has logged."""
        return os.path.getsize(self.log)


def start(pair, workdir, ropewalkd):
    """nginx, gateway and proxy."""
    for name in ("gateway", "proxy"):
        keys = f"{ropewalkd} keys pair {workdir.path('attack-keys')} --only {name}"
        subprocess.run(shlex.split(keys), check=True, stdout=subprocess.DEVNULL)
    with open(workdir.path("attack.toml"), "w") as file:
        file.write(
            f"[gateway]\nmemory = '{MEMORY} MiB'\nstatus = 'none'\nmetrics = '127.0.0.1:{METRICS}'\n"
            f"[[listener]]\nlisten = '10.0.0.1:{PORT}'\naddresses = ['10.0.1.1']\nto = '127.0.0.1:{BACKEND}'\n"
            f"[[listener]]\nlisten = '10.0.0.1:{CONVERT}'\nconvert = ['10.0.0.1 {BACKEND}']\n"
            "key = 'attack-keys/gateway.key'\nproxies = ['attack-keys/proxy.pub']\n"
        )
    with open(os.open(workdir.path("users"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write("van:secret\n")
    nginx = subprocess.Popen(pair.inside(pair.names[0], workdir.nginx(f"127.0.0.1:{BACKEND}")), start_new_session=True)
    gateway = f"{ropewalkd} gateway --config {workdir.path('attack.toml')}"
    via = "--via eth0,gateway=10.0.0.1 --via eth1,gateway=10.0.1.1"
    proxy = f"{ropewalkd} proxy {via} --listen 0.0.0.0:{PROXY} --users {workdir.path('users')} --status none"
    daemons = [Logged(pair, side, line, workdir.path(f"attack-{side}.log")) for side, line in enumerate((gateway, proxy))]
    for line in (ready("10.0.0.1"), ready("10.0.0.1", f"curl --proxy socks5://van:secret@127.0.0.1:{PROXY}")):
        subprocess.run(pair.inside(pair.names[1], f"sh -c {shlex.quote(line)}"), check=True)
    return nginx, daemons


def measure(pair, kinds, seconds, ropewalkd):
    """One run: what honest clients saw, and what the daemons spent, with these attacks under way."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-attack-") as folder:
        workdir = Workdir(folder)
        nginx, daemons = start(pair, workdir, ropewalkd)
        try:
            for daemon in daemons:
                threading.Thread(target=daemon.watch, daemon=True).start()
            before = [daemon.size() for daemon in daemons]
            attackers = []
            for kind in kinds:
                side = pair.names[0 if kind == "password guesser" else 1]
                line = ["nice", "-n", "10", sys.executable, "-c", ATTACKS[kind][1], str(seconds + 2), "1"]
                command = ["ip", "netns", "exec", side, *line]
                attackers.append((kind, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
            time.sleep(2)
            command = ["ip", "netns", "exec", pair.names[1], sys.executable, "-c", HONEST, str(seconds)]
            honest = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            did = {kind: child.communicate()[0].strip() for kind, child in attackers}
            logged = sum(daemon.size() for daemon in daemons) - sum(before)
            ended = [daemon.child.poll() for daemon in daemons]
            metrics = subprocess.run(
                pair.inside(pair.names[0], f"curl -sf http://127.0.0.1:{METRICS}/metrics"), capture_output=True, text=True
            ).stdout
            lines = [line.split() for line in metrics.splitlines() if line.startswith("ropewalk_gateway_")]
            told = {words[0]: float(words[1]) for words in lines}
            with open(daemons[0].log) as file:
                lines = file.read().splitlines()[-5:]
        finally:
            for daemon in daemons:
                if daemon.child.poll() is None:
                    end(daemon.child)
            nginx.send_signal(signal.SIGTERM)
            nginx.wait()
    return {
        "did": did,
        "connects": len(honest["connects"]),
        "p50_ms": percentile(honest["connects"], 0.5),
        "p99_ms": percentile(honest["connects"], 0.99),
        "proxied": len(honest["proxied"]),
        "failed": honest["failed"],
        "log_mb_per_hour": logged / (seconds + 2) * 3600 / 1e6,
        "memory_mib": [daemon.most for daemon in daemons],
        "ended": ended,
        "counters": told,
        "log": lines,
    }


def attack(_, options):
    """Each attack alone, then all at once."""
    results, rows = {}, []
    with Pair(links=2) as pair:
        server, client = pair.names
        for line in (f"ip -n {server} route add {NETWORK} via 10.0.1.2", f"ip -n {client} route add local 10.66.1.0/24 dev lo"):
            subprocess.run(shlex.split(line), check=True)
        # Answers to addresses that nobody has.
        pair.run(client, f"ip route add blackhole {NETWORK}")
        runs = {"none": [], **{kind: [kind] for kind in ATTACKS}, "all at once": list(ATTACKS)}
        for name, kinds in runs.items():
            say(f"attack: {name}")
            found = results[name] = measure(pair, kinds, options.seconds, options.ropewalkd)
            say(f"  {json.dumps({key: value for key, value in found.items() if key != 'counters'})[:1500]}")
            gateway, proxy = found["memory_mib"]
            rows.append(
                [
                    name,
                    f"{found['p50_ms']:.1f} and {found['p99_ms']:.1f} ms",
                    f"{len(found['failed'])} of {found['connects'] + found['proxied'] + len(found['failed'])}",
                    f"{found['log_mb_per_hour']:.2f} MB",
                    f"{gateway:.0f} and {proxy:.0f} MiB",
                ]
            )
    honest = ["honest handshakes, p50 and p99", "honest clients that failed"]
    head = ["attack", *honest, "log in an hour", "memory, gateway and proxy"]
    table(head, rows)
    missed = [name for name, found in results.items() if found["failed"] or found["p99_ms"] > ASKED]
    print(f"asked: p99 below {ASKED} ms and no failure; missed: {', '.join(missed) or 'none'}")
    return results
