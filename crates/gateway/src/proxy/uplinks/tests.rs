use std::collections::BTreeMap;

use ropewalk_host::netns::Namespace;
use ropewalk_host::skip::skipped;

use super::super::link_settings::Rates;
use super::super::reach::{Reach, Uplink};
use super::{Change, Taken, Uplinks, rule_step};
use crate::setup::{Host, Route};
use crate::tunnel::Inner;

fn uplinks(v6: bool) -> Uplinks {
    let uplink = |name: &str| Uplink {
        interface: name.into(),
        gateway: None,
        rate: Some(Rates { down: 8_000_000, up: 1_600_000 }),
    };
    let taken =
        Taken { transparent: vec!["eth1".into(), "eth2".into()], port: 1081, names: true, datagrams: false };
    Uplinks::new(vec![uplink("wlan0"), uplink("wwan0.7")], v6, taken)
}

#[test]
fn every_uplink_has_a_rule_a_table_and_a_masquerade() {
    let text = |mut uplinks: Uplinks| uplinks.preview(&vec![Default::default(); 2]).to_text();
    let v6 = text(uplinks(true));
    let text = text(uplinks(false));
    for needed in [
        "# TUN device ropeproxy0: the engine is 198.19.200.2 there, masqueraded on wlan0",
        "ip -4 rule add priority 5201 from 198.19.201.2/31 lookup 5201 protocol 212",
        "ip -4 route replace blackhole default metric 1000000 table 5201 proto 212",
        "ip saddr 198.19.200.2/31 oifname \"wlan0\" masquerade",
        "ip saddr 198.19.201.2/31 oifname \"wwan0.7\" masquerade",
        "# wlan0 has no address or no default route now",
        "to root 198.18.0.0/16\nnft delete table inet ropewalk_proxy\nip -4 rule del priority 5201",
        "limit down1 { rate over 1000000 bytes/second burst 262144 bytes }",
        "limit up1 { rate over 200000 bytes/second burst 262144 bytes }",
        "ip daddr 198.19.201.2 limit name \"down1\" drop",
        "iifname \"eth1\" fib daddr type != local meta l4proto tcp redirect to :1081",
        "iifname \"eth2\" fib daddr type != local udp dport 53 meta mark set 0x726f7065",
        "meta mark 0x726f7065 meta nfproto ipv4 udp dport 53 tproxy ip to 127.0.0.1:1081 accept",
        "oifname { \"wlan0\", \"wwan0.7\" } ip saddr != 198.19.200.0/21 udp dport 53 meta mark set \
         0x726f7065",
        "ip -4 rule add priority 5263 fwmark 0x726f7065 lookup 5263 protocol 212",
        "ip -4 route replace local default dev lo table 5263 proto 212",
    ] {
        assert!(text.contains(needed), "{needed} is missing in:\n{text}");
    }
    assert!(!text.contains("fd72") && !text.contains("ipv6"), "{text}");
    assert!(v6.contains("ip6 saddr fd72:6f70:6577::2/127"), "{v6}");
}

#[test]
fn what_is_changed_is_remembered_guarded_and_restored() {
    let mut uplinks = uplinks(true);
    let change = |key: &str, needed, old: &str| Change { key: key.into(), needed, old: old.into() };
    uplinks.changed = vec![
        change("net/ipv4/conf/wwan0.7/forwarding", "1", "0"),
        change("net/ipv6/conf/wlan0/accept_ra", "2", "1"),
        change("net/ipv6/conf/all/forwarding", "1", "0"),
    ];
    let preview = crate::setup::Preview { steps: uplinks.steps(), ..Default::default() };
    let text = preview.to_text();
    let (setup, removal) = text.split_once("# at the end").unwrap();
    for needed in [
        "meta nfproto ipv4 iifname \"wwan0.7\" oifname != \"rope-gw*\" oifname != \"ropeproxy*\" oifname",
        "oifname \"ropeproxy*\" ct state != { established, related } drop",
        "meta nfproto ipv6 iifname != \"rope-gw*\" iifname != \"ropeproxy*\" iifname != \"rope-dg*\" oifname",
        "continue comment \"was net/ipv6/conf/wlan0/accept_ra=1\"",
        "sysctl -w net/ipv6/conf/wlan0/accept_ra=2",
    ] {
        assert!(setup.contains(needed), "{needed} is missing in:\n{text}");
    }
    assert!(removal.contains("sysctl -w net/ipv6/conf/wlan0/accept_ra=1\n"), "{text}");
}

