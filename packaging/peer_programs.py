# ruff: noqa: E501, UP031
"""Programs for packaging/peers: a server, and a client that checks what comes of it. Both are shell scripts.

In them `{host}` and `{port}` are where the client connects, `{port}` and the two after it where the server listens,
`{folder}` is a folder of the program's own with `file` (4 MB), `{certificate}` and `{key}` are for TLS.
"""

import collections

# `packages`: how what is missing is installed; `version`: a command whose output has it.
Program = collections.namedtuple("Program", "version packages server client")

NGINX = """cat > nginx.conf <<END
daemon off; master_process off; pid {folder}/pid; error_log stderr; events {{ }}
http {{ access_log off; client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5; keepalive_requests 100000; sendfile on; root {folder};
ssl_certificate {certificate}; ssl_certificate_key {key};
server {{ listen {port}; }} server {{ listen %s ssl http2; }} server {{ listen %s http2; }} }}
END
exec nginx -c {folder}/nginx.conf -e stderr"""
NODE = """const http = require("http"), crypto = require("crypto");
http.createServer((request, answer) => {{
  const hash = crypto.createHash("sha256"), pieces = [];
  request.on("data", piece => {{ hash.update(piece); pieces.push(piece); }});
  request.on("end", () => {{ answer.setHeader("digest", hash.digest("hex")); pieces.forEach(piece => answer.write(piece)); answer.end(); }});
}}).listen({port}, "0.0.0.0");"""
NODE_CLIENT = """const http = require("http"), crypto = require("crypto"), net = require("net");
const agent = new http.Agent({{ keepAlive: true, maxSockets: 6 }});
const ask = n => new Promise((done, failed) => {{
  const body = crypto.randomBytes(n), digest = crypto.createHash("sha256").update(body).digest("hex");
  const request = http.request({{ host: "{host}", port: {port}, method: "POST", agent }}, answer => {{
    const pieces = [];
    answer.on("data", piece => pieces.push(piece));
    answer.on("end", () => answer.headers.digest === digest && Buffer.concat(pieces).equals(body) ? done() : failed("differs"));
  }});
  request.on("error", failed);
  request.end(body);
}});
Promise.all([...Array(60).keys()].map(n => ask(1000 + n * 20000))).then(() => process.exit(0), error => {{ console.error(error); process.exit(1); }});"""
JAVA = """import java.net.*; import java.net.http.*; import java.util.*; import com.sun.net.httpserver.*;
public class Main {{ public static void main(String[] words) throws Exception {{
  if (words.length == 0) {{
    var server = HttpServer.create(new InetSocketAddress({port}), 1000);
    server.createContext("/", one -> {{ var body = one.getRequestBody().readAllBytes(); one.sendResponseHeaders(200, body.length); one.getResponseBody().write(body); one.close(); }});
    server.setExecutor(java.util.concurrent.Executors.newCachedThreadPool());
    server.start(); return;
  }}
  var client = HttpClient.newHttpClient(); var random = new Random(1);
  var all = new ArrayList<java.util.concurrent.CompletableFuture<Boolean>>();
  for (int n = 0; n < 40; n++) {{
    var body = new byte[1000 + n * 30000]; random.nextBytes(body);
    var request = HttpRequest.newBuilder(URI.create("http://{host}:{port}/")).POST(HttpRequest.BodyPublishers.ofByteArray(body)).build();
    all.add(client.sendAsync(request, HttpResponse.BodyHandlers.ofByteArray()).thenApply(answer -> Arrays.equals(answer.body(), body)));
  }}
  for (var one : all) if (!one.get()) System.exit(1);
}} }}"""
GO = """package main
import ("bytes"; "crypto/rand"; "io"; "net/http"; "os"; "sync")
func main() {{
  if len(os.Args) == 1 {{
    http.ListenAndServe("0.0.0.0:{port}", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {{ body, _ := io.ReadAll(r.Body); w.Write(body) }}))
  }}
  var all sync.WaitGroup
  for n := 0; n < 40; n++ {{ all.Add(1); go func(n int) {{ defer all.Done()
    body := make([]byte, 1000+n*30000); rand.Read(body)
    answer, err := http.Post("http://{host}:{port}/", "application/octet-stream", bytes.NewReader(body))
    if err != nil {{ println(err.Error()); os.Exit(1) }}
    found, _ := io.ReadAll(answer.Body)
    if !bytes.Equal(found, body) {{ println("differs"); os.Exit(1) }} }}(n) }}
  all.Wait()
}}"""
WEBSOCKET = """import asyncio, os, sys, websockets
async def echo(one):
    async for text in one: await one.send(text)
async def serve():
    async with websockets.serve(echo, "0.0.0.0", {port}, max_size=None): await asyncio.Future()
async def ask():
    async with websockets.connect("ws://{host}:{port}", max_size=None) as one:
        for n in range(200):
            text = os.urandom(1 + n * n * 10); await one.send(text); assert await one.recv() == text
        await asyncio.sleep(3); await one.ping()
async def main(): await (serve() if len(sys.argv) == 1 else asyncio.gather(*(ask() for _ in range(5))))
asyncio.run(main())"""
GRPC = """import concurrent.futures, grpc, os, sys
def answers(count, context):
    for n in range(int(count)): yield b"%d" % n * 1000
kinds = {{"echo": grpc.unary_unary_rpc_method_handler(lambda text, _: text), "many": grpc.unary_stream_rpc_method_handler(answers),
  "both": grpc.stream_stream_rpc_method_handler(lambda texts, _: texts)}}
if len(sys.argv) == 1:
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(20))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test", kinds)])
    server.add_insecure_port("0.0.0.0:{port}"); server.start(); server.wait_for_termination()
channel = grpc.insecure_channel("{host}:{port}")
for n in range(100):
    text = os.urandom(1 + n * 20000); assert channel.unary_unary("/test/echo")(text, timeout=60) == text
assert [len(one) for one in channel.unary_stream("/test/many")(b"500", timeout=60)] == [len(b"%d" % n * 1000) for n in range(500)]
texts = [os.urandom(30000) for _ in range(100)]
assert list(channel.stream_stream("/test/both")(iter(texts), timeout=60)) == texts"""
# nginx on loopback, for programs that tunnel to it.
BEHIND = (
    NGINX.replace("listen {port};", "listen 127.0.0.1:{port2};")
    .replace("server {{ listen %s ssl http2; }} server {{ listen %s http2; }}", "")
    .replace("exec nginx", "nginx")
    + " & "
)
TUNNEL = """until curl -sf --max-time 5 --proxy socks5://127.0.0.1:{port1} -o small http://127.0.0.1:{port2}/small; do sleep 0.3; done
for n in 1 2 3 4; do curl -sf --max-time 60 --proxy socks5://127.0.0.1:{port1} -o copy$n http://127.0.0.1:{port2}/file & all="$all $!"; done
for one in $all; do wait $one || exit 1; done; for n in 1 2 3 4; do cmp copy$n file || exit 1; done"""
SECRET = "ropewalk-test-secret"
SING_BOX = (
    """echo '{{"inbounds":[{{"type":"shadowsocks","listen":"0.0.0.0","listen_port":{port},"method":"aes-256-gcm","password":"%s"}}]}}' > s.json"""
    % SECRET
)
SING_BOX_CLIENT = (
    """echo '{{"inbounds":[{{"type":"socks","listen":"127.0.0.1","listen_port":{port1}}}],"outbounds":[{{"type":"shadowsocks","""
    """"server":"{host}","server_port":{port},"method":"aes-256-gcm","password":"%s"}}]}}' > c.json"""
) % SECRET
XRAY = """echo '{{"inbounds":[{{"protocol":"vless","port":{port},"settings":{{"decryption":"none","clients":[{{"id":"5783a3e7-e373-51cd-8642-c83782b807c5"}}]}}}}],"outbounds":[{{"protocol":"freedom"}}]}}' > s.json"""
XRAY_CLIENT = (
    """echo '{{"inbounds":[{{"protocol":"socks","listen":"127.0.0.1","port":{port1}}}],"outbounds":[{{"protocol":"vless","settings":{{"vnext":"""
    """[{{"address":"{host}","port":{port},"users":[{{"id":"5783a3e7-e373-51cd-8642-c83782b807c5","encryption":"none"}}]}}]}}}}]}}' > c.json"""
)

