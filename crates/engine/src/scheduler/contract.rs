//! The contract of all schedulers ([`departures`]), tested over every entry of [`super::builtin`] and each of
//! its presets: a new one is under test the moment it is registered. One of your own is tested with
//! [`crate::testing::departures`].
//!
//! | rule | what it asks |
//! |---|---|
//! | `eligible` | only subflows are named that may carry data: no backup while another is usable |
//! | `cwnd` | and only those whose windows have room |
//! | `wait` | a wait's moment lies ahead |
//! | `work-conserving` | no wait without a moment while data could be sent and nothing is in flight |
//! | `progress` | every other decision changes something |
//! | `single-path` | over one path, the transmissions are `minrtt`'s |
//! | `even-split` | two identical paths: neither below 45 % of the bytes of a bulk transfer |
//!
//! An algorithm that departs from a rule by its nature declares it in its entry; the departures are printed,
//! and one that is declared but doesn't happen is an error too.

use super::Scheduler;
use super::testing::{MSS, Model, Pipe, run};
use crate::{MILLISECOND, Time};

#[cfg(test)]
mod tests;

fn growing(rtt_ms: u64, loss: u32) -> Pipe {
    Pipe { grows: true, loss, queue: 2_000_000, ..Pipe::new(rtt_ms, 10) }
}

/// Fixed cases for the rules that a run reports by itself.
fn cases() -> Vec<Model> {
    let (fast, slow) = (growing(10, 0), growing(100, 0));
    let window = 60_000;
    let lossy = [growing(20, 20), growing(60, 5), growing(61, 0)];
    let late = [growing(30, 0), Pipe { joins: Time::ZERO + 30 * MILLISECOND, ..growing(15, 0) }];
    let unmeasured =
        [growing(30, 0), Pipe { joins: Time::ZERO + 30 * MILLISECOND, unmeasured: true, ..growing(80, 0) }];
    let failing = [Pipe { fails: Some(Time::ZERO + 150 * MILLISECOND), ..growing(10, 0) }, growing(80, 0)];
    let initial_fails =
        [Pipe { fails: Some(Time::ZERO + 40 * MILLISECOND), ..growing(30, 0) }, growing(10, 0)];
    let backup = [Pipe { backup: true, ..growing(5, 0) }, growing(50, 0)];
    vec![
        Model::new(&[fast, slow], 400_000),
        Model::new(&[slow, fast], 400_000).window(window),
        Model::new(&lossy, 600_000).seed(7),
        Model::new(&late, 300_000).declare(300_000),
        Model::new(&unmeasured, 300_000),
        Model::new(&failing, 300_000),
        Model::new(&initial_fails, 300_000),
        Model::new(&backup, 100_000),
        Model::new(&[fast, slow], 300_000).messages(10_000, 5 * MILLISECOND),
    ]
}

/// All that a scheduler does that the contract forbids: the rule, and what happened. `build` makes a fresh
/// one.
pub fn departures(build: impl Fn() -> Box<dyn Scheduler>) -> Vec<(&'static str, String)> {
    let over =
        |pipes: &[Pipe], segments: u64| Model::new(pipes, segments * u64::from(MSS)).run(&mut *build());
    let mut found = Vec::new();
    for (number, case) in cases().into_iter().enumerate() {
        let done = case.run(&mut *build());
        if done.completed.is_none() {
            found.push(("progress", format!("case {number} never ends")));
        }
        found.extend(done.violations.into_iter().map(|(rule, what)| (rule, format!("case {number} {what}"))));
    }
    for pipe in [Pipe::new(40, 10), growing(40, 0), growing(25, 30)] {
        let (own, minrtt) = (over(&[pipe], 500), run("minrtt", &[pipe], 500));
        let first = own.placements.iter().zip(&minrtt.placements).find(|(own, minrtt)| own != minrtt);
        if let Some((own, minrtt)) = first {
            found.push(("single-path", format!("{own:?} where minrtt has {minrtt:?}")));
        }
    }
    for pipe in [Pipe::new(40, 16), Pipe::new(15, 37)] {
        let done = over(&[pipe, pipe], 4000);
        let (one, other) = (done.bytes_on(0), done.bytes_on(1));
        if one.min(other) * 100 < (one + other) * 45 {
            found.push(("even-split", format!("{one} and {other} bytes over paths alike")));
        }
    }
    found
}
