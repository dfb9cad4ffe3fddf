//! Lower bounds on a run's objective, for any scheduler.
//!
//! Time counts from the workload's connect. A path counts from the earliest moment that RFC 8684's handshakes
//! allow (section 3.2). On the first path the client may send one round trip after its SYN, and may then
//! start a join. On the join, the client may send data when it has the fourth ACK, two round trips of that
//! path later; the server when it has the third, half a round trip earlier. A download's data waits for the
//! request. From then on a path carries its links' capacity, by rate, trace and changes, less 40 bytes of
//! IPv4 and TCP header per packet and no option, and each byte takes the least delay that its links can have.
//!
//! - [`Bound::capacity`] stops there.
//! - [`Bound::window`] adds that a path's window starts at its initial value and at most doubles in each of
//!   its least round trips, for each connection.
//!
//! Concurrent flows share the links: the k-th flow to end can't end before k flows' bytes have been carried,
//! so the mean of their completion times has a bound too. Where no bound is known (the delay of frames at a
//! constant rate, exchanges over links that change), there is none.

use ropewalk_engine::{NANOSECOND, SECOND, Span, Time};
use ropewalk_link::{ChangeAction, LinkSpec, Rate};
use ropewalk_sim::{Direction, Mode, RunSpec, Scenario, Workload, first_path};

/// Where [`Model::earliest`] gives up.
const LATEST: Span = Span::from_nanos(u64::MAX / 4);

/// IPv4 and TCP headers without options.
const HEADER: u64 = 40;

/// Lower bounds of a run's objective ([`crate::objective`]).
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Bound {
    /// By the links alone.
    pub capacity: f64,
    /// By the links and by windows that start small.
    pub window: f64,
}

/// A path: when it opens, and its links.
#[derive(Debug)]
struct UsablePath<'a> {
    /// Index of the path.
    path: usize,
    /// Earliest departure of data, from the workload's start.
    opens: Span,
    round_trip: Span,
    link: &'a LinkSpec,
    mtu: u64,
    /// Index of the shared link.
    bottleneck: Option<usize>,
    /// Least delay of its own link in the data's direction.
    delay: Span,
}

/// The network in the data's direction.
#[derive(Debug)]
struct Model<'a> {
    scenario: &'a Scenario,
    /// When the workload starts, from the start of the run.
    begin: Time,
    ways: Vec<UsablePath<'a>>,
    /// Segments of all connections' initial windows, on each path.
    initial: u64,
}

/// The bounds of a run, if its workload has any.
pub fn of(spec: &RunSpec) -> Option<Bound> {
    let scenario = &spec.scenario;
    let model = Model::new(scenario, spec.mode, spec.begin());
    let both =
        |value: &dyn Fn(bool) -> Option<f64>| Some(Bound { capacity: value(false)?, window: value(true)? });
    let seconds = Span::as_secs_f64;
    match &scenario.workload {
        Workload::Flow { bytes } => both(&|windows| model.earliest(*bytes, windows).map(seconds)),
        Workload::Web { objects, .. } => {
            both(&|windows| model.earliest(objects.iter().sum(), windows).map(seconds))
        }
        Workload::Flows { count, bytes } => both(&|windows| {
            let mut sum = 0.0;
            for k in 1..=u64::from(*count) {
                sum += seconds(model.earliest(bytes.saturating_mul(k), windows)?);
            }
            Some(sum / f64::from((*count).max(1)))
        }),
        Workload::Bulk { duration } => both(&|windows| {
            let bytes = model.delivered_by(*duration, windows);
            (bytes > 0).then(|| seconds(*duration) / (bytes as f64 / 1e6))
        }),
        Workload::RequestResponse { response, .. } => {
            let time = seconds(model.exchange(*response)?);
            Some(Bound { capacity: time, window: time })
        }
        Workload::Cbr { .. } | Workload::Transfers(_) => None,
    }
}

