//! The client's side: SOCKS5 and HTTP CONNECT in, Multipath TCP out over chosen uplinks.
//!
//! The engine opens connections behind TUN devices, one per uplink ([`uplinks`]). A connection is opened on
//! the best link and joined by the others; no link is needed more than another. Where the far end has no
//! Multipath TCP, the connection is plain TCP on the link that it was opened on.

mod accept;
mod account;
mod admission;
pub(crate) mod captive;
pub(crate) mod check_url;
mod client;
mod dial;
pub mod direct;
mod dns;
pub mod flow;
mod follow;
mod http;
mod keep_alive;
mod lanes;
pub mod link;
mod link_addresses;
mod link_settings;
mod metrics;
mod names;
mod open;
pub mod policy;
pub mod reach;
mod ready;
pub mod recorder;
mod refill;
mod remote;
mod resolve;
mod resolvers;
mod serve;
pub mod settings;
mod snapshot;
mod socks;
mod transparent;
mod tunnel_client;
pub mod uplinks;
pub mod usage;
pub mod users;
mod watch;
mod why;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropewalk_os::tun::Tun;
use ropewalk_settings::diagnostic::InputError;
use ropewalk_tokio::{EndpointConfig, Network, Path, TunDevice};
use tokio::net::{TcpListener, UdpSocket};
use tokio::signal::unix::Signal;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::link::{CountedDevice, Link};
use self::reach::{Reach, Uplink, addresses, inspect};
use self::snapshot::snapshot;
use self::uplinks::{Taken, Uplinks};
use self::usage::QuotaUsage;
use crate::confine::{confine, folder_of};
use crate::daemon::{self, End};
use crate::page::Page;
use crate::setup::{Change, Host, Preview, claim, settled_changes};
use crate::status;
use crate::tunnel::{Device, NEAR_DEVICE};

pub use ipnet::IpNet;

pub use self::check_url::CheckUrlError;
pub use self::link_settings::{InterfaceError, LinkSettings, Rates};
pub use self::policy::{Policies, Policy, Rule};
pub use self::remote::{Gateway, MOST_READY};
pub use self::serve::Server;
pub use self::settings::{
    Access, Datagrams, GatewayFallback, Join, Names, OpeningLink, Settings, SettingsError,
};

fn uplink(link: &LinkSettings, rate: Option<Rates>) -> Uplink {
    Uplink { interface: link.interface.clone(), gateway: link.gateway, rate }
}

/// Plans the kernel's part, with what the uplinks are now.
fn plan(settings: &Settings, host: &Host) -> (Uplinks, Vec<Reach>) {
    let list: Vec<Uplink> = settings.links.iter().map(|told| uplink(told, told.rate)).collect();
    let reach: Vec<_> = list.iter().map(|one| inspect(one, host)).collect();
    let v6 = reach.iter().any(|reach| reach.v6.is_some()) || host.may_have_v6();
    let taken = Taken {
        transparent: settings.transparent.clone(),
        port: settings.transparent_port,
        names: settings.names == Names::Links,
        datagrams: settings.has_tunnel(),
    };
    let uplinks = Uplinks::new(list, v6, taken).with_routes(&reach).with_inbound(settings.inbound.clone());
    (uplinks, reach)
}

/// How the uplinks reach the rest of the world now.
pub fn reaches(settings: &Settings, host: &Host) -> Vec<Reach> {
    plan(settings, host).1
}

/// What a proxy would do, and how it would undo it.
///
/// # Errors
/// If the configuration can't be used, or the kernel can't be asked.
pub fn dry_run(settings: &Settings) -> io::Result<Preview> {
    settings.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let host = Host::read()?;
    let (mut uplinks, reach) = plan(settings, &host);
    let addresses = settings.links.iter().map(|told| addresses(&uplink(told, told.rate), &host));
    Ok(uplinks.preview(&reach.into_iter().zip(addresses).collect::<Vec<_>>()))
}

/// What the host lacks of what a configuration names, a sentence each.
///
/// # Errors
/// If the kernel can't be asked.
pub fn lacks(settings: &Settings) -> io::Result<Vec<String>> {
    let host = Host::read()?;
    let interfaces = settings.links.iter().map(|told| &told.interface);
    let interfaces = interfaces.chain(&settings.transparent);
    let mut lacks: Vec<String> = interfaces
        .filter(|interface| host.interface(interface).is_none())
        .map(|interface| format!("there is no interface `{interface}` now"))
        .collect();
    let own = settings.listen.ip();
    if !own.is_unspecified()
        && !own.is_loopback()
        && !host.addresses().iter().any(|known| known.address == own)
    {
        lacks.push(format!("{own}, where programs shall connect, is no address of this host now"));
    }
    Ok(lacks)
}

