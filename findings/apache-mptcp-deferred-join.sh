#!/usr/bin/env bash
# Apache httpd 2.4.71 over Multipath TCP (libmptcpwrap 0.12, mptcpize's library; both of Debian 12, Linux 6.18) gets no second
# subflow for 31 s. On Linux httpd listens with TCP_DEFER_ACCEPT of 30 s unless told otherwise ("AcceptFilter http none"). The
# kernel applies that to joins, too: it ignores an ACK that ends a handshake without data (tcp_check_req in
# net/ipv4/tcp_minisocks.c). A first subflow brings its request at once. But on a joining one no data may be sent before the
# server has confirmed that ACK (RFC 8684, section 3.2). So only the ACK of a repeated SYN/ACK counts, after 1 + 2 + 4 + 8 + 16
# s. Shorter transfers have one path, and a connection whose first path fails before has none. The client doesn't tell: it
# counts the subflow, ss calls it ESTAB, and it repeats its ACK all the while. nginx's `deferred` and HAProxy's `defer-accept`
# set this option to 1 s.
# Columns: httpd's setting; when its kernel took the join of a client that downloads; the client's ACKs that were ignored
# before.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3, ip, nstat, unshare with network namespaces.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq apache2-bin=2.4.71-1~deb12u1 libapr1=1.7.2-3+deb12u1 libaprutil1=1.6.3-1+deb12u1 libpcre2-8-0 libexpat1 \
  libmptcpwrap0=0.12-1 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
mkdir files; head -c 100000000 /dev/zero > files/zeros; chmod -R a+rX "$folder"
cat > download.py <<'PYTHON'
import glob, os, socket, subprocess, sys, time

def run(command):
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout

def joined():
    return "MPTcpExtMPJoinAckRx 1" in " ".join(run("nstat -asz MPTcpExtMPJoinAckRx").split())

setting, folder = sys.argv[1], os.getcwd()
run("ip link set lo up; ip address add 10.0.1.1/32 dev lo; ip address add 10.0.2.1/32 dev lo; "
    "ip mptcp limits set subflows 1; ip mptcp endpoint add 10.0.2.1 subflow")
name = f"{folder}/{os.getpid()}"
with open(name + ".conf", "w") as file:
    file.write(f"""
        ServerRoot {folder}
        ServerName localhost
        PidFile {name}.pid
        ErrorLog {name}.log
        LoadModule mpm_event_module root/usr/lib/apache2/modules/mod_mpm_event.so
        LoadModule authz_core_module root/usr/lib/apache2/modules/mod_authz_core.so
        Listen 10.0.1.1:8080
        DocumentRoot {folder}/files
        {setting}
    """)
environment = dict(os.environ, LD_LIBRARY_PATH=f"{folder}/root/usr/lib/x86_64-linux-gnu")
environment["LD_PRELOAD"] = glob.glob("root/usr/lib/**/libmptcpwrap.so.*.*", recursive=True)[0]
server = subprocess.Popen(["root/usr/sbin/apache2", "-f", name + ".conf", "-D", "FOREGROUND"], env=environment)
try:
    time.sleep(2)
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_MPTCP)
    client.connect(("10.0.1.1", 8080))
    begin = time.monotonic()
    client.sendall(b"GET /zeros HTTP/1.1\r\nHost: localhost\r\n\r\n")
    took = None
    while took is None and time.monotonic() - begin < 40:
        client.recv(10000)
        time.sleep(0.05)
        if joined():
            took = time.monotonic() - begin
    ignored = int(run("nstat -asz TcpExtTCPDeferAcceptDrop").split()[2])
    when = "at once" if took < 1 else "31 to 33 s" if 30.5 < took < 33.5 else f"{took:.0f} s"
    print(f"{setting or 'as it is'}: {when}, {'more than 100' if ignored > 100 else ignored}")
finally:
    server.terminate()
    server.wait()
PYTHON
unshare -n python3 download.py "" >deferred & deferred=$!
unshare -n python3 download.py "AcceptFilter http none" >direct
wait $deferred
cat deferred direct | tee said
expected="\
as it is: 31 to 33 s, more than 100
AcceptFilter http none: at once, 0"
if [ "$(cat said)" != "$expected" ]; then
  case $(uname -r) in 6.18.*) echo "this has changed"; exit 1 ;; *) echo "not so on Linux $(uname -r); seen on 6.18" ;; esac
fi
