//! The proxy's rules for nftables.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::direct::marks;
use super::port_forwarding::unasked;
use super::tunnel::TUNNEL_MARK;
use super::{Change, DEVICE, MARK, TABLE, Uplinks, engine_v4, engine_v6, kernel_address, pair};
use crate::setup::{guard, remember};
use crate::tunnel::NEAR_DEVICE;

/// Everything that the proxy itself sends on its devices.
const OWN: [(&str, &str); 2] = [("ip", "198.19.200.0/21"), ("ip6", "fd72:6f70:6577::/48")];

impl Uplinks {
    /// Rules against forwarding what isn't the engine's, where it was switched on. From elsewhere only
    /// answers pass to the engine.
    fn forwarding_guards(&self) -> String {
        let mut rules = format!("    oifname \"{DEVICE}*\" ct state != {{ established, related }} drop\n");
        if self.taken.datagrams {
            // Out of the tunnel come answers, and into it goes what the networks behind the proxy send.
            rules += &format!("    {}", unasked());
            rules += &format!("    oifname \"{NEAR_DEVICE}\" meta mark != {TUNNEL_MARK} drop\n");
            // Both ways.
            rules += &format!("    ct mark {} accept\n", marks());
        }
        for Change { key, .. } in self.changed.iter().filter(|change| change.key.ends_with("forwarding")) {
            let from = match key.split('/').nth(3) {
                Some("all") | None => {
                    "iifname != \"rope-gw*\" iifname != \"ropeproxy*\" iifname != \"rope-dg*\"".to_string()
                }
                Some(interface) => format!("iifname \"{interface}\""),
            };
            rules += &guard(key.starts_with("net/ipv6"), &from);
        }
        rules
    }

    /// The nftables script: each uplink's address translation, its greatest rate, and what transparent mode
    /// redirects.
    ///
    /// Linux forgets what it masquerades by an interface when that goes down, be it for a moment, and then
    /// answers the far end's segments with RST itself. It keeps connections whose source address a rule
    /// states (snat). So the engine's connections have such a rule where an interface has, or had, one
    /// address.
    pub(super) fn nftables(&self) -> String {
        let objects: String =
            self.objects().iter().map(|(name, what)| format!("  {name} {what}\n")).collect();
        let chains = self.chains();
        format!(
            "add table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n{objects}{chains}}}\n"
        )
    }

    /// The script that makes what nftables has by now into that: what hasn't changed of rates and counters
    /// goes on as it is.
    pub(super) fn changes(&self) -> String {
        let new = self.objects();
        let is_same = |name: &String, what: &String| new.get(name) == Some(what);
        let gone = self.objects.iter().filter(|(name, what)| !is_same(name, what)).map(|(name, _)| {
            let (kind, name) = name.split_once(' ').unwrap_or_default();
            format!("delete {kind} inet {TABLE} {name}\n")
        });
        let added = new.iter().filter(|(name, what)| self.objects.get(*name) != Some(what));
        let added: String = added.map(|(name, what)| format!("  {name} {what}\n")).collect();
        let (gone, chains) = (gone.collect::<String>(), self.chains());
        format!(
            "add table inet {TABLE}\nflush table inet {TABLE}\n{gone}\
             table inet {TABLE} {{\n{added}{chains}}}\n"
        )
    }

    /// What rules refer to by name: rates and counters.
    pub(super) fn objects(&self) -> BTreeMap<String, String> {
        let mut objects = self.direct_counters();
        for (&link, uplink) in &self.uplinks {
            let Some(rate) = uplink.rate else { continue };
            for (side, rate) in [("up", rate.up), ("down", rate.down)] {
                // A super-packet of 64 KiB has to fit several times. Besides, a bucket in bytes holds what
                // the rate gives in a second (nft_limit.c).
                let (bytes, burst) = (rate / 8, (rate / 8 / 10).max(256 << 10));
                let what = format!("{{ rate over {bytes} bytes/second burst {burst} bytes }}");
                objects.insert(format!("limit {side}{link}"), what);
            }
        }
        objects
    }

