#!/usr/bin/env bash
# Python 3.11.2 (Debian 12): asyncio turns TCP_NODELAY on for every TCP connection, says its documentation, but not for one accepted
# by a listening Multipath TCP socket, though it be plain TCP: it looks whether the socket's protocol number is that of TCP, and
# Python gives an accepted socket the listening one's, 262. So a server that only begins to listen with Multipath TCP answers its
# plain TCP clients, too, 40 ms late (Nagle's algorithm waits for the client's delayed ACK) when it writes an answer in two pieces.
# So it is for clients that give asyncio a connected Multipath TCP socket. Where a program sets TCP_NODELAY itself, it holds.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, a kernel with net.mptcp.enabled = 1.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
version=3.11.2-6+deb12u9
apt-get download -qq python3.11-minimal=$version libpython3.11-minimal=$version libpython3.11-stdlib=$version 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > measure.py <<'PYTHON'
import asyncio, socket, statistics, sys, threading, time

def exchange(address):
    """A plain TCP client: the median time in ms from a request of 1 byte to the end of its answer of 500."""
    times = []
    with socket.create_connection(address) as one:
        for _ in range(20):
            begin = time.monotonic()
            one.sendall(b"?")
            left = 500
            while left:
                left -= len(one.recv(left))
            times.append(1000 * (time.monotonic() - begin))
    return statistics.median(times)

async def measure(name, protocol):
    nodelay = []
    async def answer(reader, writer):
        accepted = writer.get_extra_info("socket")
        nodelay.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        while await reader.read(1):
            writer.write(b"h" * 200)
            writer.write(b"b" * 300)
        writer.close()
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    listening.bind(("127.0.0.1", 0))
    async with await asyncio.start_server(answer, sock=listening):
        median = await asyncio.to_thread(exchange, listening.getsockname())
    took = "some 40 ms" if median > 20 else "less than 5 ms" if median < 5 else "5 to 20 ms"
    print(f"listening with {name}: TCP_NODELAY {nodelay[0]}, answers after {took}")
    print(f"  (median {median:.2f} ms)", file=sys.stderr)

print(f"Python {sys.version.split()[0]}")
asyncio.run(measure("TCP", socket.IPPROTO_TCP))
asyncio.run(measure("Multipath TCP", socket.IPPROTO_MPTCP))
PYTHON
PYTHONHOME=$folder/root/usr root/usr/bin/python3.11 measure.py | tee said
[ "$(cat said)" = "Python 3.11.2
listening with TCP: TCP_NODELAY 1, answers after less than 5 ms
listening with Multipath TCP: TCP_NODELAY 0, answers after some 40 ms" ] || { echo "this has changed"; exit 1; }
