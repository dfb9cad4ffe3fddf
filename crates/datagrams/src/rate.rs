//! A link's rate and round-trip time, by what the far end says has arrived.
//!
//! The rate follows BBR (Cardwell et al., ACM Queue 14(5), 2016): the greatest delivery rate of late, paced,
//! probed for more by a quarter for one round trip in eight. Two rules keep the queue short, which calls and
//! games need: bytes in flight are at most the rate times the least round-trip time and 12 ms, and while
//! packets wait longer on the link than 12 ms, less is sent than arrives. Loss doesn't slow it down below
//! a tenth: what is lost is sent again where that is worth it, and a flow's own congestion control sees
//! the queue before the tunnel.

use std::collections::VecDeque;

use crate::{MILLISECOND, SECOND};

/// How much more than the pipe may be in flight, as time at the link's rate.
const QUEUE: u64 = 12 * MILLISECOND;
/// Packets wait so long on the link: less is sent than arrives.
const HIGH: u64 = 12 * MILLISECOND;
/// Packets wait so long on the link: no more is sent than arrives.
const RAISED: u64 = 6 * MILLISECOND;
/// Packets wait so short on the link: it is nearly empty.
const EMPTY: u64 = 2 * MILLISECOND;
/// In flight before anything is known, bytes (RFC 6928).
const INITIAL_WINDOW: u64 = 14_600;
/// What may go at once after a pause, bytes.
const BURST: f64 = 16_000.0;
/// How long the least delay and the least round-trip time hold.
const LEAST_AGE: u64 = 10 * SECOND;
/// Gains of the rate, a round trip each.
const GAINS: [f64; 8] = [1.25, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Until the rate is known a link may carry so many times what has arrived: voice alone shows little of a
/// link.
const UNPROVEN: f64 = 8.0;
/// The gain until the rate is known.
const START_GAIN: f64 = 2.0;
/// The same of what is in flight: at the end of it as much too much waits on the link.
const START_WINDOW: f64 = 1.25;
/// The share of lost packets from which on the rate isn't probed for more.
const MUCH_LOSS: f64 = 0.1;
/// The lowest rate, bytes per second.
const LOWEST: f64 = 12_500.0;

/// The extreme of a value over the last while, by halves of it.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    halves: [Option<f64>; 2],
    since: u64,
}

impl Recent {
    /// `better`: which of two counts.
    fn note(&mut self, now: u64, age: u64, value: f64, better: fn(f64, f64) -> f64) {
        if now.saturating_sub(self.since) > age / 2 {
            self.halves = [None, self.halves[0].filter(|_| now.saturating_sub(self.since) <= age)];
            self.since = now;
        }
        self.halves[0] = Some(self.halves[0].map_or(value, |old| better(old, value)));
    }

    fn get(&self, better: fn(f64, f64) -> f64) -> Option<f64> {
        match self.halves {
            [Some(new), Some(old)] => Some(better(new, old)),
            [one, other] => one.or(other),
        }
    }
}

/// What the sender learns from feedback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    /// Round-trip time of the last packet that arrived.
    pub rtt: u64,
    /// When it arrived, microseconds of the receiver's clock.
    pub arrived: u32,
    /// Bytes that have arrived altogether.
    pub bytes: u32,
    /// The least one-way delay of late, microseconds, with the difference of the clocks.
    pub delay: i32,
    /// Packets that this feedback says have arrived, and that are lost.
    pub counts: (u32, u32),
}

/// A link's sending side.
#[derive(Debug)]
pub(crate) struct Rate {
    pub srtt: Option<u64>,
    pub variance: u64,
    least_rtt: Recent,
    least_delay: Recent,
    /// The least over the last half of a round-trip time: jitter is no queue.
    standing: Recent,
    /// Its value.
    pub delay: i32,
    /// How much more than the least it is while little is sent, nanoseconds.
    jitter: f64,
    /// How long packets wait on the link.
    pub queue: u64,
    /// The greatest delivery rate of late, bytes per second.
    delivery: Recent,
    /// When the sample under way began, by the receiver's clock, and the bytes then.
    anchor: Option<(u32, u32)>,
    samples: VecDeque<f64>,
    is_starting: bool,
    round: u64,
    /// Rounds in which packets have waited long.
    high_rounds: u32,
    gain: usize,
    loss: f64,
    /// The same over the last thousand packets.
    pub long_loss: f64,
    /// Whether packets have waited for this link in this round.
    pub is_backlogged: bool,
    /// Whether it had room that nothing needed since the sample under way began.
    pub was_idle: bool,
    /// Most that may be sent, bytes per second: whatever the link carries beyond is dropped.
    pub most: f64,
    credit: f64,
    credited: u64,
    pub in_flight: u64,
}

