#!/usr/bin/env bash
# Linux 6.18: a Multipath TCP connection that lost its only path ends in ENOTCONN ("Transport endpoint is not connected"),
# whatever ended the path: a reset on its way (TCP: ECONNRESET) or a peer that doesn't answer keep-alive probes (TCP:
# ETIMEDOUT). epoll says EPOLLHUP, but neither EPOLLERR nor EPOLLIN. That the connection lives on for net.mptcp.close_timeout
# (60 s, here 2 s), in which data is still taken, is documented, the error isn't: the kernel closes the socket without one, and
# recv() of a closed socket that saw neither an end nor an error gives ENOTCONN (mptcp_recvmsg in net/mptcp/protocol.c). To
# programs that error means a call in the wrong order, so it isn't in the lists of what may be tried anew: Python raises
# OSError, no ConnectionError, no TimeoutError.
# Columns: protocol; what ended the path; events; what recv() raised; after how many whole seconds.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3, ip, sysctl, unshare with network namespaces.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq nftables=1.0.6-2+deb12u2 libnftables1=1.0.6-2+deb12u2 libnftnl11 libmnl0 libjansson4 libxtables12 \
  2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > lose.py <<'PYTHON'
import os, select, socket, subprocess, time

environment = dict(os.environ, LD_LIBRARY_PATH=os.path.abspath("root/usr/lib/x86_64-linux-gnu"))
def nft(rules):
    subprocess.run(["root/usr/sbin/nft", "-f", "-"], check=True, env=environment, text=True, input=rules)

subprocess.run("ip link set lo up && sysctl -qw net.mptcp.close_timeout=2", shell=True, check=True)
for name, protocol in ("TCP", socket.IPPROTO_TCP), ("Multipath TCP", socket.IPPROTO_MPTCP):
    for cause in "reset", "keep-alive":
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
        client.connect(listening.getsockname())
        server, _ = listening.accept()
        for sender, receiver in (client, server), (server, client):
            sender.sendall(b"?")
            receiver.recv(1)
        time.sleep(0.2)
        if cause == "keep-alive":
            for option, value in (socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 2):
                client.setsockopt(socket.IPPROTO_TCP, option, value)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        verdict = "drop" if cause == "keep-alive" else "reject with tcp reset"
        port = client.getsockname()[1]
        nft(f"table inet t {{ chain c {{ type filter hook output priority 0; tcp sport {port} {verdict}; }}; }}")
        begin = time.monotonic()
        if cause == "reset":
            client.sendall(b"!")
        poll = select.epoll()
        poll.register(client, select.EPOLLIN | select.EPOLLRDHUP)
        polled = poll.poll(10)[0][1]
        events = "+".join(event for event in ("EPOLLIN", "EPOLLERR", "EPOLLHUP") if polled & getattr(select, event))
        seconds = time.monotonic() - begin
        try:
            raised = client.recv(1)
        except OSError as error:
            raised = f"{type(error).__name__} ({error.strerror})"
        print(f"{name}: {cause}: {events}; {raised}, {int(seconds + 0.2)} s")
        nft("flush ruleset")
PYTHON
unshare -n python3 lose.py | tee said
expected="\
TCP: reset: EPOLLIN+EPOLLERR+EPOLLHUP; ConnectionResetError (Connection reset by peer), 0 s
TCP: keep-alive: EPOLLIN+EPOLLERR+EPOLLHUP; TimeoutError (Connection timed out), 3 s
Multipath TCP: reset: EPOLLHUP; OSError (Transport endpoint is not connected), 2 s
Multipath TCP: keep-alive: EPOLLHUP; OSError (Transport endpoint is not connected), 5 s"
if [ "$(cat said)" != "$expected" ]; then
  case $(uname -r) in 6.18.*) echo "this has changed"; exit 1 ;; *) echo "not so on Linux $(uname -r); seen on 6.18" ;; esac
fi
