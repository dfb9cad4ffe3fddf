//! What leads flows past the tunnel: a mark for each link, which leads to the link's table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;

use ipnet::IpNet;

use super::super::direct::{Choice, Direct, Way};
use super::super::policy::PacketConditions;
use super::super::reach::Uplink;
use super::tunnel::TUNNEL_MARK;
use super::{MOST_LINKS, PROTOCOL, TABLE, Uplinks, table};
use crate::setup::conntrack::forget_marked;
use crate::setup::{Host, MAIN_TABLE, PROXY_TABLES, Step, repaired, run};

/// The mark of the first link's flows; the others' follow.
const FIRST_MARK: u32 = 0x726f_7070;
/// What all of them have in common.
const MASK: u32 = !(MOST_LINKS as u32 - 1);
/// How the counters' names begin.
const COUNTER: &str = "direct_";
/// The priorities of the rules by which marks lead to tables, and of the rule by which neighbours come
/// before.
const PRIORITIES: u32 = PROXY_TABLES.end - 16;
const NEIGHBOURS: u32 = PRIORITIES - 1;

/// The bytes that links have carried past the tunnel since the rules were set, up and down.
///
/// # Errors
/// If `nft` fails.
pub fn direct_bytes() -> io::Result<BTreeMap<usize, [u64; 2]>> {
    Ok(counted(&run("nft", &["list", "counters", "table", "inet", TABLE], None)?))
}

/// Reads them from what `nft` lists.
fn counted(listing: &str) -> BTreeMap<usize, [u64; 2]> {
    let mut all: BTreeMap<usize, [u64; 2]> = BTreeMap::new();
    let mut words = listing.split_whitespace();
    let mut now = None;
    while let Some(word) = words.next() {
        match word {
            "counter" => {
                let name = words.next().and_then(|name| name.strip_prefix(COUNTER));
                let of = |name: &str, way| name.strip_prefix(way)?.parse::<usize>().ok();
                now = name.and_then(|name| {
                    of(name, "up").map(|link| (link, 0)).or(of(name, "down").map(|link| (link, 1)))
                });
            }
            "bytes" => {
                let bytes = words.next().and_then(|bytes| bytes.parse().ok());
                if let (Some((link, way)), Some(bytes)) = (now, bytes) {
                    all.entry(link).or_default()[way] = bytes;
                }
            }
            _ => {}
        }
    }
    all
}

fn mark(link: usize) -> u32 {
    FIRST_MARK + link as u32
}

/// The marks of all links, for nftables.
pub(super) fn marks() -> String {
    format!("{FIRST_MARK:#x}-{:#x}", mark(MOST_LINKS - 1))
}

fn rule(words: &str, v6: bool) -> (Step, Vec<Step>) {
    let family = if v6 { "-6" } else { "-4" };
    let step = |verb: &str| Step::ip(&format!("{family} rule {verb} {words} protocol {PROTOCOL}"));
    (step("add"), vec![step("del")])
}

/// The rule by which a link's mark leads to its table.
pub(super) fn link_rule(link: usize, v6: bool) -> (Step, Vec<Step>) {
    let (priority, mark, table) = (PRIORITIES + link as u32, mark(link), table(link));
    rule(&format!("priority {priority} fwmark {mark:#x} lookup {table}"), v6)
}

/// The rule by which what is marked reaches other networks behind the proxy.
pub(super) fn neighbours_rule(v6: bool) -> (Step, Vec<Step>) {
    let words =
        format!("priority {NEIGHBOURS} fwmark {FIRST_MARK:#x}/{MASK:#x} lookup main suppress_prefixlength 0");
    rule(&words, v6)
}

/// A condition on one of several values; nothing where there are none.
fn one_of<T: ToString>(what: &str, values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values.into_iter().map(|one| one.to_string()).collect();
    if values.is_empty() { String::new() } else { format!("{what} {{ {} }} ", values.join(", ")) }
}

/// Ranges without those that overlap or touch: nftables refuses them.
fn merged(ranges: &[(u16, u16)]) -> Vec<String> {
    let mut all: Vec<(u16, u16)> = Vec::new();
    for &(first, last) in BTreeSet::from_iter(ranges) {
        match all.last_mut() {
            Some(before) if u32::from(first) <= u32::from(before.1) + 1 => before.1 = before.1.max(last),
            _ => all.push((first, last)),
        }
    }
    all.into_iter().map(|(first, last)| format!("{first}-{last}")).collect()
}

