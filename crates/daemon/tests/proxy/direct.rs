//! Rules that send what isn't TCP past the tunnel.

use std::thread::sleep;
use std::time::Duration;

use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::Clock;

use crate::pair::{Asker, LINKS, Pair, WORLD, WhoAsks};
use crate::stage::{SERVER, Stage, ip, wait_until};
use crate::tunnel::Echo;

#[test]
fn what_rules_call_direct_leaves_by_a_link_and_past_the_tunnel() {
    let rules = |first: &str| {
        format!(
            "{LINKS}[[rule]]\nto = [\"{WORLD}\"]\npolicy = \"fastest\"\n\n\
             [[rule]]\nto = [\"{SERVER}\", \"fd09::9\"]\nport = [\"4433-4434\"]\npolicy = \"{first}\"\n"
        )
    };
    let Some(pair) = Pair::start_by_file(&format!("{WORLD} 4433"), &[], &rules("direct over up1")) else {
        return;
    };
    let Pair { stage, lan, world, .. } = &pair;
    let _servers = [
        WhoAsks::start(world, &format!("{WORLD}:4433")),
        WhoAsks::start(&stage.web, &format!("{SERVER}:4433")),
        WhoAsks::start(&stage.web, &format!("{SERVER}:4435")),
        WhoAsks::start(&stage.web, "[fd09::9]:4434"),
    ];
    let seen = |server: &str| Asker::new(lan, server).seen();
    let server = format!("{SERVER}:4433");
    let through = Some("10.3.0.1".to_string());
    assert_eq!(seen(&format!("{WORLD}:4433")), through, "{}", pair.logs());
    let old = Asker::new(lan, &server);
    assert_eq!(old.seen().as_deref(), Some("10.1.1.2"), "{}", pair.logs());
    assert_eq!(seen("[fd09::9]:4434").as_deref(), Some("fd01:1::2"), "{}", pair.logs());
    // Datagrams that go in parts.
    let _echo = Echo::start(&stage.web, &format!("{SERVER}:4434"));
    let large = Asker::new(lan, &format!("{SERVER}:4434"));
    assert_eq!(large.answer(&[7; 5000]).map(|got| got.len()), Some(5000), "{}", pair.logs());
    // No rule is about it, so it goes to the gateway, which doesn't let it out.
    assert_eq!(seen(&format!("{SERVER}:4435")), None);
    let ping = || lan.check("ping", &["-c", "1", "-W", "1", SERVER]);
    assert!(ping().is_err());
    // A reload: flows that are there stay on their links.
    let both = rules("direct over up0") + &format!("\n[[rule]]\nto = [\"{SERVER}\"]\npolicy = \"direct\"\n");
    pair.reload(&both);
    let within = |what: &str, wanted: &dyn Fn() -> bool| {
        let clock = Clock::start();
        while !wanted() {
            assert!(clock.now() < Time::ZERO + Span::from_secs(6), "{what}: {}", pair.logs());
            sleep(Duration::from_millis(100));
        }
    };
    assert_eq!(seen(&server).as_deref(), Some("10.1.0.2"), "{}", pair.logs());
    assert_eq!(old.seen().as_deref(), Some("10.1.1.2"), "{}", pair.logs());
    assert!(ping().is_ok(), "{}", pair.logs());
    assert_eq!(seen(&format!("{WORLD}:4433")), through, "{}", pair.logs());
    // A flow that begins while the rules are gone has no link's mark and no link's address. With the rules it
    // has. Another program's rules have the kernel track it meanwhile.
    let other = "add table inet other; \
                 add chain inet other forward { type filter hook forward priority 0; }; \
                 add rule inet other forward ct state established accept";
    stage.van.check("nft", &[other]).unwrap();
    stage.van.check("nft", &["delete", "table", "inet", "ropewalk_proxy"]).unwrap();
    let begun = Asker::new(lan, &server);
    begun.seen();
    within("it is translated with the rules", &|| begun.seen().as_deref() == Some("10.1.0.2"));
    // With the link down, its flows go on by the other one, from its address, as far as the rule allows.
    ip(&stage.van, "link set up1 down").unwrap();
    within("it goes by the link that is left", &|| old.seen().as_deref() == Some("10.1.0.2"));
    // A mistake is told before anything is used, by `--check` too.
    let (code, said) = pair.check(&rules("direct over wlan9"));
    assert!(code == 2 && said.contains("a policy names `wlan9`, which is no uplink"), "{code}: {said}");
}

#[test]
fn flows_that_begin_with_the_tunnel_heed_its_rules() {
    let file = format!("{LINKS}[[rule]]\nto = [\"{SERVER}\"]\npolicy = \"direct over up1\"\n");
    let Some(mut pair) = Pair::start_by_file(&format!("{WORLD} 4433"), &[], &file) else { return };
    let _server = WhoAsks::start(&pair.stage.web, &format!("{SERVER}:4433"));
    let flows: Vec<_> = (0..400).map(|_| Asker::new(&pair.lan, &format!("{SERVER}:4433"))).collect();
    let mut begun = None;
    pair.restart_proxy(|_| {
        begun = Some(std::thread::spawn(|| {
            flows.iter().for_each(|flow| {
                flow.send();
                sleep(Duration::from_millis(5));
            });
            flows
        }));
    });
    // Those in the tunnel get no answer: the gateway doesn't let them out.
    let flows = begun.unwrap().join().unwrap();
    let others = flows.iter().filter(|flow| flow.seen().as_deref() != Some("10.1.1.2")).count();
    assert_eq!(others, 0, "{}", pair.logs());
}

#[test]
fn uplinks_that_get_ipv6_later_serve_it() {
    let file = format!("{LINKS}[[rule]]\nto = [\"fd09::9\"]\npolicy = \"direct over up1\"\n");
    let without = |stage: &Stage| {
        for link in 0..2 {
            ip(&stage.van, &format!("-6 address flush dev up{link}")).unwrap();
            ip(&stage.van, &format!("-6 route flush dev up{link}")).unwrap();
        }
    };
    let Some(pair) = Pair::start_by_file_after(without, &format!("{WORLD} 4433"), &[], &file) else { return };
    let Pair { stage, lan, world, .. } = &pair;
    let _servers = [WhoAsks::start(&stage.web, "[fd09::9]:4434"), WhoAsks::start(world, "[fd03::2]:4434")];
    let past = Asker::new(lan, "[fd09::9]:4434");
    let through = Asker::new(lan, "[fd03::2]:4434");
    assert_eq!(past.seen(), None);
    // The tunnel's links have IPv4 alone; what is inside needn't.
    assert_eq!(through.seen().as_deref(), Some("fd03::1"), "{}", pair.logs());
    for link in 0..2 {
        ip(&stage.van, &format!("-6 address add fd01:{link}::2/64 dev up{link} nodad")).unwrap();
        ip(
            &stage.van,
            &format!("-6 route add default via fd01:{link}::1 dev up{link} metric {}", 100 + link),
        )
        .unwrap();
    }
    wait_until("it goes past the tunnel", || past.seen().as_deref() == Some("fd01:1::2"));
    assert_eq!(through.seen().as_deref(), Some("fd03::1"), "{}", pair.logs());
}
