//! Keeps connections to the gateway ready.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::remote::{Gateway, in_order};
use super::serve::Server;

/// Without a client for so long, none is kept: nothing is spent on metered links.
const UNUSED: Duration = Duration::from_secs(300);
/// How often a gateway is tried that couldn't be reached.
const RECHECK: Duration = Duration::from_secs(10);
/// How often it is looked after them.
const TICK: Duration = Duration::from_secs(1);

/// Looks whether a gateway that couldn't be reached is back.
async fn check(server: Arc<Server>, gateway: Gateway) {
    if let Ok((opened, _)) = server.open_ready(&gateway).await {
        opened.stream.reset();
        gateway.note(true);
        tracing::info!(gateway = %gateway.target, "the gateway can be reached again");
    }
}

/// Keeps as many as the configuration says, until it is cancelled.
pub(super) async fn refill(server: Arc<Server>) {
    let (mut clients, mut used, mut checked) = (0, Instant::now(), Instant::now());
    let mut checks = JoinSet::new();
    loop {
        let _ = timeout(TICK, server.ready.taken()).await;
        let seen = server.flows.total();
        if seen != clients {
            (clients, used) = (seen, Instant::now());
        }
        let settings = server.settings();
        if checked.elapsed() >= RECHECK {
            checked = Instant::now();
            for gateway in settings.gateways.iter().filter(|gateway| gateway.has_failed()) {
                checks.spawn(check(Arc::clone(&server), gateway.clone()));
            }
            while checks.try_join_next().is_some() {}
        }
        let gateways = in_order(&settings.gateways);
        let Some(gateway) = gateways.first().filter(|_| used.elapsed() < UNUSED) else {
            server.ready.clear();
            continue;
        };
        let missing = gateway.ready.saturating_sub(server.ready.prune());
        let mut opening = JoinSet::new();
        for _ in 0..missing {
            let (server, gateway) = (Arc::clone(&server), gateway.clone());
            opening.spawn(async move { server.open_ready(&gateway).await });
        }
        while let Some(done) = opening.join_next().await {
            match done {
                Ok(Ok((opened, link))) => {
                    tracing::debug!(link = link.name, "ready for a client");
                    server.ready.put(gateway.target.clone(), opened, link);
                }
                Ok(Err(error)) => tracing::debug!(%error, "no connection to the gateway can be kept ready"),
                Err(_) => {}
            }
        }
    }
}
