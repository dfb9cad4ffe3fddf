"""The row `chaos` of benches/gateway.py: honest clients for hours, while everything else comes at random."""

import json
import os
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

from gateway_attack import ATTACKS, NETWORK
from gateway_lan import WORLD, Lan, groups
from gateway_stage import BACKEND, Pair, end, percentile, ready, resident, say, table

SERVER, PROXY, METRICS = "10.9.9.9", 1080, {"gateway": 9100, "proxy": 9101}
# What each daemon's connections may hold.
MEMORY = 64
RATE = "100mbit"
CLIENTS = 24
# Attacks have so much of the rates and clients of the row `attack`.
SHARES = (0.1, 0.4)
# A failure counts as a restart's if it overlaps it, or comes so many seconds later.
AFTER = 3
USER = "van:secret"

# Downloads in several threads: by the gateway with the kernel's Multipath TCP, or through proxy and gateway; some are read
# slowly. Prints a JSON value a line: each failure, each that stood still for over 20 s, and at last how many were right,
# and their times.
HONEST = """
import hashlib, json, os, random, socket, sys, threading, time
seconds, folder, clients, seed = float(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
end, lock, right, times = time.time() + seconds, threading.Lock(), {"gateway": 0, "proxy": 0}, []
# Only sizes that pass a slow link within the clients' patience.
names = sorted((name for name in os.listdir(folder) if name.isdigit() and int(name) <= 1 << 20), key=int)
files = {name: open(os.path.join(folder, name), "rb").read() for name in names}
def opened(way):
    if way == "gateway":
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
        one.settimeout(120)
        one.connect(("10.0.0.1", 80))
        return one
    one = socket.create_connection(("127.0.0.1", 1080), 120)
    one.sendall(b"\\5\\1\\2\\1\\3van\\6secret")
    if (heard := exactly(one, 4)) != b"\\5\\2\\1\\0":
        raise OSError(f"the proxy's answer: {heard}")
    one.sendall(b"\\5\\1\\0\\1" + socket.inet_aton("10.9.9.9") + (80).to_bytes(2, "big"))
    if (heard := exactly(one, 10))[1] != 0:
        raise OSError(f"the proxy's answer: {heard}")
    return one
def exactly(one, length):
    data = b""
    while len(data) < length:
        piece = one.recv(length - len(data))
        if not piece:
            raise OSError(f"closed after {data}")
        data += piece
    return data
def download(way, name, pause):
    with opened(way) as one:
        one.sendall(f"GET /{name} HTTP/1.0\\r\\n\\r\\n".encode())
        data, last, still = bytearray(), time.time(), 0
        while piece := one.recv(65536):
            data += piece
            if time.time() - last > still:
                still, at = time.time() - last, len(data) - len(piece)
            last = time.time()
            if pause:
                time.sleep(pause)
    body = bytes(data).partition(b"\\r\\n\\r\\n")[2]
    if body != files[name]:
        raise OSError(f"cut short: {len(body)}" if files[name].startswith(body) else "wrong bytes")
    return still, at
def client(number):
    draw = random.Random(f"{seed} {number}")
    time.sleep(2 * draw.random())
    while time.time() < end:
        way, begin = draw.choice(["gateway", "proxy"]), time.time()
        name = draw.choices(names, [8, 8, 3])[0]
        pause = draw.choices([0, 0.02], [9, 1])[0]
        try:
            still, at = download(way, name, pause)
            with lock:
                right[way] += 1
                if still > 20:
                    told = {"still": still, "at": at, "begin": begin, "end": time.time(), "way": way, "bytes": int(name)}
                    print(json.dumps(told), flush=True)
                if not pause:
                    times.append(time.time() - begin)
        except OSError as error:
            told = {"begin": begin, "end": time.time(), "way": way, "bytes": int(name), "error": str(error)}
            with lock:
                print(json.dumps(told), flush=True)
        time.sleep(2 * draw.random())
threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
[one.start() for one in threads]
[one.join() for one in threads]
print(json.dumps({"right": right, "times": times}))
"""


