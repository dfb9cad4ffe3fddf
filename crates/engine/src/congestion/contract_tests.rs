//! The contract of all congestion controls, run over every entry of [`builtin`] and each of its presets: a
//! new one is under test the moment it is registered.
//!
//! | rule | what it asks |
//! |---|---|
//! | `own-window` | an ACK on one subflow changes no other number than that subflow's window, threshold and pacing rate |
//! | `growth` | an ACK of n segments adds n at most, and none when the window wasn't the limit |
//! | `window` | a window is 1 segment at least |
//! | `ssthresh` | a loss leaves 2 segments at least, and no more than there were |
//! | `recovers` | after a loss and without another, the window grows again |
//! | `single-path` | with one subflow, the windows are those of its single-path parent |
//! | `harmless` | two subflows alike together grow no faster per round trip than one TCP, if the control is coupled |
//! | `forgets` | a subflow that comes after another went is treated as a new one |
//!
//! An algorithm that departs from a rule by its nature declares it in its entry; the departures are printed,
//! and one that is declared but doesn't happen is an error too.

use proptest::prelude::*;

use super::testing::{OnList, build, subflow, subflows};
use super::{Ack, CongestionControl, ControlEntry, LossCause, RateSample, builtin};
use crate::congestion::AckCounting;
use crate::departures::{Departures, check, is_exempt, variants};
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::{MILLISECOND, Span, Time};

/// What `text` is with one subflow ([`ControlEntry::single_path`]): itself where subflows don't know of
/// each other.
fn parent(text: &str) -> String {
    let (name, preset) = text.split_once(':').unwrap_or((text, ""));
    let Some(parent) = entry(name).single_path else { return text.into() };
    let has_preset = entry(parent).presets.iter().any(|one| one.name == preset);
    if has_preset { format!("{parent}:{preset}") } else { parent.into() }
}

/// Whether subflows know of each other.
fn coupled(text: &str) -> bool {
    entry(text.split(':').next().unwrap_or_default()).single_path.is_some()
}

fn entry(name: &str) -> ControlEntry {
    *builtin().entries().iter().find(|entry| entry.name == name).expect("it is registered")
}

/// What a model-based control's link delivers in a round trip, segments.
const LINK: u32 = 200;

/// What happens to a subflow.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ack { acked: u32, rtt_ms: u64, limited: bool, round_start: bool },
    Loss(LossCause),
    Undo,
    Idle(Span),
    Rejoin,
}

/// A connection's controls and flows, checked at each step.
struct Bench {
    control: Box<dyn CongestionControl>,
    subflows: Vec<SubflowMetrics>,
    before_loss: Vec<(u32, u32)>,
    now: Time,
    found: Departures,
}

impl Bench {
    fn new(text: &str, mut list: Vec<SubflowMetrics>) -> Self {
        let mut control = build(text);
        for i in 0..list.len() {
            control.added_on(&mut list, i, Time::ZERO);
        }
        let before_loss = list.iter().map(|subflow| (subflow.cwnd(), subflow.ssthresh())).collect();
        Bench { control, subflows: list, before_loss, now: Time::ZERO, found: Vec::new() }
    }

