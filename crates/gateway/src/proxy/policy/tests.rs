use std::sync::Arc;

use std::time::Duration;

use tokio::time::Instant;

use super::{Mode, Plan, Policies, Policy, Rule, plan};
use crate::proxy::link::Link;
use crate::proxy::reach::Reach;
use crate::setup::Route;
use crate::target::Target;

fn links(vias: &[&str]) -> Vec<Arc<Link>> {
    let link = |(index, text): (usize, &&str)| {
        let link = Link::new(index, text.parse().unwrap(), Instant::now(), false);
        link.learn(|known| known.reach = Reach { v4: Some(Route::Direct), ..Reach::default() });
        Arc::new(link)
    };
    vias.iter().enumerate().map(link).collect()
}

/// Active links, and those that stand by.
fn roles(plan: &Plan) -> (Vec<usize>, Vec<usize>) {
    let of = |backup| plan.roles.iter().filter(|role| role.backup == backup).map(|role| role.link).collect();
    (of(false), of(true))
}

fn planned(text: &str, links: &[Arc<Link>]) -> (Vec<usize>, Vec<usize>) {
    roles(&plan(&text.parse().unwrap(), links, false, None))
}

#[test]
fn modes_give_links_their_roles() {
    let links = links(&["wlan0", "wwan0,metered,price=3", "wwan1,price=2", "sat0,backup"]);
    for (mode, expected) in [
        ("fastest", (vec![0, 1, 2], vec![3])),
        ("blest", (vec![0, 1, 2], vec![3])),
        ("smallest-delay", (vec![0, 1, 2], vec![3])),
        ("save-metered", (vec![0, 3], vec![1, 2])),
        ("save-metered over wwan0,wwan1", (vec![2], vec![1])),
        ("active-standby", (vec![0], vec![1, 2, 3])),
        ("active-standby over wwan1,wwan0", (vec![1], vec![2])),
        ("priority", (vec![0], vec![1, 2, 3])),
        ("load-balance 0:0:1:1", (vec![2], vec![0, 1, 3])),
        ("direct fastest over wlan0,wwan1", (vec![0, 2], vec![])),
    ] {
        assert_eq!(planned(mode, &links), expected, "{mode}");
        assert_eq!(mode.parse::<Policy>().unwrap().to_string(), mode);
    }
    for (text, meant) in [("direct", "direct fastest"), ("direct over wlan0", "direct fastest over wlan0")] {
        assert_eq!(text.parse::<Policy>().unwrap(), meant.parse().unwrap());
    }
    links[0].learn(|known| known.alive = false);
    assert_eq!(planned("active-standby", &links), (vec![1], vec![2, 3]));
    assert_eq!(planned("save-metered", &links), (vec![3], vec![1, 2]));
    assert_eq!(planned("fastest over wlan0", &links), (vec![], vec![]));
    links.iter().for_each(|link| link.learn(|known| known.alive = false));
    assert_eq!(planned("active-standby", &links), (vec![0], vec![1, 2, 3]));
    links[0].learn(|known| known.reach = Reach::default());
    assert_eq!(planned("active-standby", &links), (vec![1], vec![2, 3]));
}

#[test]
fn a_connection_opens_on_the_nearest_link_that_is_known() {
    let links = links(&["a", "b", "c"]);
    links[1].learn(|known| known.rtt = Some(Duration::from_millis(20)));
    assert_eq!(planned("fastest", &links).0, [1, 0, 2], "nothing is known of the others");
    links[2].learn(|known| known.rtt = Some(Duration::from_millis(10)));
    assert_eq!(planned("fastest", &links).0, [2, 1, 0]);
    assert_eq!(planned("active-standby", &links).0, [0], "the order is the point");
}

#[test]
fn balanced_connections_keep_the_shares_and_stay_where_they_are() {
    let links = links(&["a", "b"]);
    assert_eq!(planned("load-balance 1:99", &links), (vec![1], vec![0]));
    let policy: Policy = "load-balance 70:30".parse().unwrap();
    let mut bytes = [0u64; 2];
    for _ in 0..1000 {
        let plan = plan(&policy, &links, false, None);
        let chosen = plan.roles[0].link;
        links[chosen].counters.count_received(1000);
        bytes[chosen] += 1000;
    }
    assert!((690_000..=710_000).contains(&bytes[0]), "{bytes:?}");
    let old = plan(&policy, &links, false, None);
    links[old.roles[0].link].counters.count_received(1 << 30);
    assert_eq!(plan(&policy, &links, false, Some(&old)), old);
}

#[test]
fn priority_takes_the_next_link_while_the_first_is_full() {
    let links = links(&["a,rate=8Mbit/s", "b", "c"]);
    links[0].learn(|known| known.rate_down = 7_800_000);
    // New connections open on one with room.
    assert_eq!(planned("priority", &links), (vec![1, 0], vec![2]));
    links[0].learn(|known| known.rate_down = 4_000_000);
    assert_eq!(planned("priority", &links), (vec![0], vec![1, 2]));
    // As queues tell.
    links[0].learn(|known| known.full = true);
    assert_eq!(planned("priority", &links), (vec![1, 0], vec![2]));
    links[1].learn(|known| known.full = true);
    assert_eq!(planned("priority", &links), (vec![2, 0, 1], vec![]));
}

#[test]
fn the_first_rule_that_fits_decides() {
    let rule = |text: &str| text.parse::<Rule>().unwrap();
    let policies = Policies {
        rules: vec![
            rule("port=22,5060-5061 then redundant"),
            rule("dscp=ef,AF41,63 then smallest-delay"),
            rule("to=*.example.org,10.0.0.0/8 size=1MiB then save-metered over wlan0"),
        ],
        other: "fastest".parse().unwrap(),
    };
    let mode = |host: &str, port, bytes| {
        policies.policy(&Target::new(host, port), [10, 1, 1, 1].into(), 0, bytes).mode.clone()
    };
    assert_eq!(mode("a.net", 5061, 0), Mode::Redundant);
    assert_eq!(mode("www.Example.org.", 443, 1 << 20), Mode::SaveMetered);
    assert_eq!(mode("www.example.org", 443, 1000), Mode::Fastest);
    for (dscp, expected) in [(46, Mode::SmallestDelay), (34, Mode::SmallestDelay), (36, Mode::SaveMetered)] {
        let target = Target::new("a.net", 80);
        let policy = policies.policy(&target, [10, 1, 1, 1].into(), dscp, 1 << 20);
        assert_eq!(policy.mode, expected, "{dscp}");
    }
    // The name doesn't fit, the address does.
    assert_eq!(mode("badexample.org", 443, 1 << 21), Mode::SaveMetered);
}

#[test]
fn mistakes_in_rules_are_named() {
    for (text, expected) in [
        ("port=22", "--rule:1:1: a `rule` needs `policy`"),
        ("port=ssh then redundant", "`ssh` is no port"),
        ("port=9-2 then redundant", "`9-2` is no port"),
        ("color=red then redundant", "unknown key `color` in a `rule`"),
        ("size=big then redundant", "--rule:1:6: "),
        ("dscp=64 then redundant", "`64` is no DSCP"),
        ("dscp=af44 then redundant", "`af44` is no DSCP"),
        ("red then redundant", "unknown key `red`"),
        ("port=1 then load-balance 70", "a share for each --via"),
        ("port=1 then fastets", "or one of fastest"),
    ] {
        let error = text.parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
