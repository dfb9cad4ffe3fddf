//! Once a second: what links carry (rates, quotas), and what that means for open connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::direct::Counted;
use super::link::{Link, LinkState};
use super::recorder;
use super::serve::Server;
use super::uplinks::direct_bytes;

/// How often rates are taken and policies looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the file of quotas is written, in intervals.
const SAVE: u32 = 10;

/// Adds what a link has carried to its quota's use. Returns whether that changed the link's state.
fn charge(server: &Server, link: &Link, bytes: u64) -> bool {
    let Some(quota) = link.settings().quota else {
        let was_spent = link.known().spent;
        link.learn(|known| known.spent = false);
        return was_spent;
    };
    let mut usage = server.usage.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(usage) = usage.as_mut() else { return false };
    let today = chrono::Local::now().date_naive();
    let carried = usage.add(&link.name, bytes, quota.period, today);
    let spent = carried >= quota.bytes;
    let changed = link.known().spent != spent;
    link.learn(|known| (known.spent, known.carried) = (spent, carried));
    if let Some(rate) = link.settings().throttle.filter(|_| changed && spent) {
        let (down, up) = (rate.down, rate.up);
        tracing::warn!(link = link.name, down, up, "its quota is used up: it is throttled, bits per second");
    }
    changed
}

/// Writes the file of quotas, and waits for the disk.
pub(super) fn save(server: &Server) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    // A copy: what is charged meanwhile doesn't wait.
    let usage = server.usage.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(usage) = usage
        && let Err(error) = usage.save()
    {
        tracing::warn!(%error, "keeping what the links have carried");
    }
}

/// Records the links until it is cancelled.
pub(super) async fn record(server: Arc<Server>) {
    let mut ticks = interval(recorder::LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        server.recorder.look(&server.links(), &server.flows.all());
    }
}

/// Takes rates and charges quotas until it is cancelled.
pub(super) async fn account(server: Arc<Server>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    let mut last = Instant::now();
    let mut counted = Counted::default();
    let mut saving: Option<JoinHandle<()>> = None;
    for round in 0u32.. {
        ticks.tick().await;
        let seconds = last.elapsed().as_secs_f64().max(1e-3);
        last = Instant::now();
        let (links, settings) = (server.links(), server.settings());
        if settings.has_tunnel() && settings.has_quota() {
            if let Ok(Ok(now)) = spawn_blocking(direct_bytes).await {
                counted.note(&links, now);
            }
        } else {
            counted = Counted::default();
        }
        for link in links.iter() {
            let (sent, received) = link.counters.bytes();
            let before = before.insert(link.index, (sent, received)).unwrap_or_default();
            // A link may have come in another's place.
            let (up, down) = (sent.saturating_sub(before.0), received.saturating_sub(before.1));
            let rate = |bytes: u64| (bytes as f64 * 8.0 / seconds) as u64;
            link.learn(|known| (known.rate_up, known.rate_down) = (rate(up), rate(down)));
            if charge(&server, link, up + down) {
                server.on_link_change(link);
                server.rates_changed.notify_one();
            } else if link.state() == LinkState::QuotaSpent {
                // They have had a second to go elsewhere.
                server.flows.all().iter().for_each(|flow| flow.end_alone(link, &links));
            }
        }
        server.recorder.note(&links);
        server.flows.all().iter().for_each(|flow| flow.look());
        server.apply_policies(round % 10 == 9);
        server.apply_mtus();
        // A disk may take long. What waits for it is no packet.
        if round % SAVE == SAVE - 1 && saving.as_ref().is_none_or(JoinHandle::is_finished) {
            let server = Arc::clone(&server);
            saving = Some(spawn_blocking(move || save(&server)));
        }
    }
}
