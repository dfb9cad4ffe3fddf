//! The gateway's set-up: for each public address a TUN device, behind which the engine has it.
//!
//! nftables gives packets for a listener's address and port the engine's address, and answers the public one. It does so
//! packet by packet (`notrack`): connection tracking would call a subflow's data invalid where it fits the connection's
//! window and not the subflow's, and its table could be filled. Multipath TCP's options pass as they are.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ropewalk_tokio::Path;
use serde_json::json;

use super::{
    HostAddress, Preview, Step, Undo, clean, default_interface, has_force_forwarding, interface_routes,
    is_forwarding, remember, table_of_source,
};

/// The table of nftables.
pub const TABLE: &str = "ropewalk_gateway";
/// The routing protocol number of our routes and rules: `ip rule show protocol 211`.
pub const PROTOCOL: u8 = 211;
/// How the devices' names begin.
pub const DEVICE: &str = "rope-gw";
/// The routing table of the first public address, and the priority of its `ip rule`. Each further address has the next number.
const FIRST_TABLE: usize = 7100;
/// The largest MTU of a TUN device; the loopback interface's is one more.
const LARGEST_MTU: u32 = 65_535;
/// Most public addresses: the peers' path managers take 8.
pub const MOST_ADDRESSES: usize = 64;

/// A public address, and the device behind which the engine has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// The address, its interface and MTU.
    pub public: HostAddress,
    /// The ports that belong to the engine.
    pub ports: BTreeSet<u16>,
    /// The TUN device.
    pub device: String,
    /// The engine's address on it.
    pub engine: IpAddr,
    /// The kernel's address on it.
    pub kernel: IpAddr,
    /// Where answers are routed, if not by the main table.
    routing: Option<Routing>,
    /// The sysctls to set so that packets are forwarded: the device's, and those of interfaces where it is off.
    forwarding: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Routing {
    table: String,
    priority: usize,
    /// Routes of a table of ours; empty if the host has a table for the address.
    routes: Vec<String>,
}

/// The set-up, before anything is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The public addresses; path i of the engine is the i-th.
    pub uplinks: Vec<Uplink>,
    /// Queues of each device.
    pub queues: usize,
}

/// The i-th pair of addresses between the kernel and the engine.
fn pair(index: usize, v6: bool) -> (IpAddr, IpAddr) {
    let at = 2 * index as u16;
    let v4 = |last: u16| IpAddr::from(Ipv4Addr::new(10, 126, 64, last as u8));
    let six = |last: u16| IpAddr::from(Ipv6Addr::new(0xfd72, 0x6f70, 0x65, 0x7640, 0, 0, 0, last));
    if v6 { (six(at + 2), six(at + 3)) } else { (v4(at), v4(at + 1)) }
}

/// Why an address can't be used.
fn no_such_address(address: IpAddr, host: &[HostAddress]) -> io::Error {
    let usable = |known: &&HostAddress| {
        !known.address.is_loopback() && !matches!(known.address, IpAddr::V6(v6) if v6.is_unicast_link_local())
    };
    let known: Vec<String> = host.iter().filter(usable).map(|known| known.address.to_string()).collect();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    let what = match address {
        _ if address.is_unspecified() => {
            format!("{address} stands for every address of the host: name those that clients shall use")
        }
        _ if address.is_loopback() => format!("{address} is this host's own: no client reaches it"),
        _ => format!("{address} is no address of this host"),
    };
    io::Error::new(io::ErrorKind::AddrNotAvailable, format!("{what} (it has {known})"))
}

