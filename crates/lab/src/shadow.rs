//! What other schedulers would have done with recorded flows: each is simulated again over the recorded
//! links, at its time and with its size, next to the flows that it shared the links with.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ropewalk_algorithms::{Registries, algorithm};
use ropewalk_engine::Span;
use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_settings::diagnostic::InputError;
use ropewalk_settings::given::Given;
use ropewalk_sim::{Direction, RunSpec, Scenario, Transfer, Workload};

use crate::ask;
use crate::parallel::{Workers, run_jobs};
use crate::scenario::Experiment;
use crate::stats::{Ratio, paired_ratio};

/// Least and most time that a simulated flow may take, seconds.
const LIMIT: (f64, f64) = (60.0, 3600.0);

/// A flow as it was recorded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Flow {
    /// When it began, seconds into the recording.
    pub start_s: f64,
    /// How long it took.
    pub seconds: f64,
    /// Bytes in the direction that carried more.
    pub bytes: u64,
    /// That direction.
    pub direction: Direction,
}

/// What is simulated, by the settings of [`SHADOW`](ask::SHADOW).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Schedulers by the names that were given. The others are compared with the first.
    pub schedulers: Vec<(String, Spec<dyn Scheduler>)>,
    /// Congestion control of both ends.
    pub congestion: Spec<dyn CongestionControl>,
    /// Most flows, those with the most bytes.
    pub most: usize,
    /// Bytes of the smallest flow that is simulated.
    pub smallest: u64,
}

impl Settings {
    /// Reads them.
    ///
    /// # Errors
    /// What isn't allowed.
    pub fn read(given: &Given, registries: &Registries) -> Result<Settings, InputError> {
        let (most, smallest) = given.read(|reader, table| {
            Some((reader.integer(table, "flows")?, reader.bytes(table, "smallest")?))
        })?;
        let names = ask::schedulers(given)?.unwrap_or_default().into_iter();
        let named = names.map(|name| {
            let scheduler = algorithm(&registries.schedulers, "--schedulers", &name)?;
            Ok((name, scheduler))
        });
        Ok(Settings {
            schedulers: named.collect::<Result<_, InputError>>()?,
            congestion: ask::congestion(given, &Experiment::default(), registries)?,
            most: most as usize,
            smallest,
        })
    }
}

/// The answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Shadow {
    /// Flows that were large enough.
    pub large_enough: usize,
    /// Those of them that are compared, by their places in the recording.
    pub compared: Vec<usize>,
    /// For each scheduler the seconds of each of these, or the limit where it didn't end.
    pub times: Vec<Vec<f64>>,
}

impl Shadow {
    /// Times with a scheduler over those with the first one; nothing for that.
    pub fn ratio(&self, scheduler: usize) -> Option<Ratio> {
        (scheduler > 0).then(|| paired_ratio(&self.times[scheduler], &self.times[0], 1)).flatten()
    }

    /// The schedulers, those with the least time per flow first: each with its ratio and its seconds in all.
    pub fn ranked(&self) -> Vec<(usize, f64, Option<Ratio>)> {
        let all = 0..self.times.len();
        let mut rows: Vec<_> =
            all.map(|at| (at, self.times[at].iter().sum::<f64>(), self.ratio(at))).collect();
        let order = |ratio: &Option<Ratio>| ratio.map_or(1.0, |ratio| ratio.ratio);
        rows.sort_by(|a, b| order(&a.2).total_cmp(&order(&b.2)));
        rows
    }

    /// How well the recording fits: the geometric mean of simulated by recorded times, with the first
    /// scheduler.
    pub fn fit(&self, flows: &[Flow]) -> Option<f64> {
        let recorded: Vec<f64> = self.compared.iter().map(|at| flows[*at].seconds.max(1e-3)).collect();
        paired_ratio(&self.times[0], &recorded, 1).map(|ratio| ratio.ratio)
    }
}

/// Flows that shared the links: each began before the others had ended. By their places in the recording.
struct Group {
    flows: Vec<usize>,
    /// Those of them that are compared: places among `flows`.
    compared: Vec<usize>,
}

