//! What the kernel has to do for the proxy: one routing table, one rule and one masquerade for each uplink.
//!
//! The engine has one source address per uplink, behind a TUN device. The kernel forwards its packets: a rule sends each source
//! address to the uplink's own routing table, and nftables masquerades it there. The engine's addresses are never the
//! kernel's, so that no RST of the kernel answers for them.
//!
//! All of it is done by `ip` and `nft`, the tools with which one would do the same by hand. Nothing is left when the
//! proxy ends: [`Uplinks::remove`] undoes it, and what a killed proxy has left is removed by the next.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::reach::{Reach, Route, Uplink};

/// Most uplinks.
pub const MOST_LINKS: usize = 8;
/// The routing table of uplink 0. The priority of its rule is the same number: before the main table (32766).
pub(super) const FIRST_TABLE: u32 = 5_200;
/// The nftables table.
const NFT_TABLE: &str = "ropewalk_proxy";

/// The TUN device of an uplink.
pub fn device(link: usize) -> String {
    format!("ropeproxy{link}")
}

/// The engine's address for an uplink, from the block of RFC 2544, which isn't routed on the Internet.
pub fn engine_v4(link: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, 200 + link as u8, 2)
}

fn kernel_v4(link: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 19, 200 + link as u8, 3)
}

/// The same in IPv6: a unique local address (RFC 4193).
pub fn engine_v6(link: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd72, 0x6f70, 0x6577, link as u16, 0, 0, 0, 2)
}

fn kernel_v6(link: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd72, 0x6f70, 0x6577, link as u16, 0, 0, 0, 3)
}

fn table(link: usize) -> u32 {
    FIRST_TABLE + link as u32
}

/// One command of the set-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A TUN device, which the proxy makes itself.
    Tun {
        /// Its name.
        name: String,
    },
    /// `ip` with these arguments.
    Ip(String),
    /// A key below /proc/sys and its value.
    Sysctl(String, String),
    /// `nft -f -` with this input.
    Nft(String),
}

impl std::fmt::Display for Step {
    /// As one would type it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Step::Tun { name } => write!(f, "ip tuntap add dev {name} mode tun vnet_hdr"),
            Step::Ip(line) => write!(f, "ip {line}"),
            Step::Sysctl(key, value) => write!(f, "sysctl -w {key}={value}"),
            Step::Nft(script) => write!(f, "nft -f - <<'END'\n{}\nEND", script.trim_end()),
        }
    }
}

impl Step {
    fn run(&self) -> io::Result<()> {
        match self {
            Step::Tun { .. } => Ok(()),
            Step::Ip(line) => ip(line).map(drop),
            Step::Sysctl(key, value) => write_sysctl(key, value),
            Step::Nft(script) => nft(script),
        }
    }
}

/// The path of a sysctl. Names of devices may have dots, which are written as slashes.
fn sysctl_path(key: &str) -> String {
    let swapped: String = key
        .chars()
        .map(|c| {
            if c == '.' {
                '/'
            } else if c == '/' {
                '.'
            } else {
                c
            }
        })
        .collect();
    format!("/proc/sys/{swapped}")
}

fn write_sysctl(key: &str, value: &str) -> io::Result<()> {
    std::fs::write(sysctl_path(key), value)
        .map_err(|error| io::Error::new(error.kind(), format!("sysctl {key}={value}: {error}")))
}

fn read_sysctl(key: &str) -> io::Result<String> {
    Ok(std::fs::read_to_string(sysctl_path(key))?.trim().to_string())
}

/// Runs `ip` and returns what it printed.
pub(super) fn ip(line: &str) -> io::Result<String> {
    run("ip", &line.split_whitespace().collect::<Vec<_>>(), "")
}

fn nft(script: &str) -> io::Result<()> {
    run("nft", &["-f", "-"], script).map(drop)
}

