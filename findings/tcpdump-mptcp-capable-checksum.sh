#!/usr/bin/env bash
# tcpdump 4.99.3 (Debian 12) calls the MP_CAPABLE option that comes with the first data "[bad opt]" if it has a checksum (24 bytes),
# and prints none of the options behind it. RFC 8684, section 3.1, gives this form beside the one of 22 bytes without a checksum,
# which is printed, as are DSS options with a checksum. So where checksums are on (net.mptcp.checksum_enabled=1 on Linux) each
# connection seems to begin with a broken segment. The option isn't bad: Wireshark 4.0.17 shows its length and checksum.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq tcpdump=4.99.3-1 libpcap0.8 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > write.py <<'PYTHON'
import struct

KEYS = bytes(range(16))
CASES = {
    "no-data": bytes([30, 20, 0x01, 0x81]) + KEYS,
    "data": bytes([30, 22, 0x01, 0x01]) + KEYS + struct.pack("!H", 4),
    "data-checksum": bytes([30, 24, 0x01, 0x81]) + KEYS + struct.pack("!HH", 4, 0x1234),
    "mapping-checksum": bytes([30, 20, 0x20, 0x0C]) + bytes(8) + struct.pack("!IHH", 1, 4, 0x1234),
}
# Two NOPs and the timestamps come behind it.
TIMESTAMPS = b"\1\1\10\12" + struct.pack("!II", 7, 8)
for name, option in CASES.items():
    options = option + b"\1" * (-len(option) % 4) + TIMESTAMPS
    data = b"" if name == "no-data" else b"data"
    tcp = struct.pack("!HHIIBBHHH", 1000, 2000, 1, 1, (20 + len(options)) // 4 << 4, 0x18, 65535, 0, 0) + options + data
    packet = struct.pack("!BBHIBBH", 0x45, 0, 20 + len(tcp), 0, 64, 6, 0) + bytes.fromhex("c0000201c0000202") + tcp
    with open(name, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
        file.write(struct.pack("<IIII", 1700000000, 0, len(packet), len(packet)) + packet)
PYTHON
python3 write.py
LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH
root/usr/bin/tcpdump --version | head -n 1
for name in no-data data data-checksum mapping-checksum; do
  root/usr/bin/tcpdump -ntr "$name" 2>/dev/null | sed -E "s/.*options \[(.*)\], length.*|.*options \[(.*)/$name: \1\2/; s/\{.*\}/KEYS/"
done | tee said
expected="\
no-data: mptcp 20 capable v1 csum KEYS,nop,nop,TS val 7 ecr 8
data: mptcp 22 capable v1 KEYS,nop,nop,nop,nop,TS val 7 ecr 8
data-checksum: mptcp 24 capable[bad opt]
mapping-checksum: mptcp 20 dss seq 0 subseq 1 len 4 csum 0x1234,nop,nop,TS val 7 ecr 8"
[ "$(cat said)" = "$expected" ] || { echo "this has changed"; exit 1; }
