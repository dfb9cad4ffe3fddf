//! What the kernel has to do for the proxy: one routing table, one rule and one masquerade for each uplink.
//!
//! The engine has one source address per uplink, behind a TUN device. The kernel forwards its packets: a rule
//! sends each source address to the uplink's own routing table, and nftables masquerades it there. The
//! engine's addresses are never the kernel's, so that no RST of the kernel answers for them.
//!
//! Nothing is left when the proxy ends: [`Uplinks::remove`] undoes it, and what a killed proxy has left is
//! removed by the next.

mod addresses;
mod direct;
mod port_forwarding;
mod ruleset;
mod sysctls;
mod tunnel;

pub use direct::direct_bytes;

use std::collections::BTreeMap;
use std::io;

use serde_json::json;

use self::addresses::Known;
use self::sysctls::Change;
use super::direct::Direct;
use super::link_addresses::pair;
pub use super::link_addresses::{MOST_LINKS, engine_v4, engine_v6, kernel_address};
use super::reach::{Addresses, Reach, Uplink, addresses};
use crate::setup::claim::{Claim, check_devices};
use crate::setup::conntrack::forget_untranslated;
use crate::setup::{
    Host, PROXY_TABLES, Preview, Route, Step, Undo, clean, has_force_forwarding, listing, read_sysctl,
    remove_notes, repaired,
};
use crate::tunnel::ports::PortTarget;
use crate::tunnel::{Inner, NEAR_DEVICE};

/// The nftables table.
pub const TABLE: &str = "ropewalk_proxy";
/// The routing protocol number of our routes and rules: `ip rule show protocol 212`.
const PROTOCOL: u8 = 212;
/// The mark of queries of the DNS that are handed over, and the table that keeps them on this host.
const MARK: &str = "0x726f7065";
const NAMES: u32 = PROXY_TABLES.end - 1;
/// The device of the proxy as a whole: links come and go.
pub const CLAIM: &str = "ropeproxy";
/// How the devices' names begin.
const DEVICE: &str = "ropeproxy";
/// The devices' MTU: what an interface took is taken.
const DEVICE_MTU: u32 = 65_535;

/// The TUN device of an uplink.
pub fn device(link: usize) -> String {
    format!("{DEVICE}{link}")
}

/// Without a route of its own an uplink's packets go nowhere, not over another uplink.
fn blackhole_step(link: usize, v6: bool) -> (Step, Vec<Step>) {
    let (family, table) = (if v6 { "-6" } else { "-4" }, table(link));
    let route =
        format!("{family} route replace blackhole default metric 1000000 table {table} proto {PROTOCOL}");
    let flush = format!("{family} route flush table {table} proto {PROTOCOL}");
    (Step::ip(&route), vec![Step::ip(&flush)])
}

/// The rule that sends an uplink's packets to its table.
fn rule_step(link: usize, v6: bool) -> (Step, Vec<Step>) {
    let (family, table, pair) = (if v6 { "-6" } else { "-4" }, table(link), pair(link, v6).trunc());
    let rule = format!("priority {table} from {pair} lookup {table} protocol {PROTOCOL}");
    let delete = Step::ip(&format!("{family} rule del {rule}"));
    (Step::ip(&format!("{family} rule add {rule}")), vec![delete])
}

/// Queries that are handed over stay on this host.
fn name_steps(v6: bool) -> [(Step, Vec<Step>); 2] {
    let family = if v6 { "-6" } else { "-4" };
    let rule = format!("priority {NAMES} fwmark {MARK} lookup {NAMES} protocol {PROTOCOL}");
    let route = format!("route replace local default dev lo table {NAMES} proto {PROTOCOL}");
    let flush = format!("route flush table {NAMES} proto {PROTOCOL}");
    let step = |words: &str| Step::ip(&format!("{family} {words}"));
    [
        (step(&route), vec![step(&flush)]),
        (step(&format!("rule add {rule}")), vec![step(&format!("rule del {rule}"))]),
    ]
}

fn table(link: usize) -> u32 {
    PROXY_TABLES.start + link as u32
}

/// What is taken from the kernel besides the engine's packets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// Interfaces whose connections are redirected.
    pub transparent: Vec<String>,
    /// The port to which.
    pub port: u16,
    /// Whether queries of the DNS are handed over to the same port of UDP.
    pub names: bool,
    /// Whether what isn't TCP may go through the tunnel, for which there is a device then.
    pub datagrams: bool,
}

