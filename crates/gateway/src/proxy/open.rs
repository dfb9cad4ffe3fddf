//! Opening connections for clients: through a gateway, the first that works, or to the server itself.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ropewalk_engine::{congestion, scheduler};
use ropewalk_tokio::{
    CloseReason, ConnectionConfig, MptcpStream, PathId, SubflowInfo, SubflowStatus, default_config,
};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::client::Client;
use super::dial::{Openings, comes_back, dial};
use super::flow::{Entry, NewFlow};
use super::keep_alive::Configured;
use super::link::{DEAD, Link, find};
use super::policy::{Plan, Role};
use super::remote::{Gateway, Opened, Wish, in_order};
use super::serve::Server;
use super::settings::{GatewayFallback, Join, OpeningLink};
use crate::target::Target;
use crate::windows::Window;

/// The least time between two warnings that the gateway can't be used.
const WARN_INTERVAL: Duration = Duration::from_secs(60);
/// How long a gateway may take to answer where there is another, or a way without.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a link may leave a connection's first data unacknowledged where there is another link: TCP's
/// first retransmission timeout (RFC 6298, section 2.1), and at least three round-trip times.
const UNACKNOWLEDGED: Duration = Duration::from_secs(1);
/// How long after a reset a gateway is asked again.
const AFTER_RESET: Duration = Duration::from_millis(250);

