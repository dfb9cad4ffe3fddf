//! The search: choose among all in a few worlds, judge the best of them in fresh ones.

use std::sync::Arc;

use ropewalk_engine::registry::SpecError;
use ropewalk_sim::{Mode, Scenario};

use super::belief::{Doubt, worlds};
use super::flips::{self, Flip};
use super::run::{Candidate, Hands, Times, times};
use crate::Registries;
use crate::stats;

/// Congestion controls that are tried with the best schedulers, besides the first.
const OTHERS: &[&str] = &["olia", "lia", "balia"];
/// The kernel's own scheduler: what one has without changing anything.
const OWN: &str = "linux";
/// Less than this much better is as good: a logarithm.
const AS_GOOD: f64 = 0.01;
/// Buffers that are tried, bytes.
const BUFFERS: [u64; 8] = [128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20];

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Worlds in which all are tried.
    pub choose_worlds: usize,
    /// Seeds in each.
    pub choose_seeds: usize,
    /// Fresh worlds in which the best are judged.
    pub judge_worlds: usize,
    /// Seeds in each.
    pub judge_seeds: usize,
    /// How many of the best.
    pub finalists: usize,
    /// Whether buffers and turning points are looked for too.
    pub whole: bool,
}

impl Default for Effort {
    fn default() -> Self {
        Effort {
            choose_worlds: 16,
            choose_seeds: 2,
            judge_worlds: 60,
            judge_seeds: 3,
            finalists: 4,
            whole: true,
        }
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The paths as far as they are known, and the workload.
    pub scenario: Scenario,
    /// How well each path is known.
    pub doubts: Vec<Doubt>,
    /// The congestion control; none: the best is looked for.
    pub congestion: Option<String>,
    /// How much to run.
    pub effort: Effort,
    /// Seed.
    pub seed: u64,
}

/// One against another, over the worlds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gain {
    /// Expected ratio of times (geometric mean over worlds); below 1 is faster.
    pub ratio: f64,
    /// Holds the ratio in 90 % of the worlds.
    pub interval: (f64, f64),
    /// Share of the worlds in which it is faster.
    pub sure: f64,
}

impl Gain {
    /// From the logarithms, one per world. Ends are the order statistics at (n + 1) p, which hold a further draw from
    /// the same worlds with the probability they say.
    fn of(logs: &[f64]) -> Self {
        let sorted = stats::sorted(logs);
        let at = |p: f64| {
            let place = (p * (sorted.len() + 1) as f64 - 1.0).clamp(0.0, (sorted.len() - 1) as f64);
            stats::quantile(&sorted, place / (sorted.len() - 1).max(1) as f64)
        };
        let faster = logs.iter().filter(|log| **log < 0.0).count() as f64;
        Gain {
            ratio: libm::exp(stats::mean(logs)),
            interval: (libm::exp(at(0.05)), libm::exp(at(0.95))),
            sure: faster / logs.len() as f64,
        }
    }
}

/// Why this is recommended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It beats both plain TCP and the kernel's own scheduler.
    Better,
    /// The kernel's own scheduler does as well as the best.
    OwnAsGood,
    /// Nothing is better than plain TCP on the best path.
    NothingBetter,
}

/// A buffer's size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Buffer {
    /// The least that costs no more than 1 %, bytes, for sending and for receiving.
    pub bytes: u64,
    /// What the next smaller one costs: a ratio of times.
    pub smaller: Option<f64>,
}

/// One of those who were judged.
#[derive(Clone, PartialEq, Debug)]
pub struct Finalist {
    /// `ecf with cubic`.
    pub name: String,
    /// Against plain TCP on the best path.
    pub gain: Gain,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What to use.
    pub use_this: Candidate,
    /// The path that a Multipath TCP connection should open on.
    pub opens_on: String,
    /// Why.
    pub why: Why,
    /// The best path for plain TCP.
    pub best_path: String,
    /// Against plain TCP on the path that is best in each world.
    pub versus_tcp: Gain,
    /// Against the kernel's own scheduler; none if that is recommended.
    pub versus_own: Option<Gain>,
    /// Everyone who was judged, the best first.
    pub finalists: Vec<Finalist>,
    /// How large a buffer it takes, if that was looked for.
    pub buffer: Option<Buffer>,
    /// Where another would be better, if that was looked for.
    pub flips: Vec<Flip>,
    /// Worlds in which it was judged.
    pub worlds: usize,
}