class Daemon:
    """Gateway or proxy, which may be started again."""

    def __init__(self, chaos, name, side):
        self.chaos, self.name, self.side = chaos, name, side
        self.log, self.config = chaos.workdir.path(f"{name}.log"), chaos.workdir.path(f"{name}.toml")
        self.child, self.memory, self.codes = None, [], []

    def start(self):
        """Starts it, and waits until clients are served."""
        command = f"{self.chaos.options.ropewalkd} {self.name} --config {self.config}"
        with open(self.log, "a") as log:
            self.child = subprocess.Popen(self.chaos.pair.inside(self.chaos.pair.names[self.side], command), stderr=log)
        lines = {"gateway": ready("10.0.0.1"), "proxy": ready(SERVER, f"curl --proxy socks5://{USER}@127.0.0.1:{PROXY}")}
        # Where a link is cut it takes longer.
        line = lines[self.name].replace("-lt 100", "-lt 600")
        subprocess.run(self.chaos.pair.inside(self.chaos.pair.names[1], f"sh -c {shlex.quote(line)}"), check=True)

    def stop(self, how):
        """Ends it by a signal; its exit code is kept unless it was killed."""
        self.child.send_signal(how)
        code = self.child.wait(90)
        if how != signal.SIGKILL:
            self.codes.append(code)

    def reload(self):
        """Has it read its file again; whether it did."""

        def read():
            with open(self.log) as log:
                return log.read().count("configuration read again")

        before = read()
        self.child.send_signal(signal.SIGHUP)
        for _ in range(100):
            if read() > before:
                return True
            time.sleep(0.1)
        return False

    def left(self):
        """Its connections, from the metrics."""
        command = f"curl -s --max-time 10 http://127.0.0.1:{METRICS[self.name]}/metrics"
        text = self.chaos.pair.run(self.chaos.pair.names[self.side], command)
        words = [line.split() for line in text.splitlines() if line.startswith(f"ropewalk_{self.name}_connections")]
        return int(sum(float(word[-1]) for word in words))


class Waits:
    """When a daemon waited for a processor: what else this host does then is no fault of the daemon's."""

    # Such a share of so many seconds counts.
    SHARE, STEP = 0.5, 0.25

    def __init__(self, *daemons):
        self.daemons, self.last, self.times = daemons, {}, []

    def look(self):
        """Notes who has waited since the last look."""
        now = time.time()
        for daemon in self.daemons:
            try:
                folder = f"/proc/{daemon.child.pid}/task"
                waits = {task: int(self.read(f"{folder}/{task}/schedstat").split()[1]) for task in os.listdir(folder)}
            except (OSError, AttributeError):
                continue
            at, before = self.last.get(daemon, (now, {}))
            longest = max((wait - before[task] for task, wait in waits.items() if task in before), default=0) / 1e9
            if longest > self.SHARE * max(now - at, self.STEP):
                self.times.append([at, now])
            self.last[daemon] = now, waits

    @staticmethod
    def read(path):
        """A file's text."""
        with open(path) as file:
            return file.read()