    fn step(&mut self, i: usize, step: Step) {
        let before = self.subflows.clone();
        match step {
            Step::Ack { acked, rtt_ms, limited, round_start } => {
                let rtt = rtt_ms * MILLISECOND;
                self.now += rtt / u64::from(self.per_round(i));
                let subflow = &mut self.subflows[i];
                (subflow.rtt.smoothed, subflow.rtt.latest, subflow.totals.delivered) =
                    (rtt, rtt, subflow.totals.delivered + u64::from(acked));
                subflow.rtt.min = subflow.rtt.min.min(rtt);
                subflow.totals.bytes_acked += u64::from(acked) * u64::from(subflow.mss);
                let prior_in_flight = if limited { subflow.cwnd() } else { subflow.cwnd() / 4 };
                let seen = self.subflows.clone();
                let now = self.now;
                let ack = Ack {
                    now,
                    acked,
                    counting: AckCounting::Segments,
                    rtt: Some(rtt),
                    prior_in_flight,
                    cwnd_limited: limited,
                    round_start,
                };
                if self.control.is_model_based() {
                    self.sample(i, &ack, rtt);
                } else {
                    self.control.ack_on(&mut self.subflows, i, &ack);
                }
                self.check_ack(&seen, i, acked, limited);
            }
            Step::Loss(cause) => {
                let ssthresh = self.control.ssthresh_on(&self.subflows, i, cause, self.now);
                let most = before[i].cwnd().max(2);
                if !(2..=most).contains(&ssthresh) {
                    self.found.push(("ssthresh", format!("{ssthresh} of {}", before[i].cwnd())));
                }
                if self.subflows.len() > 1 && ssthresh == 0 {
                    self.found.push(("window", "a threshold of 0".into()));
                }
                self.before_loss[i] = (before[i].cwnd(), before[i].ssthresh());
                let subflow = &mut self.subflows[i];
                subflow.set_ssthresh(ssthresh);
                subflow.set_cwnd(if cause == LossCause::Timeout {
                    1
                } else {
                    ssthresh.min(subflow.cwnd()).max(1)
                });
                subflow.totals.loss_events += 1;
            }
            Step::Undo => {
                self.control.undo_on(&self.subflows, i);
                let (cwnd, ssthresh) = self.before_loss[i];
                let subflow = &mut self.subflows[i];
                subflow.set_cwnd(subflow.cwnd().max(cwnd));
                subflow.set_ssthresh(subflow.ssthresh().max(ssthresh));
            }
            Step::Idle(idle) => {
                self.now += idle;
                self.control.idle_restart_on(&self.subflows, i, idle);
                let subflow = &mut self.subflows[i];
                subflow.set_cwnd(subflow.cwnd().min(10));
            }
            Step::Rejoin => {
                self.subflows[i].state = SubflowStatus::Closed;
                self.control.removed_on(&mut self.subflows, i);
                let fresh = subflows(&[subflow(10, 40)]).remove(0);
                self.subflows[i] =
                    SubflowMetrics { id: self.subflows[i].id, path: self.subflows[i].path, ..fresh };
                self.subflows[i].set_ssthresh(u32::MAX);
                self.control.added_on(&mut self.subflows, i, self.now);
            }
        }
        if self.subflows[i].cwnd() == 0 {
            self.found.push(("window", format!("{step:?} leaves nothing of {}", before[i].cwnd())));
            self.subflows[i].set_cwnd(1);
        }
    }

    /// The same ACK for a model-based control: the window's rate, and the samples of a steady sender.
    fn sample(&mut self, i: usize, ack: &Ack, rtt: Span) {
        let subflow = &self.subflows[i];
        let delivered = u64::from(ack.prior_in_flight.min(LINK)).min(subflow.totals.delivered);
        let sample = RateSample {
            now: ack.now,
            acked: ack.acked,
            rtt: ack.rtt,
            rate: (u128::from(delivered) * u128::from(subflow.mss) * 1_000_000_000
                / u128::from(rtt.as_nanos())) as u64,
            app_limited: !ack.cwnd_limited,
            delivered,
            prior_delivered: subflow.totals.delivered - delivered,
            tx_in_flight: ack.prior_in_flight,
            lost: 0,
            cwnd_limited: ack.cwnd_limited,
        };
        self.control.sample_on(&mut self.subflows, i, &sample);
    }

    /// Segments that are acknowledged in a round trip: the window, where nothing but losses bounds it.
    fn per_round(&self, i: usize) -> u32 {
        let window = self.subflows[i].cwnd().max(1);
        if self.control.is_model_based() { window.min(LINK) } else { window }
    }

    fn check_ack(&mut self, seen: &[SubflowMetrics], i: usize, acked: u32, limited: bool) {
        let mut expected = seen.to_vec();
        let after = &self.subflows[i];
        expected[i].set_cwnd(after.cwnd());
        expected[i].set_ssthresh(after.ssthresh());
        expected[i].rate.pacing = after.rate.pacing;
        if expected != self.subflows {
            self.found.push(("own-window", format!("subflow {i}'s ACK changed something else")));
        }
        let allowed = seen[i].cwnd() + if limited { acked } else { 0 };
        if after.cwnd() > allowed {
            let (from, to) = (seen[i].cwnd(), after.cwnd());
            self.found
                .push(("growth", format!("{from} to {to} with {acked} acknowledged, limited: {limited}")));
        }
    }

