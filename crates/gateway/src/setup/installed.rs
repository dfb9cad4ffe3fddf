//! A gateway's set-up as it was carried out. Other programs may undo parts of it (`nft flush ruleset`, a
//! firewall that is restarted, `sysctl -w net.ipv4.ip_forward=0`, a DHCP client that flushes routes): it is
//! kept as it has to be.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use ropewalk_tokio::{Path, TunDevice};

use super::claim::{self, Claim};
use super::conntrack::{Tracked, forget, forget_untranslated};
use super::gateway::{By, NEIGHBOURS, PROTOCOL, Plan, TABLE, Uplink};
use super::{Host, Step, Undo, clean, listing, read_sysctl, remove_notes, repaired};
use crate::tunnel::ports::Forward;
use crate::tunnel::{FAR_DEVICE, Inner};

/// The set-up. Dropping it removes it; the devices go with their descriptors.
#[derive(Debug)]
pub struct Installed {
    plan: Plan,
    /// The rules, as nftables lists them.
    listing: Option<String>,
    /// Given up last.
    _claim: Claim,
}

impl Plan {
    /// Sets up everything but the devices, which are there. What a killed gateway left is removed, and the
    /// plan made anew without it.
    ///
    /// # Errors
    /// If a step fails: what was done is undone.
    pub fn apply(&self, devices: Vec<Vec<TunDevice>>, claim: Claim) -> io::Result<(Installed, Vec<Path>)> {
        let path = |(uplink, device): (&Uplink, _)| {
            let path = Path::with_queues(device, uplink.engine);
            path.known_as(uplink.public.address).mtu(uplink.public.mtu)
        };
        let paths = self.uplinks.iter().zip(devices).map(path).collect();
        if clean(TABLE, PROTOCOL) {
            tracing::info!(target: "ropewalk::setup", "removed what an earlier gateway had left");
        }
        // After the devices were taken, and what was left is gone: only now the host is as this gateway finds
        // it.
        let plan = Plan::new(&self.sockets().collect::<Vec<_>>(), self.queues)?.with_tunnel(self.tunnel)?;
        let plan = plan.with_inbound(self.inbound.clone());
        Ok((Installed::new(plan, claim)?, paths))
    }
}

impl Installed {
    /// Carries out a plan, whose devices are there.
    ///
    /// # Errors
    /// If a step fails: what was done is undone.
    pub(super) fn new(plan: Plan, claim: Claim) -> io::Result<Installed> {
        let mut undo = Undo::default();
        let routes: Vec<Step> =
            plan.uplinks.iter().flat_map(Uplink::routing_steps).map(|(step, _)| step).collect();
        for (step, reverse) in plan.steps() {
            match undo.run(&step, reverse) {
                // An interface may go down at this moment: that it changed is heard, and followed.
                Err(error) if routes.contains(&step) => {
                    tracing::warn!(target: "ropewalk::setup", %error, "no route for answers");
                }
                done => done?,
            }
        }
        undo.forget();
        forget_others(&plan);
        Ok(Installed { plan, listing: listing(TABLE), _claim: claim })
    }

    /// What is set up.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Says that connections are ending: the next gateway waits.
    pub fn mark_draining(&self) {
        self.plan.uplinks.first().into_iter().for_each(|first| claim::mark_draining(&first.device));
    }

    /// Checks that the devices are there.
    ///
    /// # Errors
    /// If one was removed: the gateway has to end.
    pub fn check(&self, host: &Host) -> io::Result<()> {
        let tunnel = self.plan.tunnel.then_some(FAR_DEVICE);
        claim::check_devices(
            host,
            self.plan.uplinks.iter().map(|uplink| uplink.device.as_str()).chain(tunnel),
        )
    }

    /// Takes the packets of these listeners, and of no other.
    ///
    /// # Errors
    /// As [`Plan::with_ports`], or if the rules are refused.
    pub fn set_ports(&mut self, listeners: &[SocketAddr]) -> io::Result<()> {
        let plan = self.plan.with_ports(listeners)?;
        if plan != self.plan {
            self.replace_rules(plan)?;
        }
        Ok(())
    }

    /// Leads these ports to proxies, and no others.
    ///
    /// # Errors
    /// If the rules are refused.
    pub fn set_inbound(&mut self, inbound: Vec<Forward>) -> io::Result<()> {
        let plan = self.plan.clone().with_inbound(inbound);
        if plan != self.plan {
            self.replace_rules(plan)?;
            forget_others(&self.plan);
        }
        Ok(())
    }

    fn replace_rules(&mut self, plan: Plan) -> io::Result<()> {
        Step::ruleset(plan.ruleset()).run()?;
        remove_notes(PROTOCOL).run()?;
        plan.notes().try_for_each(|note| note.run())?;
        self.listing = listing(TABLE);
        self.plan = plan;
        Ok(())
    }

