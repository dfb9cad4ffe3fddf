"""Rows of benches/gateway.py about a proxy and a gateway as a pair: what ordinary programs get of them."""

import contextlib
import functools
import hashlib
import itertools
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import threading
import time

from gateway_stage import BACKEND, SETTINGS, Pair, end, percentile, ready, resident, say, table

SERVER = "10.9.9.9"
PROXY = ("127.0.0.1", 1080)
TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20


def cpu_seconds(pid):
    """Processor time of a process, with that of its threads."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Duo(Pair):
    """A client with the proxy, a server with the gateway and nginx behind it; two links, or one."""

    def __init__(self, workdir, options, links=2, rate=None, proxy="", gateway=""):
        super().__init__(links)
        self.workdir, self.options, self.rate, self.more = workdir, options, rate, {"proxy": proxy, "gateway": gateway}
        self.children, self.cut_at = [], None
        self.socket = workdir.path("proxy.sock")

    def make(self):
        """Makes the namespaces, and starts nginx, the gateway and the proxy."""
        super().make()
        server, client = self.names
        self.run(server, f"ip address add {SERVER}/32 dev lo")
        for i in self.links:
            self.run(client, f"ip route add default via 10.0.{i}.1 dev eth{i} metric {100 + i}")
            for name in self.names if self.rate else []:
                self.run(name, f"tc qdisc add dev eth{i} root tbf rate {self.rate} burst 128k latency 60ms")
        ropewalkd = self.options.ropewalkd
        cookie = self.workdir.path("cookie")
        if not os.path.exists(cookie):
            subprocess.run([ropewalkd, "keys", "cookie", cookie], check=True, stdout=subprocess.DEVNULL)
        self.nginx = self.spawn(server, self.workdir.nginx(f"{SERVER}:80"))
        addresses = " ".join(f"--address 10.0.{i}.1" for i in self.links if i)
        self.gateway = self.spawn(
            server,
            f"{ropewalkd} gateway --listen 10.0.0.1:5124 {addresses} --convert '{SERVER} 22,80,8080' --udp '{SERVER} 443,5353'"
            f" --cookie {cookie} --status none --log warn {self.more['gateway']}",
        )
        vias = " ".join(f"--via eth{i}" for i in self.links)
        self.proxy = self.spawn(
            client,
            f"{ropewalkd} proxy {vias} --gateway 10.0.0.1:5124 --gateway-cookie {cookie} --status {self.socket}"
            f" --usage {self.workdir.path('usage.json')} {self.more['proxy']}",
        )
        self.run(client, f"sh -c {shlex.quote(ready(SERVER, 'curl --proxy socks5h://127.0.0.1:1080'))}")

    def spawn(self, name, command):
        """Starts a command in a namespace; it is ended with the others."""
        child = subprocess.Popen(self.inside(name, command), start_new_session=True)
        self.children.append(child)
        return child

    def __exit__(self, *_):
        for child in reversed(self.children):
            end(child)
        super().__exit__()

    def ask(self):
        """What `ropewalkd status` tells of the proxy."""
        told = subprocess.run(
            [self.options.ropewalkd, "status", "--socket", self.socket, "--json"], check=True, capture_output=True
        )
        return json.loads(told.stdout)

    def cut(self, link):
        """Drops everything on a link, in silence, from `cut_at` on."""
        self.cut_at = time.monotonic()
        for name in self.names:
            chain = f"chain cut {{ type filter hook ingress device eth{link} priority 0; policy drop; }}"
            self.run(name, f"nft {shlex.quote(f'table netdev cut{link} {{ {chain}; }}')}")

    def mend(self, link):
        """Ends the cut of a link."""
        for name in self.names:
            self.run(name, f"nft delete table netdev cut{link}")

    def wait_for(self, link, state):
        """Waits until the proxy says that a link is in a state."""
        begin = time.monotonic()
        while self.ask()["links"][link]["state"] != state:
            if time.monotonic() - begin > 20:
                raise RuntimeError(f"eth{link} isn't {state}: {self.ask()['links'][link]}")
            time.sleep(0.1)

    def download(self, name, at_share=None, act=None):
        """Downloads a file through the proxy: its digest, its length, the longest time without data after `act`, the seconds.

        When `at_share` of the file have come, `act` is called, in a thread: what has arrived goes on being read.
        """
        size = os.path.getsize(self.workdir.path(f"files/{name}"))
        command = f"curl -sS --no-buffer --max-time 300 --proxy socks5h://127.0.0.1:1080 http://{SERVER}/{name}"
        curl = subprocess.Popen(self.inside(self.names[1], command), stdout=subprocess.PIPE, bufsize=0)
        digest, received, times, acting = hashlib.sha256(), 0, [], None
        begin = time.monotonic()
        while piece := curl.stdout.read(256 << 10):
            times.append(time.monotonic())
            digest.update(piece)
            received += len(piece)
            if act and not acting and received >= at_share * size:
                acting = threading.Thread(target=act)
                acting.start()
        took = time.monotonic() - begin
        if curl.wait() != 0:
            raise RuntimeError(f"curl ended with {curl.returncode} after {received} of {size} bytes")
        if acting:
            acting.join()
            if self.cut_at is None or times[-1] < self.cut_at:
                raise RuntimeError("the download was over before the link was cut")
            after = [self.cut_at, *(at for at in times if at > self.cut_at)]
            return digest.hexdigest(), received, max(b - a for a, b in itertools.pairwise(after)), took
        return digest.hexdigest(), received, 0.0, took


def file_of(workdir, size, name):
    """A file of random bytes that nginx serves; its SHA-256."""
    path, digest = workdir.path(f"files/{name}"), hashlib.sha256()
    if not os.path.exists(path):
        with open(path, "wb") as file:
            for at in range(0, size, MIB):
                file.write(os.urandom(min(MIB, size - at)))
    with open(path, "rb") as file:
        while piece := file.read(MIB):
            digest.update(piece)
    return digest.hexdigest()


def cut(workdir, options):
    """200 MB over two links of 200 Mbit/s; one is cut in silence at a quarter, and stays cut."""
    expected = file_of(workdir, 200_000_000, "large")
    rows, found = [], []
    whats = ("the link that the connection opened on", "the other link")
    for is_other, what in enumerate(whats):
        for round in range(options.rounds):
            with Duo(workdir, options, rate="200mbit") as duo:

                def act(duo=duo, is_other=is_other):
                    opened = next(int(one["opened_on"].removeprefix("eth")) for one in duo.ask()["connections"])
                    duo.cut((opened + is_other) % 2)

                digest, received, stall, took = duo.download("large", 0.1, act)
                say(f"cut, round {round + 1}: {what}, {received} bytes, stall {stall:.3f} s, {took:.1f} s in all")
                found.append({"cut": what, "right": digest == expected, "stall_s": stall, "seconds": took})
    for what in whats:
        mine = [one for one in found if one["cut"] == what]
        if mine:
            right = sum(one["right"] for one in mine)
            rows.append(
                [
                    what,
                    f"{right} of {len(mine)}",
                    f"{max(one['stall_s'] for one in mine):.2f} s",
                    f"{statistics.median(one['seconds'] for one in mine):.1f} s",
                ]
            )
    table(
        ["what is cut under a download of 200 MB", "all bytes right", "longest stall (asked: 1 s)", "seconds in all, median"],
        rows,
    )
    return found


def switch(workdir, options):
    """Silent deaths of links under a download, in turn: how long nothing arrives, and until the link is used again."""
    expected = file_of(workdir, 60_000_000, "middle")
    stalls, again = [], []
    with Duo(workdir, options, rate="100mbit") as duo:
        for turn in range(options.deaths):
            link = turn % 2
            digest, _, stall, _ = duo.download("middle", 0.25, functools.partial(duo.cut, link))
            if digest != expected:
                sys.exit("wrong bytes")
            stalls.append(stall)
            duo.wait_for(link, "dead")
            begin = time.monotonic()
            duo.mend(link)
            duo.wait_for(link, "up")
            again.append(time.monotonic() - begin)
            say(f"switch {turn + 1} of {options.deaths}: stall {stall:.3f} s, up again after {again[-1]:.2f} s")
    rows = []
    for name, times in (("longest stall after a silent death", stalls), ("up again after its return", again)):
        rows.append([name, *(f"{value:.2f} s" for value in (statistics.median(times), percentile(times, 0.95), max(times)))])
    table([f"{options.deaths} deaths", "median", "p95 (asked: 1 s)", "longest"], rows)
    return {"stalls_s": stalls, "again_s": again}


def measured(pids, work):
    """What `work` returns, and the processor time that processes spent meanwhile."""
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    result = work()
    return result, {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}


def machine_seconds():
    """Processor time of the whole machine, its kernel's included."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS


