#!/usr/bin/env bash
# Wireshark 4.0.17 (Debian 12) lists each Multipath TCP connection twice among its conversations (Statistics, Conversations,
# MPTCP; `tshark -z conv,mptcp`), once for each direction, with 0 frames the other way. There are twice as many conversations as
# connections in the capture, and none seems to have an answer. The first SYN isn't counted. The conversations of TCP are right,
# as is the field mptcp.stream. The source: dissect_tcpopt_mptcp in epan/dissectors/packet-tcp.c keeps the addresses for both
# directions, but the ports for that of the first option only. A conversation is found by its addresses and ports, and on the
# way back those are 0.
# Columns: the table, both ends; frames and bytes to the first, to the second, both.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
version=4.0.17-0+deb12u3
apt-get download -qq tshark=$version libwireshark16=$version libwiretap13=$version libwsutil14=$version \
  libbrotli1 libc-ares2 libgcrypt20 libglib2.0-0 liblua5.2-0 libnghttp2-14 libpcap0.8 libsmi2ldbl libsnappy1v5 libxml2 \
  libicu72 libgnutls30 libgpg-error0 liblz4-1 libzstd1 libk5crypto3 libkrb5-3 libkrb5support0 libkeyutils1 libnl-3-200 \
  libnl-genl-3-200 libdbus-1-3 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > write.py <<'PYTHON'
import hashlib, struct

KEYS = {"client": bytes([1] * 8), "server": bytes([2] * 8)}
FIRST = {side: int.from_bytes(hashlib.sha256(key).digest()[-8:], "big") + 1 for side, key in KEYS.items()}
TOKEN = hashlib.sha256(KEYS["server"]).digest()[:4]

def dss(sender, receiver, offset, length):
    """The option with a Data ACK and the mapping of `length` bytes from `offset` on."""
    numbers = struct.pack("!QQ", FIRST[receiver], FIRST[sender] + offset)
    return b"\x20\x0f" + numbers + struct.pack("!IH", offset + 1, length)

def packet(subflow, to_server, flags, seq, ack, option, data=b""):
    option = bytes([30, len(option) + 2]) + option
    option += b"\1" * (-len(option) % 4)
    ports = (1000 + subflow, 80) if to_server else (80, 1000 + subflow)
    tcp = struct.pack("!HHIIBBHHH", *ports, seq, ack, (20 + len(option)) // 4 << 4, flags, 65535, 0, 0) + option + data
    client, server = bytes([192, 0, 2, subflow]), bytes([198, 51, 100, 1])
    ends = client + server if to_server else server + client
    return struct.pack("!BBHIBBH", 0x45, 0, 20 + len(tcp), 0, 64, 6, 0) + ends + tcp

packets = [
    packet(1, True, 0x02, 0, 0, b"\x01\x01"),
    packet(1, False, 0x12, 0, 1, b"\x01\x01" + KEYS["server"]),
    packet(1, True, 0x10, 1, 1, b"\x01\x01" + KEYS["client"] + KEYS["server"]),
    packet(2, True, 0x02, 0, 0, b"\x10\x01" + TOKEN + bytes(4)),
    packet(2, False, 0x12, 0, 1, b"\x10\x00" + bytes(12)),
    packet(2, True, 0x10, 1, 1, b"\x10\x00" + bytes(20)),
    packet(1, True, 0x18, 1, 1, dss("client", "server", 0, 10), bytes(10)),
    packet(1, False, 0x18, 1, 11, dss("server", "client", 0, 100), bytes(100)),
    packet(2, False, 0x18, 1, 1, dss("server", "client", 100, 100), bytes(100)),
]
with open("capture", "wb") as file:
    file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
    for at, data in enumerate(packets):
        file.write(struct.pack("<IIII", 1700000000, at, len(data), len(data)) + data)
PYTHON
python3 write.py
LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu:$folder/root/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH WIRESHARK_CONFIG_DIR=$folder/none
tshark() { root/usr/bin/tshark "$@" 2>/dev/null; }
{
  echo "mptcp.stream: $(tshark -r capture -T fields -e mptcp.stream | sort -u | tr -d '\n')"
  for table in tcp mptcp; do
    tshark -r capture -q -z conv,$table | sed -n "s/  */ /g; /<->/s/\(.*\) [0-9.]* [0-9.]*$/$table: \1/p"
  done
} | tee said
expected="\
mptcp.stream: 0
tcp: 192.0.2.1:1001 <-> 198.51.100.1:80 2 220 bytes 3 182 bytes 5 402 bytes
tcp: 192.0.2.2:1002 <-> 198.51.100.1:80 2 224 bytes 2 116 bytes 4 340 bytes
mptcp: 198.51.100.1 <-> 192.0.2.1 0 0 bytes 4 444 bytes 4 444 bytes
mptcp: 192.0.2.1 <-> 198.51.100.1 0 0 bytes 4 254 bytes 4 254 bytes"
[ "$(cat said)" = "$expected" ] || { echo "this has changed"; exit 1; }
