#!/usr/bin/env bash
# libpcap 1.10.3 (Debian 12) reads a pcapng file with two interfaces of Ethernet, of Linux's cooked packets or of IPv4
# (LINKTYPE_IPV4, 228), but not one with two of raw IP (LINKTYPE_RAW, 101): "an interface has a type 101 different from the type
# of the first interface", though both say 101. (Raw IP is one of the few types whose number in files, 101, isn't libpcap's own,
# 12.) So no program on libpcap (tcpdump, Suricata, tcptrace) reads a packet of a capture of two tunnels; Wireshark's own reader
# does. LINKTYPE_IPV4 and LINKTYPE_IPV6 avoid it where an interface has one family.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq libpcap0.8=1.10.3-1 tcpdump=4.99.3-1 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
python3 - <<'PYTHON'
import struct

def block(kind, body):
    body += b"\0" * (-len(body) % 4)
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

packet = bytes.fromhex("450000140001000040005cd6c0000201c0000202")
ethernet = b"\2" * 6 + b"\4" * 6 + b"\x08\0"
cooked = b"\0\0\0\1\0\6" + b"\2" * 6 + b"\0\0\x08\0"
for name, link, header in (("raw", 101, b""), ("ipv4", 228, b""), ("ethernet", 1, ethernet), ("cooked", 113, cooked)):
    data = header + packet
    with open(name, "wb") as file:
        file.write(block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
        for _ in range(2):
            file.write(block(1, struct.pack("<HHI", link, 0, 65535)))
        for interface in range(2):
            file.write(block(6, struct.pack("<IIIII", interface, 0, 1, len(data), len(data)) + data))
PYTHON
export LD_LIBRARY_PATH=$(dirname "$(find root -name 'libpcap.so.0.8' | head -n 1)")
tcpdump=$(find root -name tcpdump -type f | head -n 1)
"$tcpdump" --version 2>&1 | head -n 2
count() { "$tcpdump" -nr "$1" 2>/dev/null | grep -c '192.0.2.1 > 192.0.2.2' || true; }
for name in ethernet cooked ipv4 raw; do echo "two interfaces, $name: $(count "$name") of 2 packets"; done
said=$("$tcpdump" -nr raw 2>&1 | tail -n 1 || true)
echo "$said"
[ "$(count ethernet)$(count cooked)$(count ipv4)$(count raw)" = 2220 ] && [ "$said" = \
  "tcpdump: pcap_loop: an interface has a type 101 different from the type of the first interface" ] ||
  { echo "this has changed"; exit 1; }
