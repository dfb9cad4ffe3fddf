#!/usr/bin/env bash
# conntrack 1.4.7 (Debian 12, Linux 6.18) loses marks, which bind connections to a link where several are in use, in two ways.
# 1. `-L -o save`, whose output `-R` reads, leaves them out, as does the manual's "copy all entries" of a zone. What is restored
#    has mark 0, and rules by `ct mark` give open connections to another link. XML shows the mark; `-m` may be added to each
#    line.
# 2. `--status` overwrites a `--mark` left of it by its own bits (SEEN_REPLY is 2, ASSURED 4): "-I -m 17 -u SEEN_REPLY,ASSURED"
#    makes an entry with mark 6, "-D -m 17 -u ASSURED" deletes nothing. With -u first both do what they say.
# In src/conntrack.c `attrs_generic` names what is saved, still without the mark in 2026; `case 'u'` assigned
# `mark.value`, which has been corrected since.
# Needs: Debian's apt (after `apt-get update`), dpkg-deb, unshare, a kernel with nf_conntrack_netlink and marks.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
apt-get download -qq conntrack=1:1.4.7-1+b2 libnetfilter-conntrack3 libnfnetlink0 libmnl0 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" root; done
LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH
cat > try.sh <<'TRY'
conntrack() { root/usr/sbin/conntrack "$@" 2>/dev/null || true; }
insert() { conntrack -I -p tcp -s 192.0.2.1 -d 198.51.100.1 --sport 1000 --dport 80 --state ESTABLISHED -t 600 "$@"; }
mark() { conntrack -L "$@" | grep -o ' mark=[0-9]*' || echo " none"; }
root/usr/sbin/conntrack --version
insert -u SEEN_REPLY,ASSURED -m 17
echo "inserted with -u ... -m 17:$(mark)"
echo "in XML: $(conntrack -L -o xml | grep -o '<mark>[0-9]*')"
conntrack -L -o save > saved
echo "saved: $(cat saved)" | sed -E 's/-t [0-9]+/-t TIME/'
conntrack -F
conntrack -R saved
echo "restored:$(mark)"
conntrack -F
sed 's/$/ -m 17/' saved > with-mark
conntrack -R with-mark
echo "restored with -m added:$(mark)"
echo "listed by -u ASSURED -m 17:$(mark -u ASSURED -m 17)"
echo "listed by -m 17 -u ASSURED:$(mark -m 17 -u ASSURED)"
conntrack -D -m 17 -u ASSURED > /dev/null
echo "left by -D -m 17 -u ASSURED:$(mark)"
conntrack -D -u ASSURED -m 17 > /dev/null
echo "left by -D -u ASSURED -m 17:$(mark)"
insert -m 17 -u SEEN_REPLY,ASSURED
echo "inserted with -m 17 -u ...:$(mark)"
TRY
unshare -n bash try.sh | tee said
expected="\
conntrack v1.4.7 (conntrack-tools)
inserted with -u ... -m 17: mark=17
in XML: <mark>17
saved: -A -t TIME -u SEEN_REPLY,ASSURED -s 192.0.2.1 -d 198.51.100.1 -r 198.51.100.1 -q 192.0.2.1 -p tcp --sport 1000 \
--dport 80 --reply-port-src 80 --reply-port-dst 1000 --state ESTABLISHED
restored: mark=0
restored with -m added: mark=17
listed by -u ASSURED -m 17: mark=17
listed by -m 17 -u ASSURED: none
left by -D -m 17 -u ASSURED: mark=17
left by -D -u ASSURED -m 17: none
inserted with -m 17 -u ...: mark=6"
[ "$(cat said)" = "$expected" ] || { echo "this has changed"; exit 1; }