    /// Follows the host's network, and repairs what another program undid. `rules`: what nftables lists now,
    /// if it was asked.
    ///
    /// # Errors
    /// The first step that fails. The next call tries again.
    pub fn keep(&mut self, host: &Host, rules: Option<Option<String>>) -> io::Result<()> {
        let plan = self.plan.as_of(host);
        // They may have gone before they were listed first.
        let are_gone = rules.is_some_and(|rules| rules.is_none() || rules != self.listing);
        if are_gone {
            repaired("nftables' rules");
        }
        let old = self.plan.clone();
        if are_gone || plan.ruleset() != old.ruleset() {
            self.replace_rules(plan.clone())?;
        }
        if are_gone {
            let inner: Vec<IpAddr> = plan.uplinks.iter().map(|uplink| uplink.kernel).collect();
            forget_untranslated(host, &inner);
        }
        self.plan.clone_from(&plan);
        for (uplink, was) in plan.uplinks.iter().zip(&old.uplinks) {
            if !has_device(host, uplink) {
                repaired(&format!("the address or route of {}", uplink.device));
                uplink.device_steps().iter().try_for_each(Step::run)?;
                let (pair, device) = (uplink.pair(), &uplink.device);
                let family = if uplink.kernel.is_ipv6() { "-6" } else { "-4" };
                Step::ip(&format!("{family} route replace {pair} dev {device}")).run()?;
            }
            let is_same = was.routing == uplink.routing;
            if is_same && has_routing(host, uplink) {
                continue;
            }
            if is_same {
                repaired(&format!("the routes for answers from {}", uplink.public.address));
            }
            // Parts of it may be gone.
            let undo = was.routing_steps().into_iter().rev().flat_map(|(_, undo)| undo);
            undo.for_each(|step| drop(step.run()));
            uplink.routing_steps().iter().try_for_each(|(step, _)| step.run())?;
        }
        let own: IpAddr = Inner::of(0).v4.into();
        if plan.tunnel && !host.addresses().iter().any(|known| known.address == own) {
            repaired("the addresses of the tunnel's device");
            plan.tunnel_steps().iter().try_for_each(Step::run)?;
        }
        for one in &plan.forwarding {
            keep_sysctl(&one.key(), old.forwarding.contains(one))?;
        }
        plan.uplinks.iter().flat_map(Uplink::device_keys).try_for_each(|key| keep_sysctl(&key, true))
    }

    /// Undoes the set-up.
    fn remove(&mut self) {
        let mut undo = Undo::default();
        for (_, reverse) in self.plan.steps() {
            reverse.into_iter().for_each(|step| undo.remember(step));
        }
        undo.undo();
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Has the kernel forget flows to ports that don't lead where they go, and flows of other proxies that
/// leave by a port that one has. What can't be forgotten ends by itself when nothing comes.
fn forget_others(plan: &Plan) {
    if !plan.tunnel {
        return;
    }
    let is_inner = |address: IpAddr| {
        let networks = Inner::NETWORKS.iter().filter_map(|network| network.parse::<IpNet>().ok());
        networks.into_iter().any(|network| network.contains(&address))
    };
    let owner = |address: IpAddr, protocol: u8, port: u16| {
        let fits = |one: &&Forward| one.address == address && one.ports.has(protocol, port);
        plan.inbound.iter().find(fits).map(|one| one.to)
    };
    let done = forget(|Tracked { original, reply }| {
        let leads = is_inner(reply.source) && original.destination != reply.source;
        let leaves = is_inner(original.source) && original.source != reply.destination;
        let [_, asked] = original.ports;
        let [_, answered] = reply.ports;
        let wanted = owner(original.destination, original.protocol, asked);
        (leads || wanted.is_some()) && wanted != Some(reply.source)
            || leaves
                && owner(reply.destination, reply.protocol, answered)
                    .is_some_and(|one| one != original.source)
    });
    if let Err(error) = done {
        tracing::warn!(target: "ropewalk::setup", %error, "flows of ports that lead elsewhere now go on");
    }
}

fn keep_sysctl(key: &str, was_set: bool) -> io::Result<()> {
    match read_sysctl(key) {
        // The interface is gone.
        None => return Ok(()),
        Some(value) if value != "0" => return Ok(()),
        Some(_) => {}
    }
    if was_set {
        repaired(&format!("sysctl {key}"));
    }
    Step::sysctl(key, "1").run()
}

/// Whether an uplink's device has its address, and the route to the engine.
fn has_device(host: &Host, uplink: &Uplink) -> bool {
    let has_address = host.addresses().iter().any(|known| known.address == uplink.kernel);
    has_address && host.has_pair(uplink.pair(), &uplink.device)
}

/// Whether the rules and the route for an uplink's answers are there.
fn has_routing(host: &Host, uplink: &Uplink) -> bool {
    let (Some(routing), Some(table)) = (&uplink.routing, uplink.table()) else { return true };
    let v6 = uplink.kernel.is_ipv6();
    let has_rule = |priority, table| {
        let is_marked = routing.mark.is_none() || host.has_rule(priority, table, v6, None);
        is_marked && host.has_rule(priority, table, v6, Some(&uplink.device))
    };
    let has_own = match &routing.by {
        By::Host(_) => true,
        By::Interface(interface, route) => {
            host.has_default(table, interface, v6, *route) && has_rule(NEIGHBOURS, super::MAIN_TABLE)
        }
    };
    has_own && has_rule(routing.priority, table)
}
