//! The gateway's set-up: for each public address a TUN device, behind which the engine has it.
//!
//! nftables gives packets for a listener's address and port the engine's address, and answers the public one.
//! It does so packet by packet (`notrack`): connection tracking would call a subflow's data invalid where it
//! fits the connection's window and not the subflow's, and its table could be filled. Multipath TCP's options
//! pass as they are.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use ropewalk_tokio::TunDevice;
use serde_json::json;

use super::claim::{self, Claim};
use super::{
    GATEWAY_TABLES, Host, HostAddress, Interface, Preview, Route, Step, guard, has_force_forwarding,
    is_forwarding, is_own_device, new_devices_have_v6, note, read_sysctl, remember, remove_notes,
};
use crate::tunnel::ports::{Forward, others};
use crate::tunnel::{FAR_DEVICE, Inner, LARGEST_SEGMENT, MTU};

/// The table of nftables.
pub const TABLE: &str = "ropewalk_gateway";
/// The routing protocol number of our routes and rules: `ip rule show protocol 211`.
pub const PROTOCOL: u8 = 211;
/// How the devices' names begin.
pub const DEVICE: &str = "rope-gw";
/// The priority of the rules by which routes to neighbours come before an interface's default route.
pub(super) const NEIGHBOURS: u32 = GATEWAY_TABLES.start - 1;
/// The mark of what the tunnel sends by the first uplink, and answers through it; the others' follow.
const FIRST_MARK: u32 = 0x726f_6700;
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
    pub(super) routing: Option<Routing>,
}

/// Where an uplink's answers are routed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Routing {
    pub(super) priority: u32,
    pub(super) by: By,
    /// The mark of the tunnel's packets, if there is one.
    pub(super) mark: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// By a table of the host's, which has a rule for the address.
    Host(u32),
    /// By the main table, but for its default route: that is the interface's own, in a table of ours.
    Interface(String, Route),
}

/// An interface of the host on which forwarding is off, in one family.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Forwarding {
    pub(super) v6: bool,
    pub(super) interface: String,
}

impl Forwarding {
    /// The sysctl that is to be 1.
    pub(super) fn key(&self) -> String {
        match self.v6 {
            false => format!("net/ipv4/conf/{}/forwarding", self.interface),
            // Since Linux 6.17 one interface may forward without making the host a router, which ignores
            // router advertisements.
            true => format!("net/ipv6/conf/{}/force_forwarding", self.interface),
        }
    }
}

/// The set-up, before anything is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The public addresses; path i of the engine is the i-th.
    pub uplinks: Vec<Uplink>,
    /// Queues of each device.
    pub queues: usize,
    /// Interfaces where forwarding has to be switched on: packets for an address may arrive at any.
    pub(super) forwarding: BTreeSet<Forwarding>,
    /// Whether there is a tunnel for what isn't TCP.
    pub tunnel: bool,
    /// Ports that lead to proxies through it.
    pub inbound: Vec<Forward>,
}

/// The i-th pair of addresses between the kernel and the engine.
fn pair(index: usize, v6: bool) -> (IpAddr, IpAddr) {
    let at = 2 * index as u16;
    let v4 = |last: u16| IpAddr::from(Ipv4Addr::new(10, 126, 64, last as u8));
    let six = |last: u16| IpAddr::from(Ipv6Addr::new(0xfd72, 0x6f70, 0x65, 0x7640, 0, 0, 0, last));
    if v6 { (six(at + 2), six(at + 3)) } else { (v4(at), v4(at + 1)) }
}

