#!/usr/bin/env bash
# ss of iproute2 6.1.0 (Debian 12, Linux 6.18) shows of a Multipath TCP connection a Send-Q of 0 however much waits to be sent,
# and as Recv-Q not the bytes that the program hasn't read but the memory they take: hundreds for one byte. Its subflows, listed
# as TCP, count what is on its way; what waits for a window or a reader isn't there. So who looks with ss, or with a monitor on
# sock_diag, for a connection that is stuck or a reader that is slow finds nothing. The kernel reports sk_wmem_alloc and
# sk_rmem_alloc (mptcp_diag_get_info in net/mptcp/mptcp_diag.c), but what a Multipath TCP socket has to send isn't counted in
# sk_wmem_alloc. The program itself hears the truth (SIOCOUTQ, SIOCINQ). ss -i has it, too: write_seq less snd_una is what isn't
# acknowledged.
# Columns: protocol; bytes unread, Recv-Q of the connection (and its subflow); bytes to send (SIOCOUTQ), Send-Q, ss -i's
# difference.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3, unshare with network namespaces.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq iproute2=6.1.0-3 libbpf1 libelf1 libmnl0 libcap2 libselinux1 libtirpc3 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > queues.py <<'PYTHON'
import fcntl, os, re, socket, struct, subprocess, termios, time

libraries = os.path.abspath("root/usr/lib/x86_64-linux-gnu") + ":" + os.path.abspath("root/lib/x86_64-linux-gnu")
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

def ss(one):
    """The lines that ss prints of this end: one of TCP, or one of the Multipath TCP connection and one of its subflow."""
    command = ["root/bin/ss", "-tMniOH", "src", "127.0.0.1", "and", "sport", "=", f":{one.getsockname()[1]}"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env={"LD_LIBRARY_PATH": libraries}).stdout
    return sorted((line for line in said.splitlines() if "LISTEN" not in line))

def queues(one, column, true):
    shown = [int(line.split()[column]) for line in ss(one)]
    words = {0: "0", true: "as many"}
    more = "hundreds" if column == 2 else "less than 2 kB"
    return " and ".join(words.get(value, more if value < 2000 else str(value)) for value in shown)

def told(one, request):
    return struct.unpack("i", fcntl.ioctl(one, request, bytes(4)))[0]

for name, protocol in ("TCP", socket.IPPROTO_TCP), ("Multipath TCP", socket.IPPROTO_MPTCP):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
        client.connect(listening.getsockname())
        server, _ = listening.accept()
    client.sendall(b"?")
    server.sendall(b"!")
    time.sleep(0.2)
    unread = told(client, termios.FIONREAD)
    print(f"{name}: {unread} unread, Recv-Q {queues(client, 2, unread)};", end=" ")
    client.setblocking(False)
    try:
        while True:
            client.send(bytes(65536))
    except BlockingIOError:
        time.sleep(0.5)
    unsent = told(client, termios.TIOCOUTQ)
    print(f"{'more than 100 kB' if unsent > 1e5 else unsent} to send, Send-Q {queues(client, 3, unsent)}", end="")
    found = [int(value, 16) for value in re.findall("(?:write_seq|snd_una):([0-9a-f]+)", ss(client)[0])]
    print(f", difference {'as many' if found[0] - found[1] == unsent else found}" if found else "")
    client.close()
    server.close()
PYTHON
unshare -n python3 queues.py | tee said
expected="\
TCP: 1 unread, Recv-Q as many; more than 100 kB to send, Send-Q as many
Multipath TCP: 1 unread, Recv-Q hundreds and 0; more than 100 kB to send, Send-Q 0 and less than 2 kB, difference as many"
if [ "$(cat said)" != "$expected" ]; then
  case $(uname -r) in 6.18.*) echo "this has changed"; exit 1 ;; *) echo "not so on Linux $(uname -r); seen on 6.18" ;; esac
fi