impl Choice {
    /// nftables' rule for flows of a family; `None` if none fits.
    fn rule(&self, v6: bool, mark: impl Fn(Option<usize>) -> String) -> Option<String> {
        let (family, protocol) = if v6 { ("ip6", "ipv6") } else { ("ip", "ipv4") };
        let PacketConditions { networks, ports, dscp } = &self.flows;
        let of_family: Vec<IpNet> =
            networks.iter().copied().filter(|one| one.addr().is_ipv6() == v6).collect();
        if of_family.is_empty() && !networks.is_empty() {
            return None;
        }
        let networks = one_of(&format!("{family} daddr"), IpNet::aggregate(&of_family));
        let dscp = one_of(&format!("{family} dscp"), BTreeSet::from_iter(dscp));
        let mut ports = one_of("th dport", merged(ports));
        if !ports.is_empty() {
            ports = format!("meta l4proto {{ udp, udplite, dccp, sctp }} {ports}");
        }
        let verdict = match self.way {
            Way::Tunnel => mark(None),
            Way::Links(links) => match links[usize::from(v6)] {
                Some(link) => mark(Some(link)),
                None => "drop".into(),
            },
        };
        Some(format!("    meta nfproto {protocol} {networks}{dscp}{ports}{verdict}\n"))
    }
}

impl Uplinks {
    /// The chain that gives a new flow its mark.
    pub(super) fn flows_chain(&self) -> String {
        if !self.taken.datagrams {
            return String::new();
        }
        let mut text = String::from("  chain flows {\n");
        let marked = |link: Option<usize>| match (link, self.inner) {
            (Some(link), _) => format!("ct mark set {:#x} return", mark(link)),
            (None, Some(_)) => format!("ct mark set {TUNNEL_MARK} return"),
            (None, None) => "return".into(),
        };
        for choice in &self.direct.choices {
            for v6 in [false, true] {
                text += &choice.rule(v6, marked).unwrap_or_default();
            }
        }
        let _ = writeln!(text, "    {}\n  }}", marked(None));
        text
    }

    /// The counters of the bytes past the tunnel.
    pub(super) fn direct_counters(&self) -> BTreeMap<String, String> {
        let links = self.uplinks.keys().filter(|_| self.taken.datagrams);
        let names = links.flat_map(|link| ["up", "down"].map(|way| format!("counter {COUNTER}{way}{link}")));
        names.map(|name| (name, "{ }".into())).collect()
    }

    /// The rules that count and limit the bytes past the tunnel, of what is forwarded.
    pub(super) fn direct_counting(&self) -> String {
        let mut rules = String::new();
        for (&link, Uplink { interface, rate, .. }) in self.uplinks.iter().filter(|_| self.taken.datagrams) {
            for (way, name) in [("oifname", "up"), ("iifname", "down")] {
                let what = format!("    {way} \"{interface}\" ct mark {:#x}", mark(link));
                if rate.is_some() {
                    let _ = writeln!(rules, "{what} limit name \"{name}{link}\" drop");
                }
                let _ = writeln!(rules, "{what} counter name \"{COUNTER}{name}{link}\"");
            }
        }
        rules
    }

    /// The rules for postrouting: what leaves by a link has its address.
    pub(super) fn direct_masquerade(&self) -> String {
        let mut rules = String::new();
        for (&link, uplink) in self.uplinks.iter().filter(|_| self.taken.datagrams) {
            let (interface, mark) = (&uplink.interface, mark(link));
            let _ = writeln!(rules, "    oifname \"{interface}\" meta mark {mark:#x} masquerade");
        }
        rules
    }

    /// Leads flows past the tunnel as `ways` says, which is told how they are led now. Those that are there
    /// stay where they are, but for those of links that can't be used any more.
    ///
    /// # Errors
    /// If a step fails.
    pub fn set_direct(&mut self, ways: impl FnOnce(&Direct) -> Direct) -> io::Result<()> {
        if !self.taken.datagrams {
            return Ok(());
        }
        let direct = ways(&self.direct);
        let closed = self.direct.to_leave(&direct);
        if self.direct.choices != direct.choices {
            self.direct = direct;
            self.replace_rules()?;
        } else {
            self.direct = direct;
        }
        closed.into_iter().try_for_each(|link| forget_marked(mark(link)))
    }