#[test]
fn connections_keep_the_only_address_of_an_interface_that_goes_down() {
    let mut uplinks = uplinks(true);
    let mut learn = |route: Option<Route>, v4: &[u8]| {
        let reach = Reach { v4: route, v6: Some(Route::Direct), ..Reach::default() };
        let v4 = v4.iter().map(|last| ([192, 0, 2, *last].into(), true)).collect();
        let learnt = uplinks.learn_addresses(0, reach, [v4, vec![("2001:db8::7".parse().unwrap(), true)]]);
        uplinks.reach.insert(0, reach);
        (learnt.0, learnt.1.address[0], learnt.1.one_of_several[0], uplinks.nftables())
    };
    let snat = |last: u8| {
        format!(
            "    ip saddr 198.19.200.2 oifname \"wlan0\" meta l4proto tcp snat ip to 192.0.2.{last}\n    \
             ip saddr 198.19.200.2/31 oifname \"wlan0\" masquerade\n"
        )
    };
    let (here, there) = (Some(Route::Direct), Some(Route::Via([192, 0, 2, 1].into())));
    // The route, the addresses; whether the rules are new, the connections' address is gone, or one of
    // several; what the rule states.
    for (route, v4, is_new, is_gone, is_one_gone, stated) in [
        (here, &[3][..], true, false, false, Some(3)),
        (None, &[], false, false, false, Some(3)),
        (here, &[4], true, true, false, Some(4)),
        // Another one beside it.
        (here, &[5, 4], false, false, false, Some(4)),
        (here, &[5], true, true, false, Some(5)),
        (here, &[6, 5], false, false, false, Some(5)),
        (here, &[6], true, true, false, Some(6)),
        // By another way the kernel chooses.
        (there, &[6, 7], true, false, false, None),
        (there, &[6, 7, 8], false, false, false, None),
        (there, &[6, 8], false, false, true, None),
        (there, &[8], true, true, false, Some(8)),
        (None, &[8, 9], false, false, false, Some(8)),
        (there, &[9, 10], true, true, false, None),
    ] {
        let (new, gone, one_gone, rules) = learn(route, v4);
        assert_eq!((new, gone, one_gone), (is_new, is_gone, is_one_gone), "{route:?} {v4:?}");
        match stated {
            Some(last) => assert!(rules.contains(&snat(last)), "{route:?} {v4:?}: {rules}"),
            None => assert!(!rules.contains("snat ip to"), "{route:?} {v4:?}: {rules}"),
        }
        let v6 = "ip6 saddr fd72:6f70:6577::2 oifname \"wlan0\" meta l4proto tcp snat ip6 to 2001:db8::7\n";
        assert!(rules.contains(v6), "{rules}");
    }
}

/// A router announces a new prefix and keeps its link-local address: old addresses are deprecated, or stay
/// preferred.
#[test]
fn connections_get_an_address_of_the_new_prefix() {
    let mut uplinks = uplinks(true);
    let mut learn = |now: &[(&str, bool)]| {
        let reach = Reach { v6: Some(Route::Via("fe80::1".parse().unwrap())), ..Reach::default() };
        let now =
            now.iter().map(|(address, is_preferred)| (address.parse().unwrap(), *is_preferred)).collect();
        let (_, changed) = uplinks.learn_addresses(0, reach, [vec![], now]);
        uplinks.reach.insert(0, reach);
        let rules = uplinks.nftables();
        let stated = rules.lines().find_map(|line| line.split("snat ip6 to ").nth(1).map(str::to_string));
        (stated, changed.address[1], changed.one_of_several[1])
    };
    let [old, new, temporary] = ["2001:db8:0:1::7", "2001:db8:0:2::7", "2001:db8:0:2::8"];
    for (now, stated, is_gone, is_one_gone) in [
        (&[(old, true)][..], Some(old), false, false),
        // It isn't used before it is known to be nobody else's.
        (&[(old, true), (new, false)], Some(old), false, false),
        (&[(old, true), (new, true)], None, false, false),
        (&[(old, false), (new, true)], Some(new), false, false),
        (&[(old, false), (new, true), (temporary, true)], Some(new), false, false),
        // Connections that had the old one are to be opened again.
        (&[(new, true), (temporary, true)], Some(new), true, false),
        (&[(new, true)], Some(new), false, true),
        (&[(new, false)], Some(new), false, false),
    ] {
        assert_eq!(learn(now), (stated.map(str::to_string), is_gone, is_one_gone), "{now:?}");
    }
}

