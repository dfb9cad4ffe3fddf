//! The search: the candidates of `compare`, raced as `compare` races them, over plausible variants of the
//! paths.

use std::sync::Arc;

use ropewalk_algorithms::Registries;
use ropewalk_engine::registry::SpecError;
use ropewalk_engine::scheduler::{BASELINE, is_compared_by_default};
use ropewalk_sim::{Mode, Scenario};

use super::answer::{Answer, Judged, Recommended};
use super::effort::{AS_STATED, OPENING};
use super::flips::{self, Turning};
use super::gain::Gain;
use super::judge::{cost, judge, said_own, watched};
use super::question::Question;
use super::run::{Candidate, Execution, opened_on};
use super::variants::{BLOCK, Variants, one_run};
use super::{buffer, certainty, telling};
use crate::compare::{self, Decision, Design, Known, Merit, Plan, Raced, Request, Run, Standing};
use crate::{scenario, stats};

/// Runs there if nothing is random: they differ in when they start.
const AS_STATED_RUNS: u32 = 8;

/// All schedulers with a congestion control, opened on a path.
pub(super) fn everyone(
    registries: &Registries,
    congestion: &str,
    opens_on: usize,
) -> Result<Vec<Candidate>, SpecError> {
    let names = registries.schedulers.entries().iter().map(|entry| entry.name);
    names
        .filter(|name| is_compared_by_default(name))
        .map(|name| one(registries, name, congestion, opens_on))
        .collect()
}

