#!/usr/bin/env bash
# Linux 6.18: over Multipath TCP the interface of a link-local IPv6 address is lost. accept(), getpeername() and getsockname()
# give fe80::... with a sin6_scope_id of 0, at the server and at the client that connected with the right one; over TCP it is
# the interface's number (ipv6(7)). Without it the address is of no use: who connects back to its client gets EINVAL, and what
# is logged of it names no host. The kernel takes the scope from the device that a socket is bound to; TCP binds the socket of a
# link-local connection, here that of the first subflow, but the one that the program has is another (inet6_getname in
# net/ipv6/af_inet6.c). A server that listens with Multipath TCP gives it right for its clients of plain TCP.
# Columns: client's and server's protocol; scope of the server's view of the client, of the client's view of the server, each 0
# or the interface; the server's try to connect back.
# Needs: python3, ip, sysctl, unshare with network namespaces.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
cat > scope.py <<'PYTHON'
import ctypes, os, socket, subprocess, time

def run(command):
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout

def enter(space):
    assert ctypes.CDLL(None).setns(space, 0) == 0

def listen(protocol):
    listening = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol)
    listening.bind(("::", 0))
    listening.listen()
    return listening

server_space = os.open("/proc/self/ns/net", os.O_RDONLY)
assert ctypes.CDLL(None).unshare(0x40000000) == 0
client_space = os.open("/proc/self/ns/net", os.O_RDONLY)
setting = "sysctl -qw net.ipv6.conf.default.accept_dad=0"
run(setting)
enter(server_space)
run(f"{setting}; ip link add name server type veth peer name client; ip link set server up")
run(f"ip link set client netns /proc/{os.getpid()}/fd/{client_space}")
enter(client_space)
run("ip link set client up")
back = listen(socket.IPPROTO_TCP)
number = socket.if_nametoindex("client")
time.sleep(3)
enter(server_space)
address = run("ip -6 -o address show dev server scope link").split()[3].split("/")[0]
NAMES = {"TCP": socket.IPPROTO_TCP, "Multipath TCP": socket.IPPROTO_MPTCP}
for client_name, server_name in ("TCP", "TCP"), ("TCP", "Multipath TCP"), ("Multipath TCP", "Multipath TCP"):
    listening = listen(NAMES[server_name])
    enter(client_space)
    client = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, NAMES[client_name])
    client.connect((address, listening.getsockname()[1], 0, number))
    enter(server_space)
    accepted, peer = listening.accept()
    assert peer == accepted.getpeername()
    again = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    try:
        again.connect((peer[0], back.getsockname()[1], 0, peer[3]))
        result = "connected"
    except OSError as error:
        result = error.strerror
    scopes = [socket.if_indextoname(peer[3]) if peer[3] else "0"]
    enter(client_space)
    scopes.append(socket.if_indextoname(client.getpeername()[3]) if client.getpeername()[3] else "0")
    enter(server_space)
    print(f"{client_name}, {server_name}: {', '.join(scopes)}, {result}", flush=True)
PYTHON
unshare -n python3 scope.py | tee said
expected="\
TCP, TCP: server, client, connected
TCP, Multipath TCP: server, client, connected
Multipath TCP, Multipath TCP: 0, 0, Invalid argument"
if [ "$(cat said)" != "$expected" ]; then
  case $(uname -r) in 6.18.*) echo "this has changed"; exit 1 ;; *) echo "not so on Linux $(uname -r); seen on 6.18" ;; esac
fi
