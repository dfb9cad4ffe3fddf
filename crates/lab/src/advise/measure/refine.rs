//! What measurements say of a path, joined with what is stated of it. Each is a likelihood, weighted by how
//! sure both are: the result is surer than either. Of a path that isn't known, the measurements are all there
//! is.

use ropewalk_engine::Span;
use ropewalk_link::{Jitter, JitterShape, LinkSpec, Loss, Queue, Rate};
use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_sim::{Direction, PathSpec};

use super::likelihood::{
    OPEN, Repeated, USUAL_LOSS, apart, combined, contradicts, join, loss_after, raised, share,
};
use super::{Counted, Measured, RoundTrip, Throughput};
use crate::advise::belief::{Doubt, scale_rate, scaled_loss};
use crate::{scenario, stats};

/// IP packets carry less than they are long: 1448 of 1500 bytes are payload.
pub(super) const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;

/// Under load, a mean round trip of no more than so many times the least shows that no queue grew.
const NO_QUEUE: f64 = 1.15;

/// What a probe of a round trip is long, as an IP packet: ping's default. It takes that long to be sent, each
/// way, and the path's round-trip time is without.
const PROBE: f64 = 84.0;

/// How much a link's round-trip time changes until the measurement is used: standard deviation of its
/// logarithm.
const CHANGES: f64 = 0.02;

/// Standard deviation of the logarithm of a round-trip time of which only the most is known.
const BELOW: f64 = 0.25;

/// The directions by the index of their rates.
const WAYS: [(Direction, &str); 2] = [(Direction::Upload, "up"), (Direction::Download, "down")];

/// A path after its measurements.
#[derive(Clone, PartialEq, Debug)]
pub struct Refined {
    /// The path.
    pub path: PathSpec,
    /// How well it is known now.
    pub doubt: Doubt,
    /// Where measurements contradict each other.
    pub notes: Vec<String>,
}

impl Refined {
    fn links(&mut self) -> [&mut LinkSpec; 2] {
        [&mut self.path.up, &mut self.path.down]
    }

    /// Which way a rate is of which the file doesn't say it: the one whose stated rate it is nearer to, where
    /// it contradicts one of them; else both, which is none.
    fn way(&mut self, rate: &Throughput) -> Option<Direction> {
        let doubt = self.doubt.rate;
        let seen = (rate.bits / PAYLOAD_SHARE, rate.sd);
        let rates = self.links().map(|link| scenario::mean_rate(&link.rate) as f64);
        let stated = [(rates[0], doubt[0]), (rates[1], doubt[1])];
        let is_off =
            |stated: &(f64, f64)| contradicts(seen, *stated) && !(rate.at_least && seen.0 < stated.0);
        if !stated.iter().any(is_off) || rates[0] == rates[1] {
            return None;
        }
        let nearer = usize::from(apart(seen, stated[1]) < apart(seen, stated[0]));
        let note = format!(
            "which way {} Mbit/s are isn't said: taken as {}, whose stated rate is nearer",
            scenario_number(rate.bits / 1e6),
            WAYS[nearer].1
        );
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
        Some(WAYS[nearer].0)
    }

    /// Rates upwards and downwards; which of them are known is updated.
    fn rates(&mut self, measured: &[Measured], rated: &mut [bool; 2]) {
        let was_known = rated[0];
        let mut all: Vec<Throughput> = measured.iter().flat_map(|found| &found.rates).copied().collect();
        for rate in all.iter_mut().filter(|rate| was_known && rate.direction.is_none()) {
            rate.direction = self.way(rate);
        }
        for (index, (direction, way)) in WAYS.into_iter().enumerate() {
            let traces: Vec<_> = measured.iter().filter_map(|found| found.traces[index].as_ref()).collect();
            if let Some(trace) = traces.last() {
                self.links()[index].rate = Rate::Trace((*trace).clone());
                (rated[index], self.doubt.rate[index]) = (true, 0.1);
                if traces.len() > 1 {
                    let name = &trace.name;
                    self.notes.push(format!("several traces {way}: the last is taken, `{name}`"));
                }
            }
            let rates = || all.iter().filter(move |rate| rate.direction.is_none_or(|of| of == direction));
            let wire = |bits: f64| (bits / PAYLOAD_SHARE).clamp(1000.0, 1e12);
            let seen: Vec<(f64, f64)> = rates()
                .filter(|rate| !rate.at_least)
                .map(|rate| (wire(rate.bits), rate.sd.clamp(0.05, 0.5)))
                .collect();
            if let Some((found, contradict)) = combined(&seen) {
                if contradict {
                    self.contradiction(way, &seen, 1e6, "Mbit/s");
                }
                self.rate(index, found, rated[index]);
                rated[index] = true;
            }
            let least = rates().filter(|rate| rate.at_least).map(|rate| wire(rate.bits)).reduce(f64::max);
            let Some(least) = least else { continue };
            if rated[index] {
                let before = (scenario::mean_rate(&self.links()[index].rate), self.doubt.rate[index]);
                if before.0 < u64::MAX {
                    let (after, sd) = raised((before.0 as f64, before.1), least);
                    self.set_rate(index, before.0 as f64, after);
                    self.doubt.rate[index] = sd;
                }
            } else {
                // 5 % below what was measured, 5 % above five times that.
                self.links()[index].rate = Rate::Constant((least * libm::exp(1.645 * OPEN)) as u64);
                (rated[index], self.doubt.rate[index], self.doubt.open_above[index]) = (true, OPEN, true);
            }
        }
    }

