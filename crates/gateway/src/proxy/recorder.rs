//! The last hour of each link, second by second, and of the flows: for the status page, `ropewalkd record`
//! and `ropewalk shadow`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ropewalk_status::record::{RecordedFlow, RecordedLink, Recording};
use serde_json::{Value, json};

use super::flow::ProxiedConnection;
use super::link::{Link, LinkState};

/// Most seconds that are kept of a link.
const MOST_SECONDS: usize = 3600;
/// Most flows that are kept.
const MOST_FLOWS: usize = 4096;
/// Fewest bytes of a flow that is kept.
const SMALLEST: u64 = 1000;

/// A link in one second.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Sample {
    /// Bits per second that it carried to clients, and from them.
    down: u64,
    up: u64,
    /// The least round-trip time that was seen, of probes or subflows, seconds; not a number if none was.
    rtt: f32,
    /// Share of probes that had no answer, smoothed.
    loss: f32,
    up_and_usable: bool,
}

impl Sample {
    const ABSENT: Sample = Sample { down: 0, up: 0, rtt: f32::NAN, loss: 0.0, up_and_usable: false };
}

/// The last hour.
#[derive(Debug, Default)]
struct History {
    /// By the links' numbers.
    links: BTreeMap<usize, VecDeque<Sample>>,
    flows: VecDeque<RecordedFlow>,
    /// Seconds that have passed, those that are forgotten included.
    seconds: u64,
}

/// What happened in the last hour.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<History>);

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the links did in the last second.
    pub(super) fn note(&self, links: &[std::sync::Arc<Link>], flows: &[std::sync::Arc<ProxiedConnection>]) {
        let infos: Vec<_> = flows.iter().filter_map(|flow| flow.stream.info()).collect();
        let least = |link: &Link| {
            let all = infos.iter().flat_map(|info| &info.subflows);
            let own = all.filter(|subflow| subflow.path == link.path() && subflow.tcp.rtt.smoothed > 0);
            own.map(|subflow| subflow.tcp.rtt.min.min(subflow.tcp.rtt.smoothed)).filter(|rtt| *rtt > 0).min()
        };
        let mut history = self.lock();
        let before = history.seconds.min(MOST_SECONDS as u64) as usize;
        history.seconds += 1;
        for link in links {
            // One that came later was of no use before.
            let absent = || VecDeque::from(vec![Sample::ABSENT; before]);
            let samples = history.links.entry(link.index).or_insert_with(absent);
            let known = link.known();
            let probed = known.rtt.map(|rtt| rtt.as_secs_f32());
            let seen = least(link).map(|nanos| (nanos as f64 / 1e9) as f32);
            let rtt = [probed, seen].into_iter().flatten().fold(f32::NAN, f32::min);
            if samples.len() == MOST_SECONDS {
                samples.pop_front();
            }
            // One whose quota is used up works.
            let up_and_usable = matches!(link.state(), LinkState::Up | LinkState::QuotaSpent);
            let (down, up) = (known.rate_down, known.rate_up);
            samples.push_back(Sample { down, up, rtt, loss: known.loss as f32, up_and_usable });
        }
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
        let seconds = flow.since.elapsed().as_secs_f64();
        let mut history = self.lock();
        if history.flows.len() == MOST_FLOWS {
            history.flows.pop_front();
        }
        let start_s = (history.seconds as f64 - seconds).max(0.0);
        let scheduler = flow.plan().scheduler;
        history.flows.push_back(RecordedFlow { start_s, seconds, bytes_down: down, bytes_up: up, scheduler });
    }

    /// A link's last seconds, the oldest first.
    pub fn last(&self, link: usize, seconds: usize) -> Vec<Value> {
        let history = self.lock();
        let Some(samples) = history.links.get(&link) else { return Vec::new() };
        samples
            .iter()
            .skip(samples.len().saturating_sub(seconds))
            .map(|one| json!([one.down, one.up]))
            .collect()
    }

    /// All that is kept: the last seconds of each link, and the flows that began in them.
    pub fn recording(&self, links: &[std::sync::Arc<Link>]) -> Recording {
        let history = self.lock();
        let seconds = history.links.values().next().map_or(0, VecDeque::len);
        let begin = (history.seconds - seconds as u64) as f64;
        let known = links.iter().filter_map(|link| Some((link, history.links.get(&link.index)?)));
        let told = known.map(|(link, samples)| {
            let via = link.via();
            RecordedLink {
                interface: link.name.clone(),
                metered: via.metered,
                backup: via.backup,
                rate_limit_bits_per_s: via.rate.map(|rate| rate.down),
                down_bits_per_s: samples.iter().map(|one| one.down).collect(),
                up_bits_per_s: samples.iter().map(|one| one.up).collect(),
                rtt_s: samples.iter().map(|one| one.rtt.is_finite().then_some(one.rtt)).collect(),
                loss: samples.iter().map(|one| one.loss).collect(),
                usable: samples.iter().map(|one| one.up_and_usable).collect(),
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
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let link = Arc::new(Link::new(0, "wlan0".parse().unwrap(), Instant::now(), false));
        let recorder = Recorder::default();
        for second in 0..MOST_SECONDS as u64 + 10 {
            link.learn(|known| (known.rate_down, known.rate_up) = (second, 1));
            recorder.note(&[Arc::clone(&link)], &[]);
        }
        assert_eq!(recorder.last(0, 2), [json!([3608, 1]), json!([3609, 1])]);
        let recording = recorder.recording(&[link]);
        let one = &recording.links[0];
        assert_eq!(
            (recording.seconds, one.down_bits_per_s.len(), one.down_bits_per_s[0]),
            (MOST_SECONDS, MOST_SECONDS, 10)
        );
        assert_eq!(one.rtt_s[0], None);
        assert!(recorder.last(1, 5).is_empty());
    }
}
