#!/usr/bin/env bash
# iperf3 3.12 over Multipath TCP (libmptcpwrap 0.12, mptcpize's library; both of Debian 12, Linux 6.18) doesn't keep to --fq-rate:
# asked for 10 Mbit/s it sends as fast as it can, some Gbit/s on loopback. The kernel's Multipath TCP sockets refuse
# SO_MAX_PACING_RATE (EOPNOTSUPP); iperf3 warns on standard error, ends with 0, and its JSON says nothing. --bitrate, which iperf3
# keeps by itself, holds, as --fq-rate does over TCP. A type of service (--tos) isn't to be had over IPv6, since IPV6_TCLASS is
# refused, and so not over IPv4 either from a server at its usual address, ::; both ends give up. IP_TOS is taken (server at 0.0.0.0).
# Columns: the protocol, what was asked for, whether at most 100 Mbit/s arrived, lines in the JSON about it; or the client's error.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3, a kernel with Multipath TCP.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq iperf3=3.12-1+deb12u2 libiperf0=3.12-1+deb12u2 libsctp1 libmptcpwrap0=0.12-1 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH
wrap=$(find root -name 'libmptcpwrap.so*' -type f | head -n 1)
port=5399
run() {  # run PROTOCOL SERVER ADDRESS OPTION...
  protocol=$1 at=$2 address=$3; shift 3
  preload=; [ "$protocol" = MPTCP ] && preload=$folder/$wrap
  port=$((port + 1))
  LD_PRELOAD=$preload root/usr/bin/iperf3 -s -1 -B "$at" -p $port >/dev/null 2>&1 &
  server=$!
  sleep 0.5
  LD_PRELOAD=$preload root/usr/bin/iperf3 -c "$address" -p $port -t 2 --json "$@" >report 2>/dev/null || true
  kill $server 2>/dev/null || true
  wait $server || true
  python3 - "$protocol, $at to $address $*" <<'PYTHON'
import json, sys
text = open("report").read()
report = json.loads(text)
if "error" in report:
    print(f"{sys.argv[1]}: {report['error']}")
else:
    slow = report["end"]["sum_received"]["bits_per_second"] <= 100e6
    print(f"{sys.argv[1]}: {'kept' if slow else 'not kept'}, {sum('pacing' in line for line in text.splitlines())} lines about it")
PYTHON
}
{
  run TCP :: 127.0.0.1 --fq-rate 10M
  run MPTCP :: 127.0.0.1 --fq-rate 10M
  run MPTCP :: 127.0.0.1 --bitrate 10M
  run TCP :: ::1 --tos 16 --bitrate 10M
  run MPTCP :: ::1 --tos 16 --bitrate 10M
  run MPTCP :: 127.0.0.1 --tos 16 --bitrate 10M
  run MPTCP 0.0.0.0 127.0.0.1 --tos 16 --bitrate 10M
} | tee said
expected="\
TCP, :: to 127.0.0.1 --fq-rate 10M: kept, 0 lines about it
MPTCP, :: to 127.0.0.1 --fq-rate 10M: not kept, 0 lines about it
MPTCP, :: to 127.0.0.1 --bitrate 10M: kept, 0 lines about it
TCP, :: to ::1 --tos 16 --bitrate 10M: kept, 0 lines about it
MPTCP, :: to ::1 --tos 16 --bitrate 10M: unable to set IPv6 traffic class: Operation not supported
MPTCP, :: to 127.0.0.1 --tos 16 --bitrate 10M: control socket has closed unexpectedly
MPTCP, 0.0.0.0 to 127.0.0.1 --tos 16 --bitrate 10M: kept, 0 lines about it"
[ "$(cat said)" = "$expected" ] || { echo "this has changed"; exit 1; }