/// What has changed of an uplink.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changed {
    /// Whether its routes are others, or were set anew.
    pub routes: bool,
    /// Whether its connections' address is gone, in IPv4 and IPv6.
    pub address: [bool; 2],
    /// Whether one of several addresses is gone, which the kernel may have chosen for some connections.
    pub one_of_several: [bool; 2],
}

/// The set-up of all uplinks. Dropping it undoes what was done; the TUN devices go with their descriptors.
#[derive(Debug)]
pub struct Uplinks {
    /// By the numbers of their devices.
    uplinks: BTreeMap<usize, Uplink>,
    v6: bool,
    /// Whether one has or had IPv6: then the host forwards it.
    has_had_v6: bool,
    taken: Taken,
    /// Sysctls beyond the proxy's own devices that are changed.
    changed: Vec<Change>,
    /// What the routing tables hold.
    reach: BTreeMap<usize, Reach>,
    /// What an uplink's interface has in a family, or had when it had any.
    addresses: BTreeMap<(usize, bool), Known>,
    /// The rules, as nftables lists them.
    listing: Option<String>,
    /// What it has that rules refer to by name; nothing, where that isn't known.
    objects: BTreeMap<String, String>,
    /// The addresses inside the tunnel, while there is one.
    inner: Option<Inner>,
    /// What goes past it.
    direct: Direct,
    /// Where ports of the gateway lead to, through it.
    inbound: Vec<PortTarget>,
    undo: Undo,
    /// Given up last.
    claim: Option<Claim>,
}

impl Uplinks {
    /// A set-up, of which nothing is done yet. `v6`: in IPv6 too, which an uplink may get later.
    pub fn new(uplinks: Vec<Uplink>, v6: bool, taken: Taken) -> Uplinks {
        let uplinks = uplinks.into_iter().enumerate().collect();
        Uplinks {
            uplinks,
            v6,
            has_had_v6: false,
            taken,
            changed: Vec::new(),
            reach: BTreeMap::new(),
            addresses: BTreeMap::new(),
            listing: None,
            objects: BTreeMap::new(),
            inner: None,
            direct: Direct::default(),
            inbound: Vec::new(),
            undo: Undo::default(),
            claim: None,
        }
    }

    /// The same where uplinks have these routes.
    pub fn with_routes(mut self, reach: &[Reach]) -> Uplinks {
        self.has_had_v6 = reach.iter().any(|one| one.v6.is_some());
        self
    }

    /// Whether uplinks are used in IPv6 too.
    pub fn has_v6(&self) -> bool {
        self.v6
    }

