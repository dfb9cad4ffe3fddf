#!/usr/bin/env bash
# Linux 6.18: looking at a socket without taking anything (MSG_PEEK) takes its reset. A peer sends data and resets the connection.
# The first call that finds no data left tells of it (ECONNRESET), even if it only peeks; every later read says 0 bytes, which
# is the end of a complete stream. So does SO_ERROR, and before the data is read: then all of the truncated stream reads as
# whole. A program that peeks to learn whether more follows (to send an answer and its end together, to recognise TLS) has to
# keep what the peek said. The same over Multipath TCP, where the reset is MP_FASTCLOSE.
# Columns: the protocol; what each call said.
# Needs: python3, unshare with network namespaces, ip, a kernel with net.mptcp.enabled = 1.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
cat > reset.py <<'PYTHON'
import errno, socket, struct, time

CALLS = {
    "read": lambda one: one.recv(10),
    "peek": lambda one: one.recv(10, socket.MSG_PEEK),
    "SO_ERROR": lambda one: errno.errorcode.get(one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), "none"),
}

def said(call, one):
    """What a call returns, or its error's name."""
    try:
        answer = CALLS[call](one)
        return answer.decode() or "the end" if isinstance(answer, bytes) else answer
    except OSError as error:
        return errno.errorcode[error.errno]

for name, protocol in (("TCP", socket.IPPROTO_TCP), ("Multipath TCP", socket.IPPROTO_MPTCP)):
    for calls in (["read", "read", "read"], ["read", "peek", "read"], ["SO_ERROR", "read", "read"]):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
        peer.connect(listening.getsockname())
        one, _ = listening.accept()
        peer.sendall(b"half")
        time.sleep(0.2)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        time.sleep(0.2)
        print(f"{name}:", ", ".join(f"{call}: {said(call, one)}" for call in calls))
PYTHON
unshare -n sh -c 'ip link set lo up; exec python3 reset.py' | tee said
expected="\
TCP: read: half, read: ECONNRESET, read: the end
TCP: read: half, peek: ECONNRESET, read: the end
TCP: SO_ERROR: ECONNRESET, read: half, read: the end
Multipath TCP: read: half, read: ECONNRESET, read: the end
Multipath TCP: read: half, peek: ECONNRESET, read: the end
Multipath TCP: SO_ERROR: ECONNRESET, read: half, read: the end"
if [ "$(cat said)" != "$expected" ]; then
  case $(uname -r) in 6.18.*) echo "this has changed"; exit 1 ;; *) echo "not so on Linux $(uname -r); seen on 6.18" ;; esac
fi
