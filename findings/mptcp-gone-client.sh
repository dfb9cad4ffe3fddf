#!/usr/bin/env bash
# Linux 6.18: who sends over Multipath TCP to a program that has ended hears nothing of it for 60 s. Over TCP the second send
# fails (EPIPE), as the first is answered with a reset. Over Multipath TCP the client's kernel keeps the closed connection in
# FIN-WAIT-2 for TCP_TIMEWAIT_LEN (mptcp_close_timeout in net/mptcp/ctrl.c; net.mptcp.close_timeout doesn't shorten it, the
# script sets it to 1 s), takes and acknowledges data as far as its window reaches, and throws it away with a reset at the end.
# So a server that only writes (a stream, a log, events) holds its client for present for a minute, and then a full window
# blocks it. Only who reads as well, or asks for EPOLLRDHUP, sees the client's end at once, but not whether that is close() or
# shutdown(SHUT_WR). If data is unread at close(), a reset (MP_FASTCLOSE) goes out at once, as over TCP. Client: curl 7.88.1 and
# libmptcpwrap 0.12 of Debian 12.
# Columns: the protocol; how many sends, ten a second for 15 s, were taken after curl had ended, and how the last one went.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3, ip, sysctl, unshare with network namespaces.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq curl=7.88.1-10+deb12u15 libcurl4=7.88.1-10+deb12u15 libmptcpwrap0=0.12-1 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > stream.py <<'PYTHON'
import glob, os, socket, subprocess, sys, time

name = sys.argv[1]
subprocess.run("ip link set lo up && sysctl -qw net.mptcp.close_timeout=1", shell=True, check=True)
listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_MPTCP)
listening.bind(("127.0.0.1", 0))
listening.listen()
environment = dict(os.environ, LD_LIBRARY_PATH=os.path.abspath("root/usr/lib/x86_64-linux-gnu"))
if name == "Multipath TCP":
    environment["LD_PRELOAD"] = os.path.abspath(glob.glob("root/usr/lib/**/libmptcpwrap.so.*.*", recursive=True)[0])
url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
curl = subprocess.Popen(["root/usr/bin/curl", "-s", "-m", "2", "-o", "received", url], env=environment)
accepted, _ = listening.accept()
accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
accepted.recv(1000)
accepted.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
for _ in range(10):
    accepted.sendall(bytes(1000))
    time.sleep(0.1)
curl.wait()
taken, last = 0, "taken"
while taken < 150 and last == "taken":
    try:
        accepted.sendall(bytes(1000))
        taken += 1
        time.sleep(0.1)
    except OSError as error:
        last = error.strerror
print(f"{name}: {taken}, {last}")
PYTHON
for name in TCP "Multipath TCP"; do unshare -n python3 stream.py "$name"; done | tee said
expected="\
TCP: 1, Broken pipe
Multipath TCP: 150, taken"
if [ "$(cat said)" != "$expected" ]; then
  case $(uname -r) in 6.18.*) echo "this has changed"; exit 1 ;; *) echo "not so on Linux $(uname -r); seen on 6.18" ;; esac
fi