/// All schedulers with a congestion control, opened on a path.
pub(super) fn everyone(
    registries: &Registries,
    congestion: &str,
    opens_on: usize,
) -> Result<Vec<Candidate>, SpecError> {
    let names = registries.schedulers.entries().iter().map(|entry| entry.name);
    names.filter(|name| *name != "single").map(|name| one(registries, name, congestion, opens_on)).collect()
}

/// Plain TCP on each path.
pub(super) fn plain(
    registries: &Registries,
    scenario: &Scenario,
    congestion: &str,
) -> Result<Vec<Candidate>, SpecError> {
    let paths = scenario.paths.iter().enumerate();
    paths
        .map(|(index, path)| {
            let candidate = one(registries, "single", congestion, 0)?;
            Ok(Candidate { label: format!("tcp {}", path.name), mode: Mode::SinglePath(index), ..candidate })
        })
        .collect()
}

pub(super) fn one(
    registries: &Registries,
    name: &str,
    congestion: &str,
    opens_on: usize,
) -> Result<Candidate, SpecError> {
    Ok(Candidate {
        label: name.to_string(),
        scheduler: registries.schedulers.parse(name)?,
        congestion: registries.congestion.parse(congestion)?,
        mode: Mode::Multipath,
        opens_on,
    })
}

/// The congestion controls that a candidate may be tried with besides its own.
pub(super) fn with_others(
    registries: &Registries,
    candidates: &[Candidate],
) -> Result<Vec<Candidate>, SpecError> {
    let mut found = Vec::new();
    for candidate in candidates {
        for other in OTHERS.iter().filter(|other| **other != candidate.congestion.text) {
            found.push(Candidate { congestion: registries.congestion.parse(other)?, ..candidate.clone() });
        }
    }
    Ok(found)
}

/// Indices by score, the best first.
fn ranked(times: &Times, count: usize) -> Vec<usize> {
    let scores: Vec<f64> = (0..count).map(|candidate| times.score(candidate)).collect();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    order
}

