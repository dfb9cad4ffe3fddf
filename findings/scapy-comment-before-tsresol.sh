#!/usr/bin/env bash
# scapy 2.5.0 (Debian 12's version) takes a pcapng comment for invalid unless it has a newline, which the format doesn't ask
# for (opt_comment is any UTF-8 text), warns, and drops every option after it in the same block. Of an interface, that may be
# if_tsresol: its packets, stamped in nanoseconds, are then read as of microseconds, a thousand times too late. With the
# comment behind if_tsresol, with a newline, or in scapy 2.8.0 the time is right.
# Needs: python3 with venv.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
cat > read.py <<'PYTHON'
import struct
from scapy.all import rdpcap

def block(kind, body):
    body += b"\0" * (-len(body) % 4)
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

def option(code, value):
    return struct.pack("<HH", code, len(value)) + value + b"\0" * (-len(value) % 4)

packet = b"\2" * 6 + b"\4" * 6 + b"\x08\0" + bytes.fromhex("450000140001000040005cd6c0000201c0000202")
stamp = 1_700_000_000_123_456_789
comment, newline, nanoseconds = option(1, b"50 Mbit/s"), option(1, b"50 Mbit/s\n"), option(9, b"\x09")
cases = {"none": nanoseconds, "behind": nanoseconds + comment, "newline": newline + nanoseconds, "before": comment + nanoseconds}
for name, options in cases.items():
    with open(name, "wb") as file:
        file.write(block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
        file.write(block(1, struct.pack("<HHI", 1, 0, 65535) + options + option(0, b"")))
        head = struct.pack("<IIIII", 0, stamp >> 32, stamp & 0xFFFFFFFF, len(packet), len(packet))
        file.write(block(6, head + packet))
print(" ".join(f"{name}={int(rdpcap(name)[0].time)}" for name in cases))
PYTHON
for version in 2.5.0 2.8.0; do
  python3 -m venv "$version" && "$version/bin/pip" install -q "scapy==$version"
  echo "scapy $version: $("$version/bin/python" read.py 2>warning-$version)"
  sed -n '/comment/p' "warning-$version"
done | tee said
wanted=1700000000
[ "$(cat said)" = "scapy 2.5.0: none=$wanted behind=$wanted newline=$wanted before=${wanted}123
WARNING: PcapNg: invalid comment option
WARNING: PcapNg: invalid comment option
scapy 2.8.0: none=$wanted behind=$wanted newline=$wanted before=$wanted" ] || { echo "this has changed"; exit 1; }