#[test]
fn routes_are_by_the_next_hop_or_by_the_device() {
    let via =
        Reach { v4: Some(Route::Via([192, 0, 2, 1].into())), v6: Some(Route::Direct), ..Reach::default() };
    let lines =
        |v6| -> Vec<String> { uplinks(v6).route_steps(0, via).iter().map(ToString::to_string).collect() };
    let v4 = "ip -4 route replace default via 192.0.2.1 dev wlan0 onlink metric 1 table 5200 proto 212";
    assert_eq!(lines(false), [v4]);
    assert_eq!(lines(true), [v4, "ip -6 route replace default dev wlan0 metric 1 table 5200 proto 212"]);
}

/// In a namespace where a proxy has the device of its first link; `None` where there can be none.
fn in_namespace(test: impl FnOnce(&Namespace) + Send) {
    let made = Namespace::new("uplinks").and_then(|namespace| {
        namespace.check("ip", &["tuntap", "add", "ropeproxy0", "mode", "tun"])?;
        namespace.check("nft", &["list", "ruleset"])?;
        Ok(namespace)
    });
    match made {
        Ok(namespace) => {
            let run = || {
                test(&namespace);
                Ok(())
            };
            namespace.run(run).unwrap();
        }
        Err(error) => skipped(error),
    }
}

fn one_uplink(interface: &str) -> BTreeMap<usize, Uplink> {
    BTreeMap::from([(0, Uplink { interface: interface.into(), gateway: None, rate: None })])
}

#[test]
fn what_is_repaired_after_it_failed_is_removed_at_the_end() {
    in_namespace(|namespace| {
        let rules = || namespace.check("ip", &["-4", "rule", "list"]).unwrap();
        let (rule, _) = rule_step(0, false);
        rule.run().unwrap();
        let mut uplinks = Uplinks::new(Vec::new(), false, Taken::default());
        let error = uplinks.change(one_uplink("up0")).unwrap_err();
        assert!(error.to_string().contains("rule add"), "{error}");
        namespace.check("ip", &["-4", "rule", "del", "priority", "5200"]).unwrap();
        uplinks.keep(&Host::read().unwrap()).unwrap();
        assert!(rules().contains("5200:"), "{}", rules());
        uplinks.remove();
        assert!(!rules().contains("5200:"), "{}", rules());
    });
}

#[test]
fn what_fails_keeps_nothing_else_from_being_repaired() {
    in_namespace(|namespace| {
        let rules = || namespace.check("ip", &["-4", "rule", "list"]).unwrap();
        let mut uplinks = Uplinks::new(Vec::new(), false, Taken::default());
        // nftables takes no such name.
        uplinks.change(one_uplink("up\"0")).unwrap_err();
        namespace.check("ip", &["-4", "rule", "del", "priority", "5200"]).unwrap();
        namespace.sysctl("net.ipv4.conf.ropeproxy0.forwarding", "0").unwrap();
        uplinks.keep(&Host::read().unwrap()).unwrap_err();
        assert!(rules().contains("5200:"), "{}", rules());
        assert_eq!(namespace.read_sysctl("net.ipv4.conf.ropeproxy0.forwarding").unwrap(), "1");
    });
}

#[test]
fn nothing_of_a_tunnel_is_left_when_ipv6_was_switched_off_meanwhile() {
    in_namespace(|namespace| {
        namespace.check("ip", &["tuntap", "add", "rope-dg-proxy", "mode", "tun"]).unwrap();
        let rules = || namespace.check("ip", &["-6", "rule", "list"]).unwrap();
        let taken = Taken { datagrams: true, ..Taken::default() };
        let mut uplinks = Uplinks::new(Vec::new(), false, taken);
        uplinks.has_had_v6 = true;
        namespace.check("ip", &["link", "set", "rope-dg-proxy", "up"]).unwrap();
        uplinks.set_tunnel(Some(Inner::of(1))).unwrap();
        assert!(rules().contains("5262:"), "{}", rules());
        namespace.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        uplinks.set_tunnel(None).unwrap();
        assert!(!rules().contains("5262:"), "{}", rules());
    });
}
