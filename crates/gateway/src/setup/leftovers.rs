//! What a killed process left: found by its names, and removed.
//!
//! What sysctls were is noted twice: by comments of nftables, and by routes in a table that nobody looks at.
//! One of the two is left when another program flushes the other (`nft flush ruleset`, a DHCP client) before
//! the next start.

use nix::net::if_::{if_indextoname, if_nametoindex};
use serde_json::Value;

use super::{Step, run};

/// The routing table of the notes.
const NOTES: u32 = 7_199;
/// The sysctls that are noted, by what is around an interface's name; their places are in the notes'
/// addresses.
const NOTED: [(&str, &str); 5] = [
    ("net/ipv4/conf/", "/forwarding"),
    ("net/ipv6/conf/", "/forwarding"),
    ("net/ipv6/conf/", "/force_forwarding"),
    ("net/ipv6/conf/", "/accept_ra"),
    ("net/ipv4/conf/", "/rp_filter"),
];

/// How the comment of a rule begins that remembers a sysctl; `KEY=VALUE` follows.
const WAS: &str = "was ";

/// A chain of nftables that remembers what sysctls were, by key, before they were changed. No packet passes
/// it. It goes with the network namespace, as the changes do.
pub fn remember<'a>(old: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let line = |(key, value): (&str, &str)| format!("    continue comment \"{WAS}{key}={value}\"\n");
    let lines: String = old.into_iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("  chain changed_sysctls {{\n{lines}  }}\n") }
}

/// The step that notes the same by a route: `blackhole 198.18.SYSCTL.OLD metric INTERFACE`. An interface is
/// its number and one more; 1 is `all`.
pub fn note(key: &str, old: &str, protocol: u8) -> Option<Step> {
    let of = |(before, after): (&str, &str)| Some(key.strip_prefix(before)?.strip_suffix(after)?.to_string());
    let (kind, name) = NOTED.iter().enumerate().find_map(|(at, kind)| Some((at, of(*kind)?)))?;
    let interface = if name == "all" { 0 } else { if_nametoindex(&*name).ok()? };
    let words = format!("blackhole 198.18.{kind}.{old}/32 metric {}", interface + 1);
    Some(Step::ip(&format!("-4 route replace {words} table {NOTES} proto {protocol}")))
}

/// The step that removes such routes.
pub fn remove_notes(protocol: u8) -> Step {
    Step::ip(&format!("-4 route flush table all proto {protocol} to root 198.18.0.0/16"))
}

/// The sysctls of such routes, as `ip route show` lists them, and what they were.
fn noted(routes: &str) -> Vec<(String, String)> {
    let of = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "blackhole").skip(1);
        let octets = words.next()?.trim_end_matches("/32").split('.').skip(2);
        let mut octets = octets.map(|octet| octet.parse::<usize>().ok());
        let (kind, old) = (octets.next()??, octets.next()??);
        let metric = words.skip_while(|word| *word != "metric").nth(1)?.parse::<u32>().ok()?;
        let name = match metric.checked_sub(1)? {
            0 => "all".to_string(),
            interface => if_indextoname(interface).ok()?.into_string().ok()?,
        };
        let (before, after) = NOTED.get(kind)?;
        (old < 10).then(|| (format!("{before}{name}{after}"), old.to_string()))
    };
    routes.lines().filter_map(of).collect()
}

/// Removes a table of nftables with what else this program made: rules and routes of a routing protocol
/// number, sysctls that it changed. Returns whether there was anything.
pub fn clean(table: &str, protocol: u8) -> bool {
    let mut found = false;
    let protocol = protocol.to_string();
    let notes = ["-4", "route", "show", "table", &NOTES.to_string(), "proto", &protocol];
    let mut sysctls = noted(&run("ip", &notes, None).unwrap_or_default());
    if let Ok(text) = run("nft", &["-j", "list", "table", "inet", table], None) {
        found = true;
        sysctls.extend(remembered(&text));
        let _ = run("nft", &["delete", "table", "inet", table], None);
    }
    for (key, old) in sysctls {
        found = true;
        // An interface that is gone has no sysctl any more.
        let _ = Step::sysctl(key, old).run();
    }
    for family in ["-4", "-6"] {
        let ours = format!("proto {protocol}");
        let rules = run("ip", &[family, "rule", "show"], None);
        if rules.is_ok_and(|text| text.lines().any(|line| line.trim_end().ends_with(&ours))) {
            found = true;
            let _ = run("ip", &[family, "rule", "flush", "protocol", &protocol], None);
        }
        let _ = run("ip", &[family, "route", "flush", "table", "all", "proto", &protocol], None);
    }
    found
}

/// The sysctls that a table remembers, and what they were.
fn remembered(listing: &str) -> Vec<(String, String)> {
    let Ok(listing) = serde_json::from_str::<Value>(listing) else { return Vec::new() };
    let objects = listing["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let comments = objects.iter().filter_map(|object| object["rule"]["comment"].as_str());
    let pairs = comments.filter_map(|comment| comment.strip_prefix(WAS)?.split_once('='));
    // The comment could be another program's: nothing but what we change is touched.
    let is_ours = |key: &str| {
        let is_noted = |(before, after): &(&str, &str)| key.starts_with(before) && key.ends_with(after);
        NOTED.iter().any(is_noted) && !key.contains("..")
    };
    pairs
        .filter(|(key, old)| is_ours(key) && old.len() == 1 && old.starts_with(|c: char| c.is_ascii_digit()))
        .map(|(key, old)| (key.to_string(), old.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_note_is_read_again() {
        let keys = [
            "ipv4/conf/lo/forwarding",
            "ipv6/conf/lo/accept_ra",
            "ipv6/conf/all/forwarding",
            "ipv4/conf/lo/rp_filter",
        ];
        for (key, old) in
            keys.iter().flat_map(|key| ["0", "2"].map(|old| (format!("net/{key}"), old.to_string())))
        {
            let add = super::note(&key, &old, 211).unwrap();
            // As it was added, with more that `ip` may say of it.
            assert_eq!(super::noted(&format!("{add} scope link\n")), [(key, old)]);
        }
        assert!(super::note("net/ipv4/conf/none9/forwarding", "0", 211).is_none());
        assert!(super::note("net/ipv4/tcp_ecn", "0", 211).is_none());
        assert!(
            super::noted("blackhole 198.18.9.0 metric 2\nblackhole 198.18.0.77 metric 2\ndefault\n")
                .is_empty()
        );
    }

    #[test]
    fn only_what_is_changed_is_restored() {
        let rule =
            |comment: &str| format!(r#"{{"rule":{{"chain":"forward","comment":"{comment}","expr":[]}}}}"#);
        let listing = format!(
            r#"{{"nftables":[{{"metainfo":{{}}}},{},{},{},{},{},{{"rule":{{}}}}]}}"#,
            rule("was net/ipv4/conf/eth0/forwarding=0"),
            rule("was net/ipv6/conf/eth0.7/accept_ra=1"),
            rule("was net/../../kernel/forwarding=0"),
            rule("was net/ipv4/conf/eth0/forwarding=0 0"),
            rule("was kernel/panic=0"),
        );
        let expected = [("net/ipv4/conf/eth0/forwarding", "0"), ("net/ipv6/conf/eth0.7/accept_ra", "1")];
        let expected = expected.map(|(key, old)| (key.to_string(), old.to_string()));
        assert_eq!(super::remembered(&listing), expected);
        assert!(super::remembered("no JSON").is_empty());
    }
}