impl Rate {
    pub fn new(now: u64) -> Rate {
        Rate {
            srtt: None,
            variance: 0,
            least_rtt: Recent::default(),
            least_delay: Recent::default(),
            standing: Recent::default(),
            delay: 0,
            jitter: 0.0,
            queue: 0,
            delivery: Recent::default(),
            anchor: None,
            samples: VecDeque::new(),
            is_starting: true,
            round: now,
            high_rounds: 0,
            gain: 2,
            loss: 0.0,
            long_loss: 0.0,
            is_backlogged: false,
            was_idle: true,
            most: f64::INFINITY,
            credit: BURST,
            credited: now,
            in_flight: 0,
        }
    }

    pub fn least_rtt(&self) -> Option<u64> {
        self.least_rtt.get(f64::min).map(|rtt| rtt as u64)
    }

    /// The link's rate, bytes per second; until it is known, what the initial window brings.
    pub fn rate(&self) -> f64 {
        let known = self.delivery.get(f64::max);
        let pipe = |rtt: u64| INITIAL_WINDOW as f64 * SECOND as f64 / (rtt + QUEUE) as f64;
        let initial = self.least_rtt().map_or(0.0, pipe);
        let at_least = if self.is_starting || known.is_none() { initial } else { 0.0 };
        known.unwrap_or(0.0).max(at_least).max(LOWEST).min(self.most)
    }

    /// Whether the rate is still being found out.
    pub fn is_starting(&self) -> bool {
        self.is_starting && self.rate() < self.most
    }

    /// How long the link takes for so many bytes; while its rate is being found out, by some times what has
    /// arrived.
    pub fn takes(&self, len: u64) -> u64 {
        let rate = match self.is_starting() {
            true => UNPROVEN * self.delivery.get(f64::max).unwrap_or(0.0).max(LOWEST),
            false => self.rate(),
        };
        (len as f64 / rate * SECOND as f64) as u64
    }

    fn paced(&self) -> f64 {
        let gain = match () {
            () if self.queue > HIGH => 0.6,
            () if self.queue > RAISED => 0.9,
            () if self.is_starting => START_GAIN,
            () if self.loss > MUCH_LOSS => GAINS[self.gain].min(1.0),
            () => GAINS[self.gain],
        };
        (self.rate() * gain).min(self.most)
    }

    fn window(&self) -> u64 {
        let Some(rtt) = self.least_rtt() else { return INITIAL_WINDOW };
        let gain = if self.is_starting() { START_WINDOW } else { 1.0 };
        let pipe = self.rate() * gain * (rtt + QUEUE) as f64 / SECOND as f64;
        (pipe as u64).max(INITIAL_WINDOW / 2)
    }

    /// When a packet of `len` bytes may be sent; `None`: after the next feedback.
    pub fn ready_at(&self, now: u64, len: usize) -> Option<u64> {
        if self.in_flight + len as u64 > self.window() {
            return None;
        }
        let credit = self.credit + self.paced() * now.saturating_sub(self.credited) as f64 / SECOND as f64;
        let missing = 1.0 - credit.min(self.burst());
        match missing > 0.0 {
            true => Some(now + (missing / self.paced() * SECOND as f64) as u64 + 1),
            false => Some(now),
        }
    }

    /// What may go at once.
    fn burst(&self) -> f64 {
        BURST.max(self.paced() * 0.002)
    }

    pub fn on_sent(&mut self, now: u64, len: usize) {
        let earned = self.paced() * now.saturating_sub(self.credited) as f64 / SECOND as f64;
        self.credit = (self.credit + earned).min(self.burst()) - len as f64;
        // What goes whether there is room or not, such as voice, delays others by little.
        self.credit = self.credit.max(-2.0 * BURST);
        self.credited = now;
        self.in_flight += len as u64;
    }

