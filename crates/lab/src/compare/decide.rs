//! Groups first: those equal to the fastest within a margin, those shown to be slower, and the undecided.
//! Then one of those that aren't slower is named, by a rule that chance has no part in.
//!
//! Each candidate is held against the one with the least mean, on the logarithms of runs with the same seed.
//! With 95 % certainty none of the statements is wrong, whichever the fastest is (`bounds`).

use super::bounds::{Gap, Levels, Quantiles, Strata};
use super::design::PER_SECOND;
use super::system::{Merit, System, is_tcp};
use super::versus::FEW;
use super::{Candidate, Comparison};
use crate::stats;

/// Differences below this don't matter.
pub const MARGIN: f64 = 0.02;

/// Why no more runs were done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Each had its fixed number.
    Runs,
    /// One is left: all others are shown to be slower.
    Separated,
    /// Those that are left are shown to be equal within the margin.
    Equivalent,
    /// Those that are left are shown to be equal, or known to within half of the margin.
    Known,
    /// The budget is used up.
    Budget,
    /// Nothing is random: more runs would give the same results.
    Still,
    /// The user stopped it.
    Interrupted,
}

/// What is known to within this needs no more runs: they would tell on which side of the margin it lies, by
/// less than the margin itself.
const PRECISE: f64 = MARGIN / 2.0;

/// Repeated bytes that don't count, as a share of what was delivered.
const NOTHING_REPEATED: f64 = 0.01;

/// How a candidate stands to the fastest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Shown to be equal within the margin.
    Equal,
    /// Neither shown to be equal nor to be slower.
    Open,
    /// Shown to be slower by more than the margin.
    Slower,
}

/// A candidate, measured against the fastest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct VersusFastest {
    /// How it stands.
    pub standing: Standing,
    /// Its time over the fastest's: the geometric mean over seeds and workloads.
    pub ratio: f64,
    /// Its bounds, simultaneous with all others; none without randomness or with too few runs.
    pub interval: Option<(f64, f64)>,
    /// Whether more runs would say little: it is shown to be equal or slower, or its bound on the margin's
    /// side is within half of the margin.
    pub known: bool,
}

impl VersusFastest {
    /// Whether it counts as equal: shown to be, or likely, with a mean within the margin. One that isn't
    /// shown to be slower because its runs vary too much doesn't.
    pub fn is_as_good(&self) -> bool {
        match self.standing {
            Standing::Equal => true,
            Standing::Open => self.ratio <= 1.0 + MARGIN,
            Standing::Slower => false,
        }
    }
}

/// Whether `slow` is shown to be slower than `fast`, by however little, with the certainty of all other
/// statements.
pub(crate) fn shown_slower(strata: &Strata, slow: usize, fast: usize, levels: Levels, random: bool) -> bool {
    let gap = Gap::between(strata, slow, fast, levels.event);
    if gap.pairs < FEW || !random {
        return gap.pairs >= FEW && gap.mean > 0.0;
    }
    gap.mean > Quantiles::default().reach(levels.lower, &gap)
}

/// Everyone against the one with the least mean among those that aren't `out` and have the most runs.
/// `at_end`: who runs no more, for another reason than its mean: its upper bound is the one at the end.
pub(crate) fn standings(
    strata: &Strata,
    unfinished: &[bool],
    out: &[bool],
    at_end: &[bool],
    levels: Levels,
    random: bool,
) -> Vec<VersusFastest> {
    let Some(first) = fastest(strata, unfinished, out) else { return Vec::new() };
    let margin = libm::log(1.0 + MARGIN);
    let precise = libm::log(1.0 + PRECISE);
    let mut quantiles = Quantiles::default();
    (0..unfinished.len())
        .map(|who| {
            let gap = Gap::between(strata, who, first, levels.event);
            let hidden = unfinished[who] || unfinished[first];
            let standing = |(low, high): (f64, f64)| {
                if who == first {
                    Standing::Equal
                } else if out[who] || low > margin || (unfinished[who] && !unfinished[first] && !random) {
                    Standing::Slower
                } else if high < margin && low > -margin && !hidden {
                    Standing::Equal
                } else {
                    Standing::Open
                }
            };
            let ratio = libm::exp(gap.mean);
            if gap.pairs < FEW || !random {
                let bounds = if random || gap.pairs < FEW { f64::INFINITY } else { 0.0 };
                let standing = standing((gap.mean - bounds, gap.mean + bounds));
                return VersusFastest { standing, ratio, interval: None, known: false };
            }
            let mut reach = |level: f64| quantiles.reach(level, &gap);
            let (below, above, last) = (reach(levels.lower), reach(levels.upper), reach(levels.last));
            let mut bounds = (gap.mean - below, gap.mean + above);
            if at_end[who] && standing(bounds) == Standing::Open {
                bounds.1 = gap.mean + last;
            }
            let standing = standing(bounds);
            let tight = if gap.mean <= margin { last } else { below } <= precise;
            let interval = (who != first).then(|| (libm::exp(bounds.0), libm::exp(bounds.1)));
            VersusFastest { standing, ratio, interval, known: standing != Standing::Open || tight }
        })
        .collect()
}

