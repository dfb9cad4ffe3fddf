#!/usr/bin/env bash
# iproute2 6.1.0 (Debian 12, Linux 6.18) can neither flush nor restore routes if one of them uses a nexthop object (`ip
# nexthop`; FRR's routes do). `ip route flush` ends with "Failed to send flush request: Invalid argument" and leaves these
# routes. `ip route save` succeeds, but `ip route restore` of what it wrote ends with "Nexthop specification and nexthop id are
# mutually exclusive" at the first of them, and groups come first: ordinary routes via a gateway are missing, too. Nor does `ip
# route add` take a line of `ip route show` that has `nhid`. The kernel lists the object's id and also, for old programs, what
# it stands for (fib_dump_info in net/ipv4/fib_semantics.c); ip sends both back, and rtm_to_fib_config (fib_frontend.c) refuses
# both at once, to add as to delete. With net.ipv4.nexthop_compat_mode=0 the id alone is listed, and all three work. Nor are
# such IPv6 routes flushed.
# Columns: what is done, its exit code, the routes then there: 1 and 4 are ordinary, 2 uses a group, 3 a single object.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, unshare, a kernel with nexthop objects and veth.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq iproute2=6.1.0-3 libbpf1 libelf1 libmnl0 libbsd0 libcap2 libmd0 zlib1g 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu:$folder/root/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH
cat > try.sh <<'TRY'
ip() { root/bin/ip "$@"; }
fill() {
  ip route add 198.51.100.1 via 192.0.2.2
  ip route add 198.51.100.2 nhid 3
  ip route add 198.51.100.3 nhid 1
  ip route add 198.51.100.4 via 192.0.2.130
}
clear() { for route in 1 2 3 4; do ip route del 198.51.100.$route 2>/dev/null; done; }
there() { ip route show | sed -n 's/^198\.51\.100\.\([0-9]\).*/\1/p' | tr -d '\n'; }
try() {  # try NAME COMMAND...
  name=$1; shift
  "$@" 2>error
  echo "$name: $?, routes $(there)" "$(head -n 1 error)" | sed 's/  */ /g; s/ *$//'
}
restore() { ip route restore < saved; }
for link in 1 2; do
  ip link add wan$link type veth peer name isp$link
  ip link set wan$link up
  ip link set isp$link up
done
ip addr add 192.0.2.1/25 dev wan1
ip addr add 192.0.2.129/25 dev wan2
ip nexthop add id 1 via 192.0.2.2 dev wan1
ip nexthop add id 2 via 192.0.2.130 dev wan2
ip nexthop add id 3 group 1/2
for mode in 1 0; do
  echo "nexthop_compat_mode=$mode"
  echo $mode > /proc/sys/net/ipv4/nexthop_compat_mode
  fill
  line=$(ip route show 198.51.100.3 | sed 's/ *$//')
  ip route save root 198.51.100.0/24 > saved
  try "flush" ip route flush root 198.51.100.0/24
  clear
  try "restore" restore
  clear
  # shellcheck disable=SC2086
  try "add $line" ip route add $line
  clear || true
done
TRY
unshare -n bash try.sh | tee said
refused="Error: Nexthop specification and nexthop id are mutually exclusive."
expected="\
nexthop_compat_mode=1
flush: 2, routes 23 Failed to send flush request: Invalid argument
restore: 2, routes $refused
add 198.51.100.3 nhid 1 via 192.0.2.2 dev wan1: 2, routes $refused
nexthop_compat_mode=0
flush: 0, routes
restore: 0, routes 1234
add 198.51.100.3 nhid 1: 0, routes 3"
[ "$(cat said)" = "$expected" ] || { echo "this has changed"; exit 1; }
