//! What changes while the proxy runs: the uplinks' addresses and routes, and its configuration.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ropewalk_os::tun::Tun;
use ropewalk_tokio::Offload;
use tokio::signal::unix::Signal;
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch as watch_channel;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::direct::ways;
use super::link::Link;
use super::link_settings::LinkSettings;
use super::reach::{Reach, Uplink, inspect};
use super::serve::Server;
use super::settings::Settings;
use super::uplinks::{self, MOST_LINKS, Uplinks};
use super::{Reload, account, path, uplink, watch};
use crate::setup::{Change, Host, listing};
use crate::tunnel::Inner;

/// How long connections may take to leave a link that is taken away.
const LEAVING: Duration = Duration::from_secs(1);
/// How often it is looked whether they have.
const PAUSE: Duration = Duration::from_millis(20);
/// How often it is looked whether datagrams are to take other links past the tunnel.
const LOOK: Duration = Duration::from_secs(1);

/// The tasks that watch links.
#[derive(Debug, Default)]
struct Watches {
    tasks: JoinSet<()>,
    of_links: BTreeMap<usize, AbortHandle>,
}

impl Watches {
    fn start(&mut self, server: &Arc<Server>, link: &Arc<Link>) {
        let watching = watch::watch(Arc::clone(server), Arc::clone(link));
        self.of_links.insert(link.index, self.tasks.spawn(watching));
    }

    fn stop(&mut self, link: &Link) {
        if let Some(task) = self.of_links.remove(&link.index) {
            task.abort();
        }
        // What has ended by itself or by this.
        while self.tasks.try_join_next().is_some() {}
    }
}

/// Follows the uplinks' addresses and routes, and the configuration, and watches the links, until what is set
/// up can't be repaired.
pub(super) async fn follow(
    server: &Arc<Server>,
    uplinks: &mut Uplinks,
    mut changes: Receiver<Option<Change>>,
    mut tunnel: watch_channel::Receiver<Option<Inner>>,
    hung_up: &mut Signal,
    reload: Option<Reload<'_>>,
) -> io::Error {
    let mut watches = Watches::default();
    for link in server.links().iter() {
        watches.start(server, link);
    }
    watches.tasks.spawn(account::account(Arc::clone(server)));
    watches.tasks.spawn(account::record(Arc::clone(server)));
    loop {
        // Before anything leads into the tunnel: a flow keeps the way of its first packet.
        lead_past(server, uplinks);
        let change = tokio::select! {
            Some(change) = changes.recv() => change,
            Ok(()) = tunnel.changed() => {
                let inner = *tunnel.borrow_and_update();
                match uplinks.set_tunnel(inner) {
                    Ok(()) if inner.is_some() => tracing::info!("datagrams go through the gateway"),
                    Ok(()) => tracing::warn!("no tunnel for datagrams: they follow the kernel's routes"),
                    Err(error) => tracing::error!(%error, "datagrams can't be led into the tunnel"),
                }
                continue;
            }
            () = tokio::time::sleep(LOOK) => continue,
            () = server.rates_changed.notified() => {
                let all = server.links().iter().map(|link| of(link, &link.settings())).collect();
                if let Err(error) = uplinks.change(all) {
                    tracing::error!(%error, "links' rates can't be set");
                }
                continue;
            }
            _ = hung_up.recv() => {
                match read_again(server, uplinks, &mut watches, reload).await {
                    Ok(()) => tracing::info!("configuration read again"),
                    Err(error) => tracing::error!(%error, "the new configuration isn't used"),
                }
                None
            }
        };
        if let Err(error) = look_at_uplinks(server, uplinks, change).await {
            return error;
        }
    }
}

/// Leads flows past the tunnel by the rules and the links as they are now.
fn lead_past(server: &Server, uplinks: &mut Uplinks) {
    if let Err(error) = uplinks.set_direct(|old| ways(&server.settings(), &server.links(), old)) {
        tracing::error!(%error, "datagrams can't be led past the tunnel");
    }
}

/// A link's number, and what the set-up knows of it.
fn of(link: &Link, told: &LinkSettings) -> (usize, Uplink) {
    (link.index, uplink(told, link.rate_by(told)))
}

/// Follows the configuration's file as it is now; connections go on.
async fn read_again(
    server: &Arc<Server>,
    uplinks: &mut Uplinks,
    watches: &mut Watches,
    reload: Option<Reload<'_>>,
) -> io::Result<()> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let reload = reload.ok_or_else(|| wrong("there is no configuration file to read again".into()))?;
    let new = reload().map_err(|error| wrong(error.to_string()))?;
    if let Some(what) = server.settings().needs_restart(&new) {
        return Err(wrong(format!("{what} changed: that needs a restart")));
    }
    change_links(server, uplinks, watches, &new).await?;
    uplinks.set_inbound(new.inbound.clone())?;
    server.set_settings(new)?;
    lead_past(server, uplinks);
    Ok(())
}

