//! What links may carry holds for the tunnel's datagrams as well: quotas, rates, and the order of links.

use std::thread::sleep;
use std::time::Duration;

use ropewalk_host::clock::Clock;

use crate::pair::{Asker, LINKS, Pair, WORLD, WhoAsks};
use crate::quic::download;
use crate::stage::{PROXY, SERVER, Stage, wait_until};
use crate::tunnel::status;

const MIB: usize = 1 << 20;

/// Downloads by QUIC, and returns how long that took, seconds, and the share of the bytes that each uplink
/// carried.
fn shares(pair: &Pair, port: u16, bytes: usize) -> (f64, [f64; 2]) {
    let before = [pair.stage.received(0), pair.stage.received(1)];
    let start = Clock::start();
    let got = download((&pair.lan, &pair.world), format!("{WORLD}:{port}").parse().unwrap(), bytes, |_| {});
    let took = start.now().as_secs_f64();
    assert_eq!(got.bytes, bytes, "{}", pair.logs());
    let share = |link: usize| (pair.stage.received(link) - before[link]) as f64 / bytes as f64;
    println!("{bytes} bytes in {took:.1} s: {:.3} and {:.3}", share(0), share(1));
    (took, [share(0), share(1)])
}

fn allowed() -> String {
    format!("{WORLD} 4433")
}