    pub fn on_feedback(&mut self, now: u64, report: &Report) {
        let rtt = report.rtt.clamp(MILLISECOND / 20, 10 * SECOND);
        match self.srtt {
            // RFC 6298, 2.
            None => (self.srtt, self.variance) = (Some(rtt), rtt / 2),
            Some(srtt) => {
                self.variance = (3 * self.variance + srtt.abs_diff(rtt)) / 4;
                self.srtt = Some((7 * srtt + rtt) / 8);
            }
        }
        self.least_rtt.note(now, LEAST_AGE, rtt as f64, f64::min);
        self.standing.note(now, self.srtt.unwrap_or(rtt) / 2, report.delay.into(), f64::min);
        self.delay = self.standing.get(f64::min).unwrap_or(0.0) as i32;
        self.least_delay.note(now, LEAST_AGE, report.delay.into(), f64::min);
        let least = self.least_delay.get(f64::min).unwrap_or(0.0);
        let more = (f64::from(self.delay) - least).max(0.0) * 1000.0;
        if self.in_flight < self.window() / 4 {
            self.jitter += (more - self.jitter) / 16.0;
        }
        self.queue = (more - self.jitter).max(0.0) as u64;
        let (arrived, lost) = report.counts;
        if arrived + lost > 0 {
            let share = f64::from(lost) / f64::from(arrived + lost);
            let weight = f64::from(arrived + lost).min(50.0) / 200.0;
            self.loss += (share - self.loss) * weight;
            self.long_loss += (share - self.long_loss) * (f64::from(arrived + lost) / 1000.0).min(1.0);
        }
        if self.is_starting {
            // By what waits on the link, not by a rate that grows no more: a flow that begins is slow itself.
            let is_round = now.saturating_sub(self.round) >= self.srtt.unwrap_or(rtt);
            let is_full = self.queue > if is_round { RAISED } else { 2 * HIGH };
            let is_used = self.in_flight > self.window() / 2;
            self.is_starting = !(is_full && is_used) && self.loss <= MUCH_LOSS;
        }
        self.sample(now, report);
        if now.saturating_sub(self.round) >= self.srtt.unwrap_or(rtt) {
            self.next_round(now);
        }
    }

    fn sample(&mut self, now: u64, report: &Report) {
        let Some((since, bytes)) = self.anchor else {
            self.anchor = Some((report.arrived, report.bytes));
            return;
        };
        let passed = report.arrived.wrapping_sub(since);
        // A pause tells nothing.
        if passed > 500_000 {
            self.was_idle = false;
            self.anchor = Some((report.arrived, report.bytes));
            return;
        }
        if passed < 15_000 {
            return;
        }
        self.anchor = Some((report.arrived, report.bytes));
        let sample = f64::from(report.bytes.wrapping_sub(bytes)) * 1e6 / f64::from(passed);
        // Of three the median: what was held up on the way arrives at once.
        self.samples.push_back(sample);
        if self.samples.len() > 3 {
            self.samples.pop_front();
        }
        let mut sorted: Vec<f64> = self.samples.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let sample = if self.is_starting { sample } else { sorted[sorted.len() / 2] };
        let known = self.delivery.get(f64::max).unwrap_or(0.0);
        // What isn't sent isn't delivered: that says nothing of the link.
        let is_behind = sample < 0.9 * self.paced();
        let is_telling = !std::mem::take(&mut self.was_idle) && (is_behind || self.paced() >= self.rate());
        if is_telling && is_behind && self.queue > 2 * HIGH {
            // The link has become slower.
            self.delivery = Recent::default();
        }
        if is_telling || sample > known && sample > LOWEST {
            let age = (10 * self.srtt.unwrap_or(SECOND / 20)).clamp(500 * MILLISECOND, 4 * SECOND);
            self.delivery.note(now, age, sample, f64::max);
        }
    }

    fn next_round(&mut self, now: u64) {
        self.round = now;
        self.high_rounds = if self.queue > HIGH { self.high_rounds + 1 } else { 0 };
        if self.high_rounds >= 4 {
            // Less was sent, and it is no shorter: it isn't the tunnel's queue, or the way has become longer.
            self.least_delay = Recent::default();
            self.least_delay.note(now, LEAST_AGE, self.delay.into(), f64::min);
            self.least_rtt = Recent::default();
            self.least_rtt.note(now, LEAST_AGE, self.srtt.unwrap_or(0) as f64, f64::min);
            (self.queue, self.high_rounds) = (0, 0);
        }
        if self.is_backlogged && self.queue < EMPTY {
            // Packets wait for the link, and none on it: it can carry more.
            self.gain = 0;
        } else {
            self.gain = (self.gain + 1) % GAINS.len();
            // More isn't asked of a link that isn't used as it is.
            if self.gain == 0 && !self.is_backlogged {
                self.gain = 2;
            }
        }
        self.is_backlogged = false;
    }
}
