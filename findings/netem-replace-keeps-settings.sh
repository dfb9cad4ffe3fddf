#!/usr/bin/env bash
# `tc qdisc replace ... netem` (Debian 12's iproute2 6.1.0, Linux 6.1.176) resets only part of what isn't named: delay, jitter,
# loss, duplicates and the gap of reordering. Rate, corruption, slots, correlations and the jitter's distribution stay as they
# were, though tc(8) calls `replace` a "nearly atomic remove/add"; `change` does the same. The distribution is never shown: a
# link that once had `distribution pareto` keeps it, where a new one with the same words has a uniform jitter (not a normal one,
# as tc-netem(8) says). What is shown of reordering has no effect any more. A lab that changes links as it runs measures others
# than it names. With a new `handle`, `replace` starts afresh. In netem_change (net/sched/sch_netem.c) the fields of struct
# tc_netem_qopt are taken from each message, attributes only where there are any, and tc sends those that were named.
# Columns: of 200 packets whether some took 10 to 16.5 ms (15 % of a uniform jitter of 20 +-5 ms do, none of netem's Pareto,
# which begins at 16.7 ms) or 0 to 10 ms (reordered). The kernel is Debian's user-mode Linux, since not every kernel has
# netem.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3; 45 MB are downloaded.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq user-mode-linux=6.1um4+b13 iproute2=6.1.0-3 busybox-static=1:1.35.0-4+deb12u1+b1 \
  libbpf1 libelf1 libmnl0 libbsd0 libcap2 libmd0 libxtables12 zlib1g 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > measure.py <<'PYTHON'
import socket, sys, time

receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
receiver.settimeout(10)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
took = []
for _ in range(100):
    sent = []
    for number in range(2):
        sent.append(time.monotonic())
        sender.sendto(bytes([number]), receiver.getsockname())
    for _ in range(2):
        number = receiver.recv(1)[0]
        took.append(1000 * (time.monotonic() - sent[number]))

least, most = map(float, sys.argv[1:])
print(f"said   {least:g} to {most:g} ms: {'some' if any(least <= ms < most for ms in took) else 'none'}")
PYTHON
all="delay 20ms 5ms 25% distribution pareto loss 1% duplicate 1% corrupt 1% rate 100mbit slot 1us 2us"
{
  printf '#!/bin/bash\nfolder=%q\npython=%q\nall=%q\n' "$folder" \
    "$(python3 -c 'import sys; print(sys.executable)')" "$all"
  cat <<'INIT'
cd "$folder"
PATH=$folder/root/bin:$folder/root/sbin:/usr/bin:/bin
libraries=$folder/root/usr/lib/x86_64-linux-gnu:$folder/root/lib/x86_64-linux-gnu
tc() { LD_LIBRARY_PATH=$libraries TC_LIB_DIR=$folder/root/usr/lib/x86_64-linux-gnu/tc root/sbin/tc "$@"; }
busybox mount -t proc proc /proc
busybox insmod root/usr/lib/uml/modules/*/kernel/net/sched/sch_netem.ko
LD_LIBRARY_PATH=$libraries root/bin/ip link set lo up
try() {  # try add|replace|change [handle ID:] netem ...
  echo "said $*"
  tc qdisc "$1" dev lo root "${@:2}"
  tc qdisc show dev lo | sed -E 's/.*limit 1000 +/said   shown: /; s/  +([0-9])/ \1/; s/ *$//'
}
measure() { "$python" measure.py "$@"; }
# shellcheck disable=SC2086
try add netem $all
try replace netem delay 20ms 5ms
try change netem delay 30ms 5ms loss 2%
try replace handle 2: netem delay 20ms 5ms
measure 10 16.5
try replace netem delay 20ms 5ms distribution pareto
measure 10 16.5
try replace netem delay 20ms 5ms
measure 10 16.5
try replace handle 3: netem delay 20ms reorder 25%
measure 0 10
try replace netem delay 20ms
measure 0 10
echo o > /proc/sysrq-trigger
sleep 10
INIT
} > init.sh
chmod +x init.sh
# What it printed is compared below; how it powers off doesn't matter.
{
  HOME=$folder timeout 60 root/usr/bin/linux.uml mem=128M uml_dir="$folder/" rootfstype=hostfs rootflags=/ ro \
    init="$folder/init.sh" con=null con0=fd:0,fd:1 quiet </dev/null 2>&1 || true
} | tr -d '\r' | sed -n 's/^said //p' | tee said
expected="\
add netem $all
  shown: delay 20ms 5ms 25% loss 1% duplicate 1% corrupt 1% rate 100Mbit slot 1us 2us
replace netem delay 20ms 5ms
  shown: delay 20ms 5ms 25% corrupt 1% rate 100Mbit slot 1us 2us
change netem delay 30ms 5ms loss 2%
  shown: delay 30ms 5ms 25% loss 2% corrupt 1% rate 100Mbit slot 1us 2us
replace handle 2: netem delay 20ms 5ms
  shown: delay 20ms 5ms
  10 to 16.5 ms: some
replace netem delay 20ms 5ms distribution pareto
  shown: delay 20ms 5ms
  10 to 16.5 ms: none
replace netem delay 20ms 5ms
  shown: delay 20ms 5ms
  10 to 16.5 ms: none
replace handle 3: netem delay 20ms reorder 25%
  shown: delay 20ms reorder 25% gap 1
  0 to 10 ms: some
replace netem delay 20ms
  shown: delay 20ms reorder 25%
  0 to 10 ms: none"
[ "$(cat said)" = "$expected" ] || { echo "this has changed"; exit 1; }