impl Plan {
    /// Plans for these addresses and ports of listeners, by what the host has.
    ///
    /// # Errors
    /// If an address isn't the host's, or the host can't be asked.
    pub fn new(listeners: &[SocketAddr], queues: usize) -> io::Result<Plan> {
        let host = super::addresses()?;
        let mut uplinks: Vec<Uplink> = Vec::new();
        for listener in listeners {
            let address = listener.ip();
            if let Some(known) = uplinks.iter_mut().find(|uplink| uplink.public.address == address) {
                known.ports.insert(listener.port());
                continue;
            }
            let public = host.iter().find(|known| known.address == address && !address.is_loopback());
            let public = public.cloned().ok_or_else(|| no_such_address(address, &host))?;
            let (kernel, engine) = pair(uplinks.len(), address.is_ipv6());
            let device = format!("{DEVICE}{}", uplinks.len());
            let forwarding = forwarding_keys(&arriving_at(&public, &host), &device, address.is_ipv6())?;
            let public = HostAddress { mtu: public.mtu.min(LARGEST_MTU), ..public };
            let ports = BTreeSet::from([listener.port()]);
            uplinks.push(Uplink { public, ports, device, engine, kernel, routing: None, forwarding });
        }
        if uplinks.len() > MOST_ADDRESSES {
            let message = format!("{} addresses: {MOST_ADDRESSES} at most are possible", uplinks.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut plan = Plan { uplinks, queues };
        plan.route_answers()?;
        Ok(plan)
    }

    /// The same devices for other ports of listeners.
    ///
    /// # Errors
    /// If a listener has an address without a device: devices are made when the gateway starts.
    pub fn with_ports(&self, listeners: &[SocketAddr]) -> io::Result<Plan> {
        let mut plan = self.clone();
        plan.uplinks.iter_mut().for_each(|uplink| uplink.ports.clear());
        for listener in listeners {
            let uplink = plan.uplinks.iter_mut().find(|uplink| uplink.public.address == listener.ip());
            let uplink = uplink.ok_or_else(|| {
                let message = format!("{} is a new address: it needs a restart", listener.ip());
                io::Error::new(io::ErrorKind::InvalidInput, message)
            })?;
            uplink.ports.insert(listener.port());
        }
        Ok(plan)
    }

    /// Every address and port that reaches the engine.
    pub fn sockets(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let of = |uplink: &'_ Uplink| {
            let address = uplink.public.address;
            uplink.ports.iter().map(|port| SocketAddr::new(address, *port)).collect::<Vec<_>>()
        };
        self.uplinks.iter().flat_map(of)
    }

    /// Replaces the rules of nftables by this plan's, at once.
    ///
    /// # Errors
    /// As [`Step::run`].
    pub fn replace_rules(&self) -> io::Result<()> {
        Step::ruleset(self.ruleset()).run()
    }

    /// Answers leave through the interface that has the address. The main table does that for a host with one uplink, and
    /// for the uplink of its default route.
    fn route_answers(&mut self) -> io::Result<()> {
        if self.uplinks.len() < 2 {
            return Ok(());
        }
        let defaults = [default_interface(false)?, default_interface(true)?];
        for (index, uplink) in self.uplinks.iter_mut().enumerate() {
            let (interface, v6) = (uplink.public.interface.as_str(), uplink.public.address.is_ipv6());
            let priority = FIRST_TABLE + index;
            uplink.routing = match table_of_source(uplink.public.address)? {
                Some(table) => Some(Routing { table, priority, routes: Vec::new() }),
                None if defaults[usize::from(v6)].as_deref() == Some(interface) => None,
                None => {
                    let routes = interface_routes(interface, v6)?;
                    Some(Routing { table: priority.to_string(), priority, routes })
                }
            };
        }
        Ok(())
    }

    /// The steps in their order, each with what undoes it. The devices are made before.
    pub fn steps(&self) -> Vec<(Step, Vec<Step>)> {
        let mut steps = Vec::new();
        for uplink in &self.uplinks {
            uplink.steps(&mut steps);
        }
        steps.push((Step::ruleset(self.ruleset()), vec![Step::delete_table(TABLE)]));
        steps
    }

    /// What `--dry-run` shows.
    pub fn preview(&self) -> Preview {
        let device = |uplink: &Uplink| {
            let (public, engine, device) = (&uplink.public, uplink.engine, &uplink.device);
            let (address, interface) = (public.address, &public.interface);
            let words = format!(
                "TUN device {device}: the engine is {engine} there, and {address} ({interface}) to clients"
            );
            let value = json!({
                "device": device, "queues": self.queues, "address": engine, "public": address, "interface": interface,
            });
            (words, value)
        };
        let devices = self.uplinks.iter().map(device).collect();
        Preview { devices, steps: self.steps(), notes: Vec::new() }
    }

    /// The rules of nftables.
    pub fn ruleset(&self) -> String {
        let mut text = format!("add table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n");
        let _ = writeln!(text, "  chain arriving {{");
        let _ = writeln!(text, "    type filter hook prerouting priority raw; policy accept;");
        let _ = writeln!(text, "    iifname \"{DEVICE}*\" notrack accept");
        for uplink in &self.uplinks {
            let _ = writeln!(text, "    {} daddr {} drop", uplink.family(), uplink.engine);
        }
        for uplink in &self.uplinks {
            for rule in uplink.to_engine() {
                let _ = writeln!(text, "    {rule}");
            }
        }
        let _ = writeln!(text, "  }}\n  chain from_this_host {{");
        let _ = writeln!(text, "    type route hook output priority raw; policy accept;");
        for uplink in &self.uplinks {
            if let Some(rule) = uplink.to_engine().first() {
                let _ = writeln!(text, "    {rule}");
            }
        }
        let _ = writeln!(text, "  }}\n  chain to_this_host {{");
        let _ = writeln!(text, "    type filter hook input priority raw; policy accept;");
        for uplink in &self.uplinks {
            let _ = writeln!(text, "    iifname \"{}\" {}", uplink.device, uplink.to_public());
        }
        let _ = writeln!(text, "  }}\n  chain forwarded {{");
        let _ = writeln!(text, "    type filter hook forward priority filter; policy accept;");
        for (interface, _) in self.switched_on() {
            let _ = writeln!(text, "    iifname \"{interface}\" oifname != \"{DEVICE}*\" drop");
        }
        let _ = writeln!(text, "  }}\n  chain leaving {{");
        let _ = writeln!(text, "    type filter hook postrouting priority raw; policy accept;");
        for uplink in &self.uplinks {
            let _ = writeln!(text, "    {}", uplink.to_public());
        }
        text.push_str("  }\n");
        text += &remember(self.switched_on().into_iter().map(|(_, key)| (key, "0")));
        text.push_str("}\n");
        text
    }

    /// Interfaces of the host on which forwarding is off, with the sysctl that switches it on.
    fn switched_on(&self) -> BTreeSet<(&str, &str)> {
        self.uplinks.iter().flat_map(Uplink::switched_on).collect()
    }

    /// Makes the devices and everything else. What a killed gateway left is removed first, and the plan made anew without it.
    /// Returns the plan that was carried out.
    ///
    /// # Errors
    /// If a step fails: what was done is undone.
    pub fn apply(&self) -> io::Result<(Plan, Vec<Path>, Undo)> {
        let mut paths = Vec::new();
        for uplink in &self.uplinks {
            let path = Path::tun(&uplink.device, self.queues, uplink.engine).map_err(|error| {
                if error.raw_os_error() == Some(nix::libc::EBUSY)
                    || error.kind() == io::ErrorKind::ResourceBusy
                {
                    let device = &uplink.device;
                    let message =
                        format!("the device {device} is in use: another gateway is running on this host");
                    return io::Error::new(io::ErrorKind::ResourceBusy, message);
                }
                error
            })?;
            paths.push(path.known_as(uplink.public.address).mtu(uplink.public.mtu));
        }
        let mut plan = self.clone();
        if clean(TABLE, PROTOCOL) {
            tracing::info!(target: "ropewalk::setup", "removed what an earlier gateway had left");
            // Forwarding that it had switched on is off again, and its routing rules are gone.
            plan = Plan::new(&self.sockets().collect::<Vec<_>>(), self.queues)?;
        }
        let mut undo = Undo::default();
        for (step, reverse) in plan.steps() {
            undo.run(&step, reverse)?;
        }
        Ok((plan, paths, undo))
    }
}

impl Uplink {
    /// The protocol's name in nftables.
    fn family(&self) -> &'static str {
        if self.public.address.is_ipv6() { "ip6" } else { "ip" }
    }