impl<'a> Model<'a> {
    fn new(scenario: &'a Scenario, mode: Mode, begin: Time) -> Self {
        let download = scenario.direction == Direction::Download;
        let used: Vec<usize> = match mode {
            Mode::SinglePath(path) => vec![path],
            Mode::Multipath => (0..scenario.paths.len()).collect(),
        };
        let first = match mode {
            Mode::SinglePath(path) => path,
            Mode::Multipath => first_path(scenario, begin),
        };
        let least = |path: usize| {
            let path = &scenario.paths[path];
            let shared = path.bottleneck.map(|shared| &scenario.bottlenecks[shared]);
            let up = crossing(&path.up) + shared.map_or(Span::ZERO, |shared| crossing(&shared.up));
            let down = crossing(&path.down) + shared.map_or(Span::ZERO, |shared| crossing(&shared.down));
            (up, up + down)
        };
        let (first_up, first_round_trip) = least(first);
        // When the client may send, by path. A request takes the path on which it arrives first.
        let from_client = |path: usize| {
            if path == first { first_round_trip } else { first_round_trip + 2 * least(path).1 }
        };
        let asked = used.iter().map(|path| from_client(*path) + least(*path).0).min().unwrap_or(first_up);
        let ways = used.iter().map(|&index| {
            let path = &scenario.paths[index];
            let (up, round_trip) = least(index);
            let opens = if !download {
                from_client(index)
            } else if index == first {
                asked.max(first_round_trip + up)
            } else {
                asked.max(first_round_trip + round_trip + up)
            };
            let link = if download { &path.down } else { &path.up };
            UsablePath {
                path: index,
                opens,
                round_trip,
                link,
                mtu: u64::from(path.mtu),
                bottleneck: path.bottleneck,
                delay: link.min_delay(),
            }
        });
        let ways = ways.collect();
        let sender = if download { &scenario.server } else { &scenario.client };
        let connections = match &scenario.workload {
            Workload::Flows { count, .. } => u64::from(*count),
            Workload::Web { connections, persistent: true, .. } => u64::from(*connections),
            Workload::Web { objects, .. } => objects.len() as u64,
            _ => 1,
        };
        let initial = u64::from(sender.initial_window).saturating_mul(connections.max(1));
        Model { scenario, begin, ways, initial }
    }

