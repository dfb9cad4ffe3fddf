//! What earlier connections learnt of the paths to a peer, and the path on which the next one should open:
//! Linux's `tcp_metrics`, by path.
//!
//! The connection's first packets travel on the path that it opens on, until the others have joined: that is
//! the initial window and what its ACKs release, 30 segments. A path's cost is the time until these have
//! arrived: two round trips, for the handshake and the request, and their time at the path's rate. A rate is
//! known once a subflow has carried as much. While that of some path isn't known, round-trip times alone
//! decide.
//!
//! A cache belongs to whoever drives the endpoint: it calls [`PathCache::learn`] when a connection ends, and
//! [`PathCache::opening`] before it connects.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ropewalk_wire::Payload;

use crate::mptcp::Connection;
use crate::{PathId, SECOND, Span, Time};

/// What a connection sends before another path has joined, bytes.
const OPENING_BYTES: u64 = 30 * 1448;

/// After so long an entry is forgotten (`TCP_METRICS_TIMEOUT`).
const LIFETIME: Span = Span::from_secs(3600);

/// Most entries; beyond them the oldest goes.
const MOST_ENTRIES: usize = 4096;

/// What is known of a path to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathQuality {
    /// Least round-trip time, smoothed over connections.
    pub rtt: Span,
    /// Rate of data in its greater direction, bytes per second; `None`: no connection carried enough to tell.
    pub rate: Option<u64>,
    /// When it was last updated.
    pub at: Time,
}

