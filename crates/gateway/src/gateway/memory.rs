//! Memory is shared fairly: a few clients that read nothing keep nobody out.
//!
//! What connections hold is summed up several times a second. Beyond three quarters of the limit those that have made no progress for
//! two seconds are reset, beyond the limit those that have made none for half a second, until half of it is left: of the address that
//! holds most first, and there the one that has stalled for longest. Only while too much is held all the same, for a second, new
//! connections are reset.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropewalk_tokio::MptcpStream;
use tokio::time::Instant;

use super::{ForwardedConnection, State};

/// How often memory is looked at.
const INTERVAL: Duration = Duration::from_millis(250);
/// A connection has stalled after so long without progress: longer than most retransmission timeouts; and where the limit is
/// exceeded.
const STALLED: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(500));
/// New connections are reset after so long beyond the limit.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is told in the log.
const TOLD: Duration = Duration::from_secs(60);
/// What a connection takes without data: measured with two subflows, both ends' tasks included.
const IDLE_CONNECTION: u64 = 24 << 10;

/// Memory that a connection takes now: its data that isn't acknowledged, not read, or out of order.
fn memory_of(stream: &MptcpStream) -> u64 {
    let held = stream.info().map_or(0, |info| {
        let connection = &info.connection;
        connection.write_seq.saturating_sub(connection.snd_una) + connection.ofo_bytes
    });
    IDLE_CONNECTION + held + stream.readable_bytes()
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
struct Held {
    client: IpAddr,
    bytes: u64,
    stalled: Duration,
}

/// Which connections are to end so that half of `limit` is held: indices, in order.
fn victims(held: &[Held], limit: u64) -> Vec<usize> {
    let mut used: u64 = held.iter().map(|one| one.bytes).sum();
    if used <= limit / 4 * 3 {
        return Vec::new();
    }
    let long = if used > limit { STALLED.1 } else { STALLED.0 };
    let mut by_client: BTreeMap<IpAddr, u64> = BTreeMap::new();
    for one in held {
        *by_client.entry(one.client).or_default() += one.bytes;
    }
    let mut stalled: Vec<usize> =
        (0..held.len()).filter(|at| held[*at].stalled >= long && held[*at].bytes > IDLE_CONNECTION).collect();
    let mut victims = Vec::new();
    while used > limit / 2 {
        let rank = |at: &usize| (by_client[&held[*at].client], held[*at].stalled, held[*at].bytes);
        let Some(place) = (0..stalled.len()).max_by_key(|place| rank(&stalled[*place])) else { break };
        let victim = stalled.swap_remove(place);
        let one = &held[victim];
        used -= one.bytes;
        by_client.entry(one.client).and_modify(|bytes| *bytes -= one.bytes);
        victims.push(victim);
    }
    victims
}

/// Sees to it that connections hold no more than a limit, until it is cancelled.
pub(super) async fn watch(state: Arc<State>, limit: u64) {
    let (mut told, mut untold, mut over_since) = (None::<Instant>, 0u64, None::<Instant>);
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = Instant::now();
        let flows: Vec<Arc<ForwardedConnection>> = state.flows().into_iter().map(|(_, flow)| flow).collect();
        let held: Vec<Held> = flows
            .iter()
            .map(|flow| Held {
                client: flow.stream.peer_addr().ip(),
                bytes: memory_of(&flow.stream),
                stalled: flow.stalled(now),
            })
            .collect();
        let used: u64 = held.iter().map(|one| one.bytes).sum();
        let victims = victims(&held, limit);
        for victim in &victims {
            flows[*victim].stream.reset();
            state.counters.evicted.fetch_add(1, Ordering::Relaxed);
        }
        let freed: u64 = victims.iter().map(|victim| held[*victim].bytes).sum();
        over_since = (used - freed > limit).then(|| over_since.unwrap_or(now));
        let is_over = over_since.is_some_and(|since| now.duration_since(since) >= PATIENCE);
        if state.over_memory.swap(is_over, Ordering::Relaxed) != is_over && is_over {
            tracing::warn!(target: "ropewalk::gateway", used, limit, "connections take more than the limit: new ones are reset");
        }
        untold += victims.len() as u64;
        if untold > 0 && told.is_none_or(|told| told.elapsed() >= TOLD) {
            let client = victims.first().map(|victim| held[*victim].client.to_string());
            tracing::warn!(
                target: "ropewalk::gateway", used, limit, connections = untold, client,
                "memory is short: connections that made no progress were reset"
            );
            (told, untold) = (Some(now), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn held(client: u8, bytes: u64, seconds: u64) -> Held {
        Held { client: [10, 0, 0, client].into(), bytes, stalled: Duration::from_secs(seconds) }
    }

    #[test]
    fn the_greediest_addresss_longest_stalled_end_first() {
        let all = [
            held(1, 10 * MIB, 3),
            held(2, 20 * MIB, 60),
            held(1, 15 * MIB, 50),
            // It moves.
            held(1, 30 * MIB, 0),
            held(3, 5 * MIB, 600),
        ];
        // 55 MiB of the first address, 20 of the second, 5 of the third.
        assert!(victims(&all, 107 * MIB).is_empty(), "no more than three quarters");
        assert_eq!(victims(&all, 106 * MIB), [2, 0, 1]);
        assert_eq!(victims(&all, 20 * MIB), [2, 0, 1, 4], "those that move stay");
        let half = [held(1, 40 * MIB, 1), held(2, 30 * MIB, 1)];
        assert!(victims(&half, 80 * MIB).is_empty(), "a second is short while there is room");
        assert_eq!(victims(&half, 69 * MIB), [0]);
    }

    #[test]
    fn connections_without_data_stay() {
        let all = [held(1, IDLE_CONNECTION, 900), held(2, 9 * MIB, 0)];
        assert!(victims(&all, MIB).is_empty());
    }
}
