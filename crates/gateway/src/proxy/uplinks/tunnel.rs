//! What leads packets into the tunnel for datagrams, while there is one.

use std::io;
use std::net::IpAddr;

use super::{PROTOCOL, Uplinks};
use crate::setup::{Host, PROXY_TABLES, Route, Step, has_force_forwarding, new_devices_have_v6, repaired};
use crate::tunnel::{Inner, MTU, NEAR_DEVICE};

/// The mark of what goes through the tunnel, the table that leads there, and the priority of the rule by
/// which neighbours come before.
pub(super) const TUNNEL_MARK: &str = "0x726f7064";
const TUNNEL: u32 = PROXY_TABLES.end - 2;
const NEIGHBOURS: u32 = TUNNEL - 1;

/// The tunnel's device; what hangs on it vanishes with it.
pub(super) fn device_steps(v6: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    if v6 {
        steps.push(Step::ip(&format!("link set dev {NEAR_DEVICE} addrgenmode none")));
    }
    steps.push(Step::ip(&format!("link set dev {NEAR_DEVICE} mtu {MTU} up")));
    let mut keys = vec![(format!("net/ipv4/conf/{NEAR_DEVICE}/forwarding"), "1")];
    // Answers come from anywhere, though the main table's routes lead elsewhere.
    keys.push((format!("net/ipv4/conf/{NEAR_DEVICE}/rp_filter"), "2"));
    if v6 && has_force_forwarding() {
        keys.push((format!("net/ipv6/conf/{NEAR_DEVICE}/force_forwarding"), "1"));
    }
    steps.extend(keys.into_iter().map(|(key, value)| Step::sysctl(key, value)));
    steps
}

/// What leads into the tunnel while there is one.
fn route_steps(v6: bool, inner: Inner) -> Vec<(Step, Vec<Step>)> {
    let (family, address) = if v6 {
        ("-6", format!("{}/128 dev {NEAR_DEVICE} nodad", inner.v6))
    } else {
        ("-4", format!("{}/32 dev {NEAR_DEVICE}", inner.v4))
    };
    let step = |words: String| Step::ip(&format!("{family} {words}"));
    let rule = |words: String| {
        let words = format!("{words} fwmark {TUNNEL_MARK} protocol {PROTOCOL}");
        (step(format!("rule add {words}")), vec![step(format!("rule del {words}"))])
    };
    let delete = address.trim_end_matches(" nodad");
    vec![
        (step(format!("address replace {address}")), vec![step(format!("address del {delete}"))]),
        (
            step(format!("route replace default dev {NEAR_DEVICE} table {TUNNEL} proto {PROTOCOL}")),
            vec![step(format!("route flush table {TUNNEL} proto {PROTOCOL}"))],
        ),
        rule(format!("priority {NEIGHBOURS} lookup main suppress_prefixlength 0")),
        rule(format!("priority {TUNNEL} lookup {TUNNEL}")),
    ]
}

impl Uplinks {
    /// Whether the tunnel takes IPv6: the networks behind the proxy may have it though no uplink has. Without
    /// `force_forwarding` the host would have to become a router of IPv6 altogether.
    pub(super) fn tunnel_v6(&self) -> bool {
        (self.has_had_v6 || has_force_forwarding()) && new_devices_have_v6()
    }

    fn tunnel_families(&self) -> &'static [bool] {
        if self.tunnel_v6() { &[false, true] } else { &[false] }
    }

    /// Leads what isn't TCP into the tunnel, which has given these addresses; `None`: to the kernel's routes.
    ///
    /// # Errors
    /// If a step fails. What the other family needs is done all the same.
    pub fn set_tunnel(&mut self, inner: Option<Inner>) -> io::Result<()> {
        if self.inner == inner {
            return Ok(());
        }
        if let Some(old) = self.inner.take() {
            // IPv6 may have been switched off since.
            let steps = [false, true].into_iter().flat_map(|v6| route_steps(v6, old));
            self.undo.undo_these(&steps.flat_map(|(_, undo)| undo).collect::<Vec<_>>());
        }
        let mut led = Ok(());
        for v6 in self.tunnel_families() {
            let mut steps = inner.into_iter().flat_map(|new| route_steps(*v6, new));
            led = led.and(steps.try_for_each(|(step, undo)| self.undo.run(&step, undo)));
        }
        self.inner = inner;
        self.replace_rules()?;
        if inner.is_some() {
            // Calls that began before it enter it.
            self.forget_untranslated(&Host::read()?);
        }
        led
    }

    /// Repairs what leads into the tunnel.
    pub(super) fn keep_tunnel(&mut self, host: &Host) -> io::Result<()> {
        let Some(inner) = self.inner else { return Ok(()) };
        for v6 in self.tunnel_families() {
            let address: IpAddr = if *v6 { inner.v6.into() } else { inner.v4.into() };
            let has_address = host.addresses().iter().any(|known| known.address == address);
            let has_rules = host.has_rule(TUNNEL, TUNNEL, *v6, None);
            if has_address && has_rules && host.has_default(TUNNEL, NEAR_DEVICE, *v6, Route::Direct) {
                continue;
            }
            repaired("what leads into the tunnel");
            let steps = route_steps(*v6, inner);
            steps.iter().rev().flat_map(|(_, undo)| undo).for_each(|step| drop(step.run()));
            // IPv6 may be new.
            steps.into_iter().try_for_each(|step| self.undo.repair(step))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Taken, Uplinks};
    use super::*;

    #[test]
    fn what_isnt_tcp_goes_through_the_tunnel_while_there_is_one() {
        let taken = Taken { transparent: vec!["eth1".into()], port: 1081, names: false, datagrams: true };
        let mut uplinks = Uplinks::new(Vec::new(), false, taken);
        let always = [
            "iifname \"rope-dg-proxy\" ct state != { established, related } ct mark != 0x726f7064 drop",
            "oifname \"rope-dg-proxy\" meta mark != 0x726f7064 drop",
        ];
        let then = [
            "ct mark set 0x726f7064 return",
            "meta l4proto != tcp ct mark { 0x726f7064, 0x726f7070-0x726f7077 } meta mark set ct mark",
            "oifname \"rope-dg-proxy\" masquerade",
        ];
        let rules = uplinks.nftables();
        assert!(always.iter().all(|rule| rules.contains(rule)), "{rules}");
        assert!(then.iter().all(|rule| !rules.contains(rule)), "{rules}");
        uplinks.inner = Some(Inner::of(1));
        let rules = uplinks.nftables();
        assert!(always.iter().chain(&then).all(|rule| rules.contains(rule)), "{rules}");
        let steps: Vec<String> =
            route_steps(false, Inner::of(1)).iter().map(|(step, _)| step.to_string()).collect();
        assert_eq!(
            steps,
            [
                "ip -4 address replace 198.18.0.2/32 dev rope-dg-proxy",
                "ip -4 route replace default dev rope-dg-proxy table 5262 proto 212",
                "ip -4 rule add priority 5261 lookup main suppress_prefixlength 0 fwmark 0x726f7064 \
                 protocol 212",
                "ip -4 rule add priority 5262 lookup 5262 fwmark 0x726f7064 protocol 212",
            ]
        );
    }
}