/// A proxy that is set up.
#[derive(Debug)]
pub struct Proxy {
    server: Arc<Server>,
    listener: TcpListener,
    transparent: Vec<TcpListener>,
    names: Vec<UdpSocket>,
    tunnel: Option<Device>,
    tells: Tells,
    uplinks: Uplinks,
    changes: Receiver<Option<Change>>,
}

/// Where it is told what the proxy does.
#[derive(Debug)]
struct Tells {
    status: Option<status::Server>,
    metrics: Option<TcpListener>,
    page: Option<(TcpListener, Page)>,
}

impl Tells {
    async fn open(settings: &Settings) -> io::Result<Tells> {
        let status = settings.status.bind()?;
        let metrics = match settings.metrics {
            Some(address) => Some(crate::metrics::bind(address).await?),
            None => None,
        };
        let page = match &settings.page {
            Some(page) => Some((page.bind().await?, page.clone())),
            None => None,
        };
        Ok(Tells { status, metrics, page })
    }

    fn serve(self, server: &Arc<Server>, tasks: &mut JoinSet<()>) {
        let own = || Arc::clone(server);
        if let Some(socket) = self.status {
            let server = own();
            tasks.spawn(socket.serve(move |word| {
                let server = Arc::clone(&server);
                async move {
                    match word.as_str() {
                        "recording" => serde_json::to_value(server.recorder.recording(&server.links()))
                            .unwrap_or_default(),
                        word => snapshot(server, ropewalk_status::before(word)).await,
                    }
                }
            }));
        }
        if let Some(listener) = self.metrics {
            let server = own();
            tasks.spawn(crate::metrics::serve(listener, move || metrics::text(&server)));
        }
        if let Some((listener, page)) = self.page {
            let server = own();
            tasks.spawn(crate::page::serve(listener, page, move || snapshot(Arc::clone(&server), None)));
        }
    }
}

impl Proxy {
    /// Sets the kernel up and listens.
    ///
    /// # Errors
    /// If the configuration can't be used, CAP_NET_ADMIN is missing, or the address is in use. What was done
    /// is undone.
    pub async fn start(settings: Settings) -> io::Result<Proxy> {
        settings.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let start = Instant::now();
        let devices = (0..settings.links.len()).map(uplinks::device);
        let names: Vec<String> = std::iter::once(uplinks::CLAIM.to_string()).chain(devices).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // What another program undoes while it is set up is noticed, too.
        let changes = settled_changes();
        let (tuns, claim) = claim::take("proxy", &names, 1).await?;
        // Only now the host, and what quotas have left, are as this proxy finds them.
        Uplinks::clean();
        let usage = if settings.has_quota() { Some(QuotaUsage::open(&settings.usage)?) } else { None };
        let host = Host::read()?;
        let (mut uplinks, reach) = plan(&settings, &host);
        let max_time_wait = crate::memory::most_in_time_wait(settings.memory);
        let endpoint = EndpointConfig { max_time_wait, ..EndpointConfig::default() };
        let mut builder = Network::builder().endpoint(endpoint);
        let mut links = Vec::new();
        for ((index, told), tun) in settings.links.iter().enumerate().zip(tuns.into_iter().flatten().skip(1))
        {
            let link = Arc::new(Link::new(index, told.clone(), start, settings.captive_check.is_some()));
            builder = builder.path(path(&link, tun, uplinks.has_v6()));
            links.push(link);
        }
        let tunnel = if settings.has_tunnel() { Some(Device::create(NEAR_DEVICE)?) } else { None };
        uplinks.apply(claim)?;
        for (link, mut reach) in links.iter().zip(reach) {
            // One may go down at this moment: that it changed is heard, and followed.
            if let Err(error) = uplinks.update(link.index, reach, &host) {
                tracing::warn!(link = link.name, %error, "no route for the link");
                reach = Reach::default();
            }
            link.learn(|known| known.reach = reach);
        }
        let network = builder.remember_paths().build()?;
        let port = settings.transparent_port;
        let transparent =
            if settings.transparent.is_empty() { Vec::new() } else { transparent::listen(port)? };
        let names = if settings.names == Names::Links { names::listen(port)? } else { Vec::new() };
        // Last of all: clients that connect are served.
        let listener = TcpListener::bind(settings.listen).await.map_err(|error| {
            io::Error::new(error.kind(), format!("listening at {}: {error}", settings.listen))
        })?;
        let tells = Tells::open(&settings).await?;
        let server = Server::new(settings, network, links, usage, start);
        server.apply_mtus();
        Ok(Proxy { server: Arc::new(server), listener, transparent, names, tunnel, tells, uplinks, changes })
    }