fn run(program: &str, arguments: &[&str], input: &str) -> io::Result<String> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{program}: {error}"));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(named)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that has ended says why itself.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(named)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let line = format!("{program} {}", arguments.join(" "));
        return Err(io::Error::other(format!("`{}`: {}", line.trim(), text.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a set-up has changed and its successor has to restore, should it be killed.
#[derive(Serialize, Deserialize, Default)]
struct Saved {
    sysctls: Vec<(String, String)>,
}

/// The set-up of all uplinks.
#[derive(Debug)]
pub struct Uplinks {
    uplinks: Vec<Uplink>,
    v6: bool,
    mtu: u32,
    /// The interface whose connections are redirected, and to which port.
    transparent: Option<(String, u16)>,
    /// Sysctls that were changed, and their old values.
    changed: Vec<(String, String)>,
    /// What the routing tables hold.
    reach: Vec<Reach>,
}

impl Uplinks {
    /// A set-up, of which nothing is done yet. `v6`: in IPv6 too.
    pub fn new(uplinks: Vec<Uplink>, v6: bool, mtu: u32, transparent: Option<(String, u16)>) -> Uplinks {
        let reach = vec![Reach::default(); uplinks.len()];
        Uplinks { uplinks, v6, mtu, transparent, changed: Vec::new(), reach }
    }

    /// Whether uplinks are used in IPv6 too.
    pub fn has_v6(&self) -> bool {
        self.v6
    }

    fn families(&self) -> &'static [bool] {
        if self.v6 { &[false, true] } else { &[false] }
    }

    /// The commands of the set-up, in order. The uplinks' routes aren't among them: they follow the network.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for link in 0..self.uplinks.len() {
            let name = device(link);
            steps.push(Step::Tun { name: name.clone() });
            if self.v6 {
                // The kernel has nothing to say for itself on this device: no link-local address.
                steps.push(Step::Sysctl(format!("net.ipv6.conf.{name}.addr_gen_mode"), "1".into()));
            }
            steps.push(Step::Ip(format!("link set dev {name} mtu {} txqueuelen 10000 up", self.mtu)));
            steps.push(Step::Ip(format!("address add {}/31 dev {name}", kernel_v4(link))));
            if self.v6 {
                steps.push(Step::Ip(format!("address add {}/127 dev {name} nodad", kernel_v6(link))));
            }
            steps.push(Step::Sysctl(format!("net.ipv4.conf.{name}.forwarding"), "1".into()));
            for v6 in self.families() {
                let (family, address) = self.address(link, *v6);
                let table = table(link);
                // Without a route of its own an uplink's packets go nowhere, not over another uplink.
                steps.push(Step::Ip(format!(
                    "{family}route add blackhole default metric 1000000 table {table}"
                )));
                steps.push(Step::Ip(format!(
                    "{family}rule add priority {table} from {address} lookup {table}"
                )));
            }
        }
        steps.extend(self.sysctls().into_iter().map(|(key, value)| Step::Sysctl(key, value)));
        steps.push(Step::Nft(self.nftables()));
        steps
    }

    fn address(&self, link: usize, v6: bool) -> (&'static str, IpAddr) {
        if v6 { ("-6 ", engine_v6(link).into()) } else { ("", engine_v4(link).into()) }
    }

    /// What is changed beyond the proxy's own devices, and restored at the end.
    fn sysctls(&self) -> Vec<(String, String)> {
        let mut keys = Vec::new();
        for uplink in &self.uplinks {
            // A dot in a device's name is a slash in a sysctl's.
            let name = uplink.interface.replace('.', "/");
            keys.push((format!("net.ipv4.conf.{name}.forwarding"), "1".to_string()));
            if self.v6 {
                // A host that forwards ignores router advertisements unless it is told not to.
                keys.push((format!("net.ipv6.conf.{name}.accept_ra"), "2".to_string()));
            }
        }
        if self.v6 {
            keys.push(("net.ipv6.conf.all.forwarding".to_string(), "1".to_string()));
        }
        keys
    }

    /// The nftables script: one masquerade for each uplink, its greatest rate, and what transparent mode redirects.
    fn nftables(&self) -> String {
        let (mut limits, mut forward, mut rules) = (String::new(), String::new(), String::new());
        for (link, uplink) in self.uplinks.iter().enumerate() {
            let interface = &uplink.interface;
            let forwards = read_sysctl(&format!("net.ipv4.conf.{}.forwarding", interface.replace('.', "/")));
            if forwards.is_ok_and(|value| value == "0") {
                // Forwarding is switched on for the engine's packets only.
                forward += &format!("    iifname \"{interface}\" oifname != \"ropeproxy*\" drop\n");
            }
            let addresses = [("ip", IpAddr::V4(engine_v4(link))), ("ip6", engine_v6(link).into())];
            for (family, address) in addresses.into_iter().take(self.families().len()) {
                rules += &format!("    {family} saddr {address} oifname \"{interface}\" masquerade\n");
                if uplink.rate.is_some() {
                    forward += &format!("    {family} saddr {address} limit name \"up{link}\" drop\n");
                    forward += &format!("    {family} daddr {address} limit name \"down{link}\" drop\n");
                }
            }
            if let Some(rate) = uplink.rate {
                // A super-packet of 64 KiB has to fit several times.
                let (bytes, burst) = (rate / 8, (rate / 8 / 10).max(256 << 10));
                for side in ["up", "down"] {
                    limits += &format!(
                        "  limit {side}{link} {{ rate over {bytes} bytes/second burst {burst} bytes }}\n"
                    );
                }
            }
        }
        let chain = |name: &str, hook: &str, rules: &str| match rules {
            "" => String::new(),
            rules => format!("  chain {name} {{\n    {hook}; policy accept;\n{rules}  }}\n"),
        };
        let redirect = self.transparent.as_ref().map_or(String::new(), |(interface, port)| {
            format!(
                "    iifname \"{interface}\" fib daddr type != local meta l4proto tcp redirect to :{port}\n"
            )
        });
        let chains = [
            chain("prerouting", "type nat hook prerouting priority dstnat", &redirect),
            chain("forward", "type filter hook forward priority filter", &forward),
            chain("postrouting", "type nat hook postrouting priority srcnat", &rules),
        ];
        format!("table inet {NFT_TABLE} {{\n{limits}{}}}\n", chains.concat())
    }

    /// The commands that give an uplink's table the route that it has.
    pub fn route_steps(&self, link: usize, reach: Reach) -> Vec<Step> {
        let interface = &self.uplinks[link].interface;
        let table = table(link);
        let step = |family: &str, route: Route| {
            let via = match route {
                Route::Via(gateway) => format!("via {gateway} dev {interface} onlink"),
                Route::Direct => format!("dev {interface}"),
            };
            Step::Ip(format!("{family}route replace default {via} metric 1 table {table}"))
        };
        let mut steps: Vec<Step> = reach.v4.map(|route| step("", route)).into_iter().collect();
        steps.extend(reach.v6.filter(|_| self.v6).map(|route| step("-6 ", route)));
        steps
    }

    /// Gives an uplink's table the route that it has now. Returns whether anything changed.
    ///
    /// # Errors
    /// If `ip` refuses.
    pub fn update(&mut self, link: usize, reach: Reach) -> io::Result<bool> {
        let old = std::mem::replace(&mut self.reach[link], reach);
        if old == reach && self.has_routes(link, reach) {
            return Ok(false);
        }
        let table = table(link);
        for (family, was, is) in [("", old.v4, reach.v4), ("-6 ", old.v6.filter(|_| self.v6), reach.v6)] {
            if was.is_some() && is.is_none() {
                // The kernel removes it itself when the interface goes.
                let _ = ip(&format!("{family}route del default metric 1 table {table}"));
            }
        }
        for step in self.route_steps(link, reach) {
            step.run().inspect_err(|_| self.reach[link] = Reach::default())?;
        }
        Ok(true)
    }

    /// Whether an uplink's table has its routes: the kernel removes them with the interface, which may be back already.
    fn has_routes(&self, link: usize, reach: Reach) -> bool {
        let table = table(link);
        [("-4", reach.v4), ("-6", reach.v6.filter(|_| self.v6))].into_iter().all(|(family, route)| {
            let shown = || ip(&format!("{family} route show table {table} metric 1")).unwrap_or_default();
            route.is_none() || shown().contains("default")
        })
    }

    /// Carries out the set-up, after removing what a killed predecessor has left. The TUN devices have to be there.
    ///
    /// # Errors
    /// If a command fails: the message names it. What was done is undone.
    pub fn apply(&mut self) -> io::Result<()> {
        restore_saved();
        remove_rules(self.uplinks.len());
        for step in self.steps() {
            let kept = match &step {
                Step::Sysctl(key, value) if !key.contains("ropeproxy") => self.change_sysctl(key, value),
                step => step.run(),
            };
            if let Err(error) = kept {
                self.remove();
                return Err(error);
            }
        }
        Ok(())
    }

    fn change_sysctl(&mut self, key: &str, value: &str) -> io::Result<()> {
        // The interface may come later: its values are set when it does.
        let Ok(old) = read_sysctl(key) else { return Ok(()) };
        if old == value || (key.ends_with("accept_ra") && old == "0") {
            return Ok(());
        }
        self.changed.push((key.to_string(), old));
        self.save();
        write_sysctl(key, value)
    }

    /// Sets what interfaces that have come since need.
    ///
    /// # Errors
    /// If a value is refused.
    pub fn refresh_sysctls(&mut self) -> io::Result<()> {
        for (key, value) in self.sysctls() {
            if read_sysctl(&key).is_ok_and(|old| old != value) {
                let known = self.changed.iter().position(|(changed, _)| *changed == key);
                match known {
                    Some(_) => write_sysctl(&key, &value)?,
                    None => self.change_sysctl(&key, &value)?,
                }
            }
        }
        Ok(())
    }

    fn save(&self) {
        let Some(path) = saved_path() else { return };
        let saved = Saved { sysctls: self.changed.clone() };
        if let (Some(parent), Ok(text)) = (path.parent(), serde_json::to_string(&saved)) {
            // Without it only a killed proxy leaves forwarding switched on.
            let _ = std::fs::create_dir_all(parent);
            let _ = std::fs::write(&path, text);
        }
    }

    /// Undoes the set-up. The TUN devices go with their descriptors.
    pub fn remove(&mut self) {
        remove_rules(self.uplinks.len());
        for (key, old) in std::mem::take(&mut self.changed).into_iter().rev() {
            // The interface may be gone.
            let _ = write_sysctl(&key, &old);
        }
        if let Some(path) = saved_path() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Uplinks {
    fn drop(&mut self) {
        if !self.changed.is_empty() {
            self.remove();
        }
    }
}

/// Where changed sysctls are noted, one file per network namespace.
fn saved_path() -> Option<PathBuf> {
    let namespace = std::fs::read_link("/proc/thread-self/ns/net").ok()?;
    let number: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Some(PathBuf::from(format!("/run/ropewalk/proxy-{number}.json")))
}

/// Restores what a killed proxy has changed in this namespace.
fn restore_saved() {
    let Some(path) = saved_path() else { return };
    let Ok(text) = std::fs::read_to_string(&path) else { return };
    let saved: Saved = serde_json::from_str(&text).unwrap_or_default();
    for (key, old) in saved.sysctls.into_iter().rev() {
        let _ = write_sysctl(&key, &old);
    }
    let _ = std::fs::remove_file(path);
}

/// Removes rules, routes and the nftables table, whoever made them.
fn remove_rules(links: usize) {
    for link in 0..links.max(MOST_LINKS) {
        let table = table(link);
        for family in ["", "-6 "] {
            // Each call deletes one; there is none left when it fails.
            for _ in 0..16 {
                if ip(&format!("{family}rule del priority {table} lookup {table}")).is_err() {
                    break;
                }
            }
            let _ = ip(&format!("{family}route flush table {table}"));
        }
    }
    // `delete table` fails if there is no such table, so that one is added first.
    let _ = nft(&format!("table inet {NFT_TABLE} {{}}\ndelete table inet {NFT_TABLE}\n"));
}

#[cfg(test)]
mod tests {
    use super::super::reach::{Reach, Route, Uplink};
    use super::{Step, Uplinks};

    fn uplinks(v6: bool) -> Uplinks {
        let uplink = |name: &str| Uplink { interface: name.into(), gateway: None, rate: Some(8_000_000) };
        Uplinks::new(vec![uplink("wlan0"), uplink("wwan0.7")], v6, 1500, Some(("eth1".into(), 1081)))
    }

    #[test]
    fn every_uplink_has_a_rule_a_table_and_a_masquerade() {
        let steps: Vec<String> = uplinks(false).steps().iter().map(Step::to_string).collect();
        let text = steps.join("\n");
        for needed in [
            "ip tuntap add dev ropeproxy0 mode tun",
            "ip rule add priority 5201 from 198.19.201.2 lookup 5201",
            "ip route add blackhole default metric 1000000 table 5201",
            "ip saddr 198.19.200.2 oifname \"wlan0\" masquerade",
            "ip saddr 198.19.201.2 oifname \"wwan0.7\" masquerade",
            "sysctl -w net.ipv4.conf.wwan0/7.forwarding=1",
            "limit up1 { rate over 1000000 bytes/second burst 262144 bytes }",
            "ip daddr 198.19.201.2 limit name \"down1\" drop",
            "iifname \"eth1\" fib daddr type != local meta l4proto tcp redirect to :1081",
        ] {
            assert!(text.contains(needed), "{needed} is missing in:\n{text}");
        }
        assert!(!text.contains("fd72") && !text.contains("ipv6"), "{text}");
        assert!(
            uplinks(true).steps().iter().any(|step| step.to_string().contains("ip6 saddr fd72:6f70:6577::2"))
        );
    }

    #[test]
    fn routes_are_by_the_next_hop_or_by_the_device() {
        let via =
            Reach { v4: Some(Route::Via([192, 0, 2, 1].into())), v6: Some(Route::Direct), address: None };
        let lines =
            |v6| -> Vec<String> { uplinks(v6).route_steps(0, via).iter().map(Step::to_string).collect() };
        let v4 = "ip route replace default via 192.0.2.1 dev wlan0 onlink metric 1 table 5200";
        assert_eq!(lines(false), [v4]);
        assert_eq!(lines(true), [v4, "ip -6 route replace default dev wlan0 metric 1 table 5200"]);
    }
}
