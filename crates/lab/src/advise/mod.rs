//! Which scheduler for my paths? The candidates and the race of [`crate::compare`], each run in another
//! plausible variant of the paths, drawn from what is known of them and how well ([`belief`]). Multipath is
//! recommended only if plain TCP on every path is shown to be slower; a scheduler other than the kernel's own
//! only if that one is.

mod answer;
pub mod belief;
mod buffer;
mod certainty;
mod coverage;
pub mod document;
mod effort;
mod flips;
mod gain;
mod judge;
pub mod measure;
mod narrowing;
mod question;
mod run;
mod search;
mod selftest;
mod telling;
mod variants;
mod whole_test;

pub use answer::{Answer, Buffer, Judged, Recommended};
pub use belief::Doubt;
pub use certainty::Share;
pub use coverage::{Coverage, Link, Quantity, Range, coverage};
pub use effort::Effort;
pub use flips::Flip;
pub use gain::Gain;
pub use narrowing::{GainInterval, Links, Narrowing, narrowing};
pub use question::{CERTAINTY, Question, question};
pub use run::{Candidate, Execution};
pub use search::advise;
pub use selftest::{Case, SelfTest, measured_test, self_test};
pub use telling::Telling;
pub use whole_test::{Stores, WholeTest, whole_test};