/// Why an address can't be used.
fn no_such_address(address: IpAddr, host: &Host) -> io::Error {
    let usable = |known: &&HostAddress| {
        !known.address.is_loopback() && !matches!(known.address, IpAddr::V6(v6) if v6.is_unicast_link_local())
    };
    let known: Vec<String> =
        host.addresses().iter().filter(usable).map(|known| known.address.to_string()).collect();
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
        let host = Host::read()?;
        let mut uplinks: Vec<Uplink> = Vec::new();
        for listener in listeners {
            let address = listener.ip();
            if let Some(known) = uplinks.iter_mut().find(|uplink| uplink.public.address == address) {
                known.ports.insert(listener.port());
                continue;
            }
            let is_it = |known: &&HostAddress| known.address == address && !address.is_loopback();
            let public = host.addresses().iter().find(is_it);
            let public = public.cloned().ok_or_else(|| no_such_address(address, &host))?;
            let (kernel, engine) = pair(uplinks.len(), address.is_ipv6());
            let device = format!("{DEVICE}{}", uplinks.len());
            let public = HostAddress { mtu: public.mtu.min(LARGEST_MTU), ..public };
            let ports = BTreeSet::from([listener.port()]);
            uplinks.push(Uplink { public, ports, device, engine, kernel, routing: None });
        }
        if uplinks.len() > MOST_ADDRESSES {
            let message = format!("{} addresses: {MOST_ADDRESSES} at most are possible", uplinks.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let plan = Plan { uplinks, queues, forwarding: BTreeSet::new(), tunnel: false, inbound: Vec::new() };
        if plan.has_family(true) && !is_forwarding("all", true) && !has_force_forwarding() {
            return Err(io::Error::other(
                "IPv6 forwarding is off: `sysctl -w net.ipv6.conf.all.forwarding=1` (and accept_ra=2 on \
                 interfaces that have \
                 their routes from router advertisements)",
            ));
        }
        Ok(plan.as_of(&host))
    }

    fn has_family(&self, v6: bool) -> bool {
        self.uplinks.iter().any(|uplink| uplink.public.address.is_ipv6() == v6)
    }

    /// The same with a tunnel for what isn't TCP, or without.
    ///
    /// # Errors
    /// If the host can't be asked.
    pub fn with_tunnel(mut self, tunnel: bool) -> io::Result<Plan> {
        self.tunnel = tunnel;
        Ok(self.as_of(&Host::read()?))
    }

    /// The same with ports that lead to proxies.
    pub fn with_inbound(mut self, inbound: Vec<Forward>) -> Plan {
        self.inbound = inbound;
        self
    }

    /// Whether packets of a family are forwarded, for listeners or for the tunnel.
    fn forwards(&self, v6: bool) -> bool {
        let may_tunnel = || !v6 || has_force_forwarding() && new_devices_have_v6();
        self.has_family(v6) || self.tunnel && may_tunnel()
    }

    /// The plan for the host as it is now. Where this plan has switched forwarding on, it stays so, unless
    /// the host forwards by now.
    pub(super) fn as_of(&self, host: &Host) -> Plan {
        let mut plan = self.clone();
        plan.forwarding.clear();
        for v6 in [false, true].into_iter().filter(|v6| self.forwards(*v6)) {
            let family = if v6 { "ipv6" } else { "ipv4" };
            if read_sysctl(&format!("net/{family}/conf/all/forwarding")).is_none_or(|value| value != "0") {
                // An administrator, or Docker, may set single interfaces apart.
                let off = host.interfaces().iter().filter(|one| !v6 && !is_forwarding(&one.name, v6));
                let off = off.filter(|one| !is_own_device(&one.name) && one.name != "lo");
                plan.forwarding.extend(off.map(|one| Forwarding { v6, interface: one.name.clone() }));
                continue;
            }
            for Interface { name, .. } in host.interfaces() {
                let forwarding = Forwarding { v6, interface: name.clone() };
                let is_wanted = name != "lo" && !is_own_device(name);
                if is_wanted && (self.forwarding.contains(&forwarding) || !is_forwarding(name, v6)) {
                    plan.forwarding.insert(forwarding);
                }
            }
        }
        plan.route_answers(host);
        plan
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

    /// Answers leave through the interface that has the address. The main table does that for a host with one
    /// uplink, and for the uplink of its default route.
    fn route_answers(&mut self, host: &Host) {
        let is_alone = self.uplinks.len() < 2;
        let tunnel = self.tunnel;
        for (uplink, priority) in self.uplinks.iter_mut().zip(GATEWAY_TABLES) {
            let (interface, v6) = (uplink.public.interface.as_str(), uplink.public.address.is_ipv6());
            let by = match host.table_of_source(uplink.public.address) {
                _ if is_alone => None,
                Some(table) => Some(By::Host(table)),
                None if host.default_interface(v6) == Some(interface) => None,
                // The address of a bridge or a dummy device has no way out of its own: the main table's.
                None => host.default_route(interface, v6).map(|route| By::Interface(interface.into(), route)),
            };
            let mark = tunnel.then_some(FIRST_MARK + priority - GATEWAY_TABLES.start);
            uplink.routing = by.map(|by| Routing { priority, by, mark });
        }
    }

    /// The steps in their order, each with what undoes it. The devices are made before.
    pub fn steps(&self) -> Vec<(Step, Vec<Step>)> {
        let mut steps = Vec::new();
        for uplink in &self.uplinks {
            steps.extend(uplink.device_steps().into_iter().map(|step| (step, vec![])));
            steps.extend(uplink.routing_steps());
        }
        steps.extend(self.tunnel_steps().into_iter().map(|step| (step, vec![])));
        // The rules guard and remember what is switched on, so they come first; they are removed last.
        steps.push((Step::ruleset(self.ruleset()), vec![Step::delete_table(TABLE), remove_notes(PROTOCOL)]));
        steps.extend(self.notes().map(|note| (note, vec![])));
        let off = |one: &Forwarding| (Step::sysctl(one.key(), "1"), vec![Step::sysctl(one.key(), "0")]);
        steps.extend(self.forwarding.iter().map(off));
        steps
    }

    /// The steps that note what sysctls were.
    pub(super) fn notes(&self) -> impl Iterator<Item = Step> + '_ {
        self.forwarding.iter().filter_map(|one| note(&one.key(), "0", PROTOCOL))
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
                "device": device, "queues": self.queues, "address": engine, "public": address,
                "interface": interface,
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
            let rules = uplink.to_engine().into_iter().next().into_iter().chain(uplink.marks_own());
            rules.for_each(|rule| text += &format!("    {rule}\n"));
        }
        let _ = writeln!(text, "  }}\n  chain to_this_host {{");
        let _ = writeln!(text, "    type filter hook input priority raw; policy accept;");
        for uplink in &self.uplinks {
            let _ = writeln!(text, "    iifname \"{}\" {}", uplink.device, uplink.to_public());
        }
        if self.tunnel {
            // By TCP the tunnel carries nothing but the answers of ports that lead to proxies.
            let _ = writeln!(text, "    iifname \"{FAR_DEVICE}\" meta l4proto tcp drop");
        }
        let _ = writeln!(text, "  }}\n  chain forwarded {{");
        let _ = writeln!(text, "    type filter hook forward priority filter; policy accept;");
        if self.tunnel {
            // Into the tunnel go answers, and from one proxy nothing goes to another. Proxies' hosts answer
            // by TCP, and begin nothing.
            let _ = writeln!(text, "    iifname \"{FAR_DEVICE}\" oifname \"{FAR_DEVICE}\" drop");
            let is_new = "ct state != { established, related }";
            let _ = writeln!(text, "    iifname \"{FAR_DEVICE}\" meta l4proto tcp {is_new} drop");
            if !self.inbound.is_empty() {
                let size = format!("tcp flags & syn == syn tcp option maxseg size set {LARGEST_SEGMENT}");
                let _ = writeln!(text, "    oifname \"{FAR_DEVICE}\" {size}");
                let _ = writeln!(text, "    oifname \"{FAR_DEVICE}\" ct status dnat accept");
            }
            let _ = writeln!(text, "    oifname \"{FAR_DEVICE}\" {is_new} drop");
        }
        for v6 in [false, true] {
            let guarded = self.forwarding.iter().filter(|one| one.v6 == v6);
            let guarded: Vec<String> = guarded.map(|one| format!("\"{}\"", one.interface)).collect();
            if !guarded.is_empty() {
                text += &guard(v6, &format!("iifname {{ {} }}", guarded.join(", ")));
            }
        }
        let _ = writeln!(text, "  }}\n  chain leaving {{");
        let _ = writeln!(text, "    type filter hook postrouting priority raw; policy accept;");
        for uplink in &self.uplinks {
            let _ = writeln!(text, "    {}", uplink.to_public());
        }
        text.push_str("  }\n");
        if self.tunnel {
            if !self.inbound.is_empty() {
                let _ = writeln!(text, "  chain answers {{");
                let _ = writeln!(text, "    type filter hook prerouting priority mangle; policy accept;");
                let rules = self.uplinks.iter().filter_map(Uplink::marks_answers);
                rules.for_each(|rule| text += &format!("    {rule}\n"));
                text.push_str("  }\n");
                let _ = writeln!(text, "  chain inbound {{");
                let _ = writeln!(text, "    type nat hook prerouting priority dstnat; policy accept;");
                for Forward { address, ports, to } in &self.inbound {
                    let family = if address.is_ipv6() { "ip6" } else { "ip" };
                    let condition = format!("{family} daddr {address} {}", ports.condition());
                    let _ =
                        writeln!(text, "    iifname != \"{FAR_DEVICE}\" {condition} dnat {family} to {to}");
                }
                text.push_str("  }\n");
            }
            let _ = writeln!(text, "  chain masqueraded {{");
            let _ = writeln!(text, "    type nat hook postrouting priority srcnat; policy accept;");
            // Who has a port of UDP gets what comes to it: others' flows leave by other ports.
            for Forward { ports, to, .. } in &self.inbound {
                if let (Some((first, last)), Some((low, high))) = (ports.of_udp(), others(&self.inbound)) {
                    let (family, network) = match to.is_ipv6() {
                        false => ("ip", Inner::NETWORKS[0]),
                        true => ("ip6", Inner::NETWORKS[1]),
                    };
                    let what =
                        format!("{family} saddr {network} {family} saddr != {to} udp sport {first}-{last}");
                    let _ =
                        writeln!(text, "    {what} oifname != \"{FAR_DEVICE}\" masquerade to :{low}-{high}");
                }
            }
            for (family, network) in ["ip", "ip6"].iter().zip(Inner::NETWORKS) {
                let _ = writeln!(text, "    {family} saddr {network} oifname != \"{FAR_DEVICE}\" masquerade");
            }
            text.push_str("  }\n");
        }
        let keys: Vec<String> = self.forwarding.iter().map(Forwarding::key).collect();
        text += &remember(keys.iter().map(|key| (key.as_str(), "0")));
        text.push_str("}\n");
        text
    }

    /// The steps of the tunnel's device. What hangs on it vanishes with the process.
    pub(super) fn tunnel_steps(&self) -> Vec<Step> {
        if !self.tunnel {
            return Vec::new();
        }
        let (own, mut steps) = (Inner::of(0), Vec::new());
        let has_v6 = std::path::Path::new("/proc/sys/net/ipv6").exists();
        if has_v6 {
            steps.push(Step::ip(&format!("link set dev {FAR_DEVICE} addrgenmode none")));
        }
        steps.push(Step::ip(&format!("link set dev {FAR_DEVICE} mtu {MTU} up")));
        steps.push(Step::ip(&format!("address replace {}/16 dev {FAR_DEVICE}", own.v4)));
        steps.push(Step::sysctl(format!("net/ipv4/conf/{FAR_DEVICE}/forwarding"), "1"));
        if new_devices_have_v6() && self.forwards(true) {
            steps.push(Step::ip(&format!("address replace {}/64 dev {FAR_DEVICE} nodad", own.v6)));
            if has_force_forwarding() {
                steps.push(Step::sysctl(format!("net/ipv6/conf/{FAR_DEVICE}/force_forwarding"), "1"));
            }
        }
        steps
    }

    /// Makes the devices, with their queues. An earlier gateway that lets its connections end is waited for.
    ///
    /// # Errors
    /// If another gateway runs.
    pub async fn take_devices(&self) -> io::Result<(Vec<Vec<TunDevice>>, Claim)> {
        let names: Vec<&str> = self.uplinks.iter().map(|uplink| uplink.device.as_str()).collect();
        let (devices, claim) = claim::take("gateway", &names, self.queues).await?;
        Ok((
            devices.into_iter().map(|queues| queues.into_iter().map(TunDevice::new).collect()).collect(),
            claim,
        ))
    }
}

