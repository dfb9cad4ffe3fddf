//! The last hour of each link, second by second, and of the flows: for the status page, `ropewalkd record`
//! and `ropewalk shadow`.
//!
//! Links are looked at ten times a second (`Recorder::look`); ten looks make a second
//! (`Recorder::note`). Whether a link is full is told by the round-trip times of the data on it: they grow
//! with the queue before it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropewalk_engine::{Span, SubflowId, TcpInfo};
use ropewalk_status::record::{Period, RecordedDirection, RecordedFlow, RecordedLink, Recording};
use ropewalk_tokio::StreamInfo;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::flow::ProxiedConnection;
use super::link::{Link, LinkState, SILENT};

mod gauge;

use gauge::{Fullness, Gauge, Heard};

/// Most seconds that are kept of a link.
const MOST_SECONDS: usize = 3600;
/// Most flows that are kept.
const MOST_FLOWS: usize = 4096;
/// Most pauses that are kept of a link, and most outages.
const MOST_PERIODS: usize = 1024;
/// Fewest bytes of a flow that is kept.
const SMALLEST: u64 = 1000;
/// How often links are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// Most flows whose round-trip times are looked at each time: those that carried most.
const LOOKED_AT: usize = 16;
/// A round-trip time that is newer is of this look.
const FRESH: Duration = Duration::from_millis(200);
/// A flow that has carried nothing for so long ended with its last byte.
const ENDED: Duration = Duration::from_millis(250);

/// A link in one second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Sample {
    /// Bits per second that it carried to clients, and from them; and the same while it was full.
    down: u64,
    up: u64,
    full_down: Option<u64>,
    full_up: Option<u64>,
    /// Full-sized packets sent down and up while the queue couldn't overflow, and how many of them were lost.
    packets_down: (u64, u64),
    packets_up: (u64, u64),
    /// The least round-trip time that was seen, of probes or subflows, and the greatest of data, seconds.
    rtt: Option<f32>,
    loaded_rtt: Option<f32>,
    /// Probes with an answer, and without.
    probes: (u16, u16),
}

/// A link's past.
#[derive(Debug, Default)]
struct Past {
    samples: VecDeque<Sample>,
    pauses: VecDeque<Period>,
    outages: VecDeque<Period>,
    /// Since when it doesn't work, in seconds since the begin.
    down_since: Option<f64>,
    gauge: Gauge,
    fullness: Fullness,
}

/// What was seen of a flow that is open.
#[derive(Clone, Copy, Debug)]
struct Seen {
    down: u64,
    up: u64,
    moved: Instant,
}

/// Full-sized packets sent to us and by us on a subflow so far, and how many of them were lost.
#[derive(Clone, Copy, Debug)]
struct Counted {
    down: (u64, u64),
    up: (u64, u64),
}

impl Counted {
    fn of(tcp: &TcpInfo) -> Counted {
        let totals = &tcp.totals;
        let received = totals.bytes_received / u64::from(tcp.advmss.max(1));
        Counted {
            down: (received + totals.late_gaps_filled, totals.late_gaps_filled),
            up: (totals.data_segs_out + totals.total_retrans, totals.total_retrans),
        }
    }

    /// What came since, down and up.
    fn since(&self, before: &Counted) -> [(u64, u64); 2] {
        let grown =
            |now: (u64, u64), then: (u64, u64)| (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1));
        [grown(self.down, before.down), grown(self.up, before.up)]
    }
}

/// The last hour.
#[derive(Debug, Default)]
struct History {
    /// By the links' numbers.
    links: BTreeMap<usize, Past>,
    flows: VecDeque<RecordedFlow>,
    /// By the flows' numbers.
    open: BTreeMap<u64, Seen>,
    /// What the subflows that were looked at had counted, by their flows' numbers and theirs.
    counted: BTreeMap<(u64, SubflowId), Counted>,
    /// Seconds that have passed, those that are forgotten included, and when the last one ended.
    seconds: u64,
    noted: Option<Instant>,
}

impl History {
    /// When something was, in seconds since the begin.
    fn place(&self, at: Instant) -> f64 {
        let ago = self.noted.map_or(0.0, |noted| noted.elapsed().as_secs_f64()) - at.elapsed().as_secs_f64();
        (self.seconds as f64 + ago).max(0.0)
    }

