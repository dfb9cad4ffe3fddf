"""What the measurements of gateway and proxy share: a working folder, two hosts with links, processes."""

import os
import re
import shlex
import signal
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = {"64 KiB": 64 << 10, "256 KiB": 256 << 10, "1 MiB": 1 << 20, "4 MiB": 4 << 20}
# The kernel's scheduler, behind HAProxy.
KERNEL = "haproxy"
# The gateway with `ropewalk`, and the client behind `ropewalkd proxy`, which keeps connections to it ready.
PAIR = "pair"
BACKEND = 8080
# In a namespace: cubic, nothing remembered of earlier connections, and Multipath TCP isn't given up for an hour after SYNs that
# a cut link has swallowed.
SETTINGS = "sysctl -qw net.ipv4.tcp_congestion_control=cubic net.ipv4.tcp_no_metrics_save=1 net.mptcp.blackhole_timeout=0"
# The same in a script: where it isn't allowed, the comparison would be of something else.
OR_END = f"{SETTINGS} || exit 1"


def say(text):
    """Reports progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def percentile(values, share):
    """The value below which a share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Workdir:
    """Files that are served, and the settings of nginx and HAProxy."""

    def __init__(self, folder):
        self.folder = folder
        os.chmod(folder, 0o755)
        os.mkdir(self.path("files"))
        for size in SIZES.values():
            with open(self.path(f"files/{size}"), "wb") as file:
                file.write(os.urandom(size))
        with open(self.path("files/small"), "w") as file:
            file.write("ok\n")

    def path(self, name):
        """A file's path in the folder."""
        return os.path.join(self.folder, name)

    def nginx(self, port, name="nginx"):
        """A command that serves the files on loopback."""
        parts = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        temporary = "".join(f"{part}_temp_path {self.path('temporary-' + part)};" for part in parts)
        with open(self.path(f"{name}.conf"), "w") as file:
            file.write(
                f"daemon off; master_process off; pid {self.path(name)}.pid; error_log stderr;"
                "events { worker_connections 4096; } http { access_log off; keepalive_requests 1000000; sendfile on;"
                " client_header_timeout 300s; send_timeout 300s;"
                f"{temporary} server {{ listen {port} backlog=4096; root {self.path('files')}; }} }}\n"
            )
        return f"nginx -c {self.path(name)}.conf -e stderr"

    def front(self, way, address, ropewalkd):
        """A command that listens at `address`, port 80, and forwards to nginx."""
        if way == PAIR:
            convert = (
                f"{ropewalkd} gateway --listen {address}:5124 --convert '{address} {BACKEND}' --cookie {self.path('cookie')}"
            )
            return f"{convert} --scheduler ropewalk --log warn"
        if way == KERNEL:
            with open(self.path("haproxy.cfg"), "w") as file:
                file.write(
                    "global\n nbthread 1\n maxconn 4000\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 300s\n"
                    f" timeout server 300s\nlisten front\n bind {address}:80\n server nginx 127.0.0.1:{BACKEND}\n"
                )
            return f"mptcpize run haproxy -db -f {self.path('haproxy.cfg')}"
        return f"{ropewalkd} gateway --listen {address}:80 --to 127.0.0.1:{BACKEND} --scheduler {way} --log warn"


def ready(address, curl="curl"):
    """A line for the shell that waits until the address answers, and ends the shell with an error if it doesn't in time."""
    ask = f"{curl} -sf -o /dev/null --max-time 2 http://{address}/small"
    late = f"{{ echo {address} does not answer >&2; exit 1; }}"
    return f"n=0; until {ask}; do n=$((n + 1)); [ $n -lt 100 ] || {late}; sleep 0.1; done"


class Allowed:
    """Namespaces may choose cubic meanwhile: some systems allow that to the first namespace only."""

    FILE = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"

    def __enter__(self):
        with open(self.FILE) as file:
            self.before = file.read().strip()
        if "cubic" not in self.before.split():
            self.write(f"{self.before} cubic")

    def __exit__(self, *_):
        if "cubic" not in self.before.split():
            self.write(self.before)

    def write(self, names):
        """Sets the allowed congestion controls."""
        with open(self.FILE, "w") as file:
            file.write(names)


class Pair:
    """Two namespaces joined by virtual Ethernet pairs: on link i, the client is 10.0.i.2, the server 10.0.i.1."""

    def __init__(self, links=1):
        self.links = range(links)
        self.names = [f"ropewalk-bench-{os.getpid()}-{side}" for side in ("server", "client")]

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        """Makes the namespaces and their links."""
        server, client = self.names
        for line in [
            f"netns add {server}",
            f"netns add {client}",
            *(f"link add eth{i} netns {server} type veth peer name eth{i} netns {client}" for i in self.links),
            *(
                f"-n {name} address add 10.0.{i}.{host}/24 dev eth{i}"
                for i in self.links
                for host, name in enumerate(self.names, 1)
            ),
            *(f"-n {name} link set {device} up" for name in self.names for device in ("lo", *(f"eth{i}" for i in self.links))),
            *(f"-n {name} mptcp limits set subflows 4 add_addr_accepted 4" for name in self.names),
        ]:
            subprocess.run(["ip", *line.split()], check=True)
        for name in self.names:
            self.run(name, SETTINGS)

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False)

    @staticmethod
    def inside(name, command):
        """The command line that runs a command in a namespace."""
        return ["ip", "netns", "exec", name, *shlex.split(command)]

    def run(self, name, command):
        """Runs a command in a namespace; its standard output."""
        return subprocess.run(self.inside(name, command), check=True, capture_output=True, text=True).stdout

    def start(self, command, core):
        """Starts a command on one core, in the server's namespace."""
        return subprocess.Popen(["taskset", "-c", str(core), *self.inside(self.names[0], command)], start_new_session=True)


def end(child):
    """Ends a child by SIGTERM; one that goes on after 10 s by SIGKILL."""
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def resident(pid):
    """Resident memory in MiB."""
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024


def table(head, rows):
    """Prints a table in Markdown."""
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()