    /// The rules that give packets the engine's address: TCP first, then the routers' word that a packet was too big.
    fn to_engine(&self) -> Vec<String> {
        let (family, public, engine) = (self.family(), self.public.address, self.engine);
        if self.ports.is_empty() {
            return Vec::new();
        }
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        let ports = ports.join(", ");
        // The message holds the packet that was too big, with our port as its source.
        let too_big = match public.is_ipv6() {
            false => {
                format!("icmp type destination-unreachable icmp code frag-needed @th,224,16 {{ {ports} }}")
            }
            true => format!("icmpv6 type packet-too-big @th,384,16 {{ {ports} }}"),
        };
        vec![
            format!("{family} daddr {public} tcp dport {{ {ports} }} notrack {family} daddr set {engine}"),
            format!("{family} daddr {public} {too_big} notrack {family} daddr set {engine}"),
        ]
    }

    /// The rule that gives packets the public address.
    fn to_public(&self) -> String {
        let family = self.family();
        format!("{family} saddr {} {family} saddr set {}", self.engine, self.public.address)
    }

    /// Interfaces where forwarding is off, with its sysctl.
    fn switched_on(&self) -> impl Iterator<Item = (&str, &str)> {
        let others = self.forwarding.iter().filter_map(|key| Some((key.split('/').nth(3)?, key.as_str())));
        others.filter(|(interface, _)| *interface != self.device)
    }

