//! Tests of the proxy's file.

use std::time::Duration;

use super::*;
use crate::config::heard;
use crate::proxy::policy::Mode;
use crate::proxy::{Datagrams, GatewayFallback, Join, Names, OpeningLink};
use crate::status::Location;
use crate::target::Target;

fn read(text: &str) -> Result<Settings, String> {
    parse(&Source::new("p.toml", text), Path::new("")).map_err(|error| error.to_string())
}

const LINKS: &str = "[[link]]\ninterface = 'wlan0'\n[[link]]\ninterface = 'wwan0'\n";

#[test]
fn ports_of_the_gateway_need_a_tunnel() {
    let folder = tempfile::tempdir().unwrap();
    let _ = ["a", "b"].map(|name| crate::tls::keys::generate(folder.path(), name).unwrap());
    let text = "[proxy]\ntransparent = ['br-lan']\ngateway = ['192.0.2.9:5124']\ngateway-key = 'a.key'\n\
                gateway-certificate = ['b.pub']\ninbound = ['tcp/8022 to 10.0.0.1:22']\n\
                [[link]]\ninterface = 'wlan0'\n";
    let parse = |text: &str| parse(&Source::new("p.toml", text), folder.path());
    assert_eq!(parse(text).unwrap().inbound, ["tcp/8022 to 10.0.0.1:22".parse().unwrap()]);
    let error = parse(&text.replace("transparent = ['br-lan']\n", "")).unwrap_err().to_string();
    assert!(error.contains("p.toml:5:1: `inbound` goes with `transparent`"), "{error}");
}

#[test]
fn a_key_that_stands_elsewhere_needs_no_restart() {
    let text = |policy: &str| format!("[proxy]\npolicy = '{policy}'\ntransparent = ['br-lan']\n{LINKS}");
    let (old, new) = (read(&text("fastest")).unwrap(), read(&text("redundant")).unwrap());
    assert_eq!(old.needs_restart(&new), None);
    let other = read(&text("fastest").replace("br-lan", "br-dmz")).unwrap();
    assert_eq!(old.needs_restart(&other), Some("transparent"));
}

#[test]
fn every_key_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    crate::secret::write(&folder.path().join("users"), b"van:secret\n", 0o600).unwrap();
    crate::secret::write(&folder.path().join("token"), b"0123456789abcdef\n", 0o600).unwrap();
    let _ = ["a", "b"].map(|name| crate::tls::keys::generate(folder.path(), name).unwrap());
    let cookie = Cookie::generate(&folder.path().join("cookie")).unwrap();
    let text = "[proxy]\nlisten = '0.0.0.0:1080'\nusers = 'users'\nallow = ['10.0.0.0/8', \
                '192.0.2.7']\npolicy = 'fastest'\n\
        congestion = 'olia'\nopen-on = 'race'\njoin = 'late'\ntransparent = ['br-lan', \
        'br-dmz']\ntransparent-port = 99\nnames = 'system'\ndatagrams = 'system'\n\
        inbound = []\nmtu = 1400\nconnections = \
        7\nconnections-per-address = 5\nmemory = '3 MiB'\nstalled = '4 min'\n\
        connect-timeout = '3 s'\ndrain = '4 s'\nprobe = '192.0.2.1:443'\nprobe-budget = '2 KiB'\n\
        captive-check = 'http://a.net/204'\nusage = '/u'\nstatus = '/run/x'\nmetrics = '127.0.0.1:9465'\n\
        gateway = ['192.0.2.9:5124', 'two.example.org:5124']\ngateway-fallback = 'direct'\ngateway-cookie = \
        'cookie'\ngateway-ready = 3\ngateway-early = true\n\
        page = '127.0.0.1:1'\npage-token = 'token'\n\
        gateway-key = 'a.key'\ngateway-certificate = ['b.pub']\n\
        [[link]]\ninterface = 'wlan0'\nname = 'home'\nmetered = true\nbackup = true\ngateway = \
        '192.0.2.1'\nprice = 2.5\n\
        rate = '20 Mbit/s'\nquota = '5GB/monthly@12'\nthrottle = '2/1 Mbit/s'\n\
        [[link]]\ninterface = 'wwan0'\n\
        [[rule]]\nto = ['*.example.org']\nport = ['22', '80-90']\nsize = '1 MiB'\ndscp = ['ef']\n\
        policy = 'redundant over home'\n";
    heard::check(folder.path(), heard::OF_PROXY, &[text], super::settings);
    let settings = parse(&Source::new("p.toml", text), folder.path()).unwrap();
    let link: LinkSettings =
        "wlan0,name=home,metered,backup,gateway=192.0.2.1,price=2.5,rate=20Mbit/s,quota=5GB/monthly@12,\
         throttle=2/1Mbit/s"
            .parse()
            .unwrap();
    assert_eq!(settings.links, [link, LinkSettings::new("wwan0").unwrap()]);
    let rule = "to=*.example.org port=22,80-90 size=1MiB dscp=ef then redundant over home";
    assert_eq!(settings.policies.rules, [rule.parse::<Rule>().unwrap()]);
    assert_eq!(settings.policies.other.mode, Mode::Fastest);
    assert_eq!(settings.access.users, [("van".into(), "secret".into())]);
    assert_eq!(settings.access.allow[1].to_string(), "192.0.2.7/32");
    assert_eq!(settings.listen, ([0, 0, 0, 0], 1080).into());
    assert_eq!(settings.congestion, "olia");
    assert_eq!(
        (settings.transparent, settings.transparent_port),
        (vec!["br-lan".into(), "br-dmz".into()], 99)
    );
    assert_eq!((settings.names, settings.datagrams), (Names::System, Datagrams::System));
    assert_eq!(
        (settings.most_per_address, settings.memory, settings.stalled),
        (5, 3 << 20, Duration::from_secs(240))
    );
    assert_eq!((settings.mtu, settings.most_connections, settings.probe_budget), (Some(1400), 7, 2048));
    assert_eq!((settings.connect_timeout, settings.drain), (Duration::from_secs(3), Duration::from_secs(4)));
    assert_eq!((settings.usage, settings.status), ("/u".into(), Location::Path("/run/x".into())));
    assert_eq!(settings.metrics, Some(([127, 0, 0, 1], 9465).into()));
    assert_eq!((settings.open_on, settings.join), (OpeningLink::Race, Join::Late));
    assert_eq!(settings.page.unwrap().token.as_deref(), Some("0123456789abcdef"));
    assert_eq!(settings.probe, Some(([192, 0, 2, 1], 443).into()));
    assert_eq!((settings.gateway_fallback, settings.gateways.len()), (GatewayFallback::Direct, 2));
    assert_eq!(settings.gateways[1].target, Target::Name("two.example.org".into(), 5124));
    let gateway = settings.gateways[0].clone();
    assert!(gateway.tls.is_some() && gateway.early && gateway.ready == 3);
    assert_eq!(gateway.target, Target::Address(([192, 0, 2, 9], 5124).into()));
    assert_eq!(gateway.cookie, Some(cookie));
    assert_eq!(settings.captive_check.as_deref(), Some("http://a.net/204"));
}