class Chaos:
    """What happens to the pair, in three lanes that don't wait for one another."""

    def __init__(self, pair, lan, workdir, options):
        self.pair, self.lan, self.workdir, self.options = pair, lan, workdir, options
        self.begin, self.over = time.time(), threading.Event()
        self.gateway, self.proxy = Daemon(self, "gateway", 0), Daemon(self, "proxy", 1)
        self.excused, self.wrong, self.events = [], [], 0
        self.waits = Waits(self.gateway, self.proxy)
        # When the first link was gone, and when the proxy had no other.
        self.gone, self.lone = [], [[float("inf")]]
        self.variants = {"gateway": 0, "proxy": 0}

    def at(self):
        """Seconds since the beginning."""
        return time.time() - self.begin

    def write(self, name):
        """Writes a daemon's file; it has variants that a reload may change between."""
        variant = self.variants[name]
        if name == "gateway":
            more = "[[listener]]\nlisten = '10.0.0.1:81'\nto = '127.0.0.1:8080'\n" if variant else ""
            text = (
                f"[gateway]\nmemory = '{MEMORY} MiB'\nstatus = 'none'\nmetrics = '127.0.0.1:{METRICS[name]}'\ndrain = '15 s'\n"
                f"[[listener]]\nlisten = '10.0.0.1:80'\naddresses = ['10.0.1.1']\nto = '127.0.0.1:{BACKEND}'\n"
                f"[[listener]]\nlisten = '10.0.0.1:5124'\naddresses = ['10.0.1.1']\nconvert = ['{SERVER} 80']\n"
                f"udp = ['{WORLD}']\n"
                f"key = 'keys/gateway.key'\nproxies = ['keys/proxy.pub']\n{more}"
            )
        else:
            policy = ("fastest", "smallest-delay", "redundant")[variant % 3]
            second = "" if variant == 3 else "[[link]]\ninterface = 'eth1'\n"
            text = (
                f"[proxy]\nlisten = '0.0.0.0:{PROXY}'\nusers = 'users'\nmemory = '{MEMORY} MiB'\nstatus = 'none'\n"
                f"usage = '{self.workdir.path('usage.json')}'\nmetrics = '127.0.0.1:{METRICS[name]}'\npolicy = '{policy}'\n"
                "gateway = ['10.0.0.1:5124']\ngateway-key = 'keys/proxy.key'\ngateway-certificate = ['keys/gateway.pub']\n"
                f"transparent = ['lan0']\ndrain = '15 s'\n[[link]]\ninterface = 'eth0'\n{second}"
            )
        with open(self.workdir.path(f"{name}.toml"), "w") as file:
            file.write(text)

    def set_up(self):
        """Addresses, keys, nginx, gateway and proxy."""
        server, client = self.pair.names
        for name, line in (
            (server, f"ip address add {SERVER}/32 dev lo"),
            (server, f"ip route add {NETWORK} via 10.0.1.2"),
            (client, "ip route add local 10.66.1.0/24 dev lo"),
            (client, f"ip route add blackhole {NETWORK}"),
            (client, "ip mptcp endpoint add 10.0.1.2 dev eth1 subflow"),
            *((name, f"tc qdisc add dev eth{i} root tbf {self.tbf(RATE)}") for name in (server, client) for i in (0, 1)),
        ):
            self.pair.run(name, line)
        self.routes()
        self.state_before = self.state()
        subprocess.run(
            [self.options.ropewalkd, "keys", "pair", self.workdir.path("keys")], check=True, stdout=subprocess.DEVNULL
        )
        with open(os.open(self.workdir.path("users"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(f"{USER}\n")
        listen = f"127.0.0.1:{BACKEND} backlog=4096; listen {SERVER}:80"
        self.nginx = subprocess.Popen(self.pair.inside(server, self.workdir.nginx(listen)), start_new_session=True)
        for daemon in (self.gateway, self.proxy):
            self.write(daemon.name)
            daemon.start()

    @staticmethod
    def tbf(rate):
        """A token bucket of this rate."""
        return f"rate {rate} burst 100k latency 50ms"

    def routes(self):
        """The routes that a link loses while it is down."""
        server, client = self.pair.names
        for i in (0, 1):
            self.pair.run(client, f"ip route replace default via 10.0.{i}.1 dev eth{i} metric {100 + i}")
        self.pair.run(server, f"ip route replace {NETWORK} via 10.0.1.2")

    def state(self):
        """What the daemons could leave behind, by namespace."""
        asked = ("ip -br link", "ip rule", "ip -6 rule", "ip route show table all", "nft list ruleset")
        asked += ("sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.ipv4.conf.all.rp_filter",)
        told = {}
        for name in self.pair.names:
            for command in asked:
                lines = self.pair.run(name, command).splitlines()
                # Lines in another order, a link's state, and what the kernel adds to it late are no difference.
                lines = [line.split()[0] if "link" in command else line.strip() for line in lines]
                told[name, command] = sorted(line for line in lines if "fe80::" not in line and "ff00::" not in line)
        return told

    def note(self, text):
        """Reports an event."""
        self.events += 1
        say(f"{self.at():7.1f} s: {text}")

    def lane(self, name, choices, pause):
        """One event after the other, until it is over."""
        draw = random.Random(f"{self.options.seed} {name}")
        while not self.over.wait(draw.uniform(*pause)):
            act = draw.choices([act for act, _ in choices], [weight for _, weight in choices])[0]
            try:
                act(draw)
            except (OSError, subprocess.SubprocessError) as error:
                self.wrong.append(f"{self.at():.1f} s: {act.__name__}: {error}")
                say(self.wrong[-1])

    def attack(self, draw):
        """One attack of the row `attack`, at a share of its rate."""
        kind, seconds, share = draw.choice(list(ATTACKS)), draw.uniform(10, 40), draw.uniform(*SHARES)
        self.note(f"attack: {kind}, {share:.2f}, {seconds:.0f} s")
        side = self.pair.names[0 if kind == "password guesser" else 1]
        line = ["ip", "netns", "exec", side, "nice", "-n", "15", sys.executable, "-c", ATTACKS[kind][1]]
        # Links that are down are errors of its own.
        subprocess.run([*line, str(seconds), str(share)], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def hurt(self, link, seconds):
        """Notes when the link is gone that is the proxy's only one in one of its variants."""
        if link == 0:
            self.gone.append([time.time(), time.time() + seconds + AFTER])

    def cut(self, draw):
        """A link loses everything, in silence."""
        link, seconds = draw.randrange(2), draw.uniform(1, 20)
        self.note(f"eth{link} is cut for {seconds:.1f} s")
        self.hurt(link, seconds)
        chain = f"chain cut {{ type filter hook ingress device eth{link} priority 0; policy drop; }}"
        for name in self.pair.names:
            self.pair.run(name, f"nft {shlex.quote(f'table netdev cut {{ {chain}; }}')}")
        self.over.wait(seconds)
        for name in self.pair.names:
            # A flush may have been faster.
            subprocess.run(self.pair.inside(name, "nft delete table netdev cut"), check=False, stderr=subprocess.DEVNULL)

    def down(self, draw):
        """An interface goes down and comes up."""
        link, seconds, client = draw.randrange(2), draw.uniform(1, 15), self.pair.names[1]
        self.note(f"eth{link} is down for {seconds:.1f} s")
        self.hurt(link, seconds)
        self.pair.run(client, f"ip link set eth{link} down")
        self.over.wait(seconds)
        self.pair.run(client, f"ip link set eth{link} up")
        self.routes()

    def address(self, draw):
        """The second link loses its address and gets it back."""
        seconds, client = draw.uniform(1, 15), self.pair.names[1]
        self.note(f"eth1 has no address for {seconds:.1f} s")
        self.pair.run(client, "ip address del 10.0.1.2/24 dev eth1")
        self.over.wait(seconds)
        self.pair.run(client, "ip address add 10.0.1.2/24 dev eth1")
        self.routes()

    def narrow(self, draw):
        """The second link's MTU changes."""
        mtu, seconds = draw.randrange(1280, 1500), draw.uniform(5, 30)
        self.note(f"eth1 has an MTU of {mtu} for {seconds:.1f} s")
        for size, wait in ((mtu, seconds), (1500, 0)):
            for name in self.pair.names:
                self.pair.run(name, f"ip link set eth1 mtu {size}")
            self.over.wait(wait)

    def slow(self, draw):
        """A link has another rate."""
        link, rate, seconds = draw.randrange(2), draw.choice([1, 5, 20]), draw.uniform(5, 30)
        self.note(f"eth{link} has {rate} Mbit/s for {seconds:.1f} s")
        for now, wait in ((f"{rate}mbit", seconds), (RATE, 0)):
            for name in self.pair.names:
                self.pair.run(name, f"tc qdisc change dev eth{link} root tbf {self.tbf(now)}")
            self.over.wait(wait)

    def reload(self, draw):
        """A daemon reads another file."""
        daemon = draw.choice([self.gateway, self.proxy])
        self.variants[daemon.name] = draw.randrange(2 if daemon is self.gateway else 4)
        self.note(f"{daemon.name} reads its file again, variant {self.variants[daemon.name]}")
        if daemon is self.proxy:
            self.lone[-1][1:] = [time.time()]
            self.lone.append([time.time() if self.variants["proxy"] == 3 else float("inf")])
        self.write(daemon.name)
        if not daemon.reload():
            raise OSError(f"{daemon.name} didn't read its file again")

    def restart(self, draw):
        """A daemon is ended or killed, and started again: only in the first half, so that the second shows its memory."""
        daemon, how = draw.choice([self.gateway, self.proxy]), draw.choice([signal.SIGTERM, signal.SIGKILL])
        if self.at() > 30 * self.options.minutes:
            return
        self.note(f"{daemon.name} is ended by {how.name} and started again")
        begin = time.time()
        # Until it is over nothing is held against it.
        self.excused.append([begin, float("inf")])
        daemon.stop(how)
        daemon.start()
        self.excused[-1][1] = time.time() + AFTER

    def flush(self, draw):
        """Another program flushes all rules: the kernel itself answers until they are repaired."""
        name = draw.choice(self.pair.names)
        self.note(f"all rules of nftables are flushed at the {name.rpartition('-')[2]}")
        begin = time.time()
        self.excused.append([begin, begin + AFTER])
        self.pair.run(name, "nft flush ruleset")

    def watch(self):
        """Notes each daemon's memory."""
        turn = 0
        while not self.over.wait(5):
            turn += 1
            for daemon in (self.gateway, self.proxy):
                try:
                    daemon.memory.append((self.at(), resident(daemon.child.pid)))
                except (OSError, TypeError):
                    continue
            if turn % 12 == 0 and self.gateway.memory and self.proxy.memory:
                sizes = [daemon.memory[-1][1] for daemon in (self.gateway, self.proxy)]
                say(f"{self.at():7.1f} s: gateway {sizes[0]:.0f} MiB, proxy {sizes[1]:.0f} MiB")

    def watch_waits(self):
        """Notes when a daemon waits for a processor."""
        while not self.over.wait(Waits.STEP):
            self.waits.look()

    def run(self):
        """The clients, with everything that happens to them."""
        seconds = 60 * self.options.minutes
        line = [sys.executable, "-c", HONEST, seconds, self.workdir.path("files"), CLIENTS, self.options.seed]
        clients = subprocess.Popen(
            self.pair.inside(self.pair.names[1], shlex.join(map(str, line))), stdout=subprocess.PIPE, text=True
        )
        self.begin = time.time()
        self.lan.load(seconds)
        links = [(self.cut, 4), (self.down, 2), (self.address, 2), (self.narrow, 1), (self.slow, 2)]
        daemons = [(self.reload, 4), (self.restart, 3), (self.flush, 1)]
        lanes = [
            threading.Thread(target=self.lane, args=("attacks", [(self.attack, 1)], (5, 30))),
            threading.Thread(target=self.lane, args=("links", links, (3, 25))),
            threading.Thread(target=self.lane, args=("daemons", daemons, (10, 50))),
            threading.Thread(target=self.watch),
            threading.Thread(target=self.watch_waits),
        ]
        for lane in lanes:
            lane.start()
        told = []
        for text in clients.stdout:
            told.append(json.loads(text))
            one = told[-1]
            if "still" in one:
                say(f"{one['end'] - self.begin:7.1f} s: stood still for {one['still']:.1f} s: {text.strip()}")
            if "error" in one:
                say(f"{one['end'] - self.begin:7.1f} s: failed after {one['end'] - one['begin']:.1f} s: {text.strip()}")
        self.over.set()
        for lane in lanes:
            lane.join()
        return told

    def judge(self, told):
        """What was lost, what was left, and whether memory stayed flat."""
        *events, last = told
        failures, still = ([one for one in events if key in one] for key in ("error", "still"))
        # With one link, cut or down, every connection has to fail.
        for since, until in self.gone:
            for begin, *over in self.lone:
                both = [max(since, begin), min(until, *over, float("inf"))]
                self.excused += [both] if both[0] < both[1] else []
        excused = [
            one for one in failures if any(one["begin"] <= until and one["end"] >= since for since, until in self.excused)
        ]
        lost = [one for one in failures if one not in excused or one["error"] == "wrong bytes"]
        self.wrong += [f"a download failed: {one}" for one in lost]
        if lost and self.options.json:
            for daemon in (self.gateway, self.proxy):
                shutil.copy(daemon.log, f"{self.options.json}.{daemon.name}.log")
        of_lan, wrong, datagrams = self.lan.told(self.excused, self.waits.times)
        self.wrong += wrong
        for kind, times in datagrams[0]["lost"].items():
            say(f"{kind} lost without a reason: {', '.join(groups(times['unexcused'], self.begin))}")
        begin = time.monotonic()
        while any(left := [self.gateway.left(), self.proxy.left()]) and time.monotonic() - begin < 150:
            time.sleep(1)
        if any(left):
            self.wrong.append(f"connections left: {left}")
        rows = []
        for daemon in (self.gateway, self.proxy):
            daemon.stop(signal.SIGTERM)
            if any(daemon.codes):
                self.wrong.append(f"{daemon.name}'s exit codes: {daemon.codes}")
            quarters = [
                [size for at, size in daemon.memory if n <= at / (15 * self.options.minutes) < n + 1] or [0] for n in range(4)
            ]
            rows.append([daemon.name, *(f"{statistics.median(one):.0f} and {max(one):.0f} MiB" for one in quarters)])
            # What is held for a moment depends on the attacks that the quarter had.
            if statistics.median(quarters[3]) > 1.1 * statistics.median(quarters[2]) + 8:
                self.wrong.append(f"{daemon.name}'s memory grows: {rows[-1]}")
        after = self.state()
        for key, before in self.state_before.items():
            if after[key] != before:
                self.wrong.append(f"left behind: {key}: {sorted(set(after[key]) ^ set(before))}")
        table(["resident memory, median and most", *(f"quarter {n}" for n in range(1, 5))], rows)
        print(
            f"seed {self.options.seed}, {self.options.minutes:g} minutes: {self.events} events; right: {last['right']},"
            f" p50 and p99 {percentile(last['times'], 0.5):.2f} and {percentile(last['times'], 0.99):.2f} s,"
            f" the longest {max(last['times']):.1f} s; {len(excused)} failed by a restart or a flush, {len(lost)} without one;"
            f" {len(still)} stood still for over 20 s"
        )
        print("\n".join(of_lan))
        print("\n".join(self.wrong) or "nothing lost, nothing left, memory flat")
        return {
            "right": last["right"],
            "excused": excused,
            "still": still,
            "datagrams": datagrams,
            "wrong": self.wrong,
            "memory": rows,
            "seed": self.options.seed,
        }


def chaos(workdir, options):
    """Honest clients, and everything else at random by a seed."""
    with Pair(links=2) as pair, Lan(pair, workdir, options) as lan:
        one = Chaos(pair, lan, workdir, options)
        say(f"seed {options.seed}")
        try:
            one.set_up()
            return one.judge(one.run())
        finally:
            one.over.set()
            for daemon in (one.gateway, one.proxy):
                if daemon.child and daemon.child.poll() is None:
                    end(daemon.child)
            end(one.nginx)
