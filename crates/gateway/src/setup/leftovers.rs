//! What a killed process left: found by its names, and removed.

use serde_json::Value;

use super::{Step, run};

/// How the comment of a rule begins that stands where forwarding was off before; the sysctl's key follows.
pub(super) const WAS_OFF: &str = "was off: ";

/// Removes a table of nftables with what else this program made: rules and routes of a routing protocol number, forwarding
/// that was off before. Returns whether there was anything.
pub fn clean(table: &str, protocol: u8) -> bool {
    let mut found = false;
    if let Ok(text) = run("nft", &["-j", "list", "table", "inet", table], None) {
        found = true;
        for key in switched_on(&text) {
            // An interface that is gone has no sysctl any more.
            let _ = Step::sysctl(key, "0").run();
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

/// The sysctls that a table says were off before.
fn switched_on(listing: &str) -> Vec<String> {
    let Ok(listing) = serde_json::from_str::<Value>(listing) else { return Vec::new() };
    let objects = listing["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let comments = objects.iter().filter_map(|object| object["rule"]["comment"].as_str());
    let keys = comments.filter_map(|comment| comment.strip_prefix(WAS_OFF));
    // The comment could be another program's: nothing but forwarding is touched.
    keys.filter(|key| key.starts_with("net/ipv") && key.ends_with("forwarding") && !key.contains(".."))
        .map(String::from)
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_forwarding_is_switched_off_again() {
        let rule =
            |comment: &str| format!(r#"{{"rule":{{"chain":"forward","comment":"{comment}","expr":[]}}}}"#);
        let listing = format!(
            r#"{{"nftables":[{{"metainfo":{{}}}},{},{},{},{{"rule":{{}}}}]}}"#,
            rule("was off: net/ipv4/conf/eth0/forwarding"),
            rule("was off: net/../../kernel/forwarding"),
            rule("was off: kernel/panic"),
        );
        assert_eq!(super::switched_on(&listing), ["net/ipv4/conf/eth0/forwarding"]);
        assert!(super::switched_on("no JSON").is_empty());
    }
}