    fn families(&self) -> &'static [bool] {
        if self.v6 { &[false, true] } else { &[false] }
    }

    /// The steps of the set-up in order, each with what undoes it. The uplinks' routes aren't among them:
    /// they follow the network.
    pub fn steps(&self) -> Vec<(Step, Vec<Step>)> {
        let mut steps = Vec::new();
        if self.taken.names {
            steps.extend(self.families().iter().flat_map(|v6| name_steps(*v6)));
        }
        steps.extend(self.uplinks.keys().flat_map(|link| self.link_steps(*link)));
        if self.taken.datagrams {
            steps.extend(tunnel::device_steps(self.tunnel_v6()).into_iter().map(|step| (step, vec![])));
            steps.extend(self.families().iter().map(|v6| direct::neighbours_rule(*v6)));
        }
        let restore = |change: &Change| {
            let set = Step::sysctl(change.key.clone(), change.needed);
            (set, vec![Step::sysctl(change.key.clone(), change.old.clone())])
        };
        // The rules remember the sysctls, so they come first; they are removed last.
        steps.push((Step::ruleset(self.nftables()), vec![Step::delete_table(TABLE), remove_notes(PROTOCOL)]));
        steps.extend(self.notes().map(|note| (note, vec![])));
        steps.extend(self.changed.iter().map(restore));
        steps
    }

    /// The steps of one uplink, but for its rules of nftables.
    fn link_steps(&self, link: usize) -> Vec<(Step, Vec<Step>)> {
        let mut steps: Vec<_> = self.device_steps(link).into_iter().map(|step| (step, vec![])).collect();
        for v6 in self.families() {
            steps.extend([blackhole_step(link, *v6), rule_step(link, *v6)]);
            steps.extend(self.taken.datagrams.then(|| direct::link_rule(link, *v6)));
        }
        steps
    }

    /// The steps of an uplink's device. What hangs on it vanishes with it.
    fn device_steps(&self, link: usize) -> Vec<Step> {
        let name = device(link);
        let mut steps = Vec::new();
        if self.v6 {
            // The kernel has nothing to say for itself on this device: no link-local address.
            steps.push(Step::ip(&format!("link set dev {name} addrgenmode none")));
        }
        steps.push(Step::ip(&format!("link set dev {name} mtu {DEVICE_MTU} txqueuelen 10000 up")));
        for v6 in self.families() {
            let (pair, nodad) = (pair(link, *v6), if *v6 { " nodad" } else { "" });
            steps.push(Step::ip(&format!("address replace {pair} dev {name}{nodad}")));
        }
        steps.extend(self.device_keys(link).into_iter().map(|key| Step::sysctl(key, "1")));
        steps
    }

    /// The sysctls of an uplink's device that have to be 1.
    fn device_keys(&self, link: usize) -> Vec<String> {
        let name = device(link);
        let v4 = format!("net/ipv4/conf/{name}/forwarding");
        let v6 = format!("net/ipv6/conf/{name}/force_forwarding");
        let v6 = (self.v6 && has_force_forwarding()).then_some(v6);
        std::iter::once(v4).chain(v6).collect()
    }

    /// What `--dry-run` shows, with these routes.
    pub fn preview(&mut self, reach: &[(Reach, Addresses)]) -> Preview {
        self.changed = self.needed_changes();
        for (link, reach) in self.uplinks.keys().copied().collect::<Vec<_>>().into_iter().zip(reach) {
            self.learn_addresses(link, reach.0, reach.1.clone());
        }
        let mut preview = Preview { steps: self.steps(), ..Preview::default() };
        for ((link, uplink), (reach, _)) in self.uplinks.iter().zip(reach) {
            let link = *link;
            let (device, engine, interface) = (device(link), engine_v4(link), &uplink.interface);
            let words =
                format!("TUN device {device}: the engine is {engine} there, masqueraded on {interface}");
            let value = json!({ "device": device, "address": engine, "interface": interface });
            preview.devices.push((words, value));
            preview.steps.extend(self.route_steps(link, *reach).into_iter().map(|step| (step, Vec::new())));
            if !reach.any() {
                preview.notes.push(format!("{interface} has no address or no default route now"));
            }
        }
        preview
    }

    /// The commands that give an uplink's table the route that it has.
    pub fn route_steps(&self, link: usize, reach: Reach) -> Vec<Step> {
        let Some(Uplink { interface, .. }) = self.uplinks.get(&link) else { return Vec::new() };
        let table = table(link);
        let step = |v6: bool, route: Route| {
            let (family, via) = (if v6 { "-6" } else { "-4" }, route.words(interface, v6));
            Step::ip(&format!("{family} route replace default {via} metric 1 table {table} proto {PROTOCOL}"))
        };
        let mut steps: Vec<Step> = reach.v4.map(|route| step(false, route)).into_iter().collect();
        steps.extend(reach.v6.filter(|_| self.v6).map(|route| step(true, route)));
        steps
    }

    /// Gives an uplink's table the route that it has now, and the rules its address. Returns what changed.
    ///
    /// # Errors
    /// If `ip` or `nft` refuses.
    pub fn update(&mut self, link: usize, reach: Reach, host: &Host) -> io::Result<Changed> {
        let known = self.addresses.clone();
        self.try_update(link, reach, host).inspect_err(|_| {
            // The next call finds the same changes again.
            self.reach.remove(&link);
            self.addresses = known;
        })
    }

    fn try_update(&mut self, link: usize, reach: Reach, host: &Host) -> io::Result<Changed> {
        let Some(uplink) = self.uplinks.get(&link) else { return Ok(Changed::default()) };
        let (is_new_rule, mut changed) = self.learn_addresses(link, reach, addresses(uplink, host));
        let old = self.reach.insert(link, reach).unwrap_or_default();
        self.has_had_v6 |= self.v6 && reach.v6.is_some();
        changed.routes = old != reach || !self.has_routes(link, reach, host);
        // The rules come first: what is sent by the route has the right address then.
        if is_new_rule {
            self.replace_rules()?;
        }
        if !changed.routes {
            return Ok(changed);
        }
        let table = table(link);
        for (family, was, is) in [("-4", old.v4, reach.v4), ("-6", old.v6.filter(|_| self.v6), reach.v6)] {
            if was.is_some() && is.is_none() {
                // The kernel removes it itself when the interface goes.
                let _ = Step::ip(&format!("{family} route del default metric 1 table {table}")).run();
            }
        }
        self.route_steps(link, reach).iter().try_for_each(Step::run)?;
        Ok(changed)
    }

    /// Forgets what was known of an uplink's interface.
    fn forget(&mut self, link: usize) {
        self.reach.remove(&link);
        self.addresses.retain(|(other, _), _| *other != link);
    }

    /// Whether an uplink's table has its routes: the kernel removes them with the interface, which may be
    /// back already.
    fn has_routes(&self, link: usize, reach: Reach, host: &Host) -> bool {
        let Some(Uplink { interface, .. }) = self.uplinks.get(&link) else { return false };
        [(false, reach.v4), (true, reach.v6.filter(|_| self.v6))]
            .into_iter()
            .all(|(v6, route)| route.is_none_or(|route| host.has_default(table(link), interface, v6, route)))
    }

    /// Removes what a killed proxy has left. The TUN devices have to be ours by now.
    pub fn clean() {
        if clean(TABLE, PROTOCOL) {
            tracing::info!(target: "ropewalk::setup", "removed what an earlier proxy had left");
        }
    }

    /// Carries out the set-up. The TUN devices have to be there.
    ///
    /// # Errors
    /// If a command fails: the message names it. What was done is undone when this value is dropped.
    pub fn apply(&mut self, claim: Claim) -> io::Result<()> {
        self.claim = Some(claim);
        self.changed = self.needed_changes();
        self.leave_names_to_the_system();
        self.steps().into_iter().try_for_each(|(step, undo)| self.undo.run(&step, undo))?;
        self.listing = listing(TABLE);
        self.objects = self.objects();
        Ok(())
    }

    /// See [`forget_untranslated`].
    fn forget_untranslated(&self, host: &Host) {
        let of = |link: &usize| [false, true].map(|v6| kernel_address(*link, v6));
        forget_untranslated(host, &self.uplinks.keys().flat_map(of).collect::<Vec<_>>());
    }

    /// Repairs nftables' rules, if they aren't what nftables lists now (`rules`). Returns whether they
    /// weren't.
    ///
    /// # Errors
    /// The first step that fails. The next call tries again.
    pub fn keep_rules(&mut self, host: &Host, rules: Option<String>) -> io::Result<bool> {
        // They may have gone before they were listed first.
        let are_gone = rules.is_none() || rules != self.listing;
        if are_gone {
            repaired("nftables' rules");
            self.objects.clear();
            self.replace_rules()?;
            self.forget_untranslated(host);
        }
        Ok(are_gone)
    }

    /// Sets up interfaces that are new, and repairs what another program undid.
    ///
    /// # Errors
    /// The first step that fails. The others are done all the same, and the next call tries again.
    pub fn keep(&mut self, host: &Host) -> io::Result<()> {
        // They couldn't be set, or not be listed, when they changed last.
        let ruled = if self.listing.is_none() { self.replace_rules() } else { Ok(()) };
        let has_rules = ruled.is_ok();
        let mut kept = ruled;
        for link in self.uplinks.keys().copied().collect::<Vec<_>>() {
            kept = kept.and(self.keep_link(link, host));
        }
        if self.taken.names {
            kept = kept.and(self.keep_names(host));
        }
        kept = kept.and(self.keep_tunnel(host)).and(self.keep_direct(host));
        // The rules guard what is forwarded, and remember the sysctls.
        for change in self.needed_changes().into_iter().filter(|_| has_rules) {
            kept = kept.and(self.keep_sysctl(change));
        }
        kept
    }

    fn keep_sysctl(&mut self, change: Change) -> io::Result<()> {
        let step = Step::sysctl(change.key.clone(), change.needed);
        let known = self.changed.iter().find(|known| known.key == change.key);
        let old = Step::sysctl(change.key.clone(), known.unwrap_or(&change).old.clone());
        if known.is_some() {
            repaired(&format!("sysctl {}", change.key));
        } else {
            self.changed.push(change);
            if let Err(error) = self.replace_rules() {
                self.changed.pop();
                return Err(error);
            }
        }
        self.undo.repair((step, vec![old]))
    }

    /// A kernel may not have what queries are handed over with (nft_tproxy).
    fn leave_names_to_the_system(&mut self) {
        let check = |uplinks: &Uplinks| Step::check_ruleset(uplinks.nftables()).run();
        if self.taken.names
            && let Err(error) = check(self)
        {
            self.taken.names = false;
            if check(self).is_ok() {
                tracing::warn!(target: "ropewalk::setup", %error, "names are looked up by the kernel's \
                    routes alone");
            } else {
                self.taken.names = true;
            }
        }
    }

    fn keep_names(&mut self, host: &Host) -> io::Result<()> {
        for v6 in self.families() {
            let [route, rule] = name_steps(*v6);
            if !host.has_local_default(NAMES, *v6) {
                repaired(&format!("the routing table {NAMES}"));
                self.undo.repair(route)?;
            }
            if !host.has_rule(NAMES, NAMES, *v6, None) {
                repaired("the routing rule for queries of the DNS");
                self.undo.repair(rule)?;
            }
        }
        Ok(())
    }

    fn keep_link(&mut self, link: usize, host: &Host) -> io::Result<()> {
        let (name, table) = (device(link), table(link));
        let has_pair = |v6: &bool| {
            let pair = pair(link, *v6);
            let has_address = host.addresses().iter().any(|known| known.address == pair.addr());
            has_address && host.has_pair(pair.trunc(), &name)
        };
        let is_on = |key: &String| read_sysctl(key).is_none_or(|value| value != "0");
        if !self.families().iter().all(has_pair) || !self.device_keys(link).iter().all(is_on) {
            repaired(&name);
            self.device_steps(link).iter().try_for_each(Step::run)?;
            for v6 in self.families() {
                let (family, pair) = (if *v6 { "-6" } else { "-4" }, pair(link, *v6).trunc());
                Step::ip(&format!("{family} route replace {pair} dev {name}")).run()?;
            }
        }
        for v6 in self.families() {
            if !host.has_blackhole(table, *v6) {
                repaired(&format!("the routing table {table}"));
                self.undo.repair(blackhole_step(link, *v6))?;
            }
            if !host.has_rule(table, table, *v6, None) {
                repaired(&format!("the routing rule of {name}"));
                self.undo.repair(rule_step(link, *v6))?;
            }
        }
        Ok(())
    }

    fn replace_rules(&mut self) -> io::Result<()> {
        self.listing = None;
        let changes = self.changes();
        let is_known = !std::mem::take(&mut self.objects).is_empty();
        if !(is_known && Step::ruleset(changes).run().is_ok()) {
            Step::ruleset(self.nftables()).run()?;
        }
        self.objects = self.objects();
        self.notes().try_for_each(|note| note.run())?;
        self.listing = listing(TABLE);
        Ok(())
    }

    /// Takes in what a configuration that was read again says: these uplinks, by the numbers of their
    /// devices. Devices of those that are new have to be there.
    ///
    /// # Errors
    /// The first step that fails. The others are done all the same, and [`Uplinks::keep`] repairs what isn't.
    pub fn change(&mut self, uplinks: BTreeMap<usize, Uplink>) -> io::Result<()> {
        if self.uplinks == uplinks {
            return Ok(());
        }
        let is_kept = |uplinks: &BTreeMap<usize, Uplink>, link: &usize, uplink: &Uplink| {
            uplinks.get(link).is_some_and(|other| other.interface == uplink.interface)
        };
        let gone: Vec<usize> = self
            .uplinks
            .iter()
            .filter(|(link, one)| !is_kept(&uplinks, link, one))
            .map(|(link, _)| *link)
            .collect();
        let new: Vec<usize> = uplinks
            .iter()
            .filter(|(link, one)| !is_kept(&self.uplinks, link, one))
            .map(|(link, _)| *link)
            .collect();
        for link in gone {
            let steps = self.link_steps(link);
            self.undo.undo_these(&steps.into_iter().flat_map(|(_, undo)| undo).collect::<Vec<_>>());
            self.uplinks.remove(&link);
            self.forget(link);
        }
        self.uplinks = uplinks;
        let mut done = Ok(());
        for (step, undo) in new.into_iter().flat_map(|link| self.link_steps(link)).collect::<Vec<_>>() {
            done = done.and(self.undo.run(&step, undo));
        }
        done.and(self.replace_rules())
    }

    /// Checks that the devices are there.
    ///
    /// # Errors
    /// If one was removed: the proxy has to end.
    pub fn check(&self, host: &Host) -> io::Result<()> {
        let names: Vec<String> = self.uplinks.keys().map(|link| device(*link)).collect();
        check_devices(
            host,
            names.iter().map(String::as_str).chain(self.taken.datagrams.then_some(NEAR_DEVICE)),
        )
    }

    /// Undoes the set-up.
    pub fn remove(&mut self) {
        self.undo.undo();
        self.claim = None;
    }
}

#[cfg(test)]
mod tests;
