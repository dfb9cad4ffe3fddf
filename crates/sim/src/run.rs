//! Runs from their specification to their result.

use crate::Side;
use crate::app::Report;
use crate::packet::Owner;
use crate::result::{FlowResult, OfoResult, Outcome, PathResult, RunResult};
use crate::spec::{HORIZON, RunSpec};
use crate::world::World;

/// Runs to the end. What can't be simulated (see [`RunSpec::check`]) gives [`Outcome::Failed`] with the
/// reason.
pub fn run(spec: &RunSpec) -> RunResult {
    match World::new(spec) {
        Ok(world) => world.finish(),
        Err(error) => RunResult::new(Outcome::Failed(error.to_string())),
    }
}

impl World {
    /// The result of the run so far.
    pub fn into_result(mut self) -> RunResult {
        let (now, begin) = (self.now, self.begin);
        let duration = now.saturating_sub(begin);
        let from = self.scenario.direction.sender();
        let Report { flows, delays } = self.apps[0].report();
        let competing = self.apps[1..].iter().flat_map(|app| app.report().flows).collect();
        let totals = self.hosts.totals(now, from);
        let ofo = self.hosts.ofo(now, from.other(), duration);
        let in_flight = self.in_flight(from);
        let repeated = self.hosts.repeated(now, from, self.scenario.paths.len());
        let mut paths = Vec::new();
        for (i, path) in self.scenario.paths.iter().enumerate() {
            let link = match from {
                Side::Client => &path.up,
                Side::Server => &path.down,
            };
            let capacity = link.capacity_integral(begin, now);
            let metered = self.network.meter.path(i, &path.name, in_flight[i], capacity);
            paths.push(PathResult { repeated: repeated[i], ..metered });
        }
        let (segments, decisions) = match self.recorder.take() {
            Some(recorder) => recorder.finish(begin),
            None => Default::default(),
        };
        RunResult {
            flows: flows
                .into_iter()
                .map(|flow| FlowResult { start: flow.start.saturating_back(begin.since_origin()), ..flow })
                .collect(),
            competing,
            duration,
            delivered_bytes: self.hosts.delivered(from.other()),
            message_delays: delays,
            paths,
            ofo: OfoResult {
                samples: self.network.meter.ofo_samples,
                peaks: self.network.meter.ofo_peaks,
                ..ofo
            },
            totals,
            events: self.events,
            samples: self.network.meter.samples,
            segments,
            decisions,
            ..RunResult::new(self.outcome.unwrap_or(Outcome::TimeLimit))
        }
    }

    /// By path: the workload's packets in the direction of data that are queued or in flight. Removes them
    /// from the links.
    fn in_flight(&mut self, from: Side) -> Vec<u64> {
        let mut count = vec![0; self.scenario.paths.len()];
        let horizon = self.now.saturating_add(HORIZON);
        let first = match from {
            Side::Client => 0,
            Side::Server => 1,
        };
        for link in self.network.links.iter_mut().skip(first).step_by(2) {
            // A link in steps has internal moments at which nothing comes out.
            while let Some(at) = link.poll_timeout().filter(|&at| at <= horizon) {
                while let Some(packet) = link.poll(at) {
                    if packet.owner == Owner::Workload && packet.is_segment() {
                        count[packet.path as usize] += 1;
                    }
                }
            }
        }
        count
    }
}
