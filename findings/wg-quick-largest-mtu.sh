#!/usr/bin/env bash
# wg-quick 1.0.20210914 (Debian 12) without MTU= sets the largest MTU among its peers' endpoints, less 80 bytes, not the
# smallest. With one peer over a link of 1500 bytes and one over a link of 1400, in either order, that is 1420, though only 1320
# fit the second link: packets to it are fragmented, or lost where fragments are. A route's `mtu lock 1300`, which turns path
# MTU discovery off, isn't seen at all, and its device's MTU counts; `mtu 1300` is seen. wg-quick(8) says that the MTU is found
# "from the endpoint addresses". The source: set_mtu_up in wg-quick/linux.bash keeps what is greater (-gt), and looks for "mtu "
# and a number.
# Columns: the endpoints, MTU of the interface.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, ip, unshare, /dev/net/tun.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq wireguard-tools=1.0.20210914-1+b1 wireguard-go=0.0.20220316-1+b4 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > try.sh <<'TRY'
set -eu
mount -t tmpfs none /run
PATH=$PWD/root/usr/bin:$PATH
umask 077
for link in 1500 1400; do
  ip link add wan$link mtu $link type veth peer name isp$link mtu $link
  ip link set wan$link up
  ip link set isp$link up
done
ip addr add 192.0.2.1/25 dev wan1500
ip addr add 192.0.2.129/25 dev wan1400
ip route add 198.51.100.1 via 192.0.2.2 mtu 1300
ip route add 198.51.100.2 via 192.0.2.2 mtu lock 1300
try() {  # try NAME ENDPOINT...
  name=$1; shift
  {
    printf '[Interface]\nPrivateKey = %s\nTable = off\n' "$(wg genkey)"
    for endpoint; do
      printf '[Peer]\nPublicKey = %s\nEndpoint = %s:51820\nAllowedIPs = 10.0.0.0/8\n' "$(wg genkey | wg pubkey)" "$endpoint"
    done
  } > wg-try.conf
  wg-quick up ./wg-try.conf >up 2>&1
  echo "$name: $(sed -n 's/.* mtu \([0-9]*\) up dev wg-try/\1/p' up)"
  wg-quick down ./wg-try.conf >/dev/null 2>&1
}
try "link of 1500" 192.0.2.2
try "link of 1400" 192.0.2.130
try "links of 1500 and 1400" 192.0.2.2 192.0.2.130
try "links of 1400 and 1500" 192.0.2.130 192.0.2.2
try "route with mtu 1300" 198.51.100.1
try "route with mtu lock 1300" 198.51.100.2
TRY
unshare -n -m -p -f bash try.sh | tee said
expected="\
link of 1500: 1420
link of 1400: 1320
links of 1500 and 1400: 1420
links of 1400 and 1500: 1420
route with mtu 1300: 1220
route with mtu lock 1300: 1420"
[ "$(cat said)" = "$expected" ] || { echo "this has changed"; exit 1; }