    /// Joins a measured rate with what is known of it.
    fn rate(&mut self, index: usize, found: (f64, f64), is_known: bool) {
        let stated = scenario::mean_rate(&self.links()[index].rate);
        let before = (stated as f64, self.doubt.rate[index]);
        let after = if is_known && stated < u64::MAX {
            self.with_stated(WAYS[index].1, before, found, 1e6, "Mbit/s")
        } else {
            found
        };
        self.set_rate(index, before.0, after.0);
        self.doubt.rate[index] = after.1;
    }

    fn set_rate(&mut self, index: usize, before: f64, after: f64) {
        let link = &mut self.links()[index];
        match link.rate {
            Rate::Constant(_) => link.rate = Rate::Constant(after as u64),
            Rate::Trace(_) => scale_rate(link, after / before, 0.0),
        }
    }

    /// What is stated, joined with what was measured; where that contradicts it, what is stated doesn't
    /// count.
    fn with_stated(
        &mut self,
        what: &str,
        stated: (f64, f64),
        measured: (f64, f64),
        unit: f64,
        name: &str,
    ) -> (f64, f64) {
        if !contradicts(measured, stated) {
            return join(stated, measured);
        }
        let [stated, seen] = [stated, measured].map(|one| scenario_number(one.0 / unit));
        self.notes.push(format!(
            "{what}: {seen} {name} measured, {stated} stated, which doesn't count: they are too far apart"
        ));
        measured
    }

    fn contradiction(&mut self, what: &str, of: &[(f64, f64)], unit: f64, name: &str) {
        let shown: Vec<String> = of.iter().map(|one| scenario_number(one.0 / unit)).collect();
        self.notes.push(format!(
            "the measurements contradict each other: {what} {} {name}; are all of this path?",
            shown.join(" and ")
        ));
    }

    /// The round-trip time and its jitter. Idle ones beat those under load, of which the least counts.
    fn times(&mut self, measured: &[Measured], was_known: bool) -> bool {
        let idle: Vec<RoundTrip> = round_trips(measured).filter(|rtt| !rtt.loaded).collect();
        let loaded: Vec<RoundTrip> = round_trips(measured).filter(|rtt| rtt.loaded).collect();
        let ways = [&self.path.up, &self.path.down].map(|link| scenario::mean_rate(&link.rate).max(1) as f64);
        let sending = ways.map(|rate| PROBE * 8e3 / rate);
        // As unsure as the rates are.
        let unsure = libm::hypot(sending[0] * self.doubt.rate[0], sending[1] * self.doubt.rate[1]);
        let sending: f64 = sending.iter().sum();
        let of_idle = |rtt: &RoundTrip| {
            let count = rtt.count.filter(|count| *count > 0).unwrap_or(10);
            let mean = (rtt.mean - sending).max(0.5 * rtt.min).max(0.001);
            // Of few, the mean is as unsure as Student's distribution says.
            let few = stats::t_quantile(0.95, count.saturating_sub(1).max(1) as f64) / 1.645;
            let sd = few * rtt.sd / libm::sqrt(count as f64) / mean;
            (mean, libm::hypot(libm::hypot(sd, unsure / mean), CHANGES).min(0.3))
        };
        let stated = (self.path.up.delay + self.path.down.delay).as_millis_f64();
        let stated = (was_known && stated > 0.0).then_some((stated, self.doubt.rtt));
        // Smoothed ones that a queue has lengthened are a bound from above. One alone doesn't show that it
        // hasn't.
        let is_bound =
            |rtt: &RoundTrip| rtt.smoothed && (rtt.mean > NO_QUEUE * rtt.min || rtt.min == rtt.max);
        let least = |bounds: bool| {
            let all = loaded.iter().filter(|rtt| is_bound(rtt) == bounds);
            all.map(|rtt| rtt.min.max(0.001)).reduce(f64::min)
        };
        let seen: Vec<(f64, f64)> = if idle.is_empty() {
            least(false).map(|least| (least, 0.15)).into_iter().collect()
        } else {
            idle.iter().map(of_idle).collect()
        };
        let after = match (combined(&seen), least(true), stated) {
            (Some((found, contradict)), _, stated) => {
                if contradict {
                    self.contradiction("RTT", &seen, 1.0, "ms");
                }
                match stated {
                    Some(stated) => self.with_stated("RTT", stated, found, 1.0, "ms"),
                    None => found,
                }
            }
            (None, Some(most), Some((value, sd))) => {
                let (inverse, sd) = raised((1.0 / value, sd), 1.0 / most);
                (1.0 / inverse, sd)
            }
            // 5 % above what was measured, 5 % below half of that.
            (None, Some(most), None) => (most * libm::exp(-1.645 * BELOW), BELOW),
            (None, None, _) => return false,
        };
        self.doubt.rtt = after.1;
        set_delay(&mut self.path, after.0);
        if let Some(sd) = idle.iter().map(|rtt| rtt.sd).reduce(f64::max) {
            set_jitter(&mut self.path, sd, was_known);
        }
        true
    }