    /// Where clients connect.
    ///
    /// # Errors
    /// If the kernel doesn't say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The proxy, to look at.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Serves clients until SIGTERM or SIGINT, lets their connections end, and removes the set-up. SIGHUP has
    /// the configuration read again. An error says why it can't go on.
    async fn run(self, end: &mut End, hung_up: &mut Signal, reload: Option<Reload<'_>>) -> io::Result<()> {
        let Proxy { server, listener, transparent, names, tunnel, tells, mut uplinks, changes } = self;
        let mut helpers = JoinSet::new();
        helpers.spawn(daemon::feed_watchdog());
        helpers.spawn(refill::refill(Arc::clone(&server)));
        helpers.spawn(crate::log::tell_noted());
        helpers.spawn(crate::memory::watch(Arc::clone(&server)));
        tells.serve(&server, &mut helpers);
        for socket in names {
            helpers.spawn(names::answer(Arc::clone(&server), socket));
        }
        let (inner, through) = tokio::sync::watch::channel(None);
        if let Some(device) = tunnel {
            helpers.spawn(tunnel_client::run(Arc::clone(&server), Arc::new(device), inner));
        }
        let mut accepting = JoinSet::new();
        for listener in transparent {
            accepting.spawn(transparent::accept(Arc::clone(&server), listener));
        }
        accepting.spawn(accept::accept(Arc::clone(&server), listener));
        daemon::ready();
        let gone = {
            let mut following =
                pin!(follow::follow(&server, &mut uplinks, changes, through, hung_up, reload));
            let gone = tokio::select! {
                error = &mut following => Some(error),
                () = end.wait() => None,
            };
            daemon::stopping();
            server.draining.store(true, Ordering::Relaxed);
            accepting.shutdown().await;
            if gone.is_some() {
                gone
            } else {
                claim::mark_draining(uplinks::CLAIM);
                let limit = server.settings().drain;
                tracing::info!(connections = server.flows.all().len(), ?limit, "draining");
                // Links are followed meanwhile; whoever asks twice isn't kept waiting.
                tokio::select! {
                    error = &mut following => Some(error),
                    () = server.drain(limit) => None,
                    () = end.wait() => None,
                }
            }
        };
        server.end_flows().await;
        // While its device is there.
        if let Err(error) = uplinks.set_tunnel(None) {
            tracing::warn!(%error, "what leads into the tunnel couldn't be undone");
        }
        helpers.shutdown().await;
        account::save(&server);
        uplinks.remove();
        gone.map_or(Ok(()), Err)
    }
}

/// Reads the configuration anew, for SIGHUP.
pub type Reload<'a> = &'a dyn Fn() -> Result<Settings, InputError>;

/// Where a proxy writes files.
fn written_folders(settings: &Settings) -> Vec<PathBuf> {
    let usage = folder_of(&settings.usage);
    let usage = (settings.has_quota() || usage.exists()).then_some(usage);
    settings.status.path().map(folder_of).into_iter().chain(usage).collect()
}

/// Runs a proxy until SIGINT or SIGTERM comes. Logs are those that [`crate::log`] was started for.
///
/// # Errors
/// Those of [`Proxy::start`].
pub fn run_until_stopped(settings: Settings, reload: Option<Reload<'_>>) -> io::Result<()> {
    daemon::raise_open_files();
    crate::privileges::keep_net_admin();
    confine(&written_folders(&settings), &settings.reads);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before anything is set up: a signal is to end it in good order.
        let (mut end, mut hung_up) = (End::new()?, daemon::hang_up()?);
        let proxy = tokio::select! {
            started = Proxy::start(settings) => started?,
            // It waited for an earlier one: nothing is set up.
            () = end.wait() => return Ok(()),
        };
        let links = proxy.server.links();
        let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
        tracing::info!(address = %proxy.local_addr()?, uplinks = names.join(" "), "listening");
        for link in links.iter().filter(|link| !link.known().reach.any()) {
            tracing::warn!(link = link.name, "it has no address or no default route now: used when it has");
        }
        proxy.run(&mut end, &mut hung_up, reload).await
    })
}

/// The engine's path over a link.
fn path(link: &Link, tun: Tun, v6: bool) -> Path {
    let device = CountedDevice { device: TunDevice::new(tun), counters: Arc::clone(&link.counters) };
    let path = Path::new(device, link.address(false));
    if v6 { path.address(link.address(true)) } else { path }
}
