//! The search: the candidates of `compare`, raced as `compare` races them, over plausible variants of the paths.

use std::sync::{Arc, Mutex};

use ropewalk_engine::registry::SpecError;
use ropewalk_sim::{Mode, Recording, RunSpec, Scenario, Workload};

use super::belief::{Doubt, worlds};
use super::flips::{self, Flip};
use super::run::{Candidate, Hands, opened_on, times};
use crate::compare::{self, Decision, Design, Plan, Raced, Reach, Request, Run, Standing, Worth};
use crate::{Registries, stats};

/// The kernel's own scheduler: what one has without changing anything.
const OWN: &str = "linux";
/// Less than this much better is as good: a logarithm.
const AS_GOOD: f64 = 0.01;
/// Buffers that are tried, bytes.
const BUFFERS: [u64; 8] = [128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20];
/// Variants that are drawn together, spread evenly over what is plausible.
const BLOCK: usize = 64;
/// Variants in which buffers are tried.
const FEW_VARIANTS: usize = 16;
/// Seeds in each.
const FEW_SEEDS: usize = 2;
/// How many of those that aren't slower are watched for turning points.
const WATCHED: usize = 4;

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Segments of the race.
    pub design: Design,
    /// Whether buffers and turning points are looked for too.
    pub whole: bool,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The paths as far as they are known; its workload is the one for buffers and turning points.
    pub scenario: Scenario,
    /// What the answer must be good for.
    pub workloads: Vec<Workload>,
    /// Who contends besides `linux` and plain TCP; none: all.
    pub schedulers: Vec<String>,
    /// How well each path is known.
    pub doubts: Vec<Doubt>,
    /// The paths as they were stated, before measurements; none if there are none, or a path is known by them alone.
    pub stated: Option<Scenario>,
    /// The congestion control.
    pub congestion: String,
    /// What the user can run.
    pub reach: Reach,
    /// What bytes cost.
    pub worth: Worth,
    /// How much to run.
    pub effort: Effort,
    /// Seed.
    pub seed: u64,
}

/// One against another, over the variants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gain {
    /// Expected ratio of times (geometric mean over variants); below 1 is faster.
    pub ratio: f64,
    /// Holds the ratio in 90 % of the variants.
    pub interval: (f64, f64),
    /// Share of the variants in which it is faster.
    pub sure: f64,
}

impl Gain {
    /// From the logarithms, one per variant. Ends are the order statistics at (n + 1) p, which hold a further draw from
    /// the same variants with the probability they say.
    pub(super) fn of(logs: &[f64]) -> Self {
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

impl Gain {
    /// After measuring, a gain must be plausible by what was known before as well: an interval with what both leave. Where that
    /// is less than a quarter of the narrower one, what was stated contradicts what was measured, and doesn't count.
    #[must_use]
    pub fn narrowed_by(self, before: &Gain) -> Self {
        let low = self.interval.0.max(before.interval.0);
        let high = self.interval.1.min(before.interval.1);
        let width = |low: f64, high: f64| libm::log(high / low);
        let narrower =
            f64::min(width(self.interval.0, self.interval.1), width(before.interval.0, before.interval.1));
        let agrees = low < high && width(low, high) >= 0.25 * narrower;
        if agrees { Gain { interval: (low, high), ..self } } else { self }
    }
}

/// Why this is recommended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recommended {
    /// Plain TCP and the kernel's own scheduler are shown to be slower.
    Better,
    /// The kernel's own scheduler isn't shown to be slower than the fastest, and plain TCP is.
    OwnAsGood,
    /// Plain TCP on the best path isn't shown to be slower than the fastest.
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

/// One of the candidates.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// `ecf`, `tcp wifi`.
    pub label: String,
    /// How it stands to the fastest.
    pub standing: Standing,
    /// Against plain TCP on the best path, over the variants that both ran in.
    pub gain: Gain,
    /// Variants.
    pub variants: usize,
    /// Payload bytes sent on each path per run, by the paths' order in the scenario.
    pub bytes: Vec<f64>,
    /// Bytes duplicated by the scheduler or reinjected, per run.
    pub repeated: f64,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What to use.
    pub use_this: Candidate,
    /// The path of a Multipath TCP connection's first subflow.
    pub opens_on: String,
    /// Why.
    pub why: Recommended,
    /// Who is equal, who is slower, among what the user can run.
    pub decision: Decision,
    /// The best path for plain TCP.
    pub best_path: String,
    /// Against plain TCP on that path.
    pub versus_tcp: Gain,
    /// The same by what was stated alone; none without measurements.
    pub stated: Option<Gain>,
    /// Against the kernel's own scheduler; none if that is recommended.
    pub versus_own: Option<Gain>,
    /// What the user can't run and would be better, and its gain over what is recommended.
    pub beyond: Option<(String, Gain)>,
    /// All candidates, the fastest first.
    pub judged: Vec<Judged>,
    /// How large a buffer it takes, if that was looked for.
    pub buffer: Option<Buffer>,
    /// Where another would be better, if that was looked for.
    pub flips: Vec<Flip>,
    /// Plausible variants of the paths in which those that aren't slower ran.
    pub variants: usize,
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

/// Variants of a scenario's paths, drawn block by block as they are asked for.
pub(super) struct Variants<'a> {
    scenario: &'a Scenario,
    doubts: &'a [Doubt],
    seed: u64,
    drawn: Mutex<Vec<Option<Vec<Arc<Scenario>>>>>,
}

impl<'a> Variants<'a> {
    pub(super) fn new(scenario: &'a Scenario, doubts: &'a [Doubt], seed: u64) -> Self {
        Variants { scenario, doubts, seed, drawn: Mutex::new(Vec::new()) }
    }

