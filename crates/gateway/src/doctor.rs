//! What a host lacks for a gateway or a proxy: each finding with what to do about it.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, SystemTime};

use caps::{CapSet, Capability};
use serde::Serialize;
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::gateway::{Service, Settings};
use crate::proxy::{self, dry_run};
use crate::setup::{Host, Preview, Step, run};

/// How long a far end may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Every IPv6 host takes packets of this length.
const LEAST_MTU: u32 = 1280;

/// How something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it has to be.
    Fine,
    /// It may be in the way.
    Doubtful,
    /// It can't work so.
    Wrong,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What.
    pub what: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_do: Option<String>,
}

impl Finding {
    fn fine(what: &'static str, found: impl Into<String>) -> Finding {
        Finding { what, verdict: Verdict::Fine, found: found.into(), to_do: None }
    }

    fn doubtful(what: &'static str, found: impl Into<String>, to_do: impl Into<String>) -> Finding {
        Finding { what, verdict: Verdict::Doubtful, found: found.into(), to_do: Some(to_do.into()) }
    }

    /// Something that can't work so.
    pub fn wrong(what: &'static str, found: impl Into<String>, to_do: impl Into<String>) -> Finding {
        Finding { what, verdict: Verdict::Wrong, found: found.into(), to_do: Some(to_do.into()) }
    }
}

/// What both need.
pub fn host() -> Vec<Finding> {
    vec![
        kernel(),
        device(),
        capability(),
        program("ip", &["-V"], "iproute2"),
        program("nft", &["--version"], "nftables"),
        forwarded(),
    ]
}

fn kernel() -> Finding {
    const WHAT: &str = "kernel";
    let release = nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
    let release = release.unwrap_or_default();
    let modules = std::fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    match modules.split(',').any(|module| module.trim() == "landlock") {
        true => Finding::fine(WHAT, format!("Linux {release}, with Landlock")),
        false => Finding::doubtful(
            WHAT,
            format!("Linux {release}, and Landlock isn't known to be on"),
            "nothing has to be done: without it gateway and proxy aren't confined to the files that they \
             need",
        ),
    }
}

fn device() -> Finding {
    const WHAT: &str = "TUN";
    let path = "/dev/net/tun";
    match std::fs::OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => Finding::fine(WHAT, format!("{path} can be opened")),
        Err(error) => Finding::wrong(
            WHAT,
            format!("{path}: {error}"),
            match error.kind() {
                io::ErrorKind::PermissionDenied => "run as root; for the units: `chmod 666 /dev/net/tun`",
                _ => "`modprobe tun`; in a container give it the device (`--device /dev/net/tun`)",
            },
        ),
    }
}

fn has_net_admin() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_NET_ADMIN).unwrap_or(false)
}

fn capability() -> Finding {
    const WHAT: &str = "permissions";
    match has_net_admin() {
        true => Finding::fine(WHAT, "CAP_NET_ADMIN"),
        false => {
            Finding::wrong(WHAT, "no CAP_NET_ADMIN", "run as root, or as the unit of `ropewalkd install`")
        }
    }
}

fn program(name: &'static str, arguments: &[&str], package: &str) -> Finding {
    match run(name, arguments, None) {
        Ok(told) => Finding::fine(name, told.trim()),
        Err(error) => Finding::wrong(name, error.to_string(), format!("install `{package}`")),
    }
}