    /// Repairs the rules by which marks lead to tables.
    pub(super) fn keep_direct(&mut self, host: &Host) -> io::Result<()> {
        if !self.taken.datagrams {
            return Ok(());
        }
        for v6 in self.families() {
            if !host.has_rule(NEIGHBOURS, MAIN_TABLE, *v6, None) {
                repaired("the routing rule for neighbours past the tunnel");
                self.undo.repair(neighbours_rule(*v6))?;
            }
            for &link in self.uplinks.keys() {
                if !host.has_rule(PRIORITIES + link as u32, table(link), *v6, None) {
                    repaired("a routing rule past the tunnel");
                    self.undo.repair(link_rule(link, *v6))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Taken;
    use super::*;
    use crate::tunnel::Inner;

    fn choice(networks: &[&str], ports: &[(u16, u16)], dscp: &[u8], way: Way) -> Choice {
        let networks = networks.iter().map(|one| one.parse().unwrap()).collect();
        Choice { flows: PacketConditions { networks, ports: ports.to_vec(), dscp: dscp.to_vec() }, way }
    }

    #[test]
    fn counters_are_read_as_nft_lists_them() {
        let text = "table inet ropewalk_proxy {\n\tcounter direct_up0 {\n\t\tpackets 2 bytes 300\n\t}\n\
                    \tcounter direct_down0 {\n\t\tpackets 1 bytes 7\n\t}\n\tcounter other {\n\t\tpackets 1 \
                    bytes 9\n\t}\n}\n";
        assert_eq!(counted(text), BTreeMap::from([(0, [300, 7])]));
    }

    #[test]
    fn flows_get_the_mark_of_the_first_choice_that_fits() {
        let taken = Taken { transparent: vec!["eth1".into()], port: 1081, names: false, datagrams: true };
        let wlan = Uplink { interface: "wlan0".into(), gateway: None, rate: None };
        let mut uplinks = Uplinks::new(vec![wlan], true, taken);
        let links = Way::Links([Some(1), None]);
        uplinks.direct.choices = vec![
            choice(&["10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16"], &[], &[], Way::Tunnel),
            choice(&["192.0.2.0/24"], &[(9, 9), (5060, 5061), (5061, 5070)], &[], links),
            choice(&[], &[], &[46, 34], links),
        ];
        uplinks.inner = Some(Inner::of(1));
        assert_eq!(
            uplinks.flows_chain(),
            "  chain flows {\n    \
             meta nfproto ipv4 ip daddr { 10.0.0.0/8 } ct mark set 0x726f7064 return\n    \
             meta nfproto ipv4 ip daddr { 192.0.2.0/24 } meta l4proto { udp, udplite, dccp, sctp } \
             th dport { 9-9, 5060-5070 } ct mark set 0x726f7071 return\n    \
             meta nfproto ipv4 ip dscp { 34, 46 } ct mark set 0x726f7071 return\n    \
             meta nfproto ipv6 ip6 dscp { 34, 46 } drop\n    \
             ct mark set 0x726f7064 return\n  }\n"
        );
        let rules = uplinks.direct_counting();
        let counters: Vec<String> = uplinks.direct_counters().into_keys().collect();
        assert_eq!(counters, ["counter direct_down0", "counter direct_up0"]);
        let down = "    iifname \"wlan0\" ct mark 0x726f7070 counter name \"direct_down0\"\n";
        assert!(rules.ends_with(down), "{rules}");
        uplinks.inner = None;
        assert!(uplinks.flows_chain().ends_with("drop\n    return\n  }\n"));
        let rules = uplinks.nftables();
        assert!(rules.contains("oifname \"wlan0\" meta mark 0x726f7070 masquerade"), "{rules}");
        assert_eq!(
            [link_rule(1, false).0, neighbours_rule(true).0].map(|step| step.to_string()),
            [
                "ip -4 rule add priority 5249 fwmark 0x726f7071 lookup 5201 protocol 212",
                "ip -6 rule add priority 5247 fwmark 0x726f7070/0xfffffff8 lookup main \
                 suppress_prefixlength 0 protocol 212",
            ]
        );
    }
}
