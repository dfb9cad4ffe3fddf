//! Datagrams over several links in virtual time: the two ends of a tunnel, as `ropewalkd` runs them
//! (`ropewalk-datagrams`), with modelled links between, and calls, games and downloads through it.

mod download;
mod flows;
mod world;

use ropewalk_datagrams::scheduler;
use ropewalk_engine::Span;

use crate::SpecError;
use crate::spec::{Direction, Scenario};

/// What goes through the tunnel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagrams {
    /// The flows, which begin one after another within a second.
    pub flows: Vec<Kind>,
    /// How long they send.
    pub duration: Span,
    /// A packet that takes longer is late.
    pub deadline: Span,
}

/// A kind of flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// 50 packets of 200 bytes a second, both ways.
    Voice,
    /// 30 frames a second of 9 packets of 1,186 bytes, from the sender.
    Video,
    /// 60 packets of 120 bytes a second, both ways.
    Game,
    /// All that CUBIC sends, in packets of 1,280 bytes, from the sender. No packet of it is late.
    Download,
}

impl Kind {
    /// All of them, by the names that scenario files use.
    pub const ALL: &'static [(&'static str, Kind)] =
        &[("voice", Kind::Voice), ("video", Kind::Video), ("game", Kind::Game), ("download", Kind::Download)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// What one direction of a flow delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowGot {
    /// What it is.
    pub kind: Kind,
    /// Its place among the flows.
    pub flow: usize,
    /// Which way.
    pub direction: Direction,
    /// Packets that were sent.
    pub sent: u64,
    /// Of them, those that never came.
    pub lost: u64,
    /// Of them, those that came after the deadline.
    pub late: u64,
    /// The one-way delays of packets that arrived, ascending, nanoseconds.
    pub delays: Vec<Span>,
    /// The longest time between two arrivals, nanoseconds.
    pub gap: Span,
    /// Bytes of packets that arrived.
    pub bytes: u64,
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatagramsResult {
    /// Each way of each flow; a download's acknowledgements are none.
    pub flows: Vec<FlowGot>,
    /// Bytes of the packets that were sent into the tunnel, and of the IP packets that it sent over the links
    /// for them.
    pub bytes: (u64, u64),
}

impl DatagramsResult {
    /// The share of packets that were lost or late; downloads don't count. `None` if nothing else was sent.
    pub fn missed(&self) -> Option<f64> {
        let counted = || self.flows.iter().filter(|flow| flow.kind != Kind::Download);
        let sent: u64 = counted().map(|flow| flow.sent).sum();
        let missed: u64 = counted().map(|flow| flow.lost + flow.late).sum();
        (sent > 0).then(|| missed as f64 / sent as f64)
    }
}

/// Runs to the end. `scheduler`: a name of [`ropewalk_datagrams::SCHEDULERS`]; `only`: the tunnel has this
/// path alone.
///
/// # Errors
/// There is no such scheduler, or no such path.
pub fn run(
    scenario: &Scenario,
    datagrams: &Datagrams,
    scheduler: &str,
    only: Option<usize>,
    seed: u64,
) -> Result<DatagramsResult, SpecError> {
    let paths = scenario.paths.len();
    if paths == 0 {
        return Err(SpecError::NoPath);
    }
    if let Some(path) = only.filter(|path| *path >= paths) {
        return Err(SpecError::UnknownSinglePath { path, paths });
    }
    let make = || scheduler::by_name(scheduler);
    let (Some(near), Some(far)) = (make(), make()) else {
        return Err(SpecError::DatagramScheduler(scheduler.into()));
    };
    Ok(world::World::new(scenario, datagrams, [near, far], only, seed).finish())
}

#[cfg(test)]
mod tests {
    use ropewalk_datagrams::SCHEDULERS;
    use ropewalk_engine::Time;
    use ropewalk_link::{Change, ChangeAction, Loss};

    use super::*;
    use crate::networks;

    const MS: Span = Span::from_millis(1);
    const SECOND: Span = Span::from_secs(1);

    /// 40 Mbit/s, 45 ms, 0.5 % lost, cut for 3 s; 60 Mbit/s, 50 ms.
    fn scenario() -> Scenario {
        let mut first = networks::path("a", 40_000_000, 45 * MS / 2, 400);
        let cut = [(5, ChangeAction::Down), (8, ChangeAction::Up)];
        for link in [&mut first.up, &mut first.down] {
            link.loss = Loss::Bernoulli(0.005);
            link.changes
                .extend(cut.clone().map(|(at, action)| Change::once(Time::ZERO + at * SECOND, action)));
        }
        networks::over(vec![first, networks::path("b", 60_000_000, 25 * MS, 400)])
    }

    fn got(flows: &[Kind], scheduler: &str, only: Option<usize>, seed: u64) -> DatagramsResult {
        let datagrams = Datagrams { flows: flows.into(), duration: 10 * SECOND, deadline: 150 * MS };
        run(&scenario(), &datagrams, scheduler, only, seed).unwrap()
    }

    #[test]
    fn a_call_hears_a_cut_by_one_link_alone() {
        let both = got(&[Kind::Voice], "adaptive", None, 1);
        assert_eq!((both.missed(), both.flows.len()), (Some(0.0), 2), "{:?}", both.flows);
        assert!(both.flows.iter().all(|way| way.sent == 500 && way.gap <= 40 * MS), "{:?}", both.flows);
        let one = got(&[Kind::Voice], "adaptive", Some(0), 1);
        // 3 of 10 s.
        assert!((0.28..0.34).contains(&one.missed().unwrap()), "{:?}", one.missed());
    }

    #[test]
    fn a_run_is_the_same_again_and_another_seed_another() {
        let all = [Kind::Voice, Kind::Video, Kind::Game, Kind::Download];
        for (name, ..) in SCHEDULERS {
            let first = got(&all, name, None, 1);
            assert_eq!(first, got(&all, name, None, 1), "{name}");
            assert_ne!(first, got(&all, name, None, 2), "{name}");
            assert_eq!(first.flows.len(), 6, "{name}");
        }
    }

    #[test]
    fn a_download_uses_both_links() {
        let mbit = |only| {
            let got = got(&[Kind::Download], "adaptive", only, 1);
            assert_eq!(got.missed(), None);
            got.flows[0].bytes as f64 * 8e-7
        };
        let (both, one) = (mbit(None), mbit(Some(1)));
        assert!(both > 55.0 && one > 40.0 && both > one, "{both} {one}");
    }

    #[test]
    fn what_isnt_there_is_refused() {
        let datagrams = Datagrams { flows: vec![Kind::Voice], duration: SECOND, deadline: SECOND };
        let error = run(&scenario(), &datagrams, "minrtt", None, 1).unwrap_err();
        assert_eq!(error, SpecError::DatagramScheduler("minrtt".into()));
        assert!(run(&scenario(), &datagrams, "adaptive", Some(2), 1).is_err());
    }
}
