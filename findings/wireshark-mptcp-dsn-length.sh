#!/usr/bin/env bash
# Wireshark 4.0.17 (Debian 12) takes a DSN for 8 bytes long if the DSS option's flag says so of the Data ACK ("a"), not of the DSN
# ("m"). RFC 8684 lets the two differ, and they do where a host sends 4-byte DSNs to one that sends 8-byte ones, as these are
# acknowledged with 8 bytes. Of such a segment the raw DSN is shown right, as "32bits version", but the relative one (mptcp.dss.dsn,
# and mptcp.dsn with mptcp.analyze_mappings) is some 10^18 instead of 1; and data repeated on another subflow isn't called a
# reinjection (mptcp.intersubflows_retransmission) if the option of only one copy has a Data ACK of 8 bytes.
# Data ACKs are shown right. tcpdump shows raw numbers only.
# Columns: raw DSN, relative DSN of the option, of the segment, relative Data ACK, the frame that this one's data was first sent in.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
version=4.0.17-0+deb12u3
apt-get download -qq tshark=$version libwireshark16=$version libwiretap13=$version libwsutil14=$version \
  libbrotli1 libc-ares2 libgcrypt20 libglib2.0-0 liblua5.2-0 libnghttp2-14 libpcap0.8 libsmi2ldbl libsnappy1v5 libxml2 libicu72 \
  libgnutls30 libgpg-error0 liblz4-1 libzstd1 libk5crypto3 libkrb5-3 libkrb5support0 libkeyutils1 libnl-3-200 libnl-genl-3-200 \
  libdbus-1-3 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > write.py <<'PYTHON'
import hashlib, struct

KEYS = {side: bytes([number] * 8) for number, side in ((1, "client"), (2, "server"))}
FIRST = {side: int.from_bytes(hashlib.sha256(key).digest()[-8:], "big") + 1 for side, key in KEYS.items()}
TOKEN = hashlib.sha256(KEYS["server"]).digest()[:4]

def number(value, size):
    return (value % 2 ** (8 * size)).to_bytes(size, "big")

def dss(ack, dsn, offset):
    """The option with a Data ACK of `ack` bytes (0: none) and the DSN of `offset` in `dsn` bytes, for 10 bytes of data."""
    flags = (1 if ack else 0) | (2 if ack == 8 else 0) | 4 | (8 if dsn == 8 else 0)
    option = bytes([0x20, flags]) + number(FIRST["server"], ack) + number(FIRST["client"] + offset, dsn)
    return option + struct.pack("!IH", offset + 1, 10)

def packet(port, to_server, flags, seq, ack, option, data=b""):
    option = bytes([30, len(option) + 2]) + option
    option += b"\1" * (-len(option) % 4)
    ports = (port, 80) if to_server else (80, port)
    tcp = struct.pack("!HHIIBBHHH", *ports, seq, ack, (20 + len(option)) // 4 << 4, flags, 65535, 0, 0) + option + data
    ends = bytes.fromhex("c0000201c0000202" if to_server else "c0000202c0000201")
    return struct.pack("!BBHIBBH", 0x45, 0, 20 + len(tcp), 0, 64, 6, 0) + ends + tcp

def write(name, first, second):
    """A connection of two subflows: 10 bytes on the first subflow with the option `first`, and again on the second."""
    capable = b"\x01\x01"
    packets = [
        packet(1000, True, 0x02, 0, 0, capable),
        packet(1000, False, 0x12, 0, 1, capable + KEYS["server"]),
        packet(1000, True, 0x10, 1, 1, capable + KEYS["client"] + KEYS["server"]),
        packet(2000, True, 0x02, 0, 0, b"\x10\x01" + TOKEN + b"\xaa\xbb\xcc\xdd"),
        packet(2000, False, 0x12, 0, 1, b"\x10\x00" + bytes(8) + b"\x01\x02\x03\x04"),
        packet(2000, True, 0x10, 1, 1, b"\x10\x00" + bytes(20)),
        packet(1000, True, 0x18, 1, 1, dss(*first, 0), b"0123456789"),
        packet(2000, True, 0x18, 1, 1, dss(*second, 0), b"0123456789"),
    ]
    with open(name, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
        for at, data in enumerate(packets):
            file.write(struct.pack("<IIII", 1700000000, at, len(data), len(data)) + data)

for ack in (4, 8):
    for dsn in (4, 8):
        write(f"ack{ack}-dsn{dsn}", (ack, dsn), (ack, dsn))
write("first-without-ack", (0, 4), (8, 4))
PYTHON
python3 write.py
LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu:$folder/root/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH WIRESHARK_CONFIG_DIR=$folder/none
tshark() { root/usr/bin/tshark "$@" 2>/dev/null; }
tshark --version | head -n 1
for name in ack4-dsn4 ack4-dsn8 ack8-dsn8 ack8-dsn4 first-without-ack; do
  tshark -o mptcp.analyze_mappings:TRUE -o mptcp.intersubflows_retransmission:TRUE -r $name -Y 'tcp.len > 0' \
    -T fields -E separator=, -e tcp.options.mptcp.rawdataseqno -e mptcp.dss.dsn -e mptcp.dsn -e mptcp.ack \
    -e mptcp.reinjection_of | sed "s/^/$name: /"
done | tee said
short=1898553442 long=17377225922446991458 wrong=1069518153161113601
expected="\
ack4-dsn4: $short,1,1,1,
ack4-dsn4: $short,1,1,1,7
ack4-dsn8: $long,1,1,1,
ack4-dsn8: $long,1,1,1,7
ack8-dsn8: $long,1,1,1,
ack8-dsn8: $long,1,1,1,7
ack8-dsn4: $short,$wrong,$wrong,1,
ack8-dsn4: $short,$wrong,$wrong,1,7
first-without-ack: $short,1,1,,
first-without-ack: $short,$wrong,$wrong,1,"
[ "$(cat said)" = "$expected" ] || { echo "this has changed"; exit 1; }