impl Uplink {
    /// The protocol's name in nftables.
    fn family(&self) -> &'static str {
        if self.public.address.is_ipv6() { "ip6" } else { "ip" }
    }

    /// The rules that give packets the engine's address: TCP first, then the routers' word that a packet was
    /// too big.
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

    /// The rule that marks what the tunnel itself sends from here. A table of the host's is found without.
    fn marks_own(&self) -> Option<String> {
        let Routing { by: By::Interface(..), mark: Some(mark), .. } = self.routing.as_ref()? else {
            return None;
        };
        let (family, public) = (self.family(), self.public.address);
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        let of = |ports| format!("{family} saddr {public} udp sport {{ {ports} }} meta mark set {mark:#x}");
        (!ports.is_empty()).then(|| of(ports.join(", ")))
    }

    /// The rule that marks answers of hosts behind a proxy which ports of this address lead to.
    fn marks_answers(&self) -> Option<String> {
        let (family, mark) = (self.family(), self.routing.as_ref()?.mark?);
        Some(format!(
            "iifname \"{FAR_DEVICE}\" ct direction reply ct status dnat ct original {family} daddr {} \
             meta mark set {mark:#x}",
            self.public.address
        ))
    }

    /// The table that answers are routed by, and what holds of it.
    pub(super) fn table(&self) -> Option<u32> {
        self.routing.as_ref().map(|routing| match routing.by {
            By::Host(table) => table,
            By::Interface(..) => routing.priority,
        })
    }

    /// The sysctls of the device that have to be 1.
    pub(super) fn device_keys(&self) -> Vec<String> {
        let v6 = self.kernel.is_ipv6();
        if v6 && !has_force_forwarding() {
            // The host forwards IPv6 as a whole.
            return Vec::new();
        }
        vec![Forwarding { v6, interface: self.device.clone() }.key()]
    }

    /// The network of the device's two addresses.
    pub(super) fn pair(&self) -> IpNet {
        let length = if self.kernel.is_ipv6() { 127 } else { 31 };
        IpNet::new(self.kernel, length).expect("no longer than an address").trunc()
    }

    /// The device's steps. It and what hangs on it vanish with the process.
    pub(super) fn device_steps(&self) -> Vec<Step> {
        let (device, kernel, mtu) = (&self.device, self.kernel, self.public.mtu);
        let (length, nodad) = if kernel.is_ipv6() { (127, " nodad") } else { (31, "") };
        let mut steps = Vec::new();
        if std::path::Path::new("/proc/sys/net/ipv6").exists() {
            // Not by its sysctl: in a container /proc/sys can't be written.
            steps.push(Step::ip(&format!("link set dev {device} addrgenmode none")));
        }
        steps.push(Step::ip(&format!("link set dev {device} mtu {mtu} txqueuelen 10000 up")));
        steps.push(Step::ip(&format!("address replace {kernel}/{length} dev {device}{nodad}")));
        steps.extend(self.device_keys().into_iter().map(|key| Step::sysctl(key, "1")));
        steps
    }

    /// The steps that route answers, each with what undoes it.
    pub(super) fn routing_steps(&self) -> Vec<(Step, Vec<Step>)> {
        let Some(Routing { priority, by, mark }) = &self.routing else { return Vec::new() };
        let (device, v6) = (&self.device, self.kernel.is_ipv6());
        let family = if v6 { "-6" } else { "-4" };
        // What comes from the engine, and what the tunnel's packets are marked with.
        let which = [Some(format!("iif {device}")), mark.map(|mark| format!("fwmark {mark:#x}"))];
        let rules = |what: String| {
            let words =
                which.iter().flatten().map(move |which| format!("{which} {what} protocol {PROTOCOL}"));
            words.map(|words| {
                let delete = Step::ip(&format!("{family} rule del {words}"));
                (Step::ip(&format!("{family} rule add {words}")), vec![delete])
            })
        };
        match by {
            By::Host(table) => rules(format!("lookup {table} priority {priority}")).collect(),
            By::Interface(interface, route) => {
                let route = route.words(interface, v6);
                let add = format!("{family} route add default {route} table {priority} proto {PROTOCOL}");
                let flush = format!("{family} route flush table {priority} proto {PROTOCOL}");
                // As the kernel answers for itself: to neighbours, and by routes to single networks.
                let neighbours = rules(format!("lookup main suppress_prefixlength 0 priority {NEIGHBOURS}"));
                let own = rules(format!("lookup {priority} priority {priority}"));
                std::iter::once((Step::ip(&add), vec![Step::ip(&flush)]))
                    .chain(neighbours)
                    .chain(own)
                    .collect()
            }
        }
    }
}
