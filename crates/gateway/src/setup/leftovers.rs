//! What a killed process left: found by its names, and removed.

use serde_json::Value;

use super::{Step, run};

/// How the comment of a rule begins that remembers a sysctl; `KEY=VALUE` follows.
const WAS: &str = "was ";

/// A chain of nftables that remembers what sysctls were, by key, before they were changed. No packet passes
/// it. It goes with the network namespace, as the changes do.
pub fn remember<'a>(old: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let line = |(key, value): (&str, &str)| format!("    continue comment \"{WAS}{key}={value}\"\n");
    let lines: String = old.into_iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("  chain changed_sysctls {{\n{lines}  }}\n") }
}

/// Removes a table of nftables with what else this program made: rules and routes of a routing protocol
/// number, sysctls that it changed. Returns whether there was anything.
pub fn clean(table: &str, protocol: u8) -> bool {
    let mut found = false;
    if let Ok(text) = run("nft", &["-j", "list", "table", "inet", table], None) {
        found = true;
        for (key, old) in remembered(&text) {
            // An interface that is gone has no sysctl any more.
            let _ = Step::sysctl(key, old).run();
        }
        let _ = run("nft", &["delete", "table", "inet", table], None);
    }
    let protocol = protocol.to_string();
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
        let ending = key.ends_with("/forwarding") || key.ends_with("/force_forwarding");
        key.starts_with("net/ipv") && (ending || key.ends_with("/accept_ra")) && !key.contains("..")
    };
    pairs
        .filter(|(key, old)| is_ours(key) && old.len() == 1 && old.starts_with(|c: char| c.is_ascii_digit()))
        .map(|(key, old)| (key.to_string(), old.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
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