    /// Notes when a link stopped working, and when it worked again.
    fn note_state(&mut self, link: &Link) {
        let state = link.state();
        // One whose quota is used up works.
        let works = matches!(state, LinkState::Up | LinkState::QuotaSpent);
        let now = self.place(Instant::now());
        // It was dead before that was known.
        let silence = if state == LinkState::Dead { link.counters.silence().as_secs_f64() } else { 0.0 };
        let past = self.link(link);
        match past.down_since {
            None if !works => past.down_since = Some((now - silence).max(0.0)),
            Some(start_s) if works => {
                past.down_since = None;
                keep(&mut past.outages, Period { start_s, seconds: now - start_s });
            }
            _ => {}
        }
    }

    fn link(&mut self, link: &Link) -> &mut Past {
        let before = self.seconds.min(MOST_SECONDS as u64) as usize;
        // One that came later was of no use before.
        let down_since = (before > 0).then_some(0.0);
        let samples = || vec![Sample::default(); before].into();
        let absent = || Past { samples: samples(), down_since, ..Past::default() };
        self.links.entry(link.index).or_insert_with(absent)
    }
}

/// The oldest of very many is forgotten.
fn keep(periods: &mut VecDeque<Period>, new: Period) {
    if periods.len() == MOST_PERIODS {
        periods.pop_front();
    }
    periods.push_back(new);
}