/// Adds links that are new, and takes away those that are gone. A link is the same if interface and name are.
async fn change_links(
    server: &Arc<Server>,
    uplinks: &mut Uplinks,
    watches: &mut Watches,
    new: &Settings,
) -> io::Result<()> {
    let old = server.links();
    let same = |link: &&Arc<Link>, told: &LinkSettings| {
        link.settings().interface == told.interface && link.name == told.name()
    };
    let kept: Vec<Option<&Arc<Link>>> =
        new.links.iter().map(|told| old.iter().find(|link| same(link, told))).collect();
    let is_kept = |link: &&Arc<Link>| kept.iter().flatten().any(|one| one.index == link.index);
    let gone: Vec<Arc<Link>> = old.iter().filter(|link| !is_kept(link)).map(Arc::clone).collect();
    // Numbers that nobody has, and then those of links that go.
    let free = (0..MOST_LINKS).filter(|index| old.iter().all(|link| link.index != *index));
    let mut numbers = free.chain(gone.iter().map(|link| link.index));
    let is_captive = new.captive_check.is_some();
    let (mut links, mut added) = (Vec::new(), Vec::new());
    for (told, known) in new.links.iter().zip(&kept) {
        if let Some(link) = known {
            links.push(Arc::clone(link));
            continue;
        }
        let Some(index) = numbers.next() else { continue };
        let link = Arc::new(Link::new(index, told.clone(), server.started, is_captive));
        let is_free = old.iter().all(|other| other.index != index);
        // Before anything is changed: this may fail.
        let device = if is_free { Some(tun(index)?) } else { None };
        added.push((Arc::clone(&link), device));
        links.push(link);
    }
    for link in &gone {
        leave(server, link).await;
        watches.stop(link);
        server.recorder.forget(link);
    }
    let mut devices = Vec::new();
    for link in &gone {
        server.network.take_path_away(link.path());
    }
    for (link, device) in added {
        let device = match device {
            Some(device) => device,
            None => tun(link.index)?,
        };
        devices.push((link, device));
    }
    // What fails now is repaired as what another program undoes: the links are others already.
    if let Err(error) =
        uplinks.change(links.iter().zip(&new.links).map(|(link, told)| of(link, told)).collect())
    {
        tracing::warn!(%error, "the set-up of the links isn't complete");
    }
    server.set_links(links);
    for (link, device) in devices {
        tracing::info!(link = link.name, "a link is added");
        server.network.give_path(link.path(), path(&link, device, uplinks.has_v6()))?;
        watches.start(server, &link);
    }
    Ok(())
}

/// Has connections leave a link that is taken away. Those that have no other end.
async fn leave(server: &Server, link: &Arc<Link>) {
    tracing::info!(link = link.name, "a link is taken away");
    link.learn(|known| known.reach = Reach::default());
    server.apply_policies(false);
    let is_on_it = || server.flows.all().into_iter().filter(|flow| flow.is_on(link));
    let deadline = Instant::now() + LEAVING;
    while is_on_it().next().is_some() && Instant::now() < deadline {
        tokio::time::sleep(PAUSE).await;
    }
    for flow in is_on_it() {
        tracing::debug!(flow = flow.id, "reset: it has no other link");
        flow.stream.reset();
    }
}

fn tun(index: usize) -> io::Result<Tun> {
    Tun::create(&uplinks::device(index), Offload::Segmentation)
}

/// Takes in what the uplinks have now, and repairs the set-up. An error means that it can't be repaired.
async fn look_at_uplinks(server: &Server, uplinks: &mut Uplinks, change: Option<Change>) -> io::Result<()> {
    let links = server.links();
    let list: Vec<Uplink> = links.iter().map(|link| of(link, &link.settings()).1).collect();
    // The rules are asked for when they changed: that costs a program's start.
    let look = move || {
        let rules = (change == Some(Change::Rules)).then(|| listing(uplinks::TABLE));
        Host::read().map(|host| (host, rules))
    };
    let Ok(Ok((host, rules))) = tokio::task::spawn_blocking(look).await else { return Ok(()) };
    uplinks.check(&host)?;
    let kept = rules.map_or(Ok(false), |rules| uplinks.keep_rules(&host, rules));
    match kept.and_then(|were_gone| uplinks.keep(&host).map(|()| were_gone)) {
        // Without them the kernel has answered what came for the engine with resets.
        Ok(true) => server.ask_peers(),
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "the set-up can't be repaired"),
    }
    for (link, one) in links.iter().zip(list) {
        let reach = inspect(&one, &host);
        let changed = match uplinks.update(link.index, reach, &host) {
            Ok(changed) => changed,
            Err(error) => {
                tracing::warn!(link = link.name, %error, "no route for the link");
                link.learn(|known| known.reach = Reach::default());
                server.on_link_change(link);
                continue;
            }
        };
        if changed.one_of_several.contains(&true) {
            server.on_address_loss(link, changed.one_of_several);
        }
        if !changed.routes && !changed.address.contains(&true) {
            continue;
        }
        let is_checked = server.settings().captive_check.is_some();
        link.learn(|known| {
            if is_checked && !known.reach.is_same_network(reach) {
                (known.captive, known.checked) = (true, false);
            }
            known.reach = reach;
            // What was known of the link is of another network.
            (known.alive, known.seen, known.rtt, known.path_mtu) = (true, false, None, None);
        });
        server.apply_mtus();
        if changed.address.contains(&true) {
            server.on_address_change(link, changed.address);
        }
        server.on_link_change(link);
    }
    Ok(())
}