@contextlib.contextmanager
def haproxies(workdir):
    """HAProxy on the kernel's Multipath TCP at both ends, nginx behind: the namespaces, and the processes by name."""
    ends = {"gateway": ("10.0.0.1:9001", f"{SERVER}:80"), "proxy": ("127.0.0.1:9002", "10.0.0.1:9001")}
    with Pair() as pair:
        server, client = pair.names
        pair.run(server, f"ip address add {SERVER}/32 dev lo")
        children = [subprocess.Popen(pair.inside(server, workdir.nginx(f"{SERVER}:80")), start_new_session=True)]
        for side, (name, (listen, to)) in zip(pair.names, ends.items(), strict=True):
            with open(workdir.path(f"{name}.cfg"), "w") as file:
                file.write(
                    "global\n nbthread 1\ndefaults\n mode tcp\n"
                    " timeout connect 5s\n timeout client 300s\n timeout server 300s\n"
                    f"listen all\n bind {listen}\n server to {to}\n"
                )
            command = f"mptcpize run haproxy -db -f {workdir.path(name)}.cfg"
            children.append(subprocess.Popen(pair.inside(side, command), start_new_session=True))
        try:
            pair.run(client, f"sh -c {shlex.quote(ready('127.0.0.1:9002'))}")
            yield pair, {name: child.pid for name, child in zip(ends, children[1:], strict=True)}
        finally:
            for child in reversed(children):
                end(child)