    fn loss(&mut self, measured: &[Measured], was_known: bool) {
        let path = &self.path;
        let counted: Vec<Counted> = measured.iter().filter_map(|m| m.loss).filter(|of| of.sent > 0).collect();
        // Slow start overshoots by up to what the path holds, and each loss of the window costs a few.
        let held = libm::sqrt(scenario::mean_rate(&path.down.rate).min(1 << 40) as f64)
            * libm::sqrt(scenario::mean_rate(&path.up.rate).min(1 << 40) as f64)
            * (path.up.delay + path.down.delay).as_nanos() as f64
            / 8e9
            / 1500.0;
        let repeats = measured.iter().filter_map(|m| m.retransmitted);
        let bounds: Vec<Repeated> = repeats
            .map(|(segments, sent)| Repeated { segments, sent, congestion: (held / 4.0).clamp(5.0, 1e4) })
            .collect();
        let stated = share(&path.up.loss).max(share(&path.down.loss));
        let says = was_known && stated > 0.0;
        // Where no loss is stated and none was seen, there is none.
        if !counted.is_empty() && (!was_known || stated > 0.0 || counted.iter().any(|of| of.lost > 0)) {
            let prior = if says { (stated, self.doubt.loss) } else { USUAL_LOSS };
            let (middle, sd) = loss_after(prior, &counted, &bounds);
            for link in self.links() {
                link.loss = match link.loss {
                    Loss::GilbertElliott { .. } => scaled_loss(link.loss, middle / stated.max(1e-9)),
                    _ => Loss::Bernoulli(middle.min(0.5)),
                };
            }
            self.doubt.loss = if says { sd.min(self.doubt.loss) } else { sd };
        } else if says && !bounds.is_empty() {
            let (middle, sd) = loss_after((stated, self.doubt.loss), &[], &bounds);
            for link in self.links() {
                link.loss = scaled_loss(link.loss, middle / stated);
            }
            self.doubt.loss = sd.min(self.doubt.loss);
        }
    }

    /// What the round trip grew by under load is the queue, in time at the rate it was filled at; where
    /// nothing shows that the link was full, the queue is at least that.
    fn queue(&mut self, measured: &[Measured], was_known: bool) {
        let idle = round_trips(measured).filter(|rtt| !rtt.loaded).map(|rtt| rtt.min).reduce(f64::min);
        let loaded = measured.iter().filter_map(|found| {
            let rtt = [found.under_load, found.rtt].into_iter().flatten().find(|rtt| rtt.loaded)?;
            let least = idle.map_or(rtt.min, |idle| idle.min(rtt.min));
            let grew = rtt.max - least;
            // A queue that was filled shows.
            (grew > 0.05 * least + 1.0).then_some((grew, found.filled()))
        });
        let filled = measured.iter().any(Measured::filled);
        let grew = loaded.reduce(|a, b| (a.0.max(b.0), a.1 || b.1));
        if !was_known {
            let rtt = self.path.up.delay + self.path.down.delay;
            for link in self.links() {
                let bytes = scenario::mean_rate(&link.rate) as f64 * rtt.as_nanos() as f64 / 8e9;
                let limit = (bytes / 1500.0).clamp(64.0, 100_000.0) as u32;
                link.queue = Queue::Packets { limit, ecn_threshold: None };
            }
        }
        let Some((grew, full)) = grew else { return };
        let full = full || filled;
        for link in self.links() {
            let bits = scenario::mean_rate(&link.rate) as f64;
            let seen = ((bits * grew / 8000.0).clamp(15_000.0, 1e9), 0.4);
            let joined = |bytes: f64| match full {
                true if was_known => join((bytes, 0.7), seen).0,
                true => seen.0,
                false => bytes.max(seen.0),
            };
            match &mut link.queue {
                Queue::Packets { limit, .. } => {
                    *limit = (joined(f64::from(*limit) * 1500.0) / 1500.0).clamp(2.0, 1e6) as u32;
                }
                Queue::Bytes { limit, .. } => *limit = joined(*limit as f64) as u64,
                Queue::CoDel { .. } => {}
            }
        }
        if full {
            self.doubt.queue = if was_known { join((1.0, self.doubt.queue), (1.0, 0.4)).1 } else { 0.4 };
        }
    }
}

