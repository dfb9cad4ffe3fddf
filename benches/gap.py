#!/usr/bin/env python3
"""A kernel's Multipath TCP receiver with a gap in its data: does it take what fills the gap?

Speaks Multipath TCP by hand, over a TUN device, to a socket of this machine's kernel: data in order, a gap, data up to
the end of the window that the kernel offers (or a share of it), and at last what was left out. As root:

    unshare -n benches/gap.py --in-order 1000000
    unshare -n benches/gap.py --in-order 1000000 --share 0.616 --flows 2
"""

import argparse
import fcntl
import hashlib
import hmac
import os
import random
import re
import socket
import struct
import subprocess
import threading
import time

PEER, OWN, SECOND = "10.9.0.2", "10.9.0.1", "10.9.0.3"
DATA = random.Random(5).randbytes(1 << 20)
WRAP = 1 << 19
SYN, RST, PSH, ACK = 2, 4, 8, 16
MP_CAPABLE, MP_JOIN, DSS = 0, 1, 2
MULTIPATH_TCP = 262


def run(line):
    """Runs a command; what it prints."""
    return subprocess.run(line, shell=True, check=True, capture_output=True, text=True).stdout


def checksum(data):
    """The internet checksum."""
    data += b"\0" * (len(data) & 1)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Flow:
    """A subflow of the peer's."""

    def __init__(self, address, port, expected, shift):
        self.address, self.port, self.expected, self.shift = address, port, expected, shift
        self.first = self.next = random.getrandbits(32)
        self.acknowledged = self.next


class Peer:
    """The end that is made by hand: a server."""

    def __init__(self):
        self.device = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(self.device, 0x400454CA, struct.pack("16sH", b"tun0", 0x1001))
        run(f"ip link set lo up; ip link set tun0 mtu 65535 up; ip addr add {OWN}/24 dev tun0")
        run(f"ip addr add {SECOND}/24 dev tun0")
        self.key, self.theirs = os.urandom(8), None
        self.isn = struct.unpack("!Q", hashlib.sha256(self.key).digest()[-8:])[0]
        self.flows, self.expected, self.data_ack, self.right = [], None, 0, 0
        self.lock = threading.RLock()
        threading.Thread(target=self.listen, daemon=True).start()

    def emit(self, flow, flags, options=b"", data=b""):
        """Sends a segment of a subflow."""
        options += b"\1" * (-len(options) % 4)
        offset = (20 + len(options)) // 4 << 4
        numbers = flow.next & 0xFFFFFFFF, flow.expected & 0xFFFFFFFF
        tcp = struct.pack("!HHIIBBHHH", 80, flow.port, *numbers, offset, flags, 65535, 0, 0) + options + data
        addresses = socket.inet_aton(PEER) + socket.inet_aton(flow.address)
        tcp = tcp[:16] + struct.pack("!H", checksum(addresses + struct.pack("!HH", 6, len(tcp)) + tcp)) + tcp[18:]
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0) + addresses
        os.write(self.device, ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + tcp)

    def send(self, flow, offset, size):
        """Sends data of the connection as new bytes of a subflow."""
        data = DATA[offset % WRAP :][:size]
        with self.lock:
            mapping = (self.isn + 1 + offset) % 2**64, (flow.next - flow.first) & 0xFFFFFFFF, size
            option = struct.pack("!BBBBQQIH", 30, 26, DSS << 4, 0x0F, self.expected, *mapping)
            self.emit(flow, ACK | PSH, option, data)
            flow.next += size

    def listen(self):
        """Answers what the kernel sends."""
        while True:
            packet = os.read(self.device, 70_000)
            if packet[0] >> 4 == 4 and packet[9] == 6:
                with self.lock:
                    self.on_packet(packet)

    def on_packet(self, packet):
        """Takes a segment of the kernel's."""
        address, tcp = socket.inet_ntoa(packet[12:16]), packet[(packet[0] & 15) * 4 :]
        port, _, seq, ack, offset, flags, window = struct.unpack("!HHIIBBH", tcp[:16])
        options, data = tcp[20 : (offset >> 4) * 4], tcp[(offset >> 4) * 4 :]
        found = []
        while options and options[0]:
            length = 1 if options[0] == 1 else options[1]
            found.append((options[0], options[2:length]))
            options = options[length:]
        multipath = [body for kind, body in found if kind == 30]
        if flags & SYN:
            flow = Flow(address, port, seq + 1, next((body[0] for kind, body in found if kind == 3), 0))
            self.flows.append(flow)
            answer = bytes([30, 12, MP_CAPABLE << 4 | 1, 1]) + self.key
            if multipath[0][0] >> 4 == MP_JOIN:
                nonces = struct.pack("!I", random.getrandbits(32)), multipath[0][6:10]
                proof = hmac.new(self.key + self.theirs, b"".join(nonces), "sha256").digest()[:8]
                answer = bytes([30, 16, MP_JOIN << 4, 0]) + proof + nonces[0]
            self.emit(flow, SYN | ACK, struct.pack("!BBHBBBB", 2, 4, 1460, 1, 3, 3, 7) + answer)
            flow.next += 1
            return
        flow = next(flow for flow in self.flows if (flow.address, flow.port) == (address, port))
        for body in multipath:
            if body[0] >> 4 == MP_CAPABLE and self.theirs is None:
                self.theirs = body[2:10]
                self.expected = struct.unpack("!Q", hashlib.sha256(self.theirs).digest()[-8:])[0] + 1
            elif body[0] >> 4 == MP_JOIN:
                self.emit(flow, ACK, self.acknowledgement())
            elif body[0] >> 4 == DSS and body[1] & 1:
                width, form = (8, "!Q") if body[1] & 2 else (4, "!I")
                value = struct.unpack(form, body[2 : 2 + width])[0]
                self.data_ack = max(self.data_ack, (value - self.isn - 1) % 2 ** (8 * width))
        self.right = max(self.right, self.data_ack + (window << flow.shift))
        flow.acknowledged = ack
        if data:
            flow.expected = seq + len(data)
            self.expected += len(data)
            self.emit(flow, ACK, self.acknowledgement())

    def acknowledgement(self):
        """A DSS with a DATA_ACK."""
        return struct.pack("!BBBBQ", 30, 12, DSS << 4, 3, self.expected)


