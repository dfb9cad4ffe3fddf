//! The path on which connections open. A connection opens on the scenario's first path that is up.

use std::sync::Arc;

use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_sim::{Mode, Recording, RunSpec, Scenario};

use crate::{objective, watch};

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

/// The path on which plain TCP (`tcp`) alone is fastest, by one run with this seed on each. A tie goes to the first.
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
            start_phase: 0,
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
    use crate::Registries;

    #[test]
    fn competing_traffic_moves_with_its_path() {
        let mut scenario = networks::wifi_lte();
        scenario.paths.push(networks::path("third", 1_000_000, 1_000_000, 10));
        let competitor = |path| Background {
            path,
            direction: Direction::Download,
            traffic: Traffic::TcpSaturated { congestion: "reno".into() },
            extra_delay: 0,
            start: 0,
            stop: u64::MAX,
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
    fn the_fastest_path_is_found_wherever_it_stands() {
        let registries = Registries::builtin();
        let tcp = registries.schedulers.parse("single").unwrap();
        let cubic = registries.congestion.parse("cubic").unwrap();
        let scenario = networks::wifi_lte();
        assert_eq!(fastest_alone(&scenario, &tcp, &cubic, 1), 0);
        assert_eq!(fastest_alone(&open_on(&scenario, 1), &tcp, &cubic, 1), 1);
    }
}
