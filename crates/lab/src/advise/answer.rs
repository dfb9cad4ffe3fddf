//! What `advise` answers.

use super::certainty::Share;
use super::flips::Flip;
use super::gain::Gain;
use super::run::Candidate;
use super::telling::Telling;
use crate::compare::{Decision, Standing};

/// A buffer's size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Buffer {
    /// The least that is as good as the best size: shown to be equal to it within the margin of `compare`, or
    /// likely. Bytes, for sending and for receiving.
    pub bytes: u64,
    /// Whether that is shown.
    pub shown: bool,
    /// What the next smaller one costs: a ratio of times.
    pub smaller: Option<f64>,
    /// The least that isn't shown to be slower.
    pub least: u64,
}

/// Why this is recommended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recommended {
    /// Plain TCP and the kernel's own scheduler are shown to be slower.
    Better,
    /// The kernel's own scheduler isn't shown to be slower than the fastest, and plain TCP is.
    OwnAsGood,
    /// Plain TCP isn't shown to be slower in the mean, but is more often much slower than the other way
    /// round.
    LesserRisk,
    /// Plain TCP on the best path isn't shown to be slower than the fastest.
    NothingBetter,
    /// Multipath TCP is faster in the mean, but its risk over the plausible variants is too great.
    NotSure,
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
    /// Bytes duplicated by the scheduler, per run.
    pub duplicated: f64,
    /// Bytes reinjected by the connection, per run.
    pub reinjected: f64,
    /// Segments retransmitted by subflows, per run.
    pub retransmits: f64,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What to use.
    pub use_this: Candidate,
    /// The path of a Multipath TCP connection's first subflow; plain TCP's path.
    pub opens_on: String,
    /// Why.
    pub why: Recommended,
    /// The label of what is named on what is stated alone; none without measurements.
    pub named_before: Option<String>,
    /// Who is equal, who is slower, among what the user can run.
    pub decision: Decision,
    /// The same among all candidates.
    pub all: Decision,
    /// The best path for plain TCP.
    pub best_path: String,
    /// Against plain TCP on that path.
    pub versus_tcp: Gain,
    /// The same by what was stated alone; none without measurements.
    pub stated: Option<Gain>,
    /// Against the kernel's own scheduler, with its first subflow on the first path; none if that is
    /// recommended.
    pub versus_own: Option<(String, Gain)>,
    /// In which share of the plausible variants Multipath TCP is no mistake, if it is recommended or
    /// `unsure`.
    pub sure: Option<Share>,
    /// Multipath TCP that is faster in the mean, but whose risk is too great; its gain over what is
    /// recommended.
    pub unsure: Option<(String, Gain)>,
    /// What the user can't run and would be better, and its gain over what is recommended.
    pub beyond: Option<(String, Gain)>,
    /// All candidates, the fastest first.
    pub judged: Vec<Judged>,
    /// How large buffers must be, if that was looked for.
    pub buffer: Option<Buffer>,
    /// Where another would be better, if that was looked for.
    pub flips: Vec<Flip>,
    /// Who is faster on exactly these paths already, and by what ratio: then moving a quantity shows nothing.
    pub ahead: Option<(String, f64)>,
    /// Plausible variants of the paths in which those that aren't slower ran.
    pub variants: usize,
    /// The measurement that could change the answer, if one could.
    pub telling: Option<Telling>,
    /// The workloads of which only the beginning was simulated, as it was, in words.
    pub cut: Vec<String>,
}