    fn chains(&self) -> String {
        let (mut forward, mut rules) = (self.forwarding_guards(), String::new());
        // The tunnel's datagrams are the kernel's own.
        let (mut sent, mut received) = (String::new(), String::new());
        for (&link, uplink) in &self.uplinks {
            let interface = &uplink.interface;
            let addresses = [("ip", IpAddr::V4(engine_v4(link))), ("ip6", engine_v6(link).into())];
            for (family, address) in addresses.into_iter().take(self.families().len()) {
                // The kernel's own address on the device asks resolvers.
                let own = pair(link, address.is_ipv6()).trunc();
                let known = self.addresses.get(&(link, address.is_ipv6()));
                if let Some(stated) = known.and_then(|known| known.stated) {
                    rules += &format!(
                        "    {family} saddr {address} oifname \"{interface}\" meta l4proto tcp snat {family} \
                         to {stated}\n"
                    );
                }
                rules += &format!("    {family} saddr {own} oifname \"{interface}\" masquerade\n");
                if uplink.rate.is_some() {
                    forward += &format!("    {family} saddr {address} limit name \"up{link}\" drop\n");
                    forward += &format!("    {family} daddr {address} limit name \"down{link}\" drop\n");
                    let kernels = kernel_address(link, address.is_ipv6());
                    sent += &format!("    {family} saddr {kernels} limit name \"up{link}\" drop\n");
                    received += &format!("    {family} daddr {kernels} limit name \"down{link}\" drop\n");
                }
            }
        }
        let chain = |name: &str, hook: &str, rules: &str| match rules {
            "" => String::new(),
            rules => format!("  chain {name} {{\n    {hook}; policy accept;\n{rules}  }}\n"),
        };
        let redirect = |interface: &String| {
            let port = self.taken.port;
            format!(
                "    iifname \"{interface}\" fib daddr type != local meta l4proto tcp redirect to :{port}\n"
            )
        };
        let redirect: String = self.taken.transparent.iter().map(redirect).collect();
        let [mut queries, mut own_queries, answers] = self.name_rules();
        queries += &self.tunnel_rules();
        let [arriving, forwarded, destinations, own] = self.inbound_rules();
        queries += &arriving;
        forward = forwarded + &self.direct_counting() + &forward;
        own_queries += &own;
        if self.taken.datagrams {
            received += &format!("    {}", unasked());
        }
        if self.inner.is_some() {
            rules += &format!("    oifname \"{NEAR_DEVICE}\" masquerade\n");
        }
        rules += &self.direct_masquerade();
        let chains = [
            chain("arriving", "type filter hook prerouting priority mangle", &queries),
            chain("answers", "type filter hook output priority raw", &answers),
            chain("own_queries", "type route hook output priority mangle", &own_queries),
            chain("prerouting", "type nat hook prerouting priority dstnat", &(redirect + &destinations)),
            chain("sent", "type filter hook output priority filter", &sent),
            chain("received", "type filter hook input priority filter", &received),
            chain("forward", "type filter hook forward priority filter", &forward),
            chain("postrouting", "type nat hook postrouting priority srcnat", &rules),
        ];
        let old = self.changed.iter().map(|change| (change.key.as_str(), change.old.as_str()));
        self.flows_chain() + &chains.concat() + &remember(old)
    }

    /// What goes through the tunnel while there is one, and past it: the flows that the networks behind the
    /// proxy begin. They keep the marks that they have got.
    fn tunnel_rules(&self) -> String {
        if !self.taken.datagrams {
            return String::new();
        }
        let marks = marks();
        let into = match self.inner {
            Some(_) => format!("{TUNNEL_MARK}, {marks}"),
            None => marks.clone(),
        };
        let of = |interface: &String| {
            let taken = format!(
                "    iifname \"{interface}\" fib daddr type != {{ local, broadcast, multicast }} \
                 meta l4proto != tcp"
            );
            format!(
                "{taken} ct state new ct mark != {{ {TUNNEL_MARK}, {marks} }} jump flows\n{taken} ct mark {{ \
                 {into} }} meta mark set ct mark\n"
            )
        };
        // Nobody beyond the tunnel has an address of the networks behind the proxy.
        let forged = |interface: &String| {
            format!("    iifname \"{NEAR_DEVICE}\" fib saddr oifname \"{interface}\" drop\n")
        };
        let interfaces = self.taken.transparent.iter();
        interfaces.clone().map(forged).chain(interfaces.map(of)).collect()
    }

    /// What queries of the DNS are handed over: those that arrive, and those of this host that would leave by
    /// an uplink. Answers get the port that the queries went to, before connection tracking sees them.
    fn name_rules(&self) -> [String; 3] {
        let mut chains = <[String; 3]>::default();
        if !self.taken.names {
            return chains;
        }
        let [arriving, leaving, answers] = &mut chains;
        for interface in &self.taken.transparent {
            *arriving += &format!(
                "    iifname \"{interface}\" fib daddr type != local udp dport 53 meta mark set {MARK}\n"
            );
        }
        for v6 in self.families() {
            let (family, loopback) = if *v6 { ("ip6", "[::1]") } else { ("ip", "127.0.0.1") };
            let protocol = if *v6 { "ipv6" } else { "ipv4" };
            *arriving += &format!(
                "    meta mark {MARK} meta nfproto {protocol} udp dport 53 tproxy {family} to {loopback}:{} \
                 accept\n",
                self.taken.port
            );
        }
        let interfaces: Vec<String> =
            self.uplinks.values().map(|uplink| format!("\"{}\"", uplink.interface)).collect();
        for (family, own) in OWN.iter().take(self.families().len()) {
            let loopback = if *family == "ip" { "127.0.0.0/8" } else { "::1" };
            *answers +=
                &format!("    {family} saddr != {loopback} udp sport {} udp sport set 53\n", self.taken.port);
            *leaving += &format!(
                "    oifname {{ {} }} {family} saddr != {own} udp dport 53 meta mark set {MARK}\n",
                interfaces.join(", ")
            );
        }
        chains
    }
}
