//! The path on which connections open. A connection opens on the scenario's first path that is up.

use std::sync::Arc;

use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_engine::{Span, Time};
use ropewalk_sim::{Mode, Recording, RunSpec, Scenario, Workload, World};

use crate::{objective, watch};

/// The path on which connections open.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum OpeningPath {
    /// The scenario's first that is up.
    #[default]
    First,
    /// The one on which plain TCP alone is fastest.
    Best,
    /// The one whose handshake ends first, where the client opens on all at once.
    Race,
    /// The one that an earlier connection found to be best ([`ropewalk_engine::PathCache`]).
    Remember,
    /// The one of this name.
    Named(String),
}

/// Why a connection can't be opened there.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpeningError {
    /// No path has the name.
    #[error("`{name}` is no path; say first, best, race, remember or one of: {}", .paths.join(", "))]
    NoPath {
        /// The name.
        name: String,
        /// The paths' names.
        paths: Vec<String>,
    },
}

impl std::fmt::Display for OpeningPath {
    /// The text that [`OpeningPath::read`] accepts for it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OpeningPath::First => "first",
            OpeningPath::Best => "best",
            OpeningPath::Race => "race",
            OpeningPath::Remember => "remember",
            OpeningPath::Named(name) => name,
        })
    }
}

impl OpeningPath {
    /// From its word, or a path's name.
    pub fn read(text: &str) -> OpeningPath {
        match text {
            "first" => OpeningPath::First,
            "best" => OpeningPath::Best,
            "race" => OpeningPath::Race,
            "remember" => OpeningPath::Remember,
            name => OpeningPath::Named(name.to_string()),
        }
    }

    /// The scenario with the path at the front on which connections open. `seed` is that of earlier
    /// connections, from which this is found out; `tcp` and `multipath` are their schedulers.
    ///
    /// # Errors
    /// No path has the name.
    pub fn apply(
        &self,
        scenario: &Scenario,
        [tcp, multipath]: [&Spec<dyn Scheduler>; 2],
        congestion: &Spec<dyn CongestionControl>,
        seed: u64,
    ) -> Result<Scenario, OpeningError> {
        let path = match self {
            OpeningPath::First => return Ok(scenario.clone()),
            OpeningPath::Best => fastest_alone(scenario, tcp, congestion, seed),
            OpeningPath::Race => {
                // The smallest transfer is a handshake and a round trip.
                let smallest = Scenario { workload: Workload::Flow { bytes: 1 }, ..scenario.clone() };
                fastest_alone(&smallest, tcp, congestion, seed)
            }
            OpeningPath::Remember => remembered(scenario, multipath, congestion, seed),
            OpeningPath::Named(name) => {
                let found = scenario.paths.iter().position(|path| path.name == *name);
                let paths = || scenario.paths.iter().map(|path| path.name.clone()).collect();
                found.ok_or_else(|| OpeningError::NoPath { name: name.clone(), paths: paths() })?
            }
        };
        Ok(open_on(scenario, path))
    }
}

/// The path that an earlier connection, opened on the first one, found to be the one to open on.
pub fn remembered(
    scenario: &Scenario,
    multipath: &Spec<dyn Scheduler>,
    congestion: &Spec<dyn CongestionControl>,
    seed: u64,
) -> usize {
    let spec = RunSpec {
        scenario: Arc::new(scenario.clone()),
        scheduler: multipath.clone(),
        congestion: congestion.clone(),
        mode: Mode::Multipath,
        seed,
        start_phase: Span::ZERO,
        recording: Recording::default(),
    };
    let Ok(mut world) = World::new(&spec) else { return 0 };
    world.run_until(Time::MAX);
    world.next_opening().unwrap_or(0)
}

