#!/usr/bin/env bash
# Puma 5.6.5 over Multipath TCP (libmptcpwrap 0.12, mptcpize's library; both of Debian 12, Linux 6.18) ends a connection without
# an answer when the client's first path is gone, though another carries on. Before each request Puma looks whether the client
# has closed: by the state in TCP_INFO. Of a Multipath TCP socket the kernel gives there the state of the first subflow for
# ever, so 7 (TCP_CLOSE) once that one is removed. Nothing is logged and the application is not called; the client sees an end
# of the connection in place of an answer. Reading and writing would work. So a mobile client, or a gateway with several links,
# loses a request exactly when Multipath TCP ought to save it.
# Columns: which subflow of two the client removed; its answers before and after.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, python3, ip, unshare with network namespaces.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
ruby=3.1.7+really3.1.2-0+deb12u1
apt-get download -qq puma=5.6.5-3+deb12u2 ruby3.1=$ruby libruby3.1=$ruby ruby-nio4r=2.5.8-3 ruby-rack=2.2.22-0+deb12u2 \
  libmptcpwrap0=0.12-1 libedit2 libffi8 libgmp10 libncurses6 libtinfo6 libyaml-0-2 libssl3 zlib1g 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
cat > config.ru <<'RUBY'
run ->(env) { [200, {}, ["hello"]] }
RUBY
cat > ask.py <<'PYTHON'
import glob, os, socket, subprocess, sys, time

def run(command):
    subprocess.run(command, shell=True, check=True)

def answer(client):
    client.sendall(b"GET / HTTP/1.1\r\nHost: 10.0.3.1\r\n\r\n")
    said = client.recv(1000)
    return said.split(b"\r\n")[0].decode() if said else "end of the connection"

first, second, server = "10.0.1.1", "10.0.2.1", "10.0.3.1"
run("ip link set lo up; ip mptcp limits set subflows 1")
for address in first, second, server:
    run(f"ip address add {address}/32 dev lo")
run(f"ip mptcp endpoint add {second} id 2 subflow")
root = os.path.abspath("root/usr")
libraries = f"{root}/lib/x86_64-linux-gnu"
paths = [f"{root}/lib/ruby/3.1.0", f"{libraries}/ruby/3.1.0", f"{root}/lib/ruby/vendor_ruby"]
for gem in "rack-2*", "nio4r-*", "puma-*":
    for pattern in f"gems/{gem}/lib", f"extensions/**/{gem}":
        paths += glob.glob(f"{root}/**/{pattern}", recursive=True)
environment = dict(os.environ, LD_LIBRARY_PATH=libraries, RUBYLIB=":".join(paths))
environment["GEM_PATH"] = f"{libraries}/rubygems-integration/3.1.0:{root}/share/rubygems-integration/all"
environment["LD_PRELOAD"] = glob.glob(f"{libraries}/**/libmptcpwrap.so.*.*", recursive=True)[0]
puma = [f"{root}/bin/ruby3.1", glob.glob(f"{root}/**/gems/puma-*/bin/puma", recursive=True)[0]]
puma = subprocess.Popen([*puma, "-q", "-b", f"tcp://{server}:9292", "config.ru"], env=environment, stdout=subprocess.DEVNULL)
try:
    time.sleep(5)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_MPTCP) as client:
        client.bind((first, 0))
        client.connect((server, 9292))
        before = answer(client)
        time.sleep(0.5)
        run("ip mptcp endpoint delete id " + (f"0 {first}" if sys.argv[1] == "first" else "2"))
        time.sleep(0.5)
        print(f"{sys.argv[1]}: {before}, {answer(client)}", flush=True)
finally:
    puma.terminate()
    puma.wait()
PYTHON
for subflow in second first; do unshare -n python3 ask.py $subflow; done | tee said
expected="\
second: HTTP/1.1 200 OK, HTTP/1.1 200 OK
first: HTTP/1.1 200 OK, end of the connection"
if [ "$(cat said)" != "$expected" ]; then
  case $(uname -r) in 6.18.*) echo "this has changed"; exit 1 ;; *) echo "not so on Linux $(uname -r); seen on 6.18" ;; esac
fi