/// The one with the least mean; one with runs that didn't finish only if none finished all.
pub(crate) fn fastest(strata: &Strata, unfinished: &[bool], out: &[bool]) -> Option<usize> {
    let most = |of: &Vec<Vec<f64>>| of.iter().map(Vec::len).max().unwrap_or(0);
    let has_most = |who: usize| strata.iter().all(|of| !of[who].is_empty() && of[who].len() == most(of));
    let mean = |who: usize| strata.iter().map(|of| stats::mean(&of[who])).sum::<f64>();
    let fit = (0..unfinished.len()).filter(|who| has_most(*who) && !out[*who]);
    fit.map(|who| (unfinished[who], mean(who), who))
        .min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))
        .map(|(_, _, who)| who)
}

/// Candidates in groups, and the one that is named.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision {
    /// By candidate, in the request's order.
    pub stands: Vec<(String, VersusFastest)>,
    /// The one to use among those that aren't slower; none where nothing can be said.
    pub named: Option<(String, Merit)>,
    /// The one with the least mean.
    pub fastest: Option<String>,
    /// Why no more was run.
    pub ended: Ended,
    /// Segments that were simulated.
    pub used: u64,
    /// Runs of the candidate with the most, by workload.
    pub runs: Vec<u32>,
}

/// What the rule for naming looks at besides the system.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Cost {
    /// Bytes sent again, as a share of what was delivered.
    pub repeated: f64,
}

/// What is known besides the runs when one is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Known<'a> {
    /// What the user can run.
    pub system: System,
    /// Who was named on what was known before: it stays unless it is shown to be slower than the fastest, or
    /// plain TCP isn't shown to be slower than it.
    pub incumbent: Option<&'a str>,
    /// In a race over plausible variants: who is shown to be slower on the paths as they are stated. They
    /// aren't named.
    pub slower_as_stated: &'a [String],
}

/// Names one. Plain TCP unless the fastest is shown to be better by more than the margin on every path:
/// Multipath TCP has to prove itself. Then, of those that are as good as the fastest and shown to be faster
/// than plain TCP, the one that `system` has; then the default of Ropewalk's gateway and proxy; then the one
/// that repeats the fewest bytes (to the per cent) and, of these, the first in the list of schedulers, which
/// has the simple ones first.
///
/// `is_slower(slow, fast)` says what is shown of two.
pub(crate) fn name(
    candidates: &[Candidate],
    stands: &[VersusFastest],
    costs: &[Cost],
    known: &Known<'_>,
    is_slower: impl Fn(usize, usize) -> bool,
) -> Option<usize> {
    let all = || 0..candidates.len();
    let is_tcp = |who: &usize| is_tcp(&candidates[*who]);
    let barred = |who: &usize| known.slower_as_stated.contains(&candidates[*who].label);
    let left = |who: &usize| stands[*who].standing != Standing::Slower && !barred(who);
    let incumbent = known.incumbent.and_then(|label| candidates.iter().position(|one| one.label == label));
    let incumbent = incumbent.filter(left);
    let tcp: Vec<usize> = all().filter(is_tcp).filter(left).collect();
    if !tcp.is_empty() {
        let least = tcp.iter().map(|who| stands[*who].ratio).fold(f64::INFINITY, f64::min);
        let near = tcp.iter().copied().find(|who| stands[*who].ratio <= least * (1.0 + MARGIN));
        return incumbent.filter(is_tcp).or(near);
    }
    let proven = |who: &usize| all().filter(is_tcp).all(|tcp| is_slower(tcp, *who));
    if let Some(incumbent) = incumbent.filter(proven) {
        return Some(incumbent);
    }
    let order = |who: &usize| {
        (known.system.merit(&candidates[*who]).rank(), (costs[*who].repeated / NOTHING_REPEATED) as u64, *who)
    };
    let good = || all().filter(|who| stands[*who].is_as_good());
    let allowed = || good().filter(|who| !barred(who));
    let proven = allowed().filter(proven).min_by_key(order);
    proven.or_else(|| allowed().min_by_key(order)).or_else(|| good().min_by_key(order))
}