/// Plain TCP on each path, held against connections that are opened on a path.
pub(super) fn plain(
    registries: &Registries,
    scenario: &Scenario,
    congestion: &str,
    opens_on: usize,
) -> Result<Vec<Candidate>, SpecError> {
    let paths = scenario.paths.iter().enumerate();
    paths
        .map(|(index, path)| {
            let candidate = one(registries, "single", congestion, opens_on)?;
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

/// A race over variants, and what it says.
pub(super) struct Contest {
    pub(super) candidates: Vec<Candidate>,
    pub(super) request: Request,
    pub(super) raced: Raced,
    /// Among all candidates.
    all: Decision,
    /// Among what the user can run.
    pub(super) decision: Decision,
    /// Who would be named if there were no plain TCP.
    multipath: Option<(String, Merit)>,
    /// The path that is opened first.
    opens_on: usize,
}

impl Contest {
    fn place(&self, label: &str) -> Option<usize> {
        self.candidates.iter().position(|one| one.label == label)
    }

    /// Who would be named if there were no plain TCP, if it isn't shown to be slower.
    fn instead(&self) -> Option<usize> {
        let (label, _) = self.multipath.as_ref()?;
        let is_slower = self.decision.of(label).is_none_or(|stand| stand.standing == Standing::Slower);
        self.place(label).filter(|who| !is_slower && !self.candidates[*who].is_tcp())
    }

    /// Seconds that an unfinished run counts as.
    fn limit(&self) -> f64 {
        self.request.scenario.limit.as_secs_f64()
    }
}

/// What was named on what was known before: the path that is opened first, the candidate's label, and that of
/// who would be named if there were no plain TCP.
type Incumbent<'a> = Option<(usize, Option<&'a str>, Option<&'a str>)>;

/// The race. What was named before stays unless it is shown to be slower. None if it was stopped.
fn contest(
    registries: &Registries,
    question: &Question,
    incumbent: Incumbent<'_>,
    execution: Execution<'_>,
) -> Result<Option<Contest>, SpecError> {
    let scenario = &question.scenario;
    let tcp = plain(registries, scenario, &question.congestion, 0)?;
    let request = |candidates: &[Candidate], design: Design| -> Result<Request, SpecError> {
        let mut request = Request {
            scenario: scenario.clone(),
            workloads: question.workloads.clone(),
            candidates: candidates.iter().map(as_compared).collect(),
            congestion: registries.congestion.parse(&question.congestion)?,
            design,
            worth: question.worth.clone(),
            seed: question.seed,
            jobs: execution.jobs,
        };
        // Variants may be slower than what is stated.
        request.scenario.limit = request.ample_limit().saturating_mul(2);
        Ok(request)
    };
    // The first subflow is on the path that is best for plain TCP, decided as everything else is.
    let design = match question.effort.design {
        Design::Race { segments } => Design::Race { segments: segments / OPENING },
        fixed => fixed,
    };
    let asked = request(&tcp, design)?;
    let raced = run_all(question, &asked, &tcp, execution);
    let limit = asked.scenario.limit.as_secs_f64();
    let path = incumbent.and_then(|(path, ..)| tcp.get(path)).map(|one| one.label.as_str());
    let known = Known { system: question.system, incumbent: path, slower_as_stated: &[] };
    let found = compare::conclude(&asked, &raced, true, limit, &known);
    let Some(found) = found.filter(|_| raced.ended != compare::Ended::Interrupted) else { return Ok(None) };
    let named = found.named.as_ref().and_then(|(label, _)| tcp.iter().position(|one| one.label == *label));
    let best = named.unwrap_or(0);
    let mut candidates = if question.schedulers.is_empty() {
        everyone(registries, &question.congestion, best)?
    } else {
        // What the system does by itself runs whatever is asked for.
        let mut names: Vec<&str> = question.schedulers.iter().map(String::as_str).collect();
        for name in std::iter::once(BASELINE).chain(question.system.default_scheduler()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let names = names.into_iter();
        let names = names.filter(|name| *name != "tcp");
        let paths = question.scenario.paths.len();
        let named = |name: &str| {
            let (label, scheduler) = (name.to_string(), registries.scheduler(name, paths)?);
            Ok(Candidate { label, scheduler, ..one(registries, BASELINE, &question.congestion, best)? })
        };
        names.map(named).collect::<Result<_, SpecError>>()?
    };
    // What one has without changing anything.
    if best != 0 {
        let label = format!("{BASELINE}, first subflow on {}", scenario.paths[0].name);
        candidates.push(Candidate { label, ..one(registries, BASELINE, &question.congestion, 0)? });
    }
    candidates.extend(plain(registries, scenario, &question.congestion, best)?);
    let request = request(&candidates, question.effort.design)?;
    let raced = run_all(question, &request, &candidates, execution);
    if raced.ended == compare::Ended::Interrupted {
        return Ok(None);
    }
    let limit = request.scenario.limit.as_secs_f64();
    let (incumbent, multipath) = incumbent.map_or((None, None), |(_, label, multipath)| (label, multipath));
    // What the user can run is decided among itself.
    let system = question.system;
    let within = |who: &usize| system.can_run(&request.candidates[*who]);
    let reachable: Vec<usize> = (0..candidates.len()).filter(within).collect();
    let (own_request, own_raced) = only(&request, &raced, &reachable);
    let Some(slower) = slower_as_stated(question, &request, &raced, &candidates, execution) else {
        return Ok(None);
    };
    let known = Known { system, incumbent, slower_as_stated: &slower };
    let all = compare::conclude(&request, &raced, true, limit, &known);
    let decision = compare::conclude(&own_request, &own_raced, true, limit, &known);
    let (Some(all), Some(decision)) = (all, decision) else { return Ok(None) };
    let tcp = candidates.iter().filter(|one| one.is_tcp()).map(|one| one.label.clone());
    let barred: Vec<String> = slower.iter().cloned().chain(tcp).collect();
    let known = Known { system, incumbent: multipath, slower_as_stated: &barred };
    let multipath = compare::conclude(&own_request, &own_raced, true, limit, &known);
    let multipath = multipath.and_then(|decision| decision.named);
    Ok(Some(Contest { candidates, request, raced, all, decision, multipath, opens_on: best }))
}

/// Of those that aren't shown to be slower over the variants: who is shown to be slower on the paths as they
/// are stated, where `compare` runs them. None if it was stopped.
fn slower_as_stated(
    question: &Question,
    request: &Request,
    raced: &Raced,
    candidates: &[Candidate],
    execution: Execution<'_>,
) -> Option<Vec<String>> {
    let random = scenario::is_random(&request.scenario);
    let design = match request.design {
        Design::Race { segments } if random => Design::Race { segments: segments / AS_STATED },
        _ => Design::Fixed(AS_STATED_RUNS),
    };
    let limit = request.scenario.limit.as_secs_f64();
    let found = compare::conclude(request, raced, true, limit, &Known::default())?;
    let left =
        |who: &usize| found.stands[*who].1.is_as_good() && question.system.can_run(&request.candidates[*who]);
    let left: Vec<usize> = (0..candidates.len()).filter(left).collect();
    if left.len() < 2 {
        return Some(Vec::new());
    }
    let (request, _) = only(request, raced, &left);
    let plan = Plan {
        workloads: request.workloads.len(),
        candidates: left.len(),
        controls: Vec::new(),
        apart: false,
        rest: false,
        design,
        random,
        limit,
    };
    let run = |workload: usize, number: u32, who: usize| {
        let candidate = &candidates[left[who]];
        let mut scenario =
            Scenario::clone(&opened_on(&Arc::new(request.scenario.clone()), candidate.opens_on));
        scenario.workload = request.workloads[workload].clone();
        one_run(question, scenario, candidate, number)
    };
    let raced = compare::race(plan, execution.jobs, run, |worth| (execution.done)(worth), execution.stop);
    if raced.ended == compare::Ended::Interrupted {
        return None;
    }
    let request = Request { design, ..request };
    let found = compare::conclude(&request, &raced, random, limit, &Known::default())?;
    Some(found.with(Standing::Slower).into_iter().map(String::from).collect())
}

/// Answers. None if it was stopped.
///
/// # Errors
/// A congestion control that isn't known.
pub fn advise(
    registries: &Registries,
    question: &Question,
    execution: Execution<'_>,
) -> Result<Option<Answer>, SpecError> {
    let (affordable, was_cut) = question.affordable();
    let question = &affordable;
    let scenario = &question.scenario;
    let shared = question.contest();
    // What is stated alone names one, and measurements change the name only if they show it to be slower.
    let before = match question.stated_alone() {
        None => None,
        Some(stated) => {
            match contest(registries, &Question { effort: shared.effort, ..stated }, None, execution)? {
                None => return Ok(None),
                some => some,
            }
        }
    };
    let label = |of: &Contest| of.decision.named.as_ref().map(|(label, _)| label.clone());
    let named_before = before.as_ref().and_then(label);
    let multipath = before.as_ref().and_then(|of| of.multipath.as_ref()).map(|(label, _)| label.as_str());
    let incumbent = before.as_ref().map(|of| (of.opens_on, named_before.as_deref(), multipath));
    let Some(found) = contest(registries, &shared, incumbent, execution)? else { return Ok(None) };
    let Contest { candidates, request, raced, all, decision, .. } = &found;
    let limit = found.limit();
    let scores = raced.scores(limit);
    let logs =
        |a: usize, b: usize| -> Vec<f64> { scores[a].iter().zip(&scores[b]).map(|(a, b)| a - b).collect() };
    let fastest_tcp = (0..candidates.len())
        .filter(|who| candidates[*who].is_tcp())
        .min_by(|a, b| stats::mean(&scores[*a]).total_cmp(&stats::mean(&scores[*b])))
        .unwrap_or(0);
    let named = decision.named.as_ref().and_then(|(label, _)| found.place(label));
    let mut chosen = named.unwrap_or(fastest_tcp);
    // Better in the mean isn't enough: the user's paths are one of the variants. Nor is it too little where
    // plain TCP is the greater risk.
    let mut decision = decision.clone();
    let (mut sure, mut unsure, mut lesser_risk) = (None, None, false);
    let is_multipath = !candidates[chosen].is_tcp();
    let tested = match is_multipath {
        true => Some(chosen),
        false => found.instead(),
    };
    if let Some(tested) = tested {
        let pair = (&candidates[tested], &candidates[fastest_tcp]);
        let tcp = (0..candidates.len()).filter(|who| candidates[*who].is_tcp());
        let cost = cost(raced, &tcp.chain([tested]).collect::<Vec<_>>());
        let share = certainty::share(question, request, pair, candidates, cost, execution);
        let Some(share) = share else { return Ok(None) };
        let gain = Gain::of(&logs(tested, fastest_tcp));
        let favours = share.favours_multipath(question.certainty);
        if favours && !is_multipath {
            chosen = tested;
            decision.named = found.multipath.clone();
        } else if !favours && (is_multipath || gain.ratio * (1.0 + compare::MARGIN) < 1.0) {
            unsure = Some((candidates[tested].label.clone(), gain));
            chosen = fastest_tcp;
            decision.named = Some((candidates[chosen].label.clone(), Merit::NoMultipath));
        }
        lesser_risk = favours && !share.shows_a_gain();
        if chosen == tested || unsure.is_some() {
            sure = Some(share);
        }
    }
    let best_tcp = if candidates[chosen].is_tcp() { chosen } else { fastest_tcp };
    let why = match &candidates[chosen] {
        _ if unsure.is_some() => Recommended::NotSure,
        _ if lesser_risk => Recommended::LesserRisk,
        one if one.is_tcp() => Recommended::NothingBetter,
        one if one.scheduler.text == BASELINE => Recommended::OwnAsGood,
        _ => Recommended::Better,
    };
    let beyond = all.named.as_ref().and_then(|(label, _)| {
        let who = found.place(label).filter(|who| !question.system.can_run(&request.candidates[*who]))?;
        Some((label.clone(), Gain::of(&logs(who, chosen))))
    });
    let own = found.place(BASELINE).filter(|own| *own != chosen && !candidates[chosen].is_tcp());
    let mut judged: Vec<Judged> = all
        .stands
        .iter()
        .enumerate()
        .map(|(who, (label, stand))| {
            judge(raced, who, label, stand.standing, &logs(who, best_tcp), &candidates[who])
        })
        .collect();
    judged.sort_by(|a, b| a.gain.ratio.total_cmp(&b.gain.ratio));
    let mut versus_tcp = Gain::of(&logs(chosen, best_tcp));
    let mut gain_before = None;
    if let Some(stated) = question.stated_alone().filter(|_| chosen != best_tcp) {
        let pair = [candidates[chosen].clone(), candidates[best_tcp].clone()];
        let request = Request {
            scenario: Scenario { limit: request.scenario.limit, ..stated.scenario.clone() },
            candidates: pair.iter().map(as_compared).collect(),
            design: Design::Fixed(BLOCK as u32),
            ..request.clone()
        };
        let raced = run_all(&stated, &request, &pair, Execution { done: &|_| {}, ..execution });
        if raced.ended == compare::Ended::Interrupted {
            return Ok(None);
        }
        let scores = raced.scores(limit);
        let gaps: Vec<f64> = scores[0].iter().zip(&scores[1]).map(|(a, b)| a - b).collect();
        let gain = Gain::of(&gaps);
        versus_tcp = versus_tcp.narrowed_by(&gain);
        // What was stated bounds it, in the table, too.
        let row = judged.iter_mut().find(|row| row.label == candidates[chosen].label);
        if let Some(row) = row {
            row.gain.interval = versus_tcp.interval;
        }
        gain_before = Some(gain);
    }
    let mut answer = Answer {
        use_this: candidates[chosen].clone(),
        opens_on: match candidates[chosen].mode {
            Mode::SinglePath(path) => scenario.paths[path].name.clone(),
            Mode::Multipath => scenario.paths[candidates[chosen].opens_on].name.clone(),
        },
        why,
        named_before,
        best_path: candidates[best_tcp].label.trim_start_matches("tcp ").to_string(),
        versus_tcp,
        stated: gain_before,
        versus_own: own.map(|own| (said_own(scenario, &candidates[own]), Gain::of(&logs(chosen, own)))),
        variants: decision.most_runs() as usize,
        decision,
        all: all.clone(),
        sure,
        unsure,
        beyond,
        judged,
        buffer: None,
        flips: Vec::new(),
        ahead: None,
        telling: None,
        cut: if was_cut { question.workloads.iter().map(compare::describe).collect() } else { Vec::new() },
    };
    if question.effort.whole {
        let buffer = buffer::find(question, request, &answer.use_this, execution);
        let Some(buffer) = buffer else { return Ok(None) };
        answer.buffer = Some(buffer);
        let watched = watched(&answer.decision, candidates, chosen);
        let Some(flips) = flips::find(question, &watched, 0, execution) else { return Ok(None) };
        match flips {
            Turning::Points(flips) => answer.flips = flips,
            Turning::Ahead(label, ratio) => answer.ahead = Some((label, ratio)),
        }
        let other = match &answer.unsure {
            Some((label, _)) => label.clone(),
            None => candidates[best_tcp].label.clone(),
        };
        let share = answer.sure.as_ref();
        let by_share = share.and_then(|share| {
            telling::in_variants(question, share, &request.scenario, answer.unsure.is_none(), &other)
        });
        answer.telling = by_share.or_else(|| telling::in_flips(question, &answer.flips));
    }
    Ok(Some(answer))
}

fn as_compared(one: &Candidate) -> compare::Candidate {
    compare::Candidate { label: one.label.clone(), scheduler: one.scheduler.clone(), mode: one.mode }
}

/// The race over variants: the number of a run is the number of its variant, and its seed.
fn run_all(
    question: &Question,
    request: &Request,
    candidates: &[Candidate],
    execution: Execution<'_>,
) -> Raced {
    let variants = Variants::of(question, &request.scenario);
    let control = |who: &usize| candidates[*who].is_tcp() || candidates[*who].scheduler.text == BASELINE;
    let controls: Vec<usize> = (0..candidates.len()).filter(control).collect();
    let plan = Plan {
        workloads: request.workloads.len(),
        candidates: candidates.len(),
        controls: vec![controls],
        apart: false,
        rest: false,
        design: request.design,
        random: true,
        limit: request.scenario.limit.as_secs_f64(),
    };
    let run = |workload: usize, number: u32, who: usize| {
        let mut scenario = variants.opened(number, &candidates[who]);
        scenario.workload = request.workloads[workload].clone();
        one_run(question, scenario, &candidates[who], number)
    };
    compare::race(plan, execution.jobs, run, |worth| (execution.done)(worth), execution.stop)
}

/// The same with some of the candidates.
fn only(request: &Request, raced: &Raced, who: &[usize]) -> (Request, Raced) {
    let mut request = request.clone();
    request.candidates = who.iter().map(|who| request.candidates[*who].clone()).collect();
    let of = |runs: &Vec<Vec<Run>>| who.iter().map(|who| runs[*who].clone()).collect();
    let rested = who.iter().map(|who| raced.rested[*who]).collect();
    let raced = Raced { runs: raced.runs.iter().map(of).collect(), rested, ..raced.clone() };
    (request, raced)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::advise::{CERTAINTY, Doubt, Effort};
    use crate::compare::{System, Worth};

    fn question(paths: &[&str], bytes: u64, seed: u64) -> Question {
        let paths = paths.iter().map(|text| crate::scenario::path(text).unwrap()).collect::<Vec<_>>();
        let doubts = vec![Doubt::default(); paths.len()];
        let mut scenario = crate::scenario::default_around(paths);
        scenario.workload = ropewalk_sim::Workload::Flow { bytes };
        Question {
            workloads: vec![scenario.workload.clone()],
            scenario,
            schedulers: Vec::new(),
            doubts,
            stated: None,
            congestion: "cubic".into(),
            system: System::Ropewalk,
            worth: Worth::default(),
            certainty: CERTAINTY,
            effort: Effort { design: Design::Race { segments: 1_000_000 }, whole: false },
            seed,
        }
    }

    fn answer(question: &Question) -> Answer {
        let stop = AtomicBool::new(false);
        let execution = Execution { jobs: crate::parallel::Workers::ONE, done: &|_| {}, stop: &stop };
        advise(&Registries::builtin(), question, execution).unwrap().unwrap()
    }

    fn ask(paths: &[&str], bytes: u64, seed: u64) -> Answer {
        answer(&question(paths, bytes, seed))
    }

    /// What `ping -c N` prints on a link that loses nothing; each way varies evenly, by `spread` in all.
    fn ping(count: u64, rtt: f64, spread: f64, seed: u64) -> String {
        let mut text = String::from("PING x (192.0.2.1) 56(84) bytes of data.\n");
        let mut state = seed;
        for number in 1..=count {
            let mut way = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 33) as f64 / (1u64 << 31) as f64 - 0.5) * spread
            };
            let ms = rtt + way() + way();
            text += &format!("64 bytes from 192.0.2.1: icmp_seq={number} ttl=60 time={ms:.1} ms\n");
        }
        text + &format!("\n{count} packets transmitted, {count} received, 0% packet loss\n")
    }

    #[test]
    fn clean_pings_do_not_change_the_advice() {
        let paths = [
            "dsl: 16 Mbit/s, up 1 Mbit/s, 30 ms",
            "lte: 40 Mbit/s, up 10 Mbit/s, 55 ms +-15 ms, queue 2000 packets",
        ];
        // Which of the equal schedulers is named may change.
        let names = |answer: Answer| (answer.use_this.is_tcp(), answer.opens_on);
        // With measurements, half of the budget is for what is stated.
        let effort = |segments| Effort { design: Design::Race { segments }, whole: false };
        let alone = Question { effort: effort(1_500_000), ..question(&paths, 4 << 20, 1) };
        let stated = names(answer(&alone));
        for count in [15, 30] {
            let mut measured = alone.clone();
            (measured.stated, measured.effort) = (Some(alone.scenario.clone()), effort(3_000_000));
            // 84 bytes take 0.71 and 0.08 ms to be sent there and back.
            for (index, (rtt, spread)) in [(30.71, 0.0), (55.08, 15.0)].into_iter().enumerate() {
                let read =
                    crate::advise::measure::parse("ping", &ping(count, rtt, spread, count + index as u64))
                        .unwrap();
                let known = measured.scenario.paths[index].clone();
                let name = known.name.clone();
                let found =
                    crate::advise::measure::refine(&name, Some(known), std::slice::from_ref(&read)).unwrap();
                (measured.scenario.paths[index], measured.doubts[index]) = (found.path, found.doubt);
            }
            assert_eq!(names(answer(&measured)), stated, "{count} pings");
        }
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
                assert!(matches!(answer.why, Recommended::NothingBetter | Recommended::NotSure));
            } else {
                multipath += 1;
                let sure = answer.sure.as_ref().unwrap();
                assert!(sure.favours_multipath(CERTAINTY), "{answer:?}");
            }
        }
        assert!(plain > 0 && multipath > 0, "{plain} {multipath}");
    }
}