    /// A round trip of single ACKs.
    fn round(&mut self, i: usize, rtt_ms: u64) {
        let window = self.per_round(i);
        assert!(window < 100_000, "no path has room for {window} segments: {:?}", self.control);
        for number in 0..window {
            self.step(i, Step::Ack { acked: 1, rtt_ms, limited: true, round_start: number == 0 });
        }
    }
}

/// Windows after each of a fixed history's steps, and what was found on the way.
fn history(text: &str, list: Vec<SubflowMetrics>) -> (Vec<u32>, Departures) {
    let mut bench = Bench::new(text, list);
    let mut windows = Vec::new();
    for lap in 0..6u64 {
        for round in 0..12 {
            for i in 0..bench.subflows.len() {
                bench.round(i, 40 + lap + round / 4);
            }
            windows.extend(bench.subflows.iter().map(|subflow| subflow.cwnd()));
        }
        let cause = [LossCause::FastRetransmit, LossCause::Timeout, LossCause::Ecn][lap as usize % 3];
        bench.step(0, Step::Loss(cause));
        if lap == 3 {
            bench.step(0, Step::Undo);
        }
        windows.push(bench.subflows[0].cwnd());
    }
    (windows, bench.found)
}

/// Segments that all windows together grow by in so many quiet round trips of congestion avoidance.
fn growth(text: &str, list: Vec<SubflowMetrics>, rounds: u32) -> f64 {
    let total = |subflows: &[SubflowMetrics]| subflows.iter().map(|subflow| subflow.cwnd()).sum::<u32>();
    let mut bench = Bench::new(text, list);
    let before = total(&bench.subflows);
    for _ in 0..rounds {
        for i in 0..bench.subflows.len() {
            bench.round(i, 40);
        }
    }
    f64::from(total(&bench.subflows).saturating_sub(before)) / f64::from(rounds)
}

/// All that `text` does that the contract forbids.
fn departures(text: &str) -> Departures {
    let mut found = Vec::new();
    let one = || subflows(&[subflow(20, 40)]);
    let lists = [
        one(),
        subflows(&[subflow(20, 40), subflow(20, 40)]),
        subflows(&[subflow(3, 400), subflow(60, 10), subflow(9, 90)]),
    ];
    for list in lists {
        found.extend(history(text, list).1);
    }
    let (own, theirs) = (history(text, one()).0, history(&parent(text), one()).0);
    if own != theirs {
        found.push(("single-path", format!("{own:?}\nwhere {} has\n{theirs:?}", parent(text))));
    }
    if coupled(text) {
        let pair = growth(text, subflows(&[subflow(20, 40), subflow(20, 40)]), 40);
        let single = growth(&parent(text), one(), 40).max(1.0);
        if pair > single * 1.05 {
            found.push(("harmless", format!("{pair} segments per round trip where one TCP adds {single}")));
        }
    }
    for cause in [LossCause::FastRetransmit, LossCause::Timeout, LossCause::Ecn] {
        let mut bench = Bench::new(text, subflows(&[subflow(20, 40), subflow(20, 40)]));
        bench.round(0, 40);
        bench.step(0, Step::Loss(cause));
        let low = bench.subflows[0].cwnd();
        for _ in 0..60 {
            bench.round(0, 40);
        }
        if bench.subflows[0].cwnd() <= low {
            found.push(("recovers", format!("{low} after {cause:?}, {} later", bench.subflows[0].cwnd())));
        }
    }
    let fresh = || {
        let mut list = subflows(&[subflow(10, 40), subflow(20, 40)]);
        list[0].set_ssthresh(u32::MAX);
        list
    };
    let (mut used, mut new) = (Bench::new(text, fresh()), Bench::new(text, fresh()));
    used.round(0, 50);
    used.step(0, Step::Loss(LossCause::FastRetransmit));
    used.step(0, Step::Rejoin);
    new.step(0, Step::Rejoin);
    new.now = used.now;
    for _ in 0..4 {
        used.round(0, 60);
        new.round(0, 60);
    }
    if used.subflows[0].cwnd() != new.subflows[0].cwnd() {
        found.push(("forgets", format!("{} and {}", used.subflows[0].cwnd(), new.subflows[0].cwnd())));
    }
    found
}