impl Decision {
    /// Labels with this standing, the fastest first.
    pub fn with(&self, standing: Standing) -> Vec<&str> {
        let mut found: Vec<&(String, VersusFastest)> =
            self.stands.iter().filter(|(_, stand)| stand.standing == standing).collect();
        found.sort_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
        found.into_iter().map(|(label, _)| label.as_str()).collect()
    }

    /// Labels of those that are likely equal, but not shown to be.
    pub fn likely(&self) -> Vec<&str> {
        let likely = |label: &&str| self.of(label).is_some_and(|stand| stand.is_as_good());
        self.with(Standing::Open).into_iter().filter(likely).collect()
    }

    /// How one stands, in a word: one that is equal to nobody but itself is the fastest.
    pub fn word(&self, label: &str) -> &'static str {
        let Some(stand) = self.of(label) else { return "" };
        match stand.standing {
            Standing::Equal if self.with(Standing::Equal).len() == 1 => "fastest",
            Standing::Equal => "equal",
            Standing::Open if stand.is_as_good() => "likely",
            Standing::Open => "open",
            Standing::Slower => "slower",
        }
    }

    /// How one stands.
    pub fn of(&self, label: &str) -> Option<VersusFastest> {
        self.stands.iter().find(|(name, _)| name == label).map(|(_, stand)| *stand)
    }

    /// Runs of the candidate with the most, in the workload with the most.
    pub fn most_runs(&self) -> u32 {
        self.runs.iter().copied().max().unwrap_or(0)
    }

    /// `90`, or `90 to 400` where workloads have different numbers.
    fn runs_text(&self) -> String {
        match (self.runs.iter().min(), self.most_runs()) {
            (Some(fewest), most) if *fewest < most => format!("{fewest} to {most}"),
            (_, most) => most.to_string(),
        }
    }

    /// Why it ended, in words.
    pub fn ended_text(&self, comparison: &Comparison) -> String {
        let used = |tail: &str| {
            let seconds = self.used as f64 / PER_SECOND as f64;
            format!(
                "{tail} after {} runs of each candidate left ({seconds:.1} s of budget)",
                self.runs_text()
            )
        };
        match self.ended {
            Ended::Runs if comparison.runs == 1 => "1 run of each, as asked".to_string(),
            Ended::Runs => format!("{} runs of each, as asked", comparison.runs),
            Ended::Separated => used("ended when all others were shown to be slower,"),
            Ended::Equivalent => used("ended when those left were shown to be equal,"),
            Ended::Known => used("ended when each was shown to be equal or known to within 1 %,"),
            Ended::Budget => used("ended when the budget (`--budget`) was used up,"),
            Ended::Still => format!("{} runs of each, at different start times", comparison.runs),
            Ended::Interrupted => format!("interrupted after {} runs of each", self.runs_text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_sim::Mode;

    use super::*;
    use crate::compare::Design;

    fn around(center: f64, spread: f64, n: usize, step: usize) -> Vec<f64> {
        (0..n).map(|i| center + spread * ((i * step % 7) as f64 - 3.0) / 3.0).collect()
    }

    fn one_look(candidates: usize) -> Levels {
        Levels::of(Design::Fixed(1), candidates)
    }

    fn stands_of(scores: &[Vec<f64>], unfinished: &[bool], out: &[bool]) -> Vec<VersusFastest> {
        let at_end = vec![false; scores.len()];
        standings(&[scores.to_vec()], unfinished, out, &at_end, one_look(scores.len()), true)
    }

    #[test]
    fn equal_open_and_slower_are_told_by_intervals_and_the_margin() {
        let scores = [
            around(0.0, 0.01, 70, 2),
            around(0.005, 0.01, 70, 3),
            around(0.015, 0.1, 70, 5),
            around(0.2, 0.05, 70, 3),
        ];
        let found = stands_of(&scores, &[false; 4], &[false; 4]);
        let standing: Vec<Standing> = found.iter().map(|stand| stand.standing).collect();
        assert_eq!(standing, [Standing::Equal, Standing::Equal, Standing::Open, Standing::Slower]);
        // Fewer runs say less, and very few nothing.
        let short: Vec<Vec<f64>> = scores.iter().map(|series| series[..4].to_vec()).collect();
        let found = stands_of(&short, &[false; 4], &[false; 4]);
        assert!(found.iter().skip(1).all(|stand| stand.standing == Standing::Open || stand.ratio == 1.0));
    }

    #[test]
    fn who_did_not_finish_is_never_equal() {
        let scores = [around(0.0, 0.01, 70, 2), around(0.0, 0.01, 70, 2)];
        let found = stands_of(&scores, &[false, true], &[false; 2]);
        assert_eq!(found[1].standing, Standing::Open);
    }

    fn candidates(labels: &[&str]) -> Vec<Candidate> {
        let registries = ropewalk_algorithms::Registries::builtin();
        let one = |label: &&str| {
            let tcp = label.starts_with("tcp ");
            let scheduler = registries.schedulers.parse(if tcp { "single" } else { label }).unwrap();
            let mode = if tcp { Mode::SinglePath(0) } else { Mode::Multipath };
            Candidate { label: label.to_string(), scheduler, mode }
        };
        labels.iter().map(one).collect()
    }

    fn named(labels: &[&str], scores: &[Vec<f64>], incumbent: Option<usize>) -> String {
        let count = labels.len();
        let stands = stands_of(scores, &vec![false; count], &vec![false; count]);
        let costs = vec![Cost { repeated: 0.0 }; count];
        let strata = [scores.to_vec()];
        let is_slower = |slow, fast| shown_slower(&strata, slow, fast, one_look(count), true);
        let candidates = candidates(labels);
        let incumbent = incumbent.map(|who| labels[who]);
        let known = Known { incumbent, ..Known::default() };
        let who = name(&candidates, &stands, &costs, &known, is_slower);
        candidates[who.unwrap()].label.clone()
    }

    #[test]
    fn a_wide_interval_does_not_make_a_slower_one_equal() {
        // `linux` takes 10 % longer in the mean, and varies so much that this isn't shown.
        let labels = ["linux", "roundrobin", "ecf", "tcp a"];
        let fast = around(0.0, 0.01, 70, 2);
        let scores =
            [around(0.1, 0.5, 70, 5), fast.clone(), around(0.005, 0.01, 70, 3), around(0.4, 0.01, 70, 3)];
        let stands = stands_of(&scores, &[false; 4], &[false; 4]);
        assert_eq!((stands[0].standing, stands[0].is_as_good()), (Standing::Open, false));
        assert_eq!(named(&labels, &scores, None), "roundrobin");
        // Plain TCP that isn't shown to be slower is named all the same.
        let mut unsure = scores.clone();
        unsure[3] = around(0.1, 0.5, 70, 3);
        assert_eq!(named(&labels, &unsure, None), "tcp a");
    }

    #[test]
    fn what_was_named_before_stays_until_it_is_shown_to_be_slower() {
        let labels = ["linux", "roundrobin", "ecf", "tcp a"];
        let near = |center, step| around(center, 0.01, 70, step);
        let scores = [near(0.015, 5), near(0.0, 2), near(0.005, 3), near(0.4, 3)];
        assert_eq!(named(&labels, &scores, None), "linux");
        assert_eq!(named(&labels, &scores, Some(2)), "ecf");
        assert_eq!(named(&labels, &scores, Some(3)), "linux");
        let slower = [near(0.0, 5), near(0.0, 2), near(0.2, 3), near(0.4, 3)];
        assert_eq!(named(&labels, &slower, Some(2)), "linux");
        // Nor does it stay where it isn't shown to be better than plain TCP.
        let unsure = [near(0.0, 5), near(0.0, 2), around(0.05, 0.6, 70, 3), near(0.05, 4)];
        assert_eq!(named(&labels, &unsure, Some(2)), "linux");
    }

    #[test]
    fn whoever_is_out_stays_out() {
        let scores = [around(0.0, 0.01, 70, 2), around(0.0, 0.01, 20, 2)];
        let found = stands_of(&scores, &[false; 2], &[false, true]);
        assert_eq!(found[1].standing, Standing::Slower);
    }
}