/// Answers. None if it was stopped.
///
/// # Errors
/// A congestion control that isn't known.
pub fn advise(
    registries: &Registries,
    question: &Question,
    hands: Hands<'_>,
) -> Result<Option<Answer>, SpecError> {
    let effort = question.effort;
    let first = question.congestion.as_deref().unwrap_or("cubic");
    // Choose; a connection opens on the path that is best for plain TCP.
    let around = |count, seed| worlds(&question.scenario, &question.doubts, count, seed);
    let few = around(effort.choose_worlds, question.seed);
    let seeds = effort.choose_seeds;
    let tcp = plain(registries, &question.scenario, first)?;
    let Some(found) = times(&few, &tcp, question.seed, seeds, hands) else { return Ok(None) };
    let opens_on = ranked(&found, tcp.len())[0];
    let all = everyone(registries, first, opens_on)?;
    let Some(found) = times(&few, &all, question.seed, seeds, hands) else { return Ok(None) };
    let mut scored: Vec<(f64, Candidate)> =
        ranked(&found, all.len()).into_iter().map(|index| (found.score(index), all[index].clone())).collect();
    if question.congestion.is_none() {
        let best: Vec<Candidate> = scored.iter().take(effort.finalists).map(|(_, one)| one.clone()).collect();
        let variants = with_others(registries, &best)?;
        let Some(found) = times(&few, &variants, question.seed, seeds, hands) else { return Ok(None) };
        scored.extend(variants.into_iter().enumerate().map(|(index, one)| (found.score(index), one)));
        scored.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    // Judge.
    let mut finalists: Vec<Candidate> =
        scored.into_iter().take(effort.finalists).map(|(_, candidate)| candidate).collect();
    if !finalists.iter().any(|one| one.label == OWN && one.congestion.text == first) {
        finalists.push(one(registries, OWN, first, opens_on)?);
    }
    let own = finalists.iter().position(|one| one.label == OWN && one.congestion.text == first);
    let plain: Vec<usize> = (finalists.len()..finalists.len() + question.scenario.paths.len()).collect();
    finalists.extend(tcp);
    // What one has without changing anything: opened on the first path. Shown, never recommended.
    let candidates = finalists.len();
    if opens_on != 0 {
        let mut as_it_is = one(registries, OWN, first, 0)?;
        as_it_is.label = format!("{OWN}, opened on {},", question.scenario.paths[0].name);
        finalists.push(as_it_is);
    }
    let fresh = around(effort.judge_worlds, question.seed.wrapping_add(0x1000_0000));
    let later = question.seed.wrapping_add(1 << 20);
    let Some(found) = times(&fresh, &finalists, later, effort.judge_seeds, hands) else { return Ok(None) };
    let least_tcp = |times: &Times, world: usize| times.least(world, &plain);
    let versus_tcp = |index: usize| found.logs(index, least_tcp);
    let mut best_plain = plain.clone();
    best_plain.sort_by(|a, b| found.score(*a).total_cmp(&found.score(*b)));
    let best_tcp = best_plain[0];
    let (mut chosen, mut why) = (0, Why::Better);
    if let Some(own) = own {
        let against = found.logs(own, |times, world| times.mean(world, chosen));
        if own == chosen || stats::mean(&against) < AS_GOOD {
            (chosen, why) = (own, Why::OwnAsGood);
        }
    }
    if !surely_faster(&versus_tcp(chosen)) {
        (chosen, why) = (best_tcp, Why::NothingBetter);
    }
    let mut judged: Vec<Finalist> = finalists
        .iter()
        .enumerate()
        .map(|(index, one)| Finalist { name: one.name(), gain: Gain::of(&versus_tcp(index)) })
        .collect();
    judged.sort_by(|a, b| a.gain.ratio.total_cmp(&b.gain.ratio));
    let versus_own = own
        .filter(|own| *own != chosen)
        .map(|own| Gain::of(&found.logs(chosen, |times, world| times.mean(world, own))));
    let mut answer = Answer {
        use_this: finalists[chosen].clone(),
        opens_on: question.scenario.paths[opens_on].name.clone(),
        why,
        best_path: finalists[best_tcp].label.trim_start_matches("tcp ").to_string(),
        versus_tcp: Gain::of(&versus_tcp(chosen)),
        versus_own,
        finalists: judged,
        buffer: None,
        flips: Vec::new(),
        worlds: effort.judge_worlds,
    };
    if effort.whole {
        let Some(buffer) = buffer(&few, &answer.use_this, question, hands) else { return Ok(None) };
        answer.buffer = Some(buffer);
        let Some(flips) = flips::find(question, &finalists[..candidates], chosen, hands) else {
            return Ok(None);
        };
        answer.flips = flips;
    }
    Ok(Some(answer))
}

/// Whether the expected logarithm is below 0, one-sided at 5 %.
fn surely_faster(logs: &[f64]) -> bool {
    let n = logs.len() as f64;
    let error = stats::standard_deviation(logs) / libm::sqrt(n);
    stats::mean(logs) + stats::t_quantile(0.95, n - 1.0) * error < 0.0
}

/// The least buffer that costs no more than 1 %.
fn buffer(
    worlds: &[Arc<Scenario>],
    candidate: &Candidate,
    question: &Question,
    hands: Hands<'_>,
) -> Option<Buffer> {
    // Each world once per size; every size meets the same seeds.
    let seeds = question.effort.choose_seeds;
    let mut scores = Vec::new();
    for bytes in BUFFERS {
        let sized: Vec<Arc<Scenario>> = worlds
            .iter()
            .map(|world| {
                let mut copy = Scenario::clone(world);
                for end in [&mut copy.client, &mut copy.server] {
                    (end.send_buffer, end.receive_buffer) = (bytes, bytes);
                }
                Arc::new(copy)
            })
            .collect();
        scores.push(times(&sized, std::slice::from_ref(candidate), question.seed, seeds, hands)?.score(0));
    }
    let best = scores.iter().copied().fold(f64::INFINITY, f64::min);
    let index = scores.iter().position(|score| *score - best <= AS_GOOD)?;
    let smaller = index.checked_sub(1).map(|below| libm::exp(scores[below] - best));
    Some(Buffer { bytes: BUFFERS[index], smaller })
}

/// About how many runs an answer takes, for a progress bar.
pub fn runs(registries: &Registries, question: &Question) -> u64 {
    let (effort, paths) = (question.effort, question.scenario.paths.len());
    let all = registries.schedulers.entries().len() - 1 + paths;
    let variants = if question.congestion.is_none() { effort.finalists * OTHERS.len() } else { 0 };
    let choose = effort.choose_worlds * effort.choose_seeds;
    let finalists = effort.finalists + 2 + paths;
    let mut total = choose * (all + variants) + effort.judge_worlds * effort.judge_seeds * finalists;
    if effort.whole {
        total += choose * BUFFERS.len() + flips::runs(&question.scenario, finalists);
    }
    total as u64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn ask(paths: &[&str], bytes: u64, seed: u64) -> Answer {
        let paths = paths.iter().map(|text| crate::scenario::path(text).unwrap()).collect::<Vec<_>>();
        let doubts = vec![Doubt::default(); paths.len()];
        let mut scenario = crate::scenario::default_around(paths);
        scenario.workload = ropewalk_sim::Workload::Flow { bytes };
        let effort = Effort {
            choose_worlds: 3,
            choose_seeds: 1,
            judge_worlds: 12,
            judge_seeds: 1,
            finalists: 2,
            whole: false,
        };
        let question = Question { scenario, doubts, congestion: Some("cubic".into()), effort, seed };
        let stop = AtomicBool::new(false);
        let hands = Hands { jobs: 2, done: &|| {}, stop: &stop };
        advise(&Registries::builtin(), &question, hands).unwrap().unwrap()
    }

    #[test]
    fn two_equal_paths_are_worth_bundling() {
        let answer = ask(&["a: 8 Mbit/s, 20 ms", "b: 8 Mbit/s, 20 ms"], 512 << 10, 1);
        assert!(!answer.use_this.is_tcp(), "{answer:?}");
        assert!(answer.versus_tcp.ratio < 0.85 && answer.versus_tcp.sure > 0.9, "{answer:?}");
        assert!(answer.versus_tcp.interval.0 <= answer.versus_tcp.ratio);
    }

    #[test]
    fn a_hopeless_second_path_is_left_alone() {
        // Ten segments fit the first window: the second path's handshake ends after the flow does.
        let answer = ask(&["good: 50 Mbit/s, 20 ms", "bad: 1 Mbit/s, 900 ms"], 10 << 10, 1);
        assert_eq!(answer.why, Why::NothingBetter, "{answer:?}");
        assert_eq!(answer.use_this.label, "tcp good");
        assert_eq!(answer.best_path, "good");
    }

    #[test]
    fn the_connection_opens_on_the_better_path_whichever_is_named_first() {
        let answer = ask(&["slow: 2 Mbit/s, 400 ms", "fast: 20 Mbit/s, 20 ms"], 512 << 10, 1);
        assert_eq!(answer.opens_on, "fast");
        let named: Vec<&str> = answer.finalists.iter().map(|one| one.name.as_str()).collect();
        assert!(named.contains(&"linux, opened on slow, with cubic"), "{named:?}");
        // Two round trips of the slow path before the fast one is joined.
        let of = |name: &str| answer.finalists.iter().find(|one| one.name == name).unwrap().gain.ratio;
        assert!(of("linux, opened on slow, with cubic") > 2.0, "{answer:?}");
    }

    #[test]
    fn never_recommends_what_is_not_better_than_plain_tcp() {
        // Paths of all kinds: whatever is recommended was surely faster in fresh worlds, or it is plain TCP.
        let (mut plain, mut multipath) = (0, 0);
        for seed in 0..6 {
            let (rate, delay) = ([1, 30, 8][seed as usize % 3], [400, 20, 90, 250][seed as usize % 4]);
            let second = format!("b: {rate} Mbit/s, {delay} ms, 0.{seed} %");
            let answer = ask(&["a: 12 Mbit/s, 30 ms", &second], 20_000 << (2 * (seed % 3)), seed);
            if answer.use_this.is_tcp() {
                plain += 1;
                assert_eq!(answer.why, Why::NothingBetter);
            } else {
                multipath += 1;
                assert!(answer.versus_tcp.ratio < 1.0 && answer.versus_tcp.sure > 0.5, "{answer:?}");
            }
        }
        assert!(plain > 0 && multipath > 0, "{plain} {multipath}");
    }

    #[test]
    fn the_interval_holds_a_further_draw_as_often_as_it_says() {
        let logs: Vec<f64> = (1..=99).map(|i| f64::from(i) / 100.0).collect();
        let gain = Gain::of(&logs);
        // (n + 1) p: the 5th and the 95th of 99.
        assert!((libm::log(gain.interval.0) - 0.05).abs() < 1e-9);
        assert!((libm::log(gain.interval.1) - 0.95).abs() < 1e-9);
        assert_eq!(gain.sure, 0.0);
    }
}