#[test]
fn each_mistake_has_its_place_and_what_is_allowed() {
    let proxy = |line: &str| format!("{LINKS}[proxy]\n{line}\n");
    let rule = |line: &str| format!("{LINKS}[[rule]]\n{line}\n");
    let rows = [
        (String::new(), "p.toml:1:1: a proxy needs a link"),
        ("[[lnk]]\n".into(), "p.toml:1:3: unknown key `lnk`"),
        (format!("{LINKS}{LINKS}"), "p.toml:6:1: two links have the name `wlan0`"),
        ("[[link]]\ninterface = 'a b'\n".into(), "p.toml:2:13: `a b` is no interface's name"),
        (format!("{LINKS}gateway = 'x'"), "p.toml:5:11: expected an IP address (found `x`)"),
        (format!("{LINKS}price = -1"), "p.toml:5:9: `price` must be a number from 0"),
        (format!("{LINKS}rate = '20'"), "p.toml:5:9: "),
        (format!("{LINKS}quota = '5GB'"), "p.toml:5:9: `5GB` is no quota"),
        (format!("{LINKS}throttle = '1 Mbit/s'"), "p.toml:5:1: `throttle` goes with `quota`"),
        (proxy("listen = '0.0.0.0:1080'"), "p.toml:6:1: 0.0.0.0:1080 can be reached by others"),
        (proxy("listen = 'here'"), "p.toml:6:10: expected an address and a port"),
        (proxy("users = '/nonexistent'"), "p.toml:6:9: /nonexistent: "),
        (proxy("allow = '10.0.0.0/8'"), "p.toml:6:9: expected a list of texts"),
        (proxy("allow = ['10.0.0.0/33']"), "p.toml:6:10: expected a network"),
        (proxy("policy = 'fastets'"), "or one of fastest"),
        (proxy("policy = 'load-balance 1:2:3'"), "p.toml:6:10: load-balance has 3 shares for 2 uplinks"),
        (proxy("congestion = 'cubik'"), "p.toml:6:14: "),
        (
            proxy("transparent = ['wlan0']"),
            "p.toml:6:1: transparent `wlan0`: expected an interface that is no",
        ),
        (
            proxy("captive-check = 'https://a.net'"),
            "p.toml:6:17: captive check `https://a.net`: expected http",
        ),
        (proxy("gateway = ['here']"), "p.toml:6:12: expected an address or a name, and a port"),
        (proxy("gateway = ['a.net:0']"), "p.toml:6:12: expected an address or a name, and a port"),
        (proxy("gateway-ready = 1"), "p.toml:6:1: `gateway-ready` goes with `gateway`"),
        (
            proxy(
                "gateway = ['a.net:1', 'b.net:1', 'c.net:1']\ngateway-key = 'k'\ngateway-certificate = \
                 ['c', 'd']",
            ),
            "p.toml:8:1: expected one certificate, or one for each gateway",
        ),
        (proxy("metrics = '0.0.0.0:1'"), "p.toml:6:11: metrics are for this host only"),
        (rule("port = ['22']"), "needs `policy`"),
        (rule("policy = 'redundant over wlan1'"), "p.toml:6:10: a policy names `wlan1`, which is no uplink"),
        (rule("policy = 'redundant'\nport = ['ssh']"), "p.toml:7:9: `ssh` is no port"),
        (rule("policy = 'redundant'\nport = [22]"), "p.toml:7:9: expected a text"),
        (rule("policy = 'redundant'\ndscp = ['af']"), "p.toml:7:9: `af` is no DSCP"),
        (rule("policy = 'redundant'\nsize = '0 B'"), "`size` is out of range"),
    ];
    for (text, expected) in rows {
        let error = read(&text).unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}");
    }
    assert!(read(LINKS).is_ok());
}
