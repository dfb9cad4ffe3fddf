#!/usr/bin/env bash
# nstat of iproute2 6.1.0 (Debian 12, Linux 6.18) prints what was added to a counter since its last call, and remembers that
# call in one file in /tmp for all network namespaces. So the hosts of a lab in namespaces are subtracted from one another: a
# server that sent 7 datagrams is said to have sent 2 if nstat was called before for a client that had sent 5; of another host
# with the same number there is no line (0 with -z), of one with fewer "0 (overflow)". MPTcpExt and TcpExt are counted in the
# same way. nstat(8) says that increments are since "the previous use", and not where they are kept. Absolute values (-a) are
# right, and so is a file for each namespace, named by the environment's NSTAT_HISTORY, which the manual doesn't mention and the
# kernel's own tests of Multipath TCP set.
# Columns: the host and what it sent; the call; what nstat prints of UdpOutDatagrams.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, unshare.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq iproute2=6.1.0-3 libbpf1 libelf1 libmnl0 libbsd0 libcap2 libmd0 zlib1g 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > try.sh <<'TRY'
set -eu
# The user's own history stays as it is; what is here is found by relative paths.
mount -t tmpfs tmpfs /tmp
export LD_LIBRARY_PATH=root/usr/lib/x86_64-linux-gnu:root/lib/x86_64-linux-gnu
host() {  # host NAME DATAGRAMS OPTION...: nstat in a new namespace that has sent so many datagrams
  unshare -n bash -c '
    root/bin/ip link set lo up
    for _ in $(seq "$1"); do echo > /dev/udp/127.0.0.1/9; done
    root/usr/bin/nstat -z "${@:2}" UdpOutDatagrams | tail -n 1
  ' host "${@:2}" | sed -E "s/^[^ ]+ +([0-9]+) +[0-9.]+/$1 ($2 sent) nstat${3:+ $3}: \1/"
}
host client 5
host server 7
host client 5
host "other client" 5
host client 5 -a
host server 7 -a
export NSTAT_HISTORY=/tmp/server
host server 7 | sed 's/nstat/NSTAT_HISTORY=... nstat/'
TRY
unshare -n -m bash try.sh | tee said
expected="\
client (5 sent) nstat: 5
server (7 sent) nstat: 2
client (5 sent) nstat: 0 (overflow)
other client (5 sent) nstat: 0
client (5 sent) nstat -a: 5
server (7 sent) nstat -a: 7
server (7 sent) NSTAT_HISTORY=... nstat: 7"
[ "$(cat said)" = "$expected" ] || { echo "this has changed"; exit 1; }
