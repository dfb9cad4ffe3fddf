#!/usr/bin/env python3
"""What a network behind `ropewalkd proxy --transparent` gets of a pair for calls, video, DNS and QUIC over emulated links: by
the tunnel's QUIC (`pair`), by its stream where UDP is blocked (`blocked`), and by UDP ASSOCIATE (`stream`). As root:

    cargo build --release -p ropewalk -p ropewalkd && cargo build --release -p ropewalk-gateway --example quic_transfer
    benches/datagrams.py                    # all rows, 3 seeds
    benches/datagrams.py --seeds 10 voice download
    benches/datagrams.py --seeds 10 --output FILE --minutes 7       # again until it is done: what FILE has isn't run again
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORLD, NEAR_WORLD = "10.99.0.2", "10.99.0.1"
VOICE, VIDEO, DNS, QUIC = 5004, 5006, 5353, 4433
GATEWAY = "10.127.255.1"
LINKS = ["a: 40 Mbit/s, 45 ms, 0.5 %{cut}", "b: 60 Mbit/s, 50 ms"]
# When the first link is cut, seconds after the emulator's start, and for how long.
CUT_AT, CUT = 16, 3
SECONDS = 20
HEADER = struct.Struct("!IIdd")
BLOCK = "table inet blocked { chain input { type filter hook input priority -300; udp dport 5124 drop; }; }"
TICKS = os.sysconf("SC_CLK_TCK")


def run(line):
    """Runs a command line."""
    subprocess.run(line.split(), check=True)


def inside(namespace, *command):
    """The command in a namespace."""
    return ["ip", "netns", "exec", namespace, *command]


def own(*words):
    """This script in another role."""
    return [sys.executable, os.path.abspath(__file__), *words]


def cpu_seconds(pid):
    """Processor time of a process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


# --- programs of the two ends ---