def throughput(workdir, options):
    """One download without a limit: through a pair, through HAProxy at both ends, and by `ropewalk perf`."""
    size = 1 << 30
    # Not sparse, and in memory: nginx's kernel would zero its pages meanwhile.
    with open(workdir.path("files/huge"), "wb") as file:
        for _ in range(size // MIB):
            file.write(bytes(MIB))
    pair_rates, pair_cpu, haproxy_rates, haproxy_cpu, perf_rates, perf_cpu = [], [], [], [], [], []

    def download(pair, pids, url, rates, cpu):
        curl = functools.partial(subprocess.run, pair.inside(pair.names[1], f"curl -sS -o /dev/null {url}"), check=True)
        begin, before = time.monotonic(), machine_seconds()
        _, spent = measured(pids, curl)
        spent["machine"] = machine_seconds() - before
        rates.append(8 * size / (time.monotonic() - begin))
        cpu.append({name: value * 1e9 / size for name, value in spent.items()})

    for round in range(options.rounds):
        with Duo(workdir, options, links=1) as duo:
            pids = {"proxy": duo.proxy.pid, "gateway": duo.gateway.pid}
            download(duo, pids, f"--proxy socks5h://127.0.0.1:1080 http://{SERVER}/huge", pair_rates, pair_cpu)
        with haproxies(workdir) as (pair, pids):
            download(pair, pids, "http://127.0.0.1:9002/huge", haproxy_rates, haproxy_cpu)
        with Pair() as pair:
            # From one TUN device to the other.
            pair.run(pair.names[0], "sysctl -qw net.ipv4.ip_forward=1")
            line = f"{options.ropewalk} perf server --stack engine"
            server = subprocess.Popen(
                pair.inside(pair.names[0], line), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            try:
                server.stderr.readline()
                line = f"{options.ropewalk} perf client 10.126.0.2 --stack engine --reverse --time 5 --json"
                client = subprocess.run(pair.inside(pair.names[0], line), capture_output=True, text=True, timeout=60)
                if client.returncode != 0:
                    sys.exit(f"throughput: {client.stderr}")
                told = json.loads(client.stdout)["download"]
                perf_rates.append(told["bits_per_second"])
                perf_cpu.append({"server": cpu_seconds(server.pid) * 1e9 / told["bytes"]})
            finally:
                server.kill()
                server.wait()
        rates = {"pair": pair_rates, "HAProxy": haproxy_rates, "perf": perf_rates}
        told = ", ".join(f"{name} {all[-1] / 1e9:.2f} Gbit/s" for name, all in rates.items())
        say(f"throughput, round {round + 1}: {told}")
    middle = statistics.median

    def cost(all, name):
        return f"{middle(one[name] for one in all):.2f}"

    rows = [
        [name, f"{middle(rates) / 1e9:.2f} Gbit/s", cost(cpu, "gateway"), cost(cpu, "proxy"), cost(cpu, "machine")]
        for name, rates, cpu in [
            ("proxy and gateway", pair_rates, pair_cpu),
            ("HAProxy at both ends, the kernel's Multipath TCP", haproxy_rates, haproxy_cpu),
        ]
    ] + [
        [
            "`ropewalk perf`, both ends the engine's",
            f"{middle(perf_rates) / 1e9:.2f} Gbit/s",
            cost(perf_cpu, "server"),
            "",
            "",
        ],
    ]
    table(["", "rate", "CPU seconds per GB, sender", "receiver", "the whole machine"], rows)
    ratio = middle(pair_rates) / middle(perf_rates)
    print(f"ratio: {ratio:.2f} (asked: 0.8)")
    return {
        "pair_bits_per_s": pair_rates,
        "perf_bits_per_s": perf_rates,
        "haproxy_bits_per_s": haproxy_rates,
        "haproxy_cpu": haproxy_cpu,
        "pair_cpu": pair_cpu,
        "perf_cpu": perf_cpu,
        "ratio": ratio,
    }


# Holds what connects, and closes when standard input does.
HOLDER = f"""
import asyncio, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
async def hold(reader, writer):
    await reader.read()
    writer.close()
async def main():
    server = await asyncio.start_server(hold, "127.0.0.1", {BACKEND}, backlog=4096)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
asyncio.run(main())
"""
# Opens connections of Multipath TCP, says when they are there, and keeps them until standard input ends.
OPENER = """
import resource, socket, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
count, host, port, socks = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), len(sys.argv) > 4
held, failed = [], 0
for at in range(count):
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0 if socks else 262)
    one.settimeout(20)
    try:
        one.connect((host, port))
        if socks:
            one.sendall(bytes([5, 1, 0, 5, 1, 0, 1, 10, 9, 9, 9]) + (8080).to_bytes(2))
            answer = b""
            while len(answer) < 12:
                answer += one.recv(12 - len(answer))
            assert answer[3] == 0, answer
        one.sendall(b"x")
        held.append(one)
    except Exception as error:
        failed += 1
        print(at, error, file=sys.stderr)
        if failed > 20: break
print(len(held), failed, flush=True)
sys.stdin.read()
"""


def idle(workdir, options):
    """Idle connections: the memory of each, and processor time while nothing happens."""
    rows, found = [], {}
    seconds, count = 20, options.idle

    def measure(name, pids, open_all):
        before = {which: resident(pid) for which, pid in pids.items()}
        begin = time.monotonic()
        opener = open_all()
        line = opener.stdout.readline().split()
        held, failed = map(int, line) if line else (0, 0)
        say(f"idle, {name}: {held} connections in {time.monotonic() - begin:.0f} s, {failed} failed")
        time.sleep(5)
        _, spent = measured(pids, lambda: time.sleep(seconds))
        for which, pid in pids.items():
            memory = (resident(pid) - before[which]) * MIB / max(held, 1)
            load = 100 * spent[which] / seconds
            rows.append([which, f"{held} of {count}", f"{memory / 1024:.1f} KiB", f"{load:.1f} % of a core"])
            found[which] = {"held": held, "bytes_each": memory, "cpu_percent": load}
        opener.stdin.close()
        opener.wait(60)

    def start(pair, name, program, *arguments):
        line = shlex.join([sys.executable, "-c", program, *map(str, arguments)])
        return subprocess.Popen(pair.inside(name, line), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with Pair() as pair:
        server, client = pair.names
        for name in pair.names:
            pair.run(name, "sysctl -qw 'net.ipv4.ip_local_port_range=10000 65000' net.core.somaxconn=4096")
        holder = start(pair, server, HOLDER)
        holder.stdout.readline()
        with open(workdir.path("idle.toml"), "w") as file:
            file.write(
                f"[gateway]\nstatus = 'none'\nconnections = {4 * count}\nmemory = '16 GiB'\n"
                f"[[listener]]\nlisten = '10.0.0.1:80'\nto = '127.0.0.1:{BACKEND}'\nconnections = {2 * count}\n"
            )
        gateway = subprocess.Popen(
            pair.inside(server, f"{options.ropewalkd} gateway --config {workdir.path('idle.toml')} --log warn")
        )
        try:
            time.sleep(1)
            measure(
                "gateway",
                {"gateway, Multipath TCP clients": gateway.pid},
                lambda: start(pair, client, OPENER, count, "10.0.0.1", 80),
            )
        finally:
            end(gateway)
            holder.kill()
    # On the command line the gateway's memory is the default: so many fit.
    count = min(count, 4000)
    with Duo(workdir, options, links=2, proxy=f"--connections {2 * count}") as duo:
        server, client = duo.names
        for name in duo.names:
            duo.run(name, "sysctl -qw 'net.ipv4.ip_local_port_range=10000 65000' net.core.somaxconn=4096")
        holder = start(duo, server, HOLDER.replace("127.0.0.1", SERVER).replace(str(BACKEND), "8080"))
        holder.stdout.readline()
        try:
            pids = {"proxy, two subflows each": duo.proxy.pid, "gateway behind it": duo.gateway.pid}
            measure("pair", pids, lambda: start(duo, client, OPENER, count, *PROXY, "socks"))
        finally:
            holder.kill()
    table(["", "connections", "memory each", "idle load"], rows)
    return found


# Types characters into a shell's terminal at the other end, and times their echoes: milliseconds, one a line.
TYPIST = """
import os, pty, random, select, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
def until(expected, seconds):
    text, end = b"", time.monotonic() + seconds
    while expected not in text:
        if not select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
            sys.exit(f"no {expected!r} after {seconds} s: {text!r}")
        text += os.read(terminal, 4096)
until(b"type here", 30)
time.sleep(0.5)
draw = random.Random(1)
for at in range(int(sys.argv[1])):
    letter = bytes([97 + at % 26])
    begin = time.monotonic()
    os.write(terminal, letter)
    until(letter, 20)
    print(f"{1000 * (time.monotonic() - begin):.2f}", flush=True)
    time.sleep(draw.uniform(0.06, 0.18))
os.kill(pid, 9)
"""

LOSSY = """name = "lossy-wifi-lte"
[[path]]
name = "wifi"
rate = "30 Mbit/s"
rtt = "20 ms"
loss = "5 %"
[[path]]
name = "lte"
rate = "20 Mbit/s"
rtt = "60 ms"
[workload]
kind = "flow"
size = "1 MiB"
"""


def ssh(workdir, options):
    """Echo times of keystrokes over ssh, Wi-Fi that loses 5 % beside LTE: over each alone, and through proxy and gateway."""
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    if not os.path.exists(sshd):
        sys.exit("ssh: sshd isn't installed (apt-get install openssh-server)")
    for name in ("host", "own"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", workdir.path(name)], check=True)
    os.makedirs("/run/sshd", exist_ok=True)
    with open(workdir.path("sshd.conf"), "w") as file:
        file.write(
            f"HostKey {workdir.path('host')}\nAuthorizedKeysFile {workdir.path('own.pub')}\nStrictModes no\nUsePAM no\n"
            f"PidFile none\nPermitRootLogin yes\nListenAddress 10.127.255.1\n"
        )
    with open(workdir.path("lossy.toml"), "w") as file:
        file.write(LOSSY)
    subprocess.run([options.ropewalkd, "keys", "cookie", workdir.path("ssh-cookie")], check=True, stdout=subprocess.DEVNULL)
    login = (
        "ssh -tt -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        f" -i {workdir.path('own')}"
    )
    behind = "-o ProxyCommand='socat - PROXY:127.0.0.1:%h:%p,proxyport=1080'"
    ways = [
        ("Wi-Fi alone, TCP", "-b 10.127.0.2", None, None),
        ("LTE alone, TCP", "-b 10.127.1.2", None, None),
        ("pair, `fastest`", behind, "fastest", "ropewalk"),
        ("pair, `smallest-delay`", behind, "smallest-delay", "minrtt"),
        ("pair, `redundant`", behind, "redundant", "redundant"),
    ]
    rows, found = [], {}
    for name, how, policy, scheduler in ways:
        times = []
        for round in range(options.rounds):
            with open(workdir.path("ssh-peer.sh"), "w") as file:
                lines = [SETTINGS, f"{sshd} -D -f {workdir.path('sshd.conf')} &"]
                if policy:
                    lines.append(
                        f"exec {options.ropewalkd} gateway --listen 10.127.255.1:5124 --convert '10.127.255.1 22' --status none"
                        f" --cookie {workdir.path('ssh-cookie')} --scheduler {scheduler} --log warn"
                    )
                file.write("\n".join([*lines, "wait"]) + "\n")
            with open(workdir.path("ssh-client.sh"), "w") as file:
                lines = [SETTINGS]
                if policy:
                    lines.append(
                        f"{options.ropewalkd} proxy --via wifi --via lte --policy {policy} --gateway 10.127.255.1:5124"
                        f" --gateway-cookie {workdir.path('ssh-cookie')} --status none --usage {workdir.path('usage.json')} &"
                    )
                typist = shlex.join([sys.executable, workdir.path("typist.py"), str(options.keys)])
                lines.append("sleep 2")
                lines.append(f"{typist} {login} {how} root@10.127.255.1 'echo type here; exec cat'")
                file.write("\n".join(lines) + "\n")
            with open(workdir.path("typist.py"), "w") as file:
                file.write(TYPIST)
            command = [options.ropewalk, "emulate", "--scenario", workdir.path("lossy.toml")]
            command += ["--seed", str(round + 1), "--quiet"]
            command += ["--peer", f"sh {workdir.path('ssh-peer.sh')}", "--", "sh", workdir.path("ssh-client.sh")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            now = [float(line) for line in re.findall(r"^([\d.]+)\s*$", done.stdout, re.MULTILINE)]
            if len(now) < options.keys:
                sys.exit(f"ssh, {name}: {done.stdout[-500:]} {done.stderr[-2000:]}")
            times += now
        found[name] = times
        cells = [
            f"{value:.0f} ms"
            for value in (statistics.median(times), percentile(times, 0.95), percentile(times, 0.99), max(times))
        ]
        say(f"ssh, {name}: {cells}")
        rows.append([name, *cells])
    table([f"echo of {options.keys * options.rounds} keystrokes", "p50", "p95", "p99", "longest"], rows)
    return found


# An HTTP/3 server that answers GET /N with N bytes (aioquic).
HTTP3_SERVER = """
import asyncio, sys
from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated
class Server(QuicConnectionProtocol):
    http = None
    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        for one in self.http.handle_event(event) if self.http else []:
            if isinstance(one, HeadersReceived):
                size = int(dict(one.headers)[b":path"].lstrip(b"/"))
                self.http.send_headers(one.stream_id, [(b":status", b"200")])
                body = bytes((at * 31) & 255 for at in range(min(size, 4096))) * (size // 4096 + 1)
                self.http.send_data(one.stream_id, body[:size], end_stream=True)
                self.transmit()
async def main():
    settings = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    settings.load_cert_chain(sys.argv[2], sys.argv[3])
    await serve(sys.argv[1], 443, configuration=settings, create_protocol=Server)
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
# An HTTP/3 client behind SOCKS5's UDP ASSOCIATE: sizes as arguments, a line of seconds for each.
HTTP3_CLIENT = """
import asyncio, socket, ssl, sys, time
from aioquic.asyncio import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
server = (sys.argv[1], 443)
class Client(QuicConnectionProtocol):
    http, bodies, done = None, {}, {}
    def quic_event_received(self, event):
        for one in self.http.handle_event(event):
            if isinstance(one, DataReceived):
                self.bodies.setdefault(one.stream_id, bytearray()).extend(one.data)
            if isinstance(one, (HeadersReceived, DataReceived)) and one.stream_ended:
                self.done[one.stream_id].set_result(bytes(self.bodies.get(one.stream_id, b"")))
    async def get(self, size):
        stream = self._quic.get_next_available_stream_id()
        self.done[stream] = asyncio.get_running_loop().create_future()
        names = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"x"), (b":path", b"/%d" % size)]
        self.http.send_headers(stream, names, end_stream=True)
        self.transmit()
        return await asyncio.wait_for(self.done[stream], 60)
class Relay(asyncio.DatagramProtocol):
    # Puts SOCKS's header before each datagram, and takes it away.
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, _):
        self.quic.datagram_received(data[10:], server)
    def sendto(self, data, address):
        self.transport.sendto(bytes([0, 0, 0, 1]) + socket.inet_aton(address[0]) + address[1].to_bytes(2) + data)
    def close(self):
        self.transport.close()
async def main():
    control = socket.create_connection(("127.0.0.1", 1080))
    control.sendall(bytes([5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]))
    answer = b""
    while len(answer) < 12:
        answer += control.recv(12 - len(answer))
    assert answer[3] == 0, answer
    settings = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE)
    loop = asyncio.get_running_loop()
    relay = ("127.0.0.1", int.from_bytes(answer[10:12]))
    _, wrapped = await loop.create_datagram_endpoint(Relay, remote_addr=relay)
    client = Client(QuicConnection(configuration=settings))
    wrapped.quic = client
    client.connection_made(wrapped)
    client.http = H3Connection(client._quic)
    client.connect(server)
    await asyncio.wait_for(client.wait_connected(), 20)
    for size in map(int, sys.argv[2:]):
        begin = time.monotonic()
        body = await client.get(size)
        expected = (bytes((at * 31) & 255 for at in range(min(size, 4096))) * (size // 4096 + 1))[:size]
        assert body == expected, f"{len(body)} of {size} bytes, or others"
        print(f"{size} {time.monotonic() - begin:.3f}", flush=True)
    client.close()
asyncio.run(main())
"""


def http3(workdir, options):
    """HTTP/3 (aioquic) through UDP ASSOCIATE, two links of 50 Mbit/s, one of them cut meanwhile."""
    try:
        import aioquic  # noqa: F401
    except ImportError:
        sys.exit("http3: aioquic isn't installed (pip install aioquic)")
    certificate, key = workdir.path("h3.pem"), workdir.path("h3.key")
    line = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x"
    line += f" -keyout {key} -out {certificate}"
    subprocess.run(shlex.split(line), check=True, capture_output=True)
    sizes = [1, 1000, 100_000, 1_000_000, 10_000_000]
    rows = []
    with Duo(workdir, options, rate="50mbit") as duo:
        program = shlex.join([sys.executable, "-c", HTTP3_SERVER, SERVER, certificate, key])
        server = subprocess.Popen(duo.inside(duo.names[0], program), stdout=subprocess.PIPE, text=True)
        try:
            server.stdout.readline()
            for what in ("both links", "one link cut after 0.5 s"):
                program = shlex.join([sys.executable, "-c", HTTP3_CLIENT, SERVER, *map(str, sizes)])
                client = subprocess.Popen(duo.inside(duo.names[1], program), stdout=subprocess.PIPE, text=True)
                if what != "both links":
                    time.sleep(0.5)
                    duo.cut(0)
                text = client.communicate(timeout=120)[0]
                times = dict(map(str.split, text.splitlines()))
                if client.returncode != 0 or len(times) != len(sizes):
                    sys.exit(f"http3, {what}: {text}")
                rows.append([what, *(f"{float(times[str(size)]):.3f} s" for size in sizes)])
        finally:
            server.kill()
            server.wait()
    table(["HTTP/3", *(f"{size} bytes" for size in sizes)], rows)
    return rows


ROWS = {
    "throughput": throughput,
    "idle": idle,
    "switch": switch,
    "cut": cut,
    "ssh": ssh,
    "http3": http3,
}