impl PathQuality {
    /// The time until the first data of a connection has arrived; with `rate`, what it takes at that rate.
    fn cost(&self, rate: Option<u64>) -> u128 {
        let transfer = rate.map_or(Span::ZERO, |rate| OPENING_BYTES * SECOND / rate.max(1));
        2 * u128::from(self.rtt.as_nanos()) + u128::from(transfer.as_nanos())
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathCache {
    entries: BTreeMap<(IpAddr, PathId), PathQuality>,
}

impl PathCache {
    /// Takes over what a connection to `peer` has found out by now.
    pub fn learn<P: Payload>(&mut self, now: Time, peer: IpAddr, connection: &Connection<P>) {
        for (path, rtt, rate) in path_samples(connection, now) {
            self.update(now, peer, path, rtt, rate);
        }
    }

    fn update(&mut self, now: Time, peer: IpAddr, path: PathId, rtt: Span, rate: Option<u64>) {
        if self.entries.len() >= MOST_ENTRIES
            && !self.entries.contains_key(&(peer, path))
            && let Some(oldest) = self.entries.iter().min_by_key(|(_, known)| known.at).map(|(key, _)| *key)
        {
            self.entries.remove(&oldest);
        }
        let known = self.entries.entry((peer, path)).or_insert(PathQuality { rtt, rate, at: now });
        let smooth = |old: u64, new: u64| old - old / 4 + new / 4;
        known.rtt = Span::from_nanos(smooth(known.rtt.as_nanos(), rtt.as_nanos()));
        if let Some(rate) = rate {
            known.rate = Some(known.rate.map_or(rate, |old| smooth(old, rate)));
        }
        known.at = now;
    }

    /// What is known of a path, unless it is too old.
    pub fn quality(&self, now: Time, peer: IpAddr, path: PathId) -> Option<PathQuality> {
        let known = self.entries.get(&(peer, path))?;
        (now.saturating_sub(known.at) < LIFETIME).then_some(*known)
    }

    /// The path of these on which a connection to `peer` should open; `None` if something of one isn't known.
    /// A tie goes to the first.
    pub fn opening(
        &self,
        now: Time,
        peer: IpAddr,
        paths: impl IntoIterator<Item = PathId>,
    ) -> Option<PathId> {
        let known = paths.into_iter().map(|path| Some((path, self.quality(now, peer, path)?)));
        let known: Vec<(PathId, PathQuality)> = known.collect::<Option<_>>()?;
        // Rates decide only where all are known.
        let rates = known.iter().all(|(_, quality)| quality.rate.is_some());
        let cost = |(_, quality): &&(PathId, PathQuality)| quality.cost(quality.rate.filter(|_| rates));
        known.iter().min_by_key(cost).map(|(path, _)| *path)
    }
}

/// Of each subflow that was answered: its path, its least round-trip time and its rate, unless it has
/// carried too little.
fn path_samples<P: Payload>(
    connection: &Connection<P>,
    now: Time,
) -> impl Iterator<Item = (PathId, Span, Option<u64>)> {
    connection.subflow_infos(now).filter(|info| info.tcp.rtt.min > Span::ZERO).map(|info| {
        let carried = |bytes: u64| bytes >= OPENING_BYTES;
        let sent = carried(info.tcp.totals.bytes_acked).then_some(info.tcp.delivery_rate);
        // From the first data to the latest.
        let receiving = info.age.saturating_sub(info.tcp.last_recv + 2 * info.tcp.rtt.min);
        let arrived = (carried(info.tcp.totals.bytes_received) && receiving > Span::ZERO).then(|| {
            let byte_seconds = u128::from(info.tcp.totals.bytes_received) * u128::from(SECOND.as_nanos());
            (byte_seconds / u128::from(receiving.as_nanos())) as u64
        });
        (info.path, info.tcp.rtt.min, sent.max(arrived).filter(|rate| *rate > 0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MILLISECOND;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn cache(paths: &[(u64, Option<u64>)]) -> PathCache {
        let mut cache = PathCache::default();
        for (path, (rtt_ms, rate)) in paths.iter().enumerate() {
            cache.update(Time::ZERO + SECOND, PEER, PathId(path as u16), *rtt_ms * MILLISECOND, *rate);
        }
        cache
    }

    fn opening(cache: &PathCache, now: Time) -> Option<u16> {
        cache.opening(now, PEER, [PathId(0), PathId(1)]).map(|path| path.0)
    }

    #[test]
    fn a_connection_opens_where_its_first_data_arrives_earliest() {
        let now = Time::ZERO + 2 * SECOND;
        assert_eq!(opening(&cache(&[(60, None), (20, None)]), now), Some(1));
        // 43 KiB take 350 ms at 125 kB/s and 9 ms at 5 MB/s.
        assert_eq!(opening(&cache(&[(60, Some(5_000_000)), (20, Some(125_000))]), now), Some(0));
        assert_eq!(opening(&cache(&[(60, None), (20, Some(125_000))]), now), Some(1), "a rate isn't known");
        assert_eq!(opening(&cache(&[(20, None), (20, None)]), now), Some(0));
        assert_eq!(opening(&cache(&[(20, None)]), now), None, "nothing is known of the second");
    }

    #[test]
    fn entries_are_smoothed_and_age() {
        let mut cache = cache(&[(40, Some(1000)), (20, None)]);
        cache.update(Time::ZERO + 3 * SECOND, PEER, PathId(0), 80 * MILLISECOND, None);
        let known = cache.quality(Time::ZERO + 3 * SECOND, PEER, PathId(0)).unwrap();
        assert_eq!(
            (known.rtt, known.rate, known.at),
            (50 * MILLISECOND, Some(1000), Time::ZERO + 3 * SECOND)
        );
        assert_eq!(cache.quality(Time::ZERO + 3 * SECOND + LIFETIME, PEER, PathId(0)), None);
        assert_eq!(cache.quality(Time::ZERO + SECOND, IpAddr::from([192, 0, 2, 2]), PathId(0)), None);
        for port in 0..MOST_ENTRIES as u32 {
            let peer = IpAddr::from(port.to_be_bytes());
            cache.update(Time::ZERO + 10 * SECOND, peer, PathId(0), MILLISECOND, None);
        }
        assert_eq!(cache.entries.len(), MOST_ENTRIES);
    }
}