def memory():
    """Of the connection and of its subflows: memory used, and the most."""
    lines = run("ss -noHmM state established; ss -noHmt state established")
    return ", ".join(f"{used} of {most}" for used, most in re.findall(r"skmem:\(r(\d+),rb(\d+)", lines))


def main():
    """Runs one experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in-order", type=int, default=0, help="bytes that come first, in packets of 16 KB")
    parser.add_argument("--segment", type=int, default=1420, help="payload of the segments after the gap")
    parser.add_argument("--share", type=float, default=1, help="of the window, that is filled")
    parser.add_argument("--flows", type=int, choices=(1, 2), default=1, help="with 2 another subflow fills the gap")
    parser.add_argument("--buffer", type=int, help="the kernel's SO_RCVBUF")
    options = parser.parse_args()
    peer = Peer()
    if options.flows == 2:
        run(f"ip mptcp limits set subflows 2; ip mptcp endpoint add {SECOND} dev tun0 subflow")
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MULTIPATH_TCP)
    if options.buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.buffer)
    client.connect((PEER, 80))
    client.sendall(b"data, please")
    threading.Thread(target=lambda: all(iter(lambda: client.recv(65536), b"")), daemon=True).start()
    time.sleep(0.3)
    first, last = peer.flows[0], peer.flows[-1]
    at = 0
    while at < options.in_order:
        size = min(16_000, options.in_order - at)
        while at + size > peer.right:
            time.sleep(0.001)
        peer.send(last, at, size)
        at += size
    time.sleep(0.2)
    gap, end = at, peer.data_ack + (peer.right - peer.data_ack) * options.share
    print(f"after {at} bytes in order, window of {peer.right - peer.data_ack}: memory {memory()}")
    at += options.segment
    while at + options.segment <= end:
        peer.send(last, at, options.segment)
        at += options.segment
        time.sleep(0.0002)
    time.sleep(0.2)
    print(f"{at - gap} bytes from the gap on: memory {memory()}")
    for _ in range(5):
        peer.send(first, gap, options.segment)
        time.sleep(0.2)
        moved, known = peer.data_ack - gap, first.acknowledged == first.next & 0xFFFFFFFF
        print(f"the gap is filled: DATA_ACK moves by {moved}, acknowledged by the subflow: {known}, memory {memory()}")
        if moved > 0:
            return


if __name__ == "__main__":
    main()
