//! What leads ports of the gateway's addresses to hosts behind the proxy.

use std::fmt::Write;
use std::io;

use super::Uplinks;
use super::tunnel::TUNNEL_MARK;
use crate::tunnel::ports::PortTarget;
use crate::tunnel::{LARGEST_SEGMENT, NEAR_DEVICE};

/// What isn't an answer, nor to a port that leads to a host.
pub(super) fn unasked() -> String {
    format!(
        "iifname \"{NEAR_DEVICE}\" ct state != {{ established, related }} ct mark != {TUNNEL_MARK} drop\n"
    )
}

impl Uplinks {
    /// The same with ports that lead to hosts.
    pub fn with_inbound(mut self, inbound: Vec<PortTarget>) -> Uplinks {
        self.inbound = inbound;
        self
    }

    /// Leads these ports to hosts, and no others. Flows that are there go on.
    ///
    /// # Errors
    /// If the rules are refused.
    pub fn set_inbound(&mut self, inbound: Vec<PortTarget>) -> io::Result<()> {
        if self.inbound == inbound {
            return Ok(());
        }
        self.inbound = inbound;
        self.replace_rules()
    }

    /// Rules for what arrives, what is forwarded, destinations, and what this host answers itself: all
    /// answers go back through the tunnel.
    pub(super) fn inbound_rules(&self) -> [String; 4] {
        let mut chains = <[String; 4]>::default();
        if self.inbound.is_empty() || !self.taken.datagrams {
            return chains;
        }
        let [arriving, forward, destinations, own] = &mut chains;
        // What networks behind the proxy send one another may have the mark, too, but has no other address.
        let answers = format!("ct direction reply ct status dnat ct mark {TUNNEL_MARK}");
        for asked in &self.inbound {
            let (family, protocol) = if asked.host.is_ipv6() { ("ip6", "ipv6") } else { ("ip", "ipv4") };
            let what =
                format!("    iifname \"{NEAR_DEVICE}\" meta nfproto {protocol} {}", asked.ports.condition());
            let _ = writeln!(arriving, "{what} ct state new ct mark set {TUNNEL_MARK}");
            let _ = writeln!(destinations, "{what} dnat {family} to {}", asked.destination());
        }
        let _ = writeln!(arriving, "    iifname != \"{NEAR_DEVICE}\" {answers} meta mark set {TUNNEL_MARK}");
        let _ = writeln!(own, "    {answers} meta mark set {TUNNEL_MARK}");
        let elsewhere = format!("iifname != \"{NEAR_DEVICE}\" oifname != \"{NEAR_DEVICE}\"");
        let _ = writeln!(forward, "    {elsewhere} {answers} drop");
        let size = format!("tcp flags & syn == syn tcp option maxseg size set {LARGEST_SEGMENT}");
        let _ = writeln!(forward, "    oifname \"{NEAR_DEVICE}\" {size}");
        chains
    }
}
