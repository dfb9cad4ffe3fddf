#!/usr/bin/env bash
# curl 7.88.1 (Debian 12) that is told to begin with HTTP/2 over TCP without TLS (--http2-prior-knowledge), and given two addresses
# of one server, gets the first answer and then ends with error 16, "Error in the HTTP2 framing layer". One address alone is
# answered, and so are both by two curls. Whoever tests a proxy or a gateway with several such requests in one curl takes it for the
# fault of what stands between. The server is nginx 1.22.1, on loopback.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb.
set -euo pipefail
folder=$(mktemp -d); nginx=; trap '[ -z "$nginx" ] || kill "$nginx"; rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq curl=7.88.1-10+deb12u15 libcurl4=7.88.1-10+deb12u15 nginx=1.22.1-9+deb12u11 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
curl() { LD_LIBRARY_PATH=$(dirname "$(find root -name 'libcurl.so.4' | head -n 1)") root/usr/bin/curl -sS "$@" 2>&1; }
port=$((20000 + RANDOM % 10000))
cat > nginx.conf <<NGINX
daemon off; pid $folder/pid; error_log $folder/error.log;
events {}
http {
  access_log off; client_body_temp_path $folder/body; proxy_temp_path $folder/proxy; fastcgi_temp_path $folder/fastcgi;
  uwsgi_temp_path $folder/uwsgi; scgi_temp_path $folder/scgi;
  server { listen 127.0.0.1:$port http2; root $folder/files; }
}
NGINX
mkdir files; echo one > files/one; echo two > files/two; chmod -R a+rX "$folder"
root/usr/sbin/nginx -c "$folder/nginx.conf" -e "$folder/error.log" & nginx=$!
sleep 1
url=http://127.0.0.1:$port
curl --version | head -n 1
single="$(curl --http2-prior-knowledge "$url/one") $(curl --http2-prior-knowledge "$url/two")"
both=$(curl --http2-prior-knowledge "$url/one" "$url/two" | tr '\n' ' ') && code=0 || code=$?
echo "two programs: $single"
echo "one program:  $both(exit code $code)"
[ "$single" = "one two" ] && [ "$code" = 16 ] && [ "$both" = "one curl: (16) Error in the HTTP2 framing layer " ] ||
  { echo "this has changed"; exit 1; }