/// What happened in the last hour.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<History>);

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the links, and at the flows that carried most since the last time.
    pub(super) fn look(&self, links: &[Arc<Link>], flows: &[Arc<ProxiedConnection>]) {
        use std::sync::atomic::Ordering::Relaxed;
        let now = Instant::now();
        let mut history = self.lock();
        let mut moved: Vec<(u64, u64, &Arc<ProxiedConnection>)> = Vec::new();
        let mut open = BTreeMap::new();
        for flow in flows {
            let (down, up) = (flow.downloaded.load(Relaxed), flow.uploaded.load(Relaxed));
            let new = Seen { down: 0, up: 0, moved: now };
            let old = history.open.get(&flow.id).copied().unwrap_or(new);
            if (down, up) != (old.down, old.up) {
                moved.push((down - old.down, up - old.up, flow));
            }
            let moved = if (down, up) == (old.down, old.up) { old.moved } else { now };
            open.insert(flow.id, Seen { down, up, moved });
        }
        history.open = open;
        moved.sort_by_key(|(down, up, _)| std::cmp::Reverse(down + up));
        moved.truncate(LOOKED_AT);
        let info = |(down, up, flow): (u64, u64, &Arc<ProxiedConnection>)| {
            Some((flow.id, (down > 0, up > 0), flow.stream.info()?))
        };
        let infos: Vec<(u64, (bool, bool), StreamInfo)> = moved.into_iter().filter_map(info).collect();
        let mut counted = BTreeMap::new();
        for link in links {
            let (mut down, mut up) = (Heard::default(), Heard::default());
            for (flow, (went_down, went_up), info) in &infos {
                let fresh = |age: Span| Duration::from(age) < FRESH;
                for subflow in info.subflows.iter().filter(|one| one.path == link.path()) {
                    let (tcp, key) = (&subflow.tcp, (*flow, subflow.id));
                    if *went_down && !tcp.rcv_rtt.is_zero() && fresh(tcp.last_recv) {
                        down.rtts.push(tcp.rcv_rtt.as_secs_f64() as f32);
                    }
                    if *went_up && !tcp.rtt.latest.is_zero() && fresh(tcp.last_data_sent) {
                        up.rtts.push(tcp.rtt.latest.as_secs_f64() as f32);
                    }
                    let now = Counted::of(tcp);
                    let grown = history.counted.get(&key).map_or([(0, 0); 2], |before| now.since(before));
                    for (heard, grown) in [&mut down, &mut up].into_iter().zip(grown) {
                        heard.packets = (heard.packets.0 + grown.0, heard.packets.1 + grown.1);
                    }
                    counted.insert(key, now);
                }
            }
            let rate = link.rate();
            let gauge = &mut history.link(link).gauge;
            let gaps = link.counters.take_gaps(gauge.long_gap());
            gauge.look(now, link.counters.bytes(), gaps, (&down, &up), rate);
            history.note_state(link);
        }
        history.counted = counted;
    }

    /// Notes how a probe ended: when it was sent, and for how long data had stopped then (`None`: none came
    /// before); the answer's round-trip time, if there was one, and whether packets of it were lost though
    /// the link worked.
    pub(super) fn note_probe(
        &self,
        link: &Link,
        (sent, stopped): (Instant, Option<Duration>),
        rtt: Option<Duration>,
        lost: bool,
    ) {
        let mut history = self.lock();
        let busy = stopped.is_some_and(|stopped| stopped < SILENT);
        let stopped = stopped.unwrap_or_default().as_secs_f64();
        let start_s = (history.place(sent) - stopped).max(0.0);
        let past = history.link(link);
        let rtt = rtt.map(|rtt| rtt.as_secs_f32());
        let Some(seconds) = past.gauge.note_probe(rtt, lost, busy) else { return };
        // Each probe of a pause tells of it.
        if past.pauses.back().is_none_or(|last| start_s > last.end_s()) {
            keep(&mut past.pauses, Period { start_s, seconds: f64::from(seconds) + stopped });
        }
    }

    /// Notes what the links did in the last second, and tells them whether they are full.
    pub(super) fn note(&self, links: &[Arc<Link>]) {
        let mut history = self.lock();
        let rates = links.iter().map(|link| link.known()).map(|known| (known.rate_down, known.rate_up));
        let all = rates.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        for link in links {
            let known = link.known();
            let past = history.link(link);
            let (mut sample, was_full) = past.gauge.second();
            (sample.down, sample.up) = (known.rate_down, known.rate_up);
            let is_full = past.fullness.second((&sample, was_full), all);
            link.learn(|known| known.full = is_full);
            if past.samples.len() == MOST_SECONDS {
                past.samples.pop_front();
            }
            past.samples.push_back(sample);
        }
        history.seconds += 1;
        history.noted = Some(Instant::now());
    }

    /// A link is gone.
    pub(super) fn forget(&self, link: &Link) {
        self.lock().links.remove(&link.index);
    }

    /// Notes a flow that has ended.
    pub(super) fn note_end(&self, flow: &ProxiedConnection) {
        use std::sync::atomic::Ordering::Relaxed;
        let (down, up) = (flow.downloaded.load(Relaxed), flow.uploaded.load(Relaxed));
        if down + up < SMALLEST {
            return;
        }
        let mut history = self.lock();
        if history.flows.len() == MOST_FLOWS {
            history.flows.pop_front();
        }
        let idle = history.open.remove(&flow.id).filter(|seen| (seen.down, seen.up) == (down, up));
        let idle = idle.map_or(Duration::ZERO, |seen| seen.moved.elapsed());
        let idle = if idle < ENDED { Duration::ZERO } else { idle };
        let start_s = history.place(flow.since);
        history.flows.push_back(RecordedFlow {
            start_s,
            seconds: flow.since.elapsed().saturating_sub(idle).as_secs_f64(),
            bytes_down: down,
            bytes_up: up,
            scheduler: flow.plan().scheduler,
        });
    }

    /// A link's last seconds, the oldest first.
    pub fn last(&self, link: usize, seconds: usize) -> Vec<Value> {
        let history = self.lock();
        let Some(Past { samples, .. }) = history.links.get(&link) else { return Vec::new() };
        samples
            .iter()
            .skip(samples.len().saturating_sub(seconds))
            .map(|one| json!([one.down, one.up]))
            .collect()
    }

    /// All that is kept: the last seconds of each link, and the flows that began in them.
    pub fn recording(&self, links: &[Arc<Link>]) -> Recording {
        let history = self.lock();
        let seconds = history.seconds.min(MOST_SECONDS as u64) as usize;
        let begin = (history.seconds - seconds as u64) as f64;
        let known = links.iter().filter_map(|link| Some((link, history.links.get(&link.index)?)));
        let end = history.place(Instant::now());
        let kept = |periods: &mut dyn Iterator<Item = Period>| {
            periods.filter_map(|period| period.after(begin)).collect::<Vec<Period>>()
        };
        let told = known.map(|(link, Past { samples, pauses, outages, down_since, .. })| {
            let told = link.settings();
            let goes_on = down_since.map(|start_s| Period { start_s, seconds: end - start_s });
            RecordedLink {
                interface: link.name.clone(),
                metered: told.metered,
                backup: told.backup,
                rate_limit_bits_per_s: told.rate.map(|rate| rate.down),
                down: RecordedDirection {
                    bits_per_s: samples.iter().map(|one| one.down).collect(),
                    full_bits_per_s: samples.iter().map(|one| one.full_down).collect(),
                    packets: samples.iter().map(|one| one.packets_down).collect(),
                },
                up: RecordedDirection {
                    bits_per_s: samples.iter().map(|one| one.up).collect(),
                    full_bits_per_s: samples.iter().map(|one| one.full_up).collect(),
                    packets: samples.iter().map(|one| one.packets_up).collect(),
                },
                rtt_s: samples.iter().map(|one| one.rtt).collect(),
                loaded_rtt_s: samples.iter().map(|one| one.loaded_rtt).collect(),
                probes: samples.iter().map(|one| one.probes).collect(),
                pauses: kept(&mut pauses.iter().copied()),
                outages: kept(&mut outages.iter().copied().chain(goes_on)),
            }
        });
        let flows = history.flows.iter().filter(|flow| flow.start_s >= begin);
        let flows =
            flows.map(|flow| RecordedFlow { start_s: flow.start_s - begin, ..flow.clone() }).collect();
        Recording { seconds, links: told.collect(), flows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Arc<Link> {
        Arc::new(Link::new(0, "wlan0".parse().unwrap(), Instant::now(), false))
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let link = link();
        let recorder = Recorder::default();
        for second in 0..MOST_SECONDS as u64 + 10 {
            link.learn(|known| (known.rate_down, known.rate_up) = (second, 1));
            recorder.note(&[Arc::clone(&link)]);
        }
        assert_eq!(recorder.last(0, 2), [json!([3608, 1]), json!([3609, 1])]);
        let recording = recorder.recording(&[link]);
        let down = &recording.links[0].down;
        assert_eq!(
            (recording.seconds, down.bits_per_s.len(), down.bits_per_s[0]),
            (MOST_SECONDS, MOST_SECONDS, 10)
        );
        assert_eq!((recording.links[0].rtt_s[0], down.full_bits_per_s[0]), (None, None));
        assert!(recorder.last(1, 5).is_empty());
    }

    #[test]
    fn a_spent_quota_is_no_outage() {
        let link = link();
        link.learn(|known| known.reach.v4 = Some(crate::setup::Route::Direct));
        let recorder = Recorder::default();
        let note = |change: &dyn Fn(&mut super::super::link::Knowledge)| {
            link.learn(change);
            recorder.look(&[Arc::clone(&link)], &[]);
            recorder.note(&[Arc::clone(&link)]);
            recorder.recording(&[Arc::clone(&link)]).links.remove(0).outages
        };
        assert_eq!(note(&|_| ()), []);
        assert_eq!(note(&|known| known.spent = true), []);
        let outages = note(&|known| (known.spent, known.captive) = (false, true));
        assert!(outages.len() == 1 && (2.0..2.1).contains(&outages[0].start_s), "{outages:?}");
        let over = note(&|known| known.captive = false);
        assert!(
            over.len() == 1 && (over[0].start_s, true) == (outages[0].start_s, over[0].seconds > 0.9),
            "{over:?}"
        );
    }

    #[test]
    fn probes_in_a_handover_tell_one_pause() {
        let link = link();
        let recorder = Recorder::default();
        let ms = Duration::from_millis;
        let sent = Instant::now();
        let probe = |after: u64, rtt: u64| {
            recorder.note_probe(
                &link,
                (sent + ms(after), (after > 0).then_some(ms(200))),
                Some(ms(rtt)),
                false,
            );
        };
        probe(0, 40);
        probe(200, 640);
        probe(400, 440);
        recorder.note_probe(&link, (sent + ms(900), None), Some(ms(41)), false);
        recorder.note(&[Arc::clone(&link)]);
        let one = recorder.recording(&[link]).links.remove(0);
        assert_eq!((one.pauses.len(), one.probes[0]), (1, (4, 0)));
        assert!((0.75..0.85).contains(&one.pauses[0].seconds), "{:?}", one.pauses);
        assert!((0.04 - one.rtt_s[0].unwrap()).abs() < 1e-3);
    }
}