PROGRAMS = {
    "curl and nginx: HTTP/1.1, HTTP/2, TLS, ranges": Program(
        "nginx -v; curl --version",
        "apt-get install nginx-light curl",
        NGINX % ("{port1}", "{port2}"),
        """set -e; c="curl -sfk --max-time 60"
$c -o copy http://{host}:{port}/file; cmp copy file
$c -o /dev/null -w '%{{num_connects}}\\n' "http://{host}:{port}/small?[1-100]" | paste -sd+ | sed 's/.*/test $((&)) = 1/' | sh
for n in 0 1 2 3; do $c -r $((n * 1000000))-$((n < 3 ? n * 1000000 + 999999 : 9999999)) -o part$n http://{host}:{port}/file & all="$all $!"; done
for one in $all; do wait $one; done; cat part0 part1 part2 part3 | cmp - file
$c --http2 -o copy https://{host}:{port1}/file; cmp copy file
$c --http2 -o 'copy#1' "https://{host}:{port1}/file?[1-9]"; for n in 1 5 9; do cmp copy$n file; done
$c --http2-prior-knowledge -o copy http://{host}:{port2}/file; cmp copy file""",
    ),
    "Node: http, agent with keep-alive": Program(
        "node --version",
        "apt-get install nodejs",
        f"cat > s.js <<'END'\n{NODE}\nEND\nexec node s.js",
        f"cat > c.js <<'END'\n{NODE_CLIENT}\nEND\nexec node c.js",
    ),
    "Java: HttpServer, HttpClient": Program(
        "java -version",
        "apt-get install default-jdk-headless",
        f"cat > Main.java <<'END'\n{JAVA}\nEND\nexec java Main.java",
        f"cat > Main.java <<'END'\n{JAVA}\nEND\nexec java Main.java client",
    ),
    "Go: net/http": Program(
        "go version",
        "apt-get install golang-go",
        f"cat > main.go <<'END'\n{GO}\nEND\ngo build -o server main.go; exec ./server",
        f"cat > main.go <<'END'\n{GO}\nEND\ngo build -o client main.go; exec ./client client",
    ),
    "git over ssh": Program(
        "git --version; ssh -V",
        "apt-get install git openssh-server openssh-client",
        """rm -rf keys repository; mkdir -p keys /run/sshd; ssh-keygen -qt ed25519 -N '' -f keys/host; ssh-keygen -qt ed25519 -N '' -f keys/user
git init -q repository; cd repository; for n in 1 2 3 4 5; do head -c 500000 /dev/urandom > f$n; git add .; git -c user.name=x -c user.email=x commit -qm $n; done; cd ..
cp keys/user.pub keys/allowed
exec /usr/sbin/sshd -D -p {port} -h {folder}/keys/host -o AuthorizedKeysFile={folder}/keys/allowed -o StrictModes=no -o PidFile=none -o UsePAM=no -o PermitRootLogin=yes""",
        """set -e; rm -rf copy; export GIT_SSH_COMMAND="ssh -i {folder}/keys/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=error"
git clone -q ssh://root@{host}:{port}{folder}/repository copy; git -C copy fsck --strict; cmp copy/f5 repository/f5
cd copy; git checkout -qb mine; head -c 900000 /dev/urandom > mine; git add .; git -c user.name=x -c user.email=x commit -qm mine; git push -q origin mine""",
    ),
    "rsync": Program(
        "rsync --version",
        "apt-get install rsync",
        """mkdir -p tree; for n in $(seq 200); do head -c $((n * 300)) /dev/urandom > tree/$n; done; cp file tree/
printf 'use chroot = no\\nuid = 0\\ngid = 0\\n[tree]\\npath = {folder}/tree\\nread only = no\\n' > rsyncd.conf
exec rsync --daemon --no-detach --port {port} --config {folder}/rsyncd.conf""",
        """set -e; rm -rf copy; rsync -a rsync://{host}:{port}/tree/ copy/; diff -r copy tree
head -c 3000000 /dev/urandom > copy/more; rsync -az copy/ rsync://{host}:{port}/tree/; diff -r copy tree""",
    ),
    "PostgreSQL": Program(
        "psql --version",
        "apt-get install postgresql",
        """bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1); rm -rf db; mkdir db; chown postgres db
runuser -u postgres -- $bin/initdb -D {folder}/db -A trust >/dev/null; echo 'host all all 0.0.0.0/0 trust' >> db/pg_hba.conf
exec runuser -u postgres -- $bin/postgres -D {folder}/db -p {port} -k '' -h 0.0.0.0""",
        """set -e; sql="psql -qAt -h {host} -p {port} -U postgres -v ON_ERROR_STOP=1"
$sql -c 'drop table if exists t; create table t (n int, x text)'
seq 200000 | awk '{{ print $1 "\\t" "row number " $1 }}' | $sql -c 'copy t from stdin'
test "$($sql -c 'select count(*), sum(n) from t')" = '200000|20000100000'
$sql -c 'copy t to stdout' | md5sum > a; seq 200000 | awk '{{ print $1 "\\t" "row number " $1 }}' | md5sum | cmp - a
for n in $(seq 20); do test "$($sql -c "select x from t where n = $n")" = "row number $n"; done""",
    ),
    "mosquitto: MQTT, QoS 2": Program(
        "mosquitto -h",
        "apt-get install mosquitto mosquitto-clients",
        "printf 'listener {port} 0.0.0.0\\nallow_anonymous true\\nmax_queued_messages 0\\n' > m.conf; exec mosquitto -c m.conf",
        """set -e; timeout 60 mosquitto_sub -h {host} -p {port} -q 2 -i sub -t t -C 2000 > heard & sub=$!; sleep 2
seq 2000 | mosquitto_pub -h {host} -p {port} -q 2 -t t -l; wait $sub; seq 2000 | cmp - heard
mosquitto_sub -h {host} -p {port} -t big -C 1 -N > copy & sub=$!; sleep 1; mosquitto_pub -h {host} -p {port} -t big -f file; wait $sub; cmp copy file""",
    ),
    "WebSocket (Python's websockets)": Program(
        "{python} -c 'import websockets; print(websockets.__version__)'",
        "pip install websockets",
        f"cat > w.py <<'END'\n{WEBSOCKET}\nEND\nexec {{python}} w.py",
        "exec {python} w.py client",
    ),
    "gRPC (grpcio): calls and streams": Program(
        "{python} -c 'import grpc; print(grpc.__version__)'",
        "pip install grpcio",
        f"cat > g.py <<'END'\n{GRPC}\nEND\nexec {{python}} g.py",
        "exec {python} g.py client",
    ),
    "sing-box: Shadowsocks": Program(
        "sing-box version | grep -v Environment",
        "go install github.com/sagernet/sing-box/cmd/sing-box@v1.14.1",
        f"{BEHIND}\n{SING_BOX}; exec sing-box run -c s.json",
        f"{SING_BOX_CLIENT}; sing-box run -c c.json & proxy=$!; trap 'kill $proxy' EXIT\n{TUNNEL}",
    ),
    "Xray: VLESS": Program(
        "xray version",
        "go install github.com/xtls/xray-core/main@v1.260327.0, renamed to xray",
        f"{BEHIND}\n{XRAY}; exec xray run -c s.json",
        f"{XRAY_CLIENT}; xray run -c c.json & proxy=$!; trap 'kill $proxy' EXIT\n{TUNNEL}",
    ),
    "shadowsocks-rust": Program(
        "ssserver --version",
        "cargo install shadowsocks-rust",
        f"{BEHIND}\nexec ssserver -s 0.0.0.0:{{port}} -m aes-256-gcm -k {SECRET}",
        f"sslocal -s {{host}}:{{port}} -m aes-256-gcm -k {SECRET} -b 127.0.0.1:{{port1}} & proxy=$!; trap 'kill $proxy' EXIT\n{TUNNEL}",
    ),
}

