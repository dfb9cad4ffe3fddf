//! Which scheduler for my paths? Candidates run in worlds drawn from what is known of the paths and how well
//! ([`belief`]); the best in one set of worlds is judged in a fresh one, so that the gain it is said to have is not
//! the luck by which it was chosen. Multipath is recommended only if it beats plain TCP on the best path of each world;
//! a scheduler other than the kernel's own only if it beats that by more than 1 %.

pub mod belief;
mod flips;
pub mod measure;
mod run;
mod search;
mod selftest;

pub use belief::{Doubt, LossDoubt};
pub use flips::Flip;
pub use run::{Candidate, Hands};
pub use search::{Answer, Buffer, Effort, Finalist, Gain, Question, Why, advise, runs};
pub use selftest::{Case, SelfTest, self_test};