/// The scenario with this path at the front; the others keep their order.
pub fn open_on(scenario: &Scenario, path: usize) -> Scenario {
    let mut copy = scenario.clone();
    if path < copy.paths.len() {
        copy.paths[..=path].rotate_right(1);
        for background in &mut copy.background {
            background.path = match background.path {
                own if own == path => 0,
                before if before < path => before + 1,
                behind => behind,
            };
        }
    }
    copy
}

/// The path on which plain TCP (`tcp`) alone is fastest, by one run with this seed on each. A tie goes to the
/// first.
pub fn fastest_alone(
    scenario: &Scenario,
    tcp: &Spec<dyn Scheduler>,
    congestion: &Spec<dyn CongestionControl>,
    seed: u64,
) -> usize {
    let scenario = Arc::new(scenario.clone());
    let time = |path: usize| {
        let result = watch::run(&RunSpec {
            scenario: Arc::clone(&scenario),
            scheduler: tcp.clone(),
            congestion: congestion.clone(),
            mode: Mode::SinglePath(path),
            seed,
            start_phase: Span::ZERO,
            recording: Recording::default(),
        });
        objective::of(&scenario.workload, &result).unwrap_or(f64::INFINITY)
    };
    let times: Vec<f64> = (0..scenario.paths.len()).map(time).collect();
    (0..times.len()).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use ropewalk_sim::{Background, Direction, Traffic, networks};

    use super::*;
    use ropewalk_algorithms::Registries;

    #[test]
    fn competing_traffic_moves_with_its_path() {
        let mut scenario = networks::wifi_lte();
        scenario.paths.push(networks::path("third", 1_000_000, Span::from_millis(1), 10));
        let competitor = |path| Background {
            path,
            direction: Direction::Download,
            traffic: Traffic::TcpSaturated { congestion: "reno".into() },
            extra_delay: Span::ZERO,
            start: Time::ZERO,
            stop: None,
        };
        scenario.background = (0..3).map(competitor).collect();
        let moved = open_on(&scenario, 1);
        let names: Vec<&str> = moved.paths.iter().map(|path| path.name.as_str()).collect();
        assert_eq!(names, ["lte", "wifi", "third"]);
        let competes: Vec<usize> = moved.background.iter().map(|background| background.path).collect();
        assert_eq!(competes, [1, 0, 2]);
        assert_eq!(open_on(&scenario, 0), scenario);
    }

    #[test]
    fn an_earlier_connection_tells_where_to_open() {
        let registries = Registries::builtin();
        let schedulers = ["single", "minrtt"].map(|name| registries.schedulers.parse(name).unwrap());
        let cubic = registries.congestion.parse("cubic").unwrap();
        let first = |opening: &str, scenario: &Scenario| {
            let [tcp, multipath] = &schedulers;
            let opened = OpeningPath::read(opening).apply(scenario, [tcp, multipath], &cubic, 1)?;
            Ok::<_, OpeningError>(opened.paths[0].name.clone())
        };
        let scenario = networks::wifi_lte();
        let turned = open_on(&scenario, 1);
        for scenario in [&scenario, &turned] {
            assert_eq!(first("remember", scenario).unwrap(), "wifi");
            assert_eq!(first("best", scenario).unwrap(), "wifi");
            assert_eq!(first("race", scenario).unwrap(), "wifi");
            assert_eq!(first("lte", scenario).unwrap(), "lte");
            assert_eq!(first("first", scenario).unwrap(), scenario.paths[0].name);
        }
        assert!(first("dsl", &scenario).unwrap_err().to_string().contains("wifi, lte"));
    }

    #[test]
    fn the_fastest_path_is_found_wherever_it_stands() {
        let registries = Registries::builtin();
        let tcp = registries.schedulers.parse("single").unwrap();
        let cubic = registries.congestion.parse("cubic").unwrap();
        let scenario = networks::wifi_lte();
        assert_eq!(fastest_alone(&scenario, &tcp, &cubic, 1), 0);
        assert_eq!(fastest_alone(&open_on(&scenario, 1), &tcp, &cubic, 1), 1);
    }
}