#[test]
fn every_control_keeps_the_contract_or_declares_its_exceptions() {
    check(&builtin(), departures);
}

#[test]
fn every_control_goes_by_its_name_and_decides_alike_twice() {
    for (text, entry) in variants(&builtin()) {
        assert_eq!(build(&text).name(), entry.name);
        let list = || subflows(&[subflow(3, 400), subflow(60, 10), subflow(9, 90)]);
        assert_eq!(history(&text, list()), history(&text, list()), "{text}");
    }
}

/// Numbers for observers have names and are numbers; the pacing rate is the engine's unless the control is
/// model-based.
#[test]
fn what_a_control_tells_of_itself() {
    for (text, entry) in variants(&builtin()) {
        let mut bench = Bench::new(&text, subflows(&[subflow(20, 40), subflow(9, 90)]));
        let pacing = subflows(&[subflow(20, 40)])[0].rate.pacing;
        bench.round(0, 45);
        bench.step(0, Step::Loss(LossCause::FastRetransmit));
        let metrics = bench.control.metrics_on(&bench.subflows, 0);
        assert!(
            metrics.iter().all(|(name, value)| !name.is_empty() && value.is_finite()),
            "{text}: {metrics:?}"
        );
        assert!(entry.name != "reno" || metrics.is_empty(), "Reno has none: {metrics:?}");
        assert_eq!(bench.control.is_model_based(), bench.subflows[0].rate.pacing != pacing, "{text}");
    }
}

/// A sibling makes a difference to a coupled control and none to another.
#[test]
fn only_the_coupled_look_at_their_siblings() {
    for (text, _) in variants(&builtin()) {
        let first = |list: Vec<SubflowMetrics>| {
            let mut bench = Bench::new(&text, list);
            for lap in 0..40 {
                bench.round(0, 40 + lap / 8);
            }
            bench.subflows[0].cwnd()
        };
        let (alone, beside) =
            (first(subflows(&[subflow(20, 40)])), first(subflows(&[subflow(20, 40), subflow(90, 40)])));
        if !coupled(&text) {
            assert_eq!(alone, beside, "{text}");
        } else if text != "wvegas" {
            // wVegas counts a sibling only once that has reached its own alpha.
            assert_ne!(alone, beside, "{text}");
        }
    }
}

#[test]
fn wvegas_alone_without_draining_is_vegas_with_its_alpha() {
    let list = || subflows(&[subflow(20, 40)]);
    let run = |text| {
        let mut bench = Bench::new(text, list());
        (0..60u64)
            .map(|lap| {
                bench.round(0, 40 + (lap / 6) % 20);
                bench.subflows[0].cwnd()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(run("wvegas(drain=false)"), run("vegas(alpha=10, beta=10, every-other=false)"));
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let cause = prop_oneof![Just(LossCause::FastRetransmit), Just(LossCause::Timeout), Just(LossCause::Ecn)];
    let step = prop_oneof![
        20 => (1u32..200, 1u64..2000, prop::bool::weighted(0.8), any::<bool>()).prop_map(
            |(acked, rtt_ms, limited, round_start)| Step::Ack { acked, rtt_ms, limited, round_start }
        ),
        3 => cause.prop_map(Step::Loss),
        1 => Just(Step::Undo),
        1 => (0u64..100_000_000_000).prop_map(|idle| Step::Idle(Span::from_nanos(idle))),
        1 => Just(Step::Rejoin),
    ];
    prop::collection::vec((0usize..4, step), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Whatever happens to up to four subflows, in whatever order.
    #[test]
    fn any_history_keeps_the_windows_sound(
        list in prop::collection::vec((1u32..500, 1u64..1000), 1..=4),
        steps in steps(),
    ) {
        for (text, entry) in variants(&builtin()) {
            let mut bench = Bench::new(&text, subflows(&list));
            for (i, step) in &steps {
                let i = i % bench.subflows.len();
                bench.step(i, *step);
            }
            for (rule, what) in &bench.found {
                prop_assert!(is_exempt(&entry, rule), "{text} breaks `{rule}`: {what}");
            }
        }
    }
}
