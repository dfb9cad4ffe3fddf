#!/usr/bin/env bash
# iperf3 3.12 (Debian 12) takes a duplicate of a UDP datagram for the late arrival of one that it counted as lost. Where 10 %
# are lost and 10 % come twice, both ends report no loss at all, and since the duplicates' bytes count as received, the rate
# looks right, too. Only the server counts them, as packets out of order. Whoever measures the loss of a bonded link that sends
# some packets over both of its links, or of an emulated one with duplicates, measures too little. iperf3(1) doesn't mention
# duplicates. The source does: iperf_udp_recv in src/iperf_udp.c subtracts one loss for each number that doesn't grow, and says
# that it assumes no duplicates.
# Columns: what a relay between the ends, on loopback, does to a tenth of the datagrams; what the client reports; what the
# server counts.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3, ip, unshare.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq iperf3=3.12-1+deb12u2 libiperf0=3.12-1+deb12u2 libsctp1 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH
cat > relay.py <<'PYTHON'
import json, socket, subprocess, sys, threading, time

lose, double = "lost" in sys.argv[1], "twice" in sys.argv[1]
relay, server = ("127.0.0.1", 5301), ("127.0.0.1", 5201)
near, far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))

def copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)

def relay_control():
    with socket.create_server(relay) as listening:
        one, _ = listening.accept()
        other = socket.create_connection(server)
        threading.Thread(target=copy, args=(other, one), daemon=True).start()
        copy(one, other)

def relay_datagrams():
    number = 0
    while True:
        data, client = near.recvfrom(65536)
        if len(data) < 1000:  # The beginning: the client says hello, the server answers.
            far.send(data)
            near.sendto(far.recv(65536), client)
            continue
        number += 1
        for _ in range(0 if lose and number % 10 == 3 else 2 if double and number % 10 == 7 else 1):
            far.send(data)

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
near.bind(relay)
far.connect(server)
run = ["root/usr/bin/iperf3", "--json"]
serving = subprocess.Popen([*run, "-s", "-1", "-B", server[0]], stdout=subprocess.PIPE, text=True)
for target in (relay_control, relay_datagrams):
    threading.Thread(target=target, daemon=True).start()
time.sleep(1)
calling = [*run, "-c", relay[0], "-p", str(relay[1]), "-u", "-b", "1M", "-l", "1000", "-t", "4"]
report = json.loads(subprocess.run(calling, stdout=subprocess.PIPE, text=True).stdout)["end"]
answer = json.loads(serving.communicate()[0])["end"]
lost, sent = report["sum"]["lost_packets"], report["sum"]["packets"]
received = report["sum_received"]["bytes"] / report["sum"]["bytes"]
late = answer["streams"][0]["udp"]["out_of_order"] / sent
print(f"{sys.argv[1]}: {lost / sent:.0%} lost, {received:.0%} of the bytes received, {late:.0%} out of order")
PYTHON
for what in nothing lost twice "lost and twice"; do
  unshare -n python3 relay.py "$what"
done | tee said
expected="\
nothing: 0% lost, 100% of the bytes received, 0% out of order
lost: 10% lost, 90% of the bytes received, 0% out of order
twice: 0% lost, 110% of the bytes received, 10% out of order
lost and twice: 0% lost, 100% of the bytes received, 10% out of order"
[ "$(cat said)" = "$expected" ] || { echo "this has changed"; exit 1; }