# Settings of the peer's kernel: what is set in its namespace, by sysctl (KEY=VALUE) or by a command.
SETTINGS = {
    "as it is": [],
    "no timestamps": ["net.ipv4.tcp_timestamps=0"],
    "timestamps without a random offset": ["net.ipv4.tcp_timestamps=2"],
    "no SACK": ["net.ipv4.tcp_sack=0"],
    "no DSACK": ["net.ipv4.tcp_dsack=0"],
    "no window scaling": ["net.ipv4.tcp_window_scaling=0"],
    "none of these": ["net.ipv4.tcp_timestamps=0", "net.ipv4.tcp_sack=0", "net.ipv4.tcp_window_scaling=0"],
    "ECN asked for": ["net.ipv4.tcp_ecn=1"],
    "no ECN": ["net.ipv4.tcp_ecn=0"],
    "receive buffers of 4 to 16 KiB": ["net.ipv4.tcp_rmem=4096 8192 16384"],
    "the same, the window may shrink": ["net.ipv4.tcp_rmem=4096 8192 16384", "net.ipv4.tcp_shrink_window=1"],
    "receive buffers of 32 MiB": ["net.ipv4.tcp_rmem=4096 131072 33554432"],
    "send buffers of 4 to 16 KiB": ["net.ipv4.tcp_wmem=4096 8192 16384"],
    "no autotuning": ["net.ipv4.tcp_moderate_rcvbuf=0"],
    "the window may shrink": ["net.ipv4.tcp_shrink_window=1"],
    "tcp_adv_win_scale 3": ["net.ipv4.tcp_adv_win_scale=3"],
    "cookies for every SYN": ["net.ipv4.tcp_syncookies=2"],
    "no cookies": ["net.ipv4.tcp_syncookies=0"],
    "Fast Open": ["net.ipv4.tcp_fastopen=1027"],
    "checksums": ["net.mptcp.checksum_enabled=1"],
    "no joins to the first address": ["net.mptcp.allow_join_initial_addr_port=0"],
    "no announcements heard": ["ip mptcp limits set subflows 4 add_addr_accepted 0"],
    "the user space's path manager": ["net.mptcp.pm_type=1"],
    "stale at once": ["net.mptcp.stale_loss_cnt=1"],
    "Multipath TCP off": ["net.mptcp.enabled=0"],
    "reno": ["net.ipv4.tcp_congestion_control=reno"],
    "no RACK, no tail loss probes": ["net.ipv4.tcp_recovery=0", "net.ipv4.tcp_early_retrans=0"],
    "no F-RTO": ["net.ipv4.tcp_frto=0"],
    "reordering of 300": ["net.ipv4.tcp_reordering=300", "net.ipv4.tcp_max_reordering=300"],
    "ACKs aren't merged": ["net.ipv4.tcp_comp_sack_nr=0"],
    "path MTU probing": ["net.ipv4.tcp_mtu_probing=2", "net.ipv4.tcp_base_mss=512"],
    "no path MTU discovery": ["net.ipv4.ip_no_pmtu_disc=1"],
    "metrics saved": ["net.ipv4.tcp_no_metrics_save=0"],
    "no slow start after idle": ["net.ipv4.tcp_slow_start_after_idle=0"],
    "no offload": ["ethtool -K eth0 tso off gso off gro off", "ethtool -K eth1 tso off gso off gro off"],
    "an MTU of 600": ["ip link set eth0 mtu 600", "ip link set eth1 mtu 600"],
}