/// Chains that drop what no rule of theirs accepts, at the hook that packets for the engine pass.
fn dropping_chains(listing: &str) -> Vec<String> {
    let Ok(listing) = serde_json::from_str::<Value>(listing) else { return Vec::new() };
    let objects = listing["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let chains = objects.iter().filter_map(|object| object.get("chain"));
    let dropping = chains.filter(|chain| chain["hook"] == "forward" && chain["policy"] == "drop");
    let name = |chain: &Value| {
        Some(format!(
            "{} {} {}",
            chain["family"].as_str()?,
            chain["table"].as_str()?,
            chain["name"].as_str()?
        ))
    };
    dropping.filter_map(name).collect()
}

fn forwarded() -> Finding {
    const WHAT: &str = "firewall";
    let listing = match run("nft", &["-j", "list", "chains"], None) {
        Ok(listing) => listing,
        Err(error) => return Finding::wrong(WHAT, error.to_string(), "run as root; `modprobe nf_tables`"),
    };
    let chains = dropping_chains(&listing);
    let accept = |chain: &String| {
        let rule = |way| {
            format!("nft insert rule {chain} {way} '{{ \"rope-gw*\", \"ropeproxy*\", \"rope-dg*\" }}' accept")
        };
        format!("`{}; {}`", rule("iifname"), rule("oifname"))
    };
    match chains.as_slice() {
        [] => Finding::fine(WHAT, "no chain drops all that is forwarded"),
        chains => Finding::doubtful(
            WHAT,
            format!("{} drops what is forwarded unless a rule accepts it", chains.join(", ")),
            format!("if no rule does: {}", chains.iter().map(accept).collect::<Vec<_>>().join("; ")),
        ),
    }
}

/// Whether nftables takes the rules: the kernel may lack a module.
fn rules(preview: &Preview) -> Option<Finding> {
    const WHAT: &str = "nftables' modules";
    let ruleset = preview.steps.iter().find_map(|(step, _)| match step {
        Step::Run { program: "nft", input: Some(ruleset), .. } => Some(ruleset),
        _ => None,
    })?;
    Some(match run("nft", &["-c", "-f", "-"], Some(ruleset)) {
        Ok(_) => Finding::fine(WHAT, "the kernel takes the rules"),
        Err(error) => Finding::wrong(
            WHAT,
            error.to_string(),
            "`modprobe -a nf_tables nft_chain_nat nft_masq nft_fib_inet nft_limit`, or a kernel that has \
             them",
        ),
    })
}

fn clock(config: Option<&Path>) -> Finding {
    const WHAT: &str = "clock";
    let time = chrono::Utc::now();
    let (now, told) = (SystemTime::from(time), time.format("%F %T UTC").to_string());
    let written = config.and_then(|path| path.metadata().ok()?.modified().ok());
    let program = std::env::current_exe().ok().and_then(|path| path.metadata().ok()?.modified().ok());
    let is_before = |other: SystemTime| now + Duration::from_secs(60) < other;
    match written.into_iter().chain(program).any(is_before) {
        false => Finding::fine(WHAT, told),
        true => Finding::wrong(
            WHAT,
            format!("{told}, before the program or its configuration was written"),
            "`timedatectl set-ntp true`, or set it: quotas and TLS need the time",
        ),
    }
}

fn connect(to: SocketAddr, interface: Option<&str>) -> io::Result<Duration> {
    let begin = tokio::time::Instant::now();
    let Some(interface) = interface else {
        return TcpStream::connect_timeout(&to, PATIENCE).map(|_| begin.elapsed());
    };
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    Ok(begin.elapsed())
}

fn far_end(to: SocketAddr, by: Option<&str>, to_do: &str) -> Finding {
    const WHAT: &str = "far end";
    let way = by.map_or(String::new(), |interface| format!(" by {interface}"));
    match connect(to, by) {
        Ok(took) => Finding::fine(WHAT, format!("{to} answers{way}, after {} ms", took.as_millis())),
        Err(error) => Finding::wrong(WHAT, format!("{to} doesn't answer{way}: {error}"), to_do),
    }
}

/// What a gateway with these settings lacks.
pub fn gateway(settings: &Settings, path: &Path) -> Vec<Finding> {
    let mut findings = vec![clock(Some(path))];
    match settings.plan() {
        Err(error) => {
            findings.push(Finding::wrong(
                "addresses",
                error.to_string(),
                "name addresses that `ip address` shows",
            ));
        }
        Ok(plan) => {
            for uplink in &plan.uplinks {
                let public = &uplink.public;
                let found = format!("{} is {}'s", public.address, public.interface);
                findings.push(Finding::fine("addresses", found));
                findings.push(mtu(&public.interface, public.mtu));
            }
            if has_net_admin() {
                findings.extend(rules(&plan.preview()));
            }
        }
    }
    for listener in &settings.listeners {
        if let Service::Forward(to) = &listener.service {
            match to.to_string().to_socket_addrs().ok().and_then(|mut all| all.next()) {
                Some(address) => findings.push(far_end(address, None, "start the server that `to` names")),
                None => findings.push(Finding::wrong(
                    "far end",
                    format!("the server {to} isn't found"),
                    "a resolver that knows its name",
                )),
            }
        }
    }
    findings
}

fn mtu(interface: &str, mtu: u32) -> Finding {
    const WHAT: &str = "MTU";
    match mtu < LEAST_MTU {
        false => Finding::fine(WHAT, format!("{interface}: {mtu}")),
        true => Finding::doubtful(
            WHAT,
            format!("{interface}: {mtu}, less than what IPv6 needs"),
            format!("`ip link set dev {interface} mtu 1280`, if the network carries that"),
        ),
    }
}

/// What a proxy with this configuration lacks.
pub fn proxy(settings: &proxy::Settings, path: &Path) -> Vec<Finding> {
    let mut findings = vec![clock(Some(path))];
    let host = match Host::read() {
        Ok(host) => host,
        Err(error) => {
            findings.push(Finding::wrong("routes", error.to_string(), "a kernel with rtnetlink is needed"));
            return findings;
        }
    };
    for (link, reach) in settings.links.iter().zip(crate::proxy::reaches(settings, &host)) {
        let name = &link.interface;
        let is_v6 = |gateway: SocketAddr| gateway.is_ipv6();
        match host.interface(name) {
            None => findings.push(Finding::wrong(
                "routes",
                format!("there is no interface {name}"),
                "it is used when it comes; `ip link` shows those that are there",
            )),
            Some(one) if !one.is_up => findings.push(Finding::wrong(
                "routes",
                format!("{name} is down"),
                format!("`ip link set dev {name} up`"),
            )),
            Some(_) if !reach.any() => findings.push(Finding::wrong(
                "routes",
                format!("{name} has no address or no next hop"),
                format!("a DHCP client for it, or `gateway` of the link: `--via {name},gateway=ADDRESS`"),
            )),
            Some(_) => {
                findings.push(Finding::fine("routes", format!("{name} has an address and a next hop")));
                findings.push(mtu(name, reach.mtu));
                for gateway in &settings.gateways {
                    let found = gateway.target.to_string().to_socket_addrs().map(Iterator::collect);
                    let addresses: Vec<_> = found.unwrap_or_default();
                    if addresses.is_empty() {
                        let what = format!("the gateway {} isn't found", gateway.target);
                        findings.push(Finding::wrong("far end", what, "a resolver that knows its name"));
                    }
                    let has_way = |one: &&SocketAddr| {
                        if is_v6(**one) { reach.v6.is_some() } else { reach.v4.is_some() }
                    };
                    if let Some(address) = addresses.iter().find(has_way) {
                        let to_do = "start the gateway there, and let its port through its firewall and its \
                                     provider's";
                        findings.push(far_end(*address, Some(name), to_do));
                    }
                }
            }
        }
    }
    if has_net_admin()
        && let Ok(preview) = dry_run(settings)
    {
        findings.extend(rules(&preview));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_that_drop_what_is_forwarded_are_named() {
        let chain = |table: &str, hook: &str, policy: &str| {
            let own = format!(r#""table":"{table}","name":"FORWARD","hook":"{hook}","policy":"{policy}""#);
            format!(r#"{{"chain":{{"family":"ip",{own}}}}}"#)
        };
        let listing = format!(
            r#"{{"nftables":[{{"metainfo":{{}}}},{},{},{},{}]}}"#,
            chain("filter", "forward", "drop"),
            chain("filter", "input", "drop"),
            chain("other", "forward", "accept"),
            r#"{"chain":{"family":"ip","table":"a","name":"plain"}}"#,
        );
        assert_eq!(dropping_chains(&listing), ["ip filter FORWARD"]);
        assert!(dropping_chains("no JSON").is_empty());
    }

    #[test]
    fn a_far_end_that_is_not_there_is_wrong() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(far_end(address, None, "").verdict, Verdict::Fine);
        drop(listener);
        let found = far_end(address, None, "start it");
        assert_eq!((found.verdict, found.to_do.as_deref()), (Verdict::Wrong, Some("start it")));
        assert!(found.found.contains("refused"), "{found:?}");
    }
}