    /// The variant with this number. Which ones were asked for before makes no difference.
    pub(super) fn get(&self, number: usize) -> Arc<Scenario> {
        let block = number / BLOCK;
        let draw = || worlds(self.scenario, self.doubts, BLOCK, self.seed.wrapping_add(block as u64));
        let Ok(mut drawn) = self.drawn.lock() else { return Arc::clone(&draw()[number % BLOCK]) };
        if drawn.len() <= block {
            drawn.resize(block + 1, None);
        }
        Arc::clone(&drawn[block].get_or_insert_with(draw)[number % BLOCK])
    }
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
    let scenario = &question.scenario;
    let tcp = plain(registries, scenario, &question.congestion)?;
    // The first subflow is on the path that is best for plain TCP.
    let few = worlds(scenario, &question.doubts, FEW_VARIANTS, question.seed);
    let block = worlds(scenario, &question.doubts, BLOCK, question.seed);
    let Some(found) = times(&block, &tcp, question.seed, FEW_SEEDS, hands) else { return Ok(None) };
    let scores: Vec<f64> = (0..tcp.len()).map(|path| found.score(path)).collect();
    let least = scores.iter().copied().fold(f64::INFINITY, f64::min);
    // Of those that are equal, the first: which one it is must not hang on chance.
    let equal = libm::log(1.0 + compare::MARGIN);
    let best = scores.iter().position(|score| *score - least <= equal).unwrap_or(0);
    let mut candidates = if question.schedulers.is_empty() {
        everyone(registries, &question.congestion, best)?
    } else {
        let missing = !question.schedulers.iter().any(|name| name == OWN);
        let names = question.schedulers.iter().map(String::as_str).chain(missing.then_some(OWN));
        let names = names.filter(|name| *name != "tcp");
        names.map(|name| one(registries, name, &question.congestion, best)).collect::<Result<_, _>>()?
    };
    // What one has without changing anything.
    if best != 0 {
        let label = format!("{OWN}, first subflow on {}", scenario.paths[0].name);
        candidates.push(Candidate { label, ..one(registries, OWN, &question.congestion, 0)? });
    }
    candidates.extend(tcp);
    let mut request = Request {
        scenario: scenario.clone(),
        workloads: question.workloads.clone(),
        candidates: candidates.iter().map(as_compared).collect(),
        congestion: registries.congestion.parse(&question.congestion)?,
        design: question.effort.design,
        worth: question.worth.clone(),
        seed: question.seed,
        jobs: hands.jobs,
    };
    // Variants may be slower than what is stated.
    request.scenario.limit = request.ample_limit().saturating_mul(2);
    let raced = run_all(question, &request, &candidates, hands);
    let limit = request.scenario.limit as f64 / 1e9;
    let all = compare::conclude(&request, &raced, true, limit);
    let Some(all) = all.filter(|_| raced.ended != compare::Ended::Interrupted) else { return Ok(None) };
    // What the user can run, decided among itself.
    let within = |who: &usize| Reach::of(&request.candidates[*who]) <= question.reach;
    let reachable: Vec<usize> = (0..candidates.len()).filter(within).collect();
    let (own_request, own_raced) = only(&request, &raced, &reachable);
    let Some(decision) = compare::conclude(&own_request, &own_raced, true, limit) else { return Ok(None) };
    let scores = raced.scores(limit);
    let logs =
        |a: usize, b: usize| -> Vec<f64> { scores[a].iter().zip(&scores[b]).map(|(a, b)| a - b).collect() };
    let labelled = |label: &str| candidates.iter().position(|one| one.label == label);
    let fastest_tcp = (0..candidates.len())
        .filter(|who| candidates[*who].is_tcp())
        .min_by(|a, b| stats::mean(&scores[*a]).total_cmp(&stats::mean(&scores[*b])))
        .unwrap_or(0);
    let named = decision.named.as_ref().and_then(|(label, _)| labelled(label));
    let chosen = named.unwrap_or(fastest_tcp);
    let best_tcp = if candidates[chosen].is_tcp() { chosen } else { fastest_tcp };
    let why = match &candidates[chosen] {
        one if one.is_tcp() => Recommended::NothingBetter,
        one if one.scheduler.text == OWN => Recommended::OwnAsGood,
        _ => Recommended::Better,
    };
    let beyond = all.named.as_ref().and_then(|(label, reach)| {
        let who = labelled(label).filter(|_| *reach > question.reach)?;
        Some((label.clone(), Gain::of(&logs(who, chosen))))
    });
    let own = labelled(OWN).filter(|own| *own != chosen && !candidates[chosen].is_tcp());
    let mut judged: Vec<Judged> = all
        .stands
        .iter()
        .enumerate()
        .map(|(who, (label, stand))| {
            judge(&raced, who, label, stand.standing, &logs(who, best_tcp), &candidates[who])
        })
        .collect();
    judged.sort_by(|a, b| a.gain.ratio.total_cmp(&b.gain.ratio));
    let mut versus_tcp = Gain::of(&logs(chosen, best_tcp));
    let mut before = None;
    if let Some(stated) = question.stated.as_ref().filter(|_| chosen != best_tcp) {
        let pair = [candidates[chosen].clone(), candidates[best_tcp].clone()];
        let question = Question {
            scenario: stated.clone(),
            doubts: vec![Doubt::default(); stated.paths.len()],
            ..question.clone()
        };
        let request = Request {
            scenario: Scenario { limit: request.scenario.limit, ..stated.clone() },
            candidates: pair.iter().map(as_compared).collect(),
            design: Design::Fixed(BLOCK as u32),
            ..request.clone()
        };
        let raced = run_all(&question, &request, &pair, Hands { done: &|_| {}, ..hands });
        if raced.ended == compare::Ended::Interrupted {
            return Ok(None);
        }
        let scores = raced.scores(limit);
        let gaps: Vec<f64> = scores[0].iter().zip(&scores[1]).map(|(a, b)| a - b).collect();
        let gain = Gain::of(&gaps);
        versus_tcp = versus_tcp.narrowed_by(&gain);
        before = Some(gain);
    }
    let mut answer = Answer {
        use_this: candidates[chosen].clone(),
        opens_on: scenario.paths[candidates[chosen].opens_on].name.clone(),
        why,
        best_path: candidates[best_tcp].label.trim_start_matches("tcp ").to_string(),
        versus_tcp,
        stated: before,
        versus_own: own.map(|own| Gain::of(&logs(chosen, own))),
        variants: decision.runs as usize,
        decision,
        beyond,
        judged,
        buffer: None,
        flips: Vec::new(),
    };
    if question.effort.whole {
        let Some(buffer) = buffer(&few, &answer.use_this, question, hands) else { return Ok(None) };
        answer.buffer = Some(buffer);
        let watched = watched(&answer.decision, &candidates, chosen);
        let Some(flips) = flips::find(question, &watched, 0, hands) else { return Ok(None) };
        answer.flips = flips;
    }
    Ok(Some(answer))
}

fn as_compared(one: &Candidate) -> compare::Candidate {
    compare::Candidate { label: one.label.clone(), scheduler: one.scheduler.clone(), mode: one.mode }
}

/// The chosen one first, then plain TCP, the kernel's scheduler, and the fastest of those that aren't slower.
fn watched(decision: &Decision, candidates: &[Candidate], chosen: usize) -> Vec<Candidate> {
    let mut found = vec![candidates[chosen].clone()];
    let usual = candidates.iter().filter(|one| one.is_tcp() || one.scheduler.text == OWN);
    let left = [decision.with(Standing::Equal), decision.with(Standing::Open)].concat();
    let left =
        left.into_iter().take(WATCHED).filter_map(|label| candidates.iter().find(|one| one.label == label));
    for one in usual.chain(left) {
        if found.iter().all(|there| there.label != one.label) {
            found.push(one.clone());
        }
    }
    found
}

/// The race over variants: the number of a run is the number of its variant, and its seed.
fn run_all(question: &Question, request: &Request, candidates: &[Candidate], hands: Hands<'_>) -> Raced {
    let variants =
        Variants::new(&request.scenario, &question.doubts, question.seed.wrapping_add(0x1000_0000));
    let control = |who: &usize| candidates[*who].is_tcp() || candidates[*who].scheduler.text == OWN;
    let controls: Vec<usize> = (0..candidates.len()).filter(control).collect();
    let plan = Plan {
        workloads: request.workloads.len(),
        candidates: candidates.len(),
        controls: &controls,
        design: request.design,
        random: true,
        limit: request.scenario.limit as f64 / 1e9,
        jobs: hands.jobs,
    };
    let run = |workload: usize, number: u32, who: usize| {
        let candidate = &candidates[who];
        let variant = variants.get(number as usize);
        let opens_on = if candidate.is_tcp() { 0 } else { candidate.opens_on };
        let scenario = Scenario {
            workload: request.workloads[workload].clone(),
            ..Scenario::clone(&opened_on(&variant, opens_on))
        };
        let spec = RunSpec {
            start_phase: compare::start_phase(&scenario, number, 0),
            scenario: Arc::new(scenario),
            scheduler: candidate.scheduler.clone(),
            congestion: candidate.congestion.clone(),
            mode: candidate.mode,
            seed: question.seed.wrapping_add(1 << 20).wrapping_add(u64::from(number)),
            recording: Recording::default(),
        };
        let result = ropewalk_sim::run(&spec);
        Run::new(&spec, result, &question.worth)
    };
    compare::race(plan, run, |worth| (hands.done)(worth), hands.stop)
}

/// The same with some of the candidates.
fn only(request: &Request, raced: &Raced, who: &[usize]) -> (Request, Raced) {
    let mut request = request.clone();
    request.candidates = who.iter().map(|who| request.candidates[*who].clone()).collect();
    let of = |runs: &Vec<Vec<Run>>| who.iter().map(|who| runs[*who].clone()).collect();
    let raced = Raced { runs: raced.runs.iter().map(of).collect(), ..raced.clone() };
    (request, raced)
}

fn judge(
    raced: &Raced,
    who: usize,
    label: &str,
    standing: Standing,
    logs: &[f64],
    candidate: &Candidate,
) -> Judged {
    let runs: Vec<&Run> = raced.runs.iter().flat_map(|of| &of[who]).collect();
    let paths = runs.iter().map(|run| run.paths.len()).max().unwrap_or(0);
    let mean = |of: &dyn Fn(&Run) -> f64| stats::mean(&runs.iter().map(|run| of(run)).collect::<Vec<_>>());
    let mut bytes: Vec<f64> = (0..paths)
        .map(|path| mean(&|run: &Run| run.paths.get(path).map_or(0.0, |part| part.bytes)))
        .collect();
    // Back from the order in which the connection had them.
    if !candidate.is_tcp() && candidate.opens_on < bytes.len() {
        bytes[..=candidate.opens_on].rotate_left(1);
    }
    Judged {
        label: label.to_string(),
        standing,
        gain: Gain::of(logs),
        variants: logs.len(),
        bytes,
        repeated: mean(&|run: &Run| run.repeated as f64),
    }
}

/// The least buffer that costs no more than 1 %.
fn buffer(
    worlds: &[Arc<Scenario>],
    candidate: &Candidate,
    question: &Question,
    hands: Hands<'_>,
) -> Option<Buffer> {
    // Every size meets the same seeds.
    let seeds = FEW_SEEDS;
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn ask(paths: &[&str], bytes: u64, seed: u64) -> Answer {
        let paths = paths.iter().map(|text| crate::scenario::path(text).unwrap()).collect::<Vec<_>>();
        let doubts = vec![Doubt::default(); paths.len()];
        let mut scenario = crate::scenario::default_around(paths);
        scenario.workload = ropewalk_sim::Workload::Flow { bytes };
        let effort = Effort { design: Design::Race { segments: 1_000_000 }, whole: false };
        let workloads = vec![scenario.workload.clone()];
        let (congestion, reach) = ("cubic".into(), Reach::Ropewalk);
        let stated = None;
        let worth = Worth::default();
        let question = Question {
            scenario,
            workloads,
            schedulers: Vec::new(),
            doubts,
            stated,
            congestion,
            reach,
            worth,
            effort,
            seed,
        };
        let stop = AtomicBool::new(false);
        let hands = Hands { jobs: 2, done: &|_| {}, stop: &stop };
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
        assert_eq!(answer.why, Recommended::NothingBetter, "{answer:?}");
        assert_eq!(answer.use_this.label, "tcp good");
        assert_eq!(answer.best_path, "good");
    }

    #[test]
    fn the_connection_opens_on_the_better_path_whichever_is_named_first() {
        let answer = ask(&["slow: 2 Mbit/s, 400 ms", "fast: 20 Mbit/s, 20 ms"], 512 << 10, 1);
        assert!(!answer.use_this.is_tcp() || answer.best_path == "fast", "{answer:?}");
        // Two round trips of the slow path before the fast one is joined.
        let of = |name: &str| answer.judged.iter().find(|one| one.label == name).unwrap().gain.ratio;
        assert!(of("linux, first subflow on slow") > 2.0, "{answer:?}");
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
                assert_eq!(answer.why, Recommended::NothingBetter);
            } else {
                multipath += 1;
                assert!(answer.versus_tcp.ratio < 0.98 && answer.versus_tcp.sure > 0.5, "{answer:?}");
                let tcp = |label: &str| label.starts_with("tcp ");
                let mut stands = answer.decision.stands.iter();
                assert!(stands.all(|(label, stand)| !tcp(label) || stand.standing == Standing::Slower));
            }
        }
        assert!(plain > 0 && multipath > 0, "{plain} {multipath}");
    }

    #[test]
    fn a_measurement_narrows_and_contradicted_statements_do_not_count() {
        let gain = |low, high| Gain { ratio: 0.9, interval: (low, high), sure: 0.9 };
        assert_eq!(gain(0.8, 1.0).narrowed_by(&gain(0.7, 0.95)).interval, (0.8, 0.95));
        assert_eq!(gain(0.8, 1.0).narrowed_by(&gain(0.85, 0.95)).interval, (0.85, 0.95));
        assert_eq!(gain(0.8, 1.0).narrowed_by(&gain(0.3, 0.82)).interval, (0.8, 1.0));
        assert_eq!(gain(0.8, 1.0).narrowed_by(&gain(0.82, 0.97)).interval, (0.82, 0.97));
        assert_eq!(gain(0.8, 1.0).narrowed_by(&gain(1.1, 1.2)).interval, (0.8, 1.0));
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