/// All that were taken.
fn round_trips(measured: &[Measured]) -> impl Iterator<Item = RoundTrip> + '_ {
    measured.iter().flat_map(|found| [found.rtt, found.under_load].into_iter().flatten())
}

/// Three significant digits, without a unit.
fn scenario_number(value: f64) -> String {
    let digits = if value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$}")
}

/// Puts measurements into a path.
///
/// # Errors
/// A path that still has no rate or no round-trip time.
pub fn refine(name: &str, known: Option<PathSpec>, measured: &[Measured]) -> Result<Refined, Diagnostic> {
    let was_known = known.is_some();
    let path = known.unwrap_or_else(|| PathSpec {
        name: name.to_string(),
        up: LinkSpec::plain(u64::MAX, Span::ZERO, 64),
        down: LinkSpec::plain(u64::MAX, Span::ZERO, 64),
        mtu: 1500,
        backup: false,
        bottleneck: None,
        metered: None,
    });
    let mut refined = Refined { path, doubt: Doubt::default(), notes: Vec::new() };
    let mut rated = [was_known; 2];
    refined.rates(measured, &mut rated);
    let timed = was_known || round_trips(measured).next().is_some();
    if !rated.contains(&true) || !timed {
        let (what, how) = if rated.contains(&true) {
            ("round-trip time", "`ping -c 30 HOST > FILE`")
        } else {
            ("rate", "`iperf3 --json -c HOST > FILE`")
        };
        return Err(Diagnostic::new(format!("nothing says the {what} of path `{name}`"))
            .help(format!("add the output of {how}, or give the path with --path and measure the rest")));
    }
    // Better the other direction's than none.
    let Refined { path, doubt, .. } = &mut refined;
    match rated {
        [true, false] => {
            (path.down.rate, doubt.rate[1]) = (path.up.rate.clone(), 0.5);
            doubt.open_above[1] = doubt.open_above[0];
        }
        [false, true] => {
            (path.up.rate, doubt.rate[0]) = (path.down.rate.clone(), 0.5);
            doubt.open_above[0] = doubt.open_above[1];
        }
        _ => {}
    }
    refined.times(measured, was_known);
    refined.loss(measured, was_known);
    refined.queue(measured, was_known);
    if was_known {
        // A measurement narrows what is stated, or leaves it.
        let stated = Doubt::default();
        for index in [0, 1] {
            refined.doubt.rate[index] = refined.doubt.rate[index].min(stated.rate[index]);
        }
        refined.doubt.rtt = refined.doubt.rtt.min(stated.rtt);
    }
    Ok(refined)
}

fn set_delay(path: &mut PathSpec, rtt_ms: f64) {
    // Half of it each way.
    let delay = (rtt_ms.clamp(0.01, 60_000.0) * 0.5e6) as u64;
    let delay = Span::from_nanos(delay);
    (path.up.delay, path.down.delay) = (delay, delay);
}

/// Of single round trips; the variances of two halves add up. What is stated stays where it agrees within
/// half as much.
fn set_jitter(path: &mut PathSpec, sd_ms: f64, was_known: bool) {
    let spread = (sd_ms.clamp(0.0, 30_000.0) * 1e6 / std::f64::consts::SQRT_2) as u64;
    // A uniform jitter's standard deviation is its spread over the root of three.
    let stated = path.down.jitter.map_or(0.0, |jitter| match jitter.shape {
        JitterShape::Uniform => jitter.spread.as_nanos() as f64 / libm::sqrt(3.0),
        _ => jitter.spread.as_nanos() as f64,
    });
    let agrees = (spread as f64) < 1.5 * stated && (spread as f64) > stated / 1.5;
    if was_known && (agrees || (stated == 0.0 && spread <= 50_000)) {
        return;
    }
    for link in [&mut path.up, &mut path.down] {
        link.jitter = (spread > 50_000).then_some(Jitter {
            spread: Span::from_nanos(spread.min(link.delay.as_nanos())),
            shape: JitterShape::Normal,
            keeps_order: true,
        });
    }
}