class Arrivals:
    """When numbered datagrams of a flow came, and how long each took."""

    def __init__(self):
        self.took, self.at = {}, []

    def take(self, data):
        """Notes a datagram."""
        number, _, _, sent = HEADER.unpack_from(data)
        now = time.monotonic()
        if number not in self.took:
            self.took[number] = now - sent
            self.at.append(now)

    def told(self, count):
        """What came of so many."""
        gaps = [b - a for a, b in zip(self.at, self.at[1:], strict=False)]
        took = sorted(self.took.values())
        return {
            "sent": count,
            "lost": count - len(took),
            "late": count - sum(one <= 0.15 for one in took),
            "p50_ms": 1000 * took[len(took) // 2] if took else None,
            "p99_ms": 1000 * took[int(0.99 * (len(took) - 1))] if took else None,
            "gap_ms": 1000 * max(gaps, default=0),
        }


def flow(kind, seconds):
    """When each datagram of a flow is sent, and how long it is."""
    if kind == "voice":
        return [(i * 0.02, 160) for i in range(50 * seconds)]
    return [(i / 30, 1157) for i in range(30 * seconds) for _ in range(9)]


def send_flow(send, kind, seconds, wish=0):
    """Sends a flow in real time."""
    start = time.monotonic()
    for number, (at, length) in enumerate(flow(kind, seconds)):
        time.sleep(max(0, start + at - time.monotonic()))
        head = HEADER.pack(number, wish, 0, time.monotonic())
        try:
            send(head + bytes(length - len(head)))
        except OSError:
            pass


def serve(folder):
    """In the world: answers calls, sends video, answers queries; what it got of calls goes to files."""

    def listen(port):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind((WORLD, port))
        return one

    def voice_or_video(port, kind):
        one = listen(port)
        calls = {}
        while True:
            data, peer = one.recvfrom(2048)
            if peer not in calls:
                calls[peer] = Arrivals()
                wish = HEADER.unpack_from(data)[1]
                send = threading.Thread(
                    target=send_flow, args=(lambda data, peer=peer: one.sendto(data, peer), kind, wish), daemon=True
                )
                send.start()
            calls[peer].take(data)
            number = HEADER.unpack_from(data)[0]
            if kind == "voice" and number % 50 == 49:
                with open(f"{folder}/up.new", "w") as file:
                    json.dump(calls[peer].told(number + 1), file)
                os.replace(f"{folder}/up.new", f"{folder}/up.json")

    def dns():
        one = listen(DNS)
        while True:
            data, peer = one.recvfrom(2048)
            one.sendto(data + bytes(60), peer)

    threading.Thread(target=voice_or_video, args=(VOICE, "voice"), daemon=True).start()
    threading.Thread(target=voice_or_video, args=(VIDEO, "video"), daemon=True).start()
    dns()


class Associated:
    """A socket by SOCKS5's UDP ASSOCIATE."""

    def __init__(self, port):
        self.control = socket.create_connection(("127.0.0.1", 1080))
        self.control.sendall(b"\x05\x01\x00")
        self.control.recv(2)
        self.control.sendall(b"\x05\x03\x00\x01" + bytes(6))
        answer = self.control.recv(64)
        if answer[1] != 0:
            raise OSError(f"UDP ASSOCIATE: {answer[1]}")
        self.to = (socket.inet_ntoa(answer[4:8]), int.from_bytes(answer[8:10], "big"))
        self.head = b"\0\0\0\x01" + socket.inet_aton(WORLD) + port.to_bytes(2, "big")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send(self, data):
        """Sends a datagram."""
        self.socket.sendto(self.head + data, self.to)

    def recv(self, length):
        """Receives a datagram."""
        return self.socket.recv(length)[10:]

    def settimeout(self, timeout):
        """As a socket's."""
        self.socket.settimeout(timeout)


def opened(way, port):
    """A socket that is connected to the server."""
    if way == "stream":
        return Associated(port)
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.connect((WORLD, port))
    return one


def received(one):
    """A thread that receives until nothing comes for two seconds, and what it has received."""
    one.settimeout(2)
    arrivals = Arrivals()

    def receive():
        while True:
            try:
                arrivals.take(one.recv(2048))
            except OSError:
                return

    receiving = threading.Thread(target=receive)
    receiving.start()
    return receiving, arrivals


def call(folder, way, kind):
    """Voice both ways, or video from the server."""
    one = opened(way, VOICE if kind == "voice" else VIDEO)
    receiving, arrivals = received(one)
    if kind == "voice":
        send_flow(one.send, kind, SECONDS, SECONDS)
    else:
        one.send(HEADER.pack(0, SECONDS, 0, time.monotonic()))
        time.sleep(SECONDS)
    receiving.join()
    told = {"down": arrivals.told(len(flow(kind, SECONDS)))}
    if kind == "voice":
        time.sleep(0.2)
        with open(f"{folder}/up.json") as file:
            told["up"] = json.load(file)
    return told


def queries(way):
    """Ten queries a second."""
    one = opened(way, DNS)
    count = SECONDS * 10
    receiving, arrivals = received(one)
    for number in range(count):
        one.send(HEADER.pack(number, 0, 0, time.monotonic()))
        time.sleep(0.1)
    receiving.join()
    return {"down": arrivals.told(count)}


def load(folder, way, row, transfer):
    """What a host of the network does; the result goes to standard output."""
    if row in ("voice", "video"):
        told = call(folder, way, row)
    elif row == "dns":
        told = queries(way)
    else:
        command = [transfer, "get", f"{WORLD}:{QUIC}", f"{folder}/certificate", str(30_000_000)]
        if row == "download":
            told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        else:
            stop, results = threading.Event(), []

            def repeat():
                while not stop.is_set():
                    done = subprocess.run(command, capture_output=True, text=True)
                    if done.returncode == 0:
                        results.append(json.loads(done.stdout)["mbit"])

            beside = threading.Thread(target=repeat)
            beside.start()
            told = call(folder, way, "voice")
            stop.set()
            beside.join()
            told["mbit"] = statistics.mean(results) if results else None
    print(json.dumps(told))


# --- the stage ---


def far(folder, ropewalkd, transfer, way):
    """On the emulator's far side: the gateway, and the world behind it."""
    if way == "blocked":
        subprocess.run(["nft", "-f", "-"], input=BLOCK, text=True, check=True)
    name = f"rope-bench-world-{os.getpid()}"
    run(f"ip netns add {name}")
    try:
        run(f"ip link add wan0 type veth peer name eth0 netns {name}")
        run(f"ip address add {NEAR_WORLD}/24 dev wan0")
        run("ip link set wan0 up")
        run(f"ip -n {name} address add {WORLD}/24 dev eth0")
        run(f"ip -n {name} link set eth0 up")
        run(f"ip -n {name} link set lo up")
        world = [
            subprocess.Popen(inside(name, *own("serve", folder))),
            subprocess.Popen(inside(name, transfer, "serve", f"{WORLD}:{QUIC}", f"{folder}/certificate")),
        ]
        keys = f"--key {folder}/gateway.key --proxy {folder}/proxy.pub"
        keys += f" --status {folder}/gateway.sock --log warn"
        line = f"gateway --listen {GATEWAY}:5124 --convert {WORLD} --udp {WORLD} {keys}"
        gateway = subprocess.Popen([ropewalkd, *line.split()])
        with open(f"{folder}/gateway.pid", "w") as file:
            file.write(str(gateway.pid))
        # The emulator waits until something listens.
        listening = socket.create_server((GATEWAY, 9))
        while gateway.poll() is None and not os.path.exists(f"{folder}/end"):
            time.sleep(0.1)
        with open(f"{folder}/gateway.json", "w") as file:
            subprocess.run([ropewalkd, "status", "--socket", f"{folder}/gateway.sock", "--json"], stdout=file)
        with open(f"{folder}/told", "w"):
            pass
        listening.close()
        for child in [gateway, *world]:
            child.terminate()
            child.wait(20)
    finally:
        run(f"ip netns delete {name}")


def near(folder, ropewalkd, transfer, way, row, begin):
    """On the emulator's near side: the proxy, and a network behind it."""
    name = f"rope-bench-lan-{os.getpid()}"
    run(f"ip netns add {name}")
    try:
        run(f"ip link add lan0 type veth peer name eth0 netns {name}")
        run("ip address add 10.98.0.1/24 dev lan0")
        run("ip link set lan0 up")
        run(f"ip -n {name} address add 10.98.0.2/24 dev eth0")
        run(f"ip -n {name} link set eth0 up")
        run(f"ip -n {name} link set lo up")
        run(f"ip -n {name} route add default via 10.98.0.1")
        log = open(f"{folder}/proxy.log", "w")
        proxy = subprocess.Popen(
            [ropewalkd, "proxy", "--transparent", "lan0", "--gateway", f"{GATEWAY}:5124", "--json"]
            + ["--gateway-key", f"{folder}/proxy.key", "--gateway-certificate", f"{folder}/gateway.pub"]
            + ["--status", f"{folder}/proxy.sock"]
            + [word for link in ("a", "b") for word in ("--via", link)],
            stderr=log,
        )
        deadline = time.monotonic() + 12

        def is_ready():
            with open(f"{folder}/proxy.log") as file:
                text = file.read()
            carried = "go by a stream" in text if way == "blocked" else text.count("datagrams go over this link") >= 2
            return carried and "datagrams go through the gateway" in text

        while not is_ready():
            if proxy.poll() is not None or time.monotonic() > deadline:
                with open(f"{folder}/proxy.log") as file:
                    sys.exit(f"no tunnel: {file.read()}")
            time.sleep(0.1)
        time.sleep(max(0, begin - time.monotonic()))
        with open(f"{folder}/gateway.pid") as file:
            pids = [proxy.pid, int(file.read())]
        before = [cpu_seconds(pid) for pid in pids]
        words = own("load", folder, way, row, transfer)
        words = words if way == "stream" else inside(name, *words)
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        told = json.loads(done.stdout)
        told["cpu"] = sum(cpu_seconds(pid) - was for pid, was in zip(pids, before, strict=True))
        status = subprocess.run(
            [ropewalkd, "status", "--socket", f"{folder}/proxy.sock", "--json"], capture_output=True, text=True
        )
        if status.returncode == 0:
            told["proxy"] = json.loads(status.stdout)["datagrams"]
        with open(f"{folder}/result.json", "w") as file:
            json.dump(told, file)
        with open(f"{folder}/end", "w"):
            pass
        # The gateway tells of the tunnel while there is one.
        while not os.path.exists(f"{folder}/told"):
            time.sleep(0.05)
        proxy.terminate()
        proxy.wait(20)
    finally:
        run(f"ip netns delete {name}")


def once(options, way, row, cut, seed):
    """One run in the emulator; what it brought."""
    folder = tempfile.mkdtemp(prefix="rope-datagrams-")
    os.chmod(folder, 0o755)
    try:
        keys = subprocess.run([options.ropewalkd, "keys", "pair", folder], capture_output=True, text=True)
        if keys.returncode != 0:
            sys.exit(keys.stderr)
        start = time.monotonic()
        links = [link.format(cut=f", outage {CUT} s at {CUT_AT} s" if cut else "") for link in LINKS]
        # A download has to be under way by the cut, and others well before it.
        begin = start + CUT_AT - (1.0 if row == "download" else 8)
        command = [options.ropewalk, "emulate", "--quiet", "--seed", str(seed)]
        command += [word for link in links for word in ("--path", link)]
        script = [options.ropewalkd, options.transfer]
        command += ["--peer", " ".join(own("far", folder, *script, way))]
        command += ["--", *own("near", folder, *script, way, row, str(begin))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150)
        try:
            with open(f"{folder}/result.json") as file:
                told = json.load(file)
            with open(f"{folder}/gateway.json") as file:
                told["gateway"] = json.load(file)["datagrams"]
            return told
        except OSError:
            sys.exit(f"{row}, {way}: {done.stdout}{done.stderr}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


ROWS = {
    "voice": [("voice, cut", "voice", True)],
    "video": [("video, cut", "video", True)],
    "dns": [("DNS, cut", "dns", True)],
    "download": [("download", "download", False), ("download, cut", "download", True)],
    "beside": [("voice beside downloads", "beside", False)],
}


def shown(way, told):
    """A run in words."""
    if "seconds" in told:
        gigabytes = told["bytes"] / 1e9
        return f"{told['mbit']:.0f} Mbit/s, gap {told['gap_ms']:.0f} ms, {told['cpu'] / gigabytes:.0f} CPU s/GB"
    words = []
    for side in ("up", "down"):
        if side in told:
            one = told[side]
            words.append(
                f"{side}: {one['lost']} lost, {one['late']} lost or late of {one['sent']}, p50 {one['p50_ms']:.0f},"
                f" p99 {one['p99_ms']:.0f}, gap {one['gap_ms']:.0f} ms"
            )
    if told.get("mbit"):
        words.append(f"{told['mbit']:.0f} Mbit/s beside")
    return "; ".join(words)


def main():
    """Runs the rows of the command line."""
    if sys.argv[1:2] and sys.argv[1] in ("serve", "load", "far", "near"):
        role, *words = sys.argv[1:]
        if role == "near":
            words[-1] = float(words[-1])
        return {"serve": serve, "load": load, "far": far, "near": near}[role](*words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ways", default="pair,blocked,stream")
    parser.add_argument("--output", help="a file for all results, a line of JSON each; what it has isn't run again")
    parser.add_argument("--minutes", type=float, help="begins no run after so long")
    for name, path in [("ropewalk", "ropewalk"), ("ropewalkd", "ropewalkd"), ("transfer", "examples/quic_transfer")]:
        parser.add_argument(f"--{name}", default=os.path.join(ROOT, "target/release", path))
    options = parser.parse_args()
    end, done = time.monotonic() + 60 * (options.minutes or float("inf")), {}
    if options.output and os.path.exists(options.output):
        with open(options.output) as file:
            done = {(told["row"], told["way"], told["seed"]): told for told in map(json.loads, file)}
    for row in options.rows or ROWS:
        for title, load_of, cut in ROWS[row]:
            for seed in range(1, options.seeds + 1):
                for way in options.ways.split(","):
                    if way == "stream" and row in ("download", "beside"):
                        continue
                    told = done.get((title, way, seed))
                    is_new = told is None
                    if is_new and time.monotonic() > end:
                        sys.exit("the time is over: run it again")
                    told = told or once(options, way, load_of, cut, seed)
                    print(f"{title}, {way}, seed {seed}: {shown(way, told)}", flush=True)
                    if options.output and is_new:
                        with open(options.output, "a") as file:
                            print(json.dumps({"row": title, "way": way, "seed": seed} | told), file=file)


if __name__ == "__main__":
    main()