    fn shared(&self, index: usize) -> &'a LinkSpec {
        let shared = &self.scenario.bottlenecks[index];
        if self.scenario.direction == Direction::Download { &shared.down } else { &shared.up }
    }

    /// Most payload bytes that can have arrived by this time from the workload's start.
    fn delivered_by(&self, time: Span, windows: bool) -> u64 {
        let shared_delay =
            |way: &UsablePath<'_>| way.bottleneck.map_or(Span::ZERO, |i| self.shared(i).min_delay());
        let alone = |way: &UsablePath<'_>| {
            let last = time.saturating_sub(way.delay + shared_delay(way));
            if last <= way.opens {
                return 0;
            }
            let carried = payload(way.link, way.mtu, self.begin + way.opens, self.begin + last);
            if windows { carried.min(self.sent_by(way, last)) } else { carried }
        };
        let free = self.ways.iter().filter(|way| way.bottleneck.is_none()).map(alone);
        let mut total = free.fold(0, u64::saturating_add);
        for index in 0..self.scenario.bottlenecks.len() {
            let ways = || self.ways.iter().filter(|way| way.bottleneck == Some(index));
            let sum = ways().map(alone).fold(0, u64::saturating_add);
            // Data can't enter the shared link before a path opens, and must leave it in time for its delay.
            let opens = ways().map(|way| way.opens).min().unwrap_or(Span::MAX);
            let last = time.saturating_sub(self.shared(index).min_delay());
            let mtu = ways().map(|way| way.mtu).max().unwrap_or(1500);
            let carried = if last > opens {
                payload(self.shared(index), mtu, self.begin + opens, self.begin + last)
            } else {
                0
            };
            total = total.saturating_add(sum.min(carried));
        }
        total
    }

    /// Payload bytes that a window which doubles per round trip has admitted by this time.
    fn sent_by(&self, way: &UsablePath<'_>, time: Span) -> u64 {
        let Some(rounds) = (time - way.opens).checked_div(way.round_trip) else { return u64::MAX };
        let doubled = 1u64.checked_shl(rounds.min(63) as u32 + 1).map_or(u64::MAX, |power| power - 1);
        self.initial.saturating_mul(doubled).saturating_mul(way.mtu - HEADER)
    }

    /// The first time, from the workload's start, at which this much can have arrived; `None` after a
    /// century.
    fn earliest(&self, bytes: u64, windows: bool) -> Option<Span> {
        let (mut low, mut high) = (Span::ZERO, SECOND);
        while self.delivered_by(high, windows) < bytes {
            low = high;
            high = Some(2 * high).filter(|high| *high < LATEST)?;
        }
        // `low` is too early (or 0), `high` is late enough.
        while high - low > NANOSECOND {
            let middle = low.midpoint(high);
            if self.delivered_by(middle, windows) < bytes {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(high)
    }

    /// The least time of an exchange over open paths: the request takes the fastest path, the response all at
    /// once. `None` over links whose rate varies.
    fn exchange(&self, response: u64) -> Option<Span> {
        let least = |up: bool| {
            let delays = self.ways.iter().map(|way| {
                let path = &self.scenario.paths[way.path];
                let own = if up { path.up.min_delay() } else { path.down.min_delay() };
                let shared = path.bottleneck.map_or(Span::ZERO, |index| {
                    let shared = &self.scenario.bottlenecks[index];
                    if up { shared.up.min_delay() } else { shared.down.min_delay() }
                });
                own + shared
            });
            delays.min().unwrap_or_default()
        };
        let mut rate = 0u64;
        for way in &self.ways {
            match way.link.rate {
                Rate::Constant(own) if way.link.changes.is_empty() => rate = rate.saturating_add(own),
                _ => return None,
            }
        }
        let sending = (u128::from(response) * 8_000_000_000).checked_div(u128::from(rate))?;
        let sending = Span::from_nanos(u64::try_from(sending).unwrap_or(u64::MAX));
        Some(least(true) + least(false) + sending)
    }
}

/// The least time in which the smallest packet crosses a link.
fn crossing(link: &LinkSpec) -> Span {
    let sending = match link.rate {
        Rate::Constant(rate) if rate > 0 && rate < u64::MAX && link.changes.is_empty() => {
            (u128::from(HEADER + u64::from(link.overhead)) * 8_000_000_000 / u128::from(rate)) as u64
        }
        _ => 0,
    };
    link.min_delay() + Span::from_nanos(sending)
}

/// Most payload that a link carries between two moments of the run, in full packets of `mtu`. A packet during
/// which the rate changes may count at the faster rate: one more for each.
fn payload(link: &LinkSpec, mtu: u64, from: Time, to: Time) -> u64 {
    let bytes = link.capacity_integral(from, to);
    if bytes == u64::MAX {
        return u64::MAX;
    }
    let cut =
        link.changes.iter().filter(|change| matches!(change.action, ChangeAction::Rate(_))).count() as u64;
    let slack = if cut > 0 { (cut + 1) * mtu } else { 0 };
    let full = u128::from(bytes + slack) * u128::from(mtu - HEADER);
    // Rounded up, so that the bound doesn't get later.
    u64::try_from(full.div_ceil(u128::from(mtu + u64::from(link.overhead)))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ropewalk_sim::networks;

    use super::*;
    use ropewalk_algorithms::Registries;

    const MS: Span = Span::from_millis(1);

    fn bound(scenario: Scenario, mode: Mode) -> Bound {
        let registries = Registries::builtin();
        let spec = RunSpec {
            scenario: Arc::new(scenario),
            scheduler: registries.schedulers.parse("minrtt").unwrap(),
            congestion: registries.congestion.parse("cubic").unwrap(),
            mode,
            seed: 1,
            start_phase: Span::ZERO,
            recording: Default::default(),
        };
        of(&spec).unwrap()
    }

    #[test]
    fn one_path_by_hand() {
        // 12 Mbit/s: 40 bytes take 26.7 us, 1500 bytes 1 ms. 100 full packets after the handshake.
        let mut scenario = networks::one(12_000_000, 10 * MS);
        scenario.workload = Workload::Flow { bytes: 100 * 1460 };
        scenario.direction = Direction::Upload;
        let upload = bound(scenario.clone(), Mode::SinglePath(0));
        let expected = 0.020 + 2.0 * 40.0 * 8.0 / 12e6 + 0.100 + 0.010;
        assert!((upload.capacity - expected).abs() < 2e-6, "{upload:?}");
        // 10 at once, 20 a round trip later, 40, and the last 30 after three round trips: those wait for
        // their ACKs.
        assert!(
            upload.window > 0.020 + 3.0 * 0.020 + 0.010 && upload.window >= upload.capacity,
            "{upload:?}"
        );
        // A download's request takes another half round trip.
        scenario.direction = Direction::Download;
        let download = bound(scenario, Mode::SinglePath(0));
        assert!(
            (download.capacity - upload.capacity - 0.010 - 40.0 * 8.0 / 12e6).abs() < 2e-6,
            "{download:?}"
        );
    }

    #[test]
    fn a_join_opens_two_round_trips_later() {
        let mut scenario = networks::two_equal(12_000_000, 10 * MS);
        scenario.direction = Direction::Upload;
        scenario.workload = Workload::Flow { bytes: 200 * 1460 };
        let both = bound(scenario.clone(), Mode::Multipath);
        let alone = bound(scenario, Mode::SinglePath(0));
        // 40 packets on the first path before the second opens, then 80 on each.
        assert!((both.capacity - (0.020 + 0.040 + 0.080 + 0.010)).abs() < 5e-4, "{both:?}");
        assert!((alone.capacity - (0.020 + 0.200 + 0.010)).abs() < 5e-4, "{alone:?}");
    }

    #[test]
    fn a_shared_link_bounds_both_paths() {
        let mut scenario = networks::shared_bottleneck();
        scenario.workload = Workload::Flow { bytes: 10_000_000 };
        let shared = bound(scenario, Mode::Multipath);
        // 50 Mbit/s of 1460 in 1500: 1.644 s and the delays.
        assert!((1.644..1.70).contains(&shared.capacity), "{shared:?}");
    }

    #[test]
    fn concurrent_flows_end_one_after_another() {
        let mut scenario = networks::one(12_000_000, 10 * MS);
        scenario.workload = Workload::Flow { bytes: 146_000 };
        let one = bound(scenario.clone(), Mode::SinglePath(0)).capacity;
        scenario.workload = Workload::Flows { count: 3, bytes: 146_000 };
        // The second ends 100 ms after the first, the third 200 ms: the mean is that of the second.
        let mean = bound(scenario, Mode::SinglePath(0)).capacity;
        assert!((mean - one - 0.100).abs() < 1e-6, "{mean} {one}");
    }

    #[test]
    fn frames_at_a_constant_rate_have_none() {
        let mut scenario = networks::one(12_000_000, 10 * MS);
        scenario.workload =
            Workload::Cbr { frame: 1000, rate: 1_000_000, key: None, duration: 1000 * MS, deadline: None };
        let registries = Registries::builtin();
        let spec = RunSpec {
            scenario: Arc::new(scenario),
            scheduler: registries.schedulers.parse("minrtt").unwrap(),
            congestion: registries.congestion.parse("cubic").unwrap(),
            mode: Mode::Multipath,
            seed: 1,
            start_phase: Span::ZERO,
            recording: Default::default(),
        };
        assert_eq!(of(&spec), None);
    }
}