    fn steps(&self, steps: &mut Vec<(Step, Vec<Step>)>) {
        let (device, kernel, mtu) = (&self.device, self.kernel, self.public.mtu);
        let (family, prefix, nodad) = if kernel.is_ipv6() { ("-6", 127, " nodad") } else { ("-4", 31, "") };
        // The devices and what hangs on them vanish with the process.
        if std::path::Path::new("/proc/sys/net/ipv6").exists() {
            // Not by its sysctl: in a container /proc/sys can't be written.
            steps.push((Step::ip(&format!("link set dev {device} addrgenmode none")), vec![]));
        }
        steps.push((Step::ip(&format!("link set dev {device} mtu {mtu} txqueuelen 10000 up")), vec![]));
        steps.push((Step::ip(&format!("address add {kernel}/{prefix} dev {device}{nodad}")), vec![]));
        for key in &self.forwarding {
            let is_ours = key.contains(&format!("/{device}/"));
            let undo = if is_ours { vec![] } else { vec![Step::sysctl(key.clone(), "0")] };
            steps.push((Step::sysctl(key.clone(), "1"), undo));
        }
        if let Some(Routing { table, priority, routes }) = &self.routing {
            for route in routes {
                let line = format!("{family} route add {route} table {table} proto {PROTOCOL}");
                steps.push((Step::ip(&line), vec![]));
            }
            if !routes.is_empty() {
                let flush = Step::ip(&format!("{family} route flush table {table} proto {PROTOCOL}"));
                if let Some((_, undo)) = steps.last_mut() {
                    undo.push(flush);
                }
            }
            let rule = format!("iif {device} lookup {table} priority {priority} protocol {PROTOCOL}");
            let delete = Step::ip(&format!("{family} rule del {rule}"));
            steps.push((Step::ip(&format!("{family} rule add {rule}")), vec![delete]));
        }
    }
}

/// The interfaces at which an address's packets arrive: its own, or any if it is the loopback interface's.
fn arriving_at<'a>(public: &'a HostAddress, host: &'a [HostAddress]) -> BTreeSet<&'a str> {
    let is_own = |known: &&HostAddress| known.interface == public.interface;
    let is_other = |known: &&HostAddress| !known.address.is_loopback() && !is_own(known);
    let fits = |known: &&HostAddress| if public.interface == "lo" { is_other(known) } else { is_own(known) };
    host.iter().filter(fits).map(|known| known.interface.as_str()).collect()
}

/// The sysctls that are to be 1 so that packets are forwarded between interfaces and a device.
fn forwarding_keys(interfaces: &BTreeSet<&str>, device: &str, v6: bool) -> io::Result<Vec<String>> {
    let off = |name: &str| {
        let off = interfaces.iter().filter(|interface| !is_forwarding(interface, v6));
        let family = if v6 { "ipv6" } else { "ipv4" };
        let key = |interface: &str| format!("net/{family}/conf/{interface}/{name}");
        std::iter::once(key(device)).chain(off.map(|interface| key(interface))).collect()
    };
    if !v6 {
        return Ok(off("forwarding"));
    }
    if is_forwarding("all", true) {
        return Ok(Vec::new());
    }
    // Since Linux 6.17 one interface may forward without making the host a router, which ignores router advertisements.
    if has_force_forwarding() {
        return Ok(off("force_forwarding"));
    }
    Err(io::Error::other(
        "IPv6 forwarding is off: `sysctl -w net.ipv6.conf.all.forwarding=1` (and accept_ra=2 on interfaces that have their \
         routes from router advertisements)",
    ))
}