/// Groups of the flows that have at least `smallest` bytes; the largest `most` are compared.
fn groups(flows: &[Flow], smallest: u64, most: usize) -> Vec<Group> {
    let mut order: Vec<usize> = (0..flows.len()).filter(|at| flows[*at].bytes >= smallest).collect();
    let mut sizes: Vec<u64> = order.iter().map(|at| flows[*at].bytes).collect();
    sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    let least = sizes.get(most.saturating_sub(1)).copied().unwrap_or(0);
    order.sort_by(|one, other| flows[*one].start_s.total_cmp(&flows[*other].start_s));
    let (mut groups, mut end, mut compared): (Vec<Group>, f64, usize) = (Vec::new(), 0.0, 0);
    for at in order {
        let flow = &flows[at];
        if groups.is_empty() || flow.start_s >= end {
            groups.push(Group { flows: Vec::new(), compared: Vec::new() });
        }
        end = end.max(flow.start_s + flow.seconds);
        let Some(group) = groups.last_mut() else { continue };
        if flow.bytes >= least && compared < most {
            group.compared.push(group.flows.len());
            compared += 1;
        }
        group.flows.push(at);
    }
    groups.retain(|group| !group.compared.is_empty());
    groups
}

/// The scenario of a group, and its phase. `seconds`: how long was recorded.
fn scenario_of(links: &Scenario, flows: &[Flow], group: &Group, seconds: usize) -> (Arc<Scenario>, Span) {
    let members = || group.flows.iter().map(|at| &flows[*at]);
    let begin = members().next().map_or(0.0, |flow| flow.start_s);
    let transfers = members().map(|flow| Transfer {
        start: Span::from_secs_f64(flow.start_s - begin),
        bytes: flow.bytes,
        direction: flow.direction,
    });
    let limit = |flow: &Flow| flow.start_s - begin + (flow.seconds * 20.0).clamp(LIMIT.0, LIMIT.1);
    let scenario = Scenario {
        workload: Workload::Transfers(transfers.collect()),
        limit: Span::from_secs_f64(members().map(limit).fold(0.0, f64::max)),
        ..links.clone()
    };
    // The links' changes repeat: the first time round sets the links up, the second is the flows'.
    (Arc::new(scenario), Span::from_secs_f64(seconds as f64 + begin))
}

/// Simulates the flows over `links`, which were recorded for so many seconds, by each scheduler. None if it
/// was stopped.
pub fn shadow(
    links: &Scenario,
    seconds: usize,
    flows: &[Flow],
    settings: &Settings,
    jobs: Workers,
    stop: &AtomicBool,
) -> Option<Shadow> {
    let groups = groups(flows, settings.smallest, settings.most);
    let scenarios: Vec<_> = groups.iter().map(|group| scenario_of(links, flows, group, seconds)).collect();
    let runs = run_jobs(jobs, groups.len() * settings.schedulers.len(), stop, |at| {
        let (group, (_, scheduler)) = (at % groups.len(), &settings.schedulers[at / groups.len()]);
        let (scenario, phase) = &scenarios[group];
        let spec = RunSpec {
            scenario: Arc::clone(scenario),
            start_phase: *phase,
            ..RunSpec::new((**scenario).clone(), scheduler.clone(), settings.congestion.clone())
        };
        let flows = ropewalk_sim::run(&spec).flows;
        let seconds = |at: &usize| {
            let fct = flows.get(*at).and_then(|flow| flow.fct);
            fct.unwrap_or(scenario.limit).as_secs_f64()
        };
        Some(groups[group].compared.iter().map(seconds).collect::<Vec<f64>>())
    });
    let runs: Vec<Vec<f64>> = runs.into_iter().collect::<Option<_>>()?;
    Some(Shadow {
        large_enough: flows.iter().filter(|flow| flow.bytes >= settings.smallest).count(),
        compared: groups.iter().flat_map(|group| group.compared.iter().map(|at| group.flows[*at])).collect(),
        times: runs.chunks(groups.len().max(1)).map(<[Vec<f64>]>::concat).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_at_once_are_a_group_and_the_largest_are_compared() {
        let flow = |start_s, seconds, bytes| Flow { start_s, seconds, bytes, direction: Direction::Download };
        let flows = [
            flow(9.0, 1.0, 50),
            flow(0.0, 4.0, 100),
            flow(2.0, 3.0, 400),
            flow(1.0, 1.0, 9),
            flow(20.0, 1.0, 300),
        ];
        let found = groups(&flows, 10, 2);
        let told: Vec<_> = found.iter().map(|group| (group.flows.clone(), group.compared.clone())).collect();
        assert_eq!(told, [(vec![1, 2], vec![1]), (vec![4], vec![0])]);
        assert!(groups(&flows, 500, 2).is_empty());
    }
}