/// Whether a gateway's answer is about the server that it was asked for, and not about itself or who asks.
fn is_about_server(answer: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(answer.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

/// Until when a gateway that has been heard has to be there for the next try.
fn again(limit: Instant, deadline: Instant) -> Instant {
    limit.max(deadline.min(Instant::now() + PATIENCE))
}

fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

/// Why a gateway didn't do what it was asked for.
enum Unreached {
    /// It isn't there, or TLS failed.
    Gateway(io::Error),
    /// It has refused.
    Wish(io::Error),
    /// It has not answered.
    Late,
}

impl Unreached {
    fn into_error(self) -> io::Error {
        match self {
            Unreached::Gateway(error) | Unreached::Wish(error) => error,
            Unreached::Late => late("the gateway doesn't answer the request"),
        }
    }
}

/// Whether the gateway knows the connection no more: of two subflows that are reset, the join that follows
/// is, too.
fn is_reset(error: &io::Error) -> bool {
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
        || reason == Some(&CloseReason::Refused)
}

/// Ends once the link is back that a connection was opened on, or has another address, if the connection has
/// no other that works and nothing has come by it since.
async fn comes_back_alone(stream: &MptcpStream, link: &Link, links: &[Arc<Link>]) {
    let is_v6 = stream.peer_addr().is_ipv6();
    loop {
        let changes = link.known().address_changes[usize::from(is_v6)];
        comes_back(link, is_v6).await;
        let is_same = link.known().address_changes[usize::from(is_v6)] == changes;
        let is_used =
            |path: PathId| find(links, usize::from(path.0)).is_some_and(|link| link.is_usable(is_v6));
        let works = |one: &SubflowInfo| match one.path == link.path() {
            true => is_same && Duration::from(one.tcp.last_recv) < DEAD,
            false => one.status == SubflowStatus::Usable && is_used(one.path),
        };
        if !stream.info().is_some_and(|info| info.subflows.iter().any(works)) {
            return;
        }
    }
}

/// Ends when nothing of what was sent has been acknowledged for long enough, and there is another link; once
/// something is, never.
async fn nothing_acknowledged(stream: &MptcpStream, has_another: impl Fn() -> bool) {
    let begin = Instant::now();
    loop {
        sleep(UNACKNOWLEDGED / 10).await;
        let Some(info) = stream.info().filter(|info| info.connection.bytes_acked == 0) else {
            return pending().await;
        };
        let rtt = info.subflows.iter().map(|one| one.tcp.rtt.smoothed).max().unwrap_or_default();
        if begin.elapsed() >= UNACKNOWLEDGED.max(Duration::from(3 * rtt)) && has_another() {
            return;
        }
    }
}

/// What a client wants.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    client: Client,
    target: &'a Target,
    /// The target's.
    addresses: &'a [SocketAddr],
    first: SocketAddr,
}

impl Server {
    /// Opens a connection for a client.
    pub(super) async fn open(&self, client: Client, target: Target) -> io::Result<Entry> {
        // Boxed: its state would stay in the client's task.
        let opened = Box::pin(self.try_open(client, target)).await;
        if opened.is_err() {
            self.failed.fetch_add(1, Relaxed);
        }
        opened
    }

    async fn try_open(&self, client: Client, target: Target) -> io::Result<Entry> {
        self.await_link().await;
        let addresses = self.resolve(&target).await?;
        let Some(first) = addresses.first() else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no address"));
        };
        let all = self.settings();
        let is_direct = all.policies.policy(&target, first.ip(), client.dscp, 0).direct;
        let mut gateways = if is_direct { Vec::new() } else { in_order(&all.gateways) };
        let is_optional = all.gateway_fallback == GatewayFallback::Direct;
        // Those that couldn't be reached are tried in the background.
        gateways.retain(|gateway| !is_optional || !gateway.has_failed());
        let wanted = Wanted { client, target: &target, addresses: &addresses, first: *first };
        let deadline = Instant::now() + all.connect_timeout;
        let mut failure = None;
        for (at, gateway) in gateways.iter().enumerate() {
            let is_last = at + 1 == gateways.len() && !is_optional;
            let limit = if is_last { deadline } else { deadline.min(Instant::now() + PATIENCE) };
            match self.open_by(gateway, wanted, limit, deadline).await {
                Ok(entry) => return Ok(entry),
                Err((error, true)) => return Err(error),
                Err((error, false)) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if !is_optional => Err(error),
            _ => self.open_directly(wanted, deadline).await,
        }
    }

    /// A connection's plan and settings, when it is opened to an address.
    fn prepare(&self, wanted: Wanted<'_>, far: SocketAddr) -> io::Result<(Plan, ConnectionConfig)> {
        let plan = self.plan(wanted.target, wanted.first, far.is_ipv6(), wanted.client.dscp, 0, None);
        let config = self.connection_config(&plan, wanted.client.dscp)?;
        Ok((plan, config))
    }

    /// The addresses that a link leads to first, else in their order: where the links of one family don't
    /// work, those of the other may.
    fn usable_first(&self, wanted: Wanted<'_>, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
        let links = self.links();
        let works = [false, true].map(|v6| {
            let plan = self.plan(wanted.target, wanted.first, v6, wanted.client.dscp, 0, None);
            plan.roles.iter().any(|role| find(&links, role.link).is_some_and(|link| link.is_usable(v6)))
        });
        let mut addresses = addresses.to_vec();
        addresses.sort_by_key(|address| !works[usize::from(address.is_ipv6())]);
        addresses
    }

    /// The links on which a connection to these addresses may be opened now.
    fn openings(&self, wanted: Wanted<'_>, addresses: &[SocketAddr]) -> Openings {
        let Wanted { client, target, first, .. } = wanted;
        let is_ordered =
            self.settings().policies.policy(target, first.ip(), client.dscp, 0).mode.is_ordered();
        let mut all: Openings = (Vec::new(), 1);
        for address in addresses {
            let plan = self.plan(target, first, address.is_ipv6(), client.dscp, 0, None);
            let (links, at_once) = self.openings_of(&plan, *address, is_ordered);
            if all.0.is_empty() {
                all.1 = at_once;
            }
            let is_new = |link: &Arc<Link>| all.0.iter().all(|known| known.index != link.index);
            let new: Vec<_> = links.into_iter().filter(is_new).collect();
            all.0.extend(new);
        }
        all
    }

    /// Waits a moment where no link has a route, or each that has one is still being checked for a captive
    /// portal: in a handover the next network is there soon.
    async fn await_link(&self) {
        let is_coming = |link: &Arc<Link>| {
            let known = link.known();
            !known.reach.any() || known.captive && !known.checked && !known.doubted
        };
        let awaiting = async {
            while self.links().iter().all(is_coming) {
                sleep(Duration::from_millis(50)).await;
            }
        };
        let _ = timeout(self.settings().connect_timeout.min(PATIENCE), awaiting).await;
    }

    /// Notes that a gateway couldn't be reached, unless no link leads to it.
    fn blame(&self, gateway: &Gateway, wanted: Wanted<'_>, far: &[SocketAddr]) {
        if !self.openings(wanted, far).0.is_empty() {
            gateway.note(false);
        }
    }

    async fn open_directly(&self, wanted: Wanted<'_>, deadline: Instant) -> io::Result<Entry> {
        let addresses = &*self.usable_first(wanted, wanted.addresses);
        let wanted = Wanted { addresses, first: addresses[0], ..wanted };
        let (plan, config) = self.prepare(wanted, wanted.first)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let openings = || self.openings(wanted, addresses);
        let (stream, link) = dial(&self.network, addresses, &openings, &config, left).await?;
        let address = stream.peer_addr();
        let keep_alive = Configured::of(&config);
        let opened = Opened { stream: Arc::new(stream), secure: None, keep_alive };
        Ok(self.opened(wanted, plan, (opened, link, address), false, false))
    }

    /// Opens a connection through a gateway. `limit`: when the gateway has to be there. An error comes with
    /// whether the gateway is there, and has answered.
    async fn open_by(
        &self,
        gateway: &Gateway,
        wanted: Wanted<'_>,
        limit: Instant,
        deadline: Instant,
    ) -> Result<Entry, (io::Error, bool)> {
        let far = self.addresses_of(gateway).await.map_err(|error| {
            gateway.note(false);
            self.warn_of_gateway(gateway, &error);
            (error, false)
        })?;
        let far = self.usable_first(wanted, &far);
        let (plan, config) = self.prepare(wanted, far[0]).map_err(|error| (error, true))?;
        let has_answered = match self.ask_ready(gateway, wanted, &plan).await {
            Ok(asked) => return Ok(self.opened(wanted, plan, asked, gateway.early, true)),
            Err(has_answered) => has_answered,
        };
        let limits = (if has_answered { again(limit, deadline) } else { limit }, deadline);
        let opened = self.open_through(gateway, &far, wanted, &config, limits).await?;
        Ok(self.opened(wanted, plan, opened, gateway.early, false))
    }

    /// Adds the flow of a connection that is open.
    fn opened(
        &self,
        wanted: Wanted<'_>,
        mut plan: Plan,
        (opened, link, address): (Opened, Arc<Link>, SocketAddr),
        is_early: bool,
        was_ready: bool,
    ) -> Entry {
        let info = opened.stream.info();
        if was_ready {
            // Links that are there only since it was opened are joined below.
            let subflows = || info.iter().flat_map(|info| &info.subflows);
            plan.roles.retain(|role| subflows().any(|one| usize::from(one.path.0) == role.link));
        }
        link.note_answer(opened.stream.peer_addr(), info.as_ref());
        let multipath = info.is_some_and(|info| info.multipath);
        let (client, target) = (wanted.client, wanted.target.clone());
        let (opened_on, window) = (link.index, self.window());
        let entry =
            self.flows.add(NewFlow { client, target, address, opened, is_early, opened_on, plan, window });
        // Links may have changed meanwhile.
        self.apply(&entry.flow, false);
        tracing::debug!(
            flow = entry.flow.id,
            %client,
            target = %entry.flow.target,
            link = link.name,
            multipath,
            was_ready,
            "open"
        );
        entry
    }

    /// Opens a connection to the gateway, which connects to one of a server's addresses.
    async fn open_through(
        &self,
        gateway: &Gateway,
        far: &[SocketAddr],
        wanted: Wanted<'_>,
        config: &ConnectionConfig,
        (mut limit, deadline): (Instant, Instant),
    ) -> Result<(Opened, Arc<Link>, SocketAddr), (io::Error, bool)> {
        let mut first_error = None;
        for address in wanted.addresses {
            let wish = Some(Wish::Connection(*address));
            match self.reach(gateway, far, wanted, config, wish, (limit, deadline)).await {
                Ok((opened, link)) => return Ok((opened, link, *address)),
                Err(Unreached::Gateway(error)) => {
                    self.blame(gateway, wanted, far);
                    self.warn_of_gateway(gateway, &error);
                    return Err((error, false));
                }
                Err(Unreached::Wish(error)) => {
                    gateway.note(true);
                    if !is_about_server(&error) {
                        self.warn_of_gateway(gateway, &error);
                    }
                    first_error.get_or_insert(error);
                    if Instant::now() >= deadline {
                        break;
                    }
                    limit = again(limit, deadline);
                }
                Err(Unreached::Late) => {
                    gateway.note(true);
                    break;
                }
            }
        }
        Err((first_error.unwrap_or_else(|| late("the gateway doesn't answer the request")), true))
    }

    /// Connects to a gateway: TCP, TLS, and the wish. Where a link falls silent right after TCP's handshake
    /// the gateway has no key of the connection yet, so that no other link can join: it is opened again on
    /// another. A gateway that is short of memory resets connections whose request hasn't come: it is asked
    /// once more.
    async fn reach(
        &self,
        gateway: &Gateway,
        far: &[SocketAddr],
        wanted: Wanted<'_>,
        config: &ConnectionConfig,
        wish: Option<Wish>,
        (mut limit, deadline): (Instant, Instant),
    ) -> Result<(Opened, Arc<Link>), Unreached> {
        // Those that fell silent.
        let mut left_out = Vec::new();
        let mut was_reset = false;
        let keep_alive = Configured::of(config);
        loop {
            let left = limit.saturating_duration_since(Instant::now());
            let openings = || {
                let (all, at_once) = self.openings(wanted, far);
                let is_left = |link: &&Arc<Link>| !left_out.contains(&link.index);
                let left: Vec<_> = all.iter().filter(is_left).cloned().collect();
                // It may be back when no other works.
                let works = |link: &Arc<Link>| far.iter().any(|address| link.is_usable(address.is_ipv6()));
                (if left.iter().any(works) { left } else { all }, at_once)
            };
            let dialled = dial(&self.network, far, &openings, config, left).await;
            let (stream, link) = dialled.map_err(Unreached::Gateway)?;
            let is_v6 = stream.peer_addr().is_ipv6();
            let has_another =
                || openings().0.iter().any(|other| other.index != link.index && other.is_usable(is_v6));
            let (stream, all) = (Arc::new(stream), self.links());
            let asking = async {
                let prepared = timeout_at(limit, gateway.prepare(Arc::clone(&stream), keep_alive)).await;
                let prepared = prepared.unwrap_or_else(|_| Err(late("TLS with the gateway isn't answered")));
                let mut opened = prepared.map_err(Unreached::Gateway)?;
                let Some(wish) = wish else { return Ok(opened) };
                match timeout_at(deadline, gateway.ask(&mut opened, wish)).await {
                    Ok(Ok(())) => {
                        gateway.note(true);
                        Ok(opened)
                    }
                    Ok(Err(error)) => Err(Unreached::Wish(error)),
                    Err(_) => Err(Unreached::Late),
                }
            };
            tokio::select! {
                done = asking => match done {
                    Err(Unreached::Gateway(error) | Unreached::Wish(error))
                        if is_reset(&error) && !was_reset =>
                    {
                        was_reset = true;
                        left_out.clear();
                        sleep(AFTER_RESET).await;
                        limit = again(limit, deadline);
                    }
                    done => return done.map(|opened| (opened, link)),
                },
                () = nothing_acknowledged(&stream, has_another) => {
                    tracing::debug!(link = link.name, "silent after the handshake: another link is tried");
                    stream.reset();
                    left_out.push(link.index);
                }
                () = keep_alive.keep_asking(&stream) => {}
                () = comes_back_alone(&stream, &link, &all) => {
                    tracing::debug!(link = link.name, "it was silent meanwhile: opened again");
                    stream.reset();
                    left_out.clear();
                    limit = again(limit, deadline);
                }
            }
        }
    }

    /// Warns in the log that the gateway can't be used: at most once a minute, since each client's connection
    /// fails then.
    fn warn_of_gateway(&self, gateway: &Gateway, error: &io::Error) {
        let mut warned = self.warned_of_gateway.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
            *warned = Some(Instant::now());
            tracing::warn!(gateway = %gateway.target, %error, "no connection through the gateway");
        }
    }

    /// Asks the gateway for a server over a connection that is ready. Where there is none, or it is of no
    /// use: whether the gateway has answered.
    async fn ask_ready(
        &self,
        gateway: &Gateway,
        wanted: Wanted<'_>,
        plan: &Plan,
    ) -> Result<(Opened, Arc<Link>, SocketAddr), bool> {
        // Segments of a connection that is ready have no code point.
        let is_plain = wanted.client.dscp == 0;
        let ready = if is_plain { self.ready.take(&gateway.target, plan) } else { None };
        let (mut opened, link) = ready.ok_or(false)?;
        // The other half is left for a connection of its own.
        let limit = self.settings().connect_timeout / 2;
        let (stream, keep_alive, links) = (Arc::clone(&opened.stream), opened.keep_alive, self.links());
        let asked = tokio::select! {
            // The gateway may have been restarted; a refusal is heard again.
            asked = timeout(limit, gateway.ask(&mut opened, Wish::Connection(wanted.first))) => asked.ok(),
            () = keep_alive.keep_asking(&stream) => None,
            () = comes_back_alone(&stream, &link, &links) => None,
        };
        match asked {
            Some(Ok(())) => Ok((opened, link, wanted.first)),
            failed => {
                stream.reset();
                Err(failed.is_some_and(|failed| failed.is_err_and(|error| !is_reset(&error))))
            }
        }
    }

    /// Opens a connection to a gateway, with TLS. Rules see the gateway as its destination.
    async fn connect_to(
        &self,
        gateway: &Gateway,
        client: Client,
    ) -> io::Result<(Opened, Arc<Link>, Plan, Target)> {
        let addresses = self.addresses_of(gateway).await?;
        let target = Target::Address(addresses[0]);
        let wanted = Wanted { client, target: &target, addresses: &addresses, first: addresses[0] };
        let far = self.usable_first(wanted, &addresses);
        let (plan, config) = self.prepare(wanted, far[0])?;
        let limit = Instant::now() + self.settings().connect_timeout;
        let reached = self.reach(gateway, &far, wanted, &config, None, (limit, limit)).await;
        let (opened, link) = reached.map_err(Unreached::into_error)?;
        link.note_answer(opened.stream.peer_addr(), opened.stream.info().as_ref());
        Ok((opened, link, plan, target))
    }

    /// Opens a connection to the gateway that waits for a client.
    pub(super) async fn open_ready(&self, gateway: &Gateway) -> io::Result<(Opened, Arc<Link>)> {
        let (opened, link, ..) = self.connect_to(gateway, Client::nobody()).await?;
        Ok((opened, link))
    }

    /// Opens a connection to a gateway for a client's datagrams, or for the tunnel. Returns the gateway too.
    pub(super) async fn open_datagrams(&self, client: Client, wish: Wish) -> io::Result<(Entry, Target)> {
        let all = self.settings();
        let message = "datagrams go through a gateway, and none is configured";
        let mut failure = io::Error::new(io::ErrorKind::Unsupported, message);
        let takes = |gateway: &Gateway| !matches!(wish, Wish::Tunnel) || gateway.tls.is_some();
        for gateway in in_order(&all.gateways).into_iter().filter(takes) {
            let (mut opened, link, plan, target) = match self.connect_to(&gateway, client).await {
                Ok(connected) => connected,
                Err(error) => {
                    gateway.note(false);
                    failure = error;
                    continue;
                }
            };
            let asking = timeout(all.connect_timeout, gateway.ask(&mut opened, wish));
            asking.await.map_err(|_| late("the gateway doesn't answer the request"))??;
            let address = opened.stream.peer_addr();
            let entry = self.flows.add(NewFlow {
                client,
                target,
                address,
                opened,
                is_early: false,
                opened_on: link.index,
                plan,
                window: self.window(),
            });
            self.apply(&entry.flow, false);
            tracing::debug!(flow = entry.flow.id, %client, link = link.name, "open for datagrams");
            return Ok((entry, gateway.target.clone()));
        }
        Err(failure)
    }

    fn window(&self) -> Window {
        self.pressure.windows.of(default_config().receive_buffer)
    }

    /// Settings of a connection that is opened now.
    fn connection_config(&self, plan: &Plan, dscp: u8) -> io::Result<ConnectionConfig> {
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let mut config = default_config();
        config.scheduler = scheduler::builtin().parse(&plan.scheduler).map_err(wrong)?;
        let told = self.settings();
        config.congestion = congestion::builtin().parse(&told.congestion).map_err(wrong)?;
        config.path_manager.early_join = told.join == Join::Early;
        config.receive_buffer = self.pressure.windows.within(config.receive_buffer);
        config.tcp.dscp = dscp;
        config.tcp.black_hole_detection = true;
        config.gather_writes = true;
        let links = self.links();
        for role in &plan.roles {
            let Some(link) = find(&links, role.link) else { continue };
            for v6 in [false, true].into_iter().filter(|v6| link.has_route(*v6)) {
                config.path_manager.endpoints.push(link.endpoint(v6, role.backup));
            }
        }
        Ok(config)
    }

    fn openings_of(&self, plan: &Plan, address: SocketAddr, is_ordered: bool) -> Openings {
        let all = self.links();
        let mut links: Vec<_> =
            plan.roles.iter().filter_map(|role| find(&all, role.link).map(Arc::clone)).collect();
        // Those that stand by come last, and behind them those that may never have worked.
        let is_seen = |role: &&Role| find(&all, role.link).is_some_and(|link| link.known().seen);
        let active = || plan.roles.iter().take_while(|role| !role.backup);
        let active = match active().filter(is_seen).count() {
            0 => active().count(),
            seen => seen,
        };
        links.sort_by_key(|link| !link.known().seen);
        let mut at_once = 1;
        match self.settings().open_on {
            _ if is_ordered => {}
            OpeningLink::Nearest => {}
            OpeningLink::Race => at_once = active.max(1),
            OpeningLink::Remember => {
                let paths = links[..active.min(links.len())].iter().map(|link| link.path());
                let best = self.network.remembered_path(address.ip(), paths);
                if let Some(at) = links.iter().position(|link| Some(link.path()) == best) {
                    links[..=at].rotate_right(1);
                }
            }
        }
        (links, at_once)
    }
}