#[test]
fn datagrams_count_towards_a_quota_and_end_with_it() {
    let file = LINKS.replacen("\"up0\"", "\"up0\"\nquota = \"3 MB/daily\"", 1);
    let Some(pair) = Pair::start_by_file(&allowed(), &[], &file) else { return };
    let (_, first) = shares(&pair, 4433, 12 * MIB);
    assert!(first[0] > 0.1, "{first:?}: {}", pair.logs());
    wait_until("the quota is used up", || pair.stage.log().contains("over its quota"));
    sleep(Duration::from_secs(1));
    let (_, then) = shares(&pair, 4433, 4 * MIB);
    assert!(then[0] < 0.02, "{then:?}: {}", pair.logs());
    // What the kernel has counted, its link-layer headers, probes and neighbour discovery included. Of
    // several datagrams that it is given at once it counts one header.
    let share = || {
        let text = pair.stage.van.check("ip", &["-s", "-j", "link", "show", "dev", "up0"]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let of = |way: &str, what: &str| value[0]["stats64"][way][what].as_f64().unwrap();
        let kernels: f64 = ["rx", "tx"].iter().map(|way| of(way, "bytes") - 14.0 * of(way, "packets")).sum();
        status(&pair.stage)["links"][0]["quota"]["carried"].as_f64().unwrap() / kernels
    };
    wait_until("both have counted the same", || (0.98..1.03).contains(&share()));
}

/// A plain TCP connection is reset once the quota of its link is spent: it can't move to another.
#[test]
fn a_connection_of_one_link_ends_with_its_quota() {
    let Some(stage) = Stage::new() else { return };
    let data = stage.serve("data", 48 * MIB);
    let _server = stage.nginx(false);
    let usage = stage.path().join("usage.json").display().to_string();
    let proxy = stage.proxy_over(
        ["up0,quota=2MB/daily", "up1"],
        &["--policy", "active-standby", "--usage", &usage, "--json"],
    );
    let mut download = stage.download(&format!("http://{SERVER}/data"));
    download.read_until(|_| false);
    // 40 Mbit/s until it is counted and ended, within two seconds or three.
    assert!(download.received.len() < data.len() / 2, "{} bytes: {}", download.received.len(), stage.log());
    let mut download = stage.download(&format!("http://{SERVER}/data"));
    download.read_until(|_| false);
    assert!(download.received == data, "{} bytes by the other link", download.received.len());
    assert!(proxy.terminate().success());
}

#[test]
fn what_goes_past_the_tunnel_counts_towards_quotas_too() {
    let file = format!(
        "{}[[rule]]\nto = [\"{SERVER}\"]\npolicy = \"direct active-standby\"\n",
        LINKS.replacen("\"up0\"", "\"up0\"\nquota = \"200 kB/daily\"", 1)
    );
    let Some(pair) = Pair::start_by_file(&allowed(), &[], &file) else { return };
    let _server = WhoAsks::start(&pair.stage.web, &format!("{SERVER}:4433"));
    let asker = Asker::new(&pair.lan, &format!("{SERVER}:4433"));
    assert_eq!(asker.seen().as_deref(), Some("10.1.0.2"), "{}", pair.logs());
    let ping = |count| {
        let count = format!("{count}");
        let line = ["-c", &count, "-i", "0.02", "-s", "972", "-W", "2", SERVER];
        assert!(pair.lan.check("ping", &line).is_ok(), "{}", pair.logs());
    };
    let carried = || status(&pair.stage)["links"][0]["quota"]["carried"].as_f64().unwrap();
    let before = carried();
    ping(50);
    // A thousand bytes each way, and what the tunnel sends meanwhile.
    wait_until("they are counted", || carried() - before >= 100_000.0);
    let counted = carried() - before;
    assert!(counted < 150_000.0, "{counted}: {}", pair.logs());
    ping(60);
    wait_until("the quota is used up", || pair.stage.log().contains("over its quota"));
    wait_until("the flow goes by the other link", || asker.seen().as_deref() == Some("10.1.1.2"));
}

#[test]
fn links_that_stand_by_carry_datagrams_when_no_other_works() {
    let backup = LINKS.to_string() + "backup = true\n";
    let metered = format!("policy = \"save-metered\"\n\n{LINKS}metered = true\n");
    let Some(pair) = Pair::start_by_file(&allowed(), &[], &backup) else { return };
    let ping = || pair.lan.check("ping", &["-c", "3", "-i", "0.2", "-W", "2", WORLD]);
    for (at, file) in [&backup, &metered].into_iter().enumerate() {
        if at > 0 {
            pair.reload(file);
        }
        sleep(Duration::from_millis(1500));
        // Where the machine pauses, the first link seems silent for a moment.
        let is_kept = (0..3).any(|_| shares(&pair, 4433, 4 * MIB).1[1] < 0.05);
        assert!(is_kept, "{file}: {}", pair.logs());
        pair.stage.cut(0);
        assert!(ping().is_ok(), "{file}: {}", pair.logs());
        let (_, share) = shares(&pair, 4433, MIB);
        assert!(share[1] > 0.9, "{file}: {share:?}: {}", pair.logs());
        pair.stage.mend(0);
        sleep(Duration::from_secs(2));
    }
}

#[test]
fn the_next_link_carries_what_the_first_has_no_room_for() {
    let Some(pair) = Pair::start_by_file(&allowed(), &[], &format!("policy = \"priority\"\n\n{LINKS}"))
    else {
        return;
    };
    sleep(Duration::from_millis(1500));
    // 400 kbit/s have room on the first.
    let over_second = || {
        let before = pair.stage.received(1);
        let output = pair.lan.check("ping", &["-c", "100", "-i", "0.02", "-s", "1000", "-W", "2", WORLD]);
        assert!(output.is_ok(), "{}", pair.logs());
        pair.stage.received(1) - before
    };
    // Where the machine pauses, the first link seems silent for a moment.
    assert!((0..3).any(|_| over_second() < 20_000), "{}", pair.logs());
    // A download hasn't, but where the machine has no time for more than the first link carries.
    let both_carry = || {
        let (_, share) = shares(&pair, 4433, 16 * MIB);
        share[0] > 0.45 && share[1] > 0.1
    };
    assert!((0..3).any(|_| both_carry()), "{}", pair.logs());
}

#[test]
fn a_link_goes_on_slower_beyond_its_quota() {
    let file = "[[link]]\ninterface = \"up0\"\nquota = \"2 MB/daily\"\nthrottle = \"2 Mbit/s\"\n";
    let Some(pair) = Pair::start_by_file(&allowed(), &[], file) else { return };
    let _server = pair.stage.nginx(false);
    let data = pair.stage.serve("data", MIB);
    let (took, _) = shares(&pair, 4433, 3 * MIB / 2);
    assert!(took < 2.0, "{took} s: {}", pair.logs());
    let (_, _) = shares(&pair, 4433, MIB);
    pair.stage.wait_for_log("its quota is used up: it is throttled");
    sleep(Duration::from_millis(300));
    let (took, share) = shares(&pair, 4433, MIB);
    assert!((2.5..12.0).contains(&took), "{took} s: {}", pair.logs());
    // Both ends send no more than it carries: little is sent in vain.
    assert!(share[0] < 1.35, "{share:?}: {}", pair.logs());
    let start = Clock::start();
    let by = format!("socks5h://{PROXY}");
    let (code, received) = pair.stage.curl(&["--proxy", &by, &format!("http://{SERVER}/data")]);
    let took = start.now().as_secs_f64();
    assert!(code == 0 && received == data, "{code}: {}", pair.logs());
    assert!((2.5..15.0).contains(&took), "{took} s by TCP: {}", pair.logs());
    // Without a quota it isn't for anything.
    let (code, said) = pair.check("[[link]]\ninterface = \"up0\"\nthrottle = \"2 Mbit/s\"\n");
    assert!(code == 2 && said.contains("`throttle` goes with `quota`"), "{code}: {said}");
}

#[test]
fn rules_hold_for_datagrams_both_ways() {
    let file = format!(
        "{LINKS}[[rule]]\nport = [\"4434\"]\npolicy = \"fastest over up1\"\n\n\
         [[rule]]\ndscp = [\"af41\"]\npolicy = \"active-standby over up0\"\n\n\
         [[rule]]\nport = [\"4435\"]\npolicy = \"load-balance 1:99\"\n"
    );
    let Some(pair) = Pair::start_by_file(&format!("{WORLD} 4433-4435"), &[], &file) else { return };
    sleep(Duration::from_millis(1500));
    let (_, share) = shares(&pair, 4433, 6 * MIB);
    assert!(share.iter().all(|share| *share > 0.15), "{share:?}: {}", pair.logs());
    // Where the machine pauses, a link seems silent for a moment.
    let keeps_to = |link: usize| {
        (0..3).any(|_| {
            let (_, share) = shares(&pair, 4434, 5 * MIB);
            share[link] > 0.9 && share[1 - link] < 0.1
        })
    };
    assert!(keeps_to(1), "{}", pair.logs());
    let before = [0, 1].map(|link| pair.stage.received(link));
    let line = ["-Q", "0x88", "-c", "200", "-i", "0.01", "-s", "1200", WORLD];
    assert!(pair.lan.check("ping", &line).is_ok(), "{}", pair.logs());
    let [own, other] = [0, 1].map(|link| pair.stage.received(link) - before[link]);
    assert!(own > 240_000 && other < 60_000, "{own} and {other}: {}", pair.logs());
    // Flows begin where the share is largest, and stay there, but while that link seems silent: a queue that
    // fills is enough for a moment.
    let all = [(); 4].map(|()| shares(&pair, 4435, MIB).1[1]);
    assert!(all.iter().sum::<f64>() > 2.8, "{all:?}: {}", pair.logs());
    // A rule that is changed by a reload, for a flow that is there.
    pair.reload(&file.replace("fastest over up1", "fastest over up0"));
    sleep(Duration::from_millis(1500));
    assert!(keeps_to(0), "{}", pair.logs());
}
