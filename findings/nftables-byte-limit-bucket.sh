#!/usr/bin/env bash
# A limit of nftables 1.0.6 in bytes (Debian 12, Linux 6.18) lets through at once its `burst` and what its rate gives in a whole unit
# of time besides, a second at least: "300000 bytes/second burst 10000 bytes" 310,000 bytes, with bytes/minute a minute's worth. A
# limit in packets holds its burst alone, as tc's tbf and police do. Who limits a link to 100 Mbit/s with it sends 12.5 MB without a
# limit after each pause. The kernel says so in a comment (nft_limit_init in net/netfilter/nft_limit.c); nft(8) doesn't.
# Columns: the limit; packets of 1000 bytes that got through of 900 sent at once, to fifties.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3, ip, unshare with network namespaces.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq nftables=1.0.6-2+deb12u2 libnftables1=1.0.6-2+deb12u2 libnftnl11 libmnl0 libjansson4 libxtables12 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH
cat > burst.py <<'PYTHON'
import socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["root/usr/sbin/nft", "-f", "-"], check=True, text=True, input=f"""
    table inet t {{
        chain c {{
            type filter hook output priority 0
            udp dport 9 limit rate over {sys.argv[1]} drop
            udp dport 9 counter drop
        }}
    }}
""")
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(900):
    try:
        one.sendto(bytes(972), ("127.0.0.1", 9))
    except PermissionError:
        pass  # What is dropped on its way out is told so.
listed = subprocess.run(["root/usr/sbin/nft", "list", "ruleset"], check=True, capture_output=True, text=True).stdout
print(f"{sys.argv[1]}: {int(listed.split('packets ')[-1].split()[0]) // 50 * 50}")
PYTHON
for limit in "300000 bytes/second burst 10000 bytes" "300000 bytes/second burst 210000 bytes" \
  "300000 bytes/minute burst 10000 bytes" "300/second burst 10 packets"; do
  unshare -n python3 burst.py "$limit"
done | tee said
expected="\
300000 bytes/second burst 10000 bytes: 300
300000 bytes/second burst 210000 bytes: 500
300000 bytes/minute burst 10000 bytes: 300
300/second burst 10 packets: 0"
[ "$(cat said)" = "$expected" ] || { echo "this has changed"; exit 1; }
