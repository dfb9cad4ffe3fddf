//! From a world at its end to a result; and what a world can't be made of.

use ropewalk_engine::congestion;

use crate::Side;
use crate::app::Report;
use crate::config::{self, HORIZON};
use crate::packet::Owner;
use crate::result::{FlowResult, Outcome, RunResult};
use crate::spec::{MTUS, Mode, RunSpec};
use crate::world::World;

/// Runs to the end. What can't be simulated (see [`RunSpec::check`]) gives [`Outcome::Failed`] with the reason.
pub fn run(spec: &RunSpec) -> RunResult {
    match World::new(spec) {
        Ok(world) => world.finish(),
        Err(reason) => failed(reason),
    }
}

impl RunSpec {
    /// Whether it can be simulated.
    ///
    /// # Errors
    /// What can't, in words.
    pub fn check(&self) -> Result<(), String> {
        let scenario = &self.scenario;
        let paths = scenario.paths.len();
        if paths == 0 {
            return Err("a scenario needs at least one path".into());
        }
        if paths > 32 {
            return Err(format!("{paths} paths; at most 32 are allowed"));
        }
        if let Mode::SinglePath(path) = self.mode
            && path >= paths
        {
            return Err(format!("single path {path}: there are {paths} paths, counted from 0"));
        }
        for path in &scenario.paths {
            if !MTUS.contains(&path.mtu) {
                let (least, most) = (MTUS.start(), MTUS.end());
                return Err(format!(
                    "path {}: MTU {} is not allowed; {least} to {most} is",
                    path.name, path.mtu
                ));
            }
            if let Some(shared) = path.bottleneck
                && shared >= scenario.bottlenecks.len()
            {
                return Err(format!("path {}: there is no bottleneck {shared}", path.name));
            }
        }
        if scenario.background.len() > 10_000 {
            return Err(format!(
                "{} background sources; at most 10000 are allowed",
                scenario.background.len()
            ));
        }
        for source in &scenario.background {
            if source.path >= paths {
                return Err(format!("background on path {}: there are {paths} paths", source.path));
            }
            if let Some(name) = config::background_congestion(&source.traffic) {
                congestion::builtin().parse(name).map_err(|error| error.message)?;
            }
        }
        let connections = config::connections(scenario);
        if connections > 1_000_000 {
            return Err(format!("{connections} connections; at most 1000000 are allowed"));
        }
        for (what, time) in
            [("limit", scenario.limit), ("warm-up", scenario.warmup), ("start phase", self.start_phase)]
        {
            if time > HORIZON {
                return Err(format!("the {what} is beyond what can be counted"));
            }
        }
        Ok(())
    }
}

/// A result with nothing in it but the reason.
fn failed(reason: String) -> RunResult {
    RunResult {
        outcome: Outcome::Failed(reason),
        flows: Vec::new(),
        rivals: Vec::new(),
        duration: 0,
        delivered_bytes: 0,
        message_delays: Vec::new(),
        paths: Vec::new(),
        ofo_mean: 0.0,
        ofo_max: 0,
        ofo_samples: Vec::new(),
        retransmissions: 0,
        timeouts: 0,
        reinjected_bytes: 0,
        opportunistic_bytes: 0,
        duplicated_bytes: 0,
        received_twice_bytes: 0,
        penalisations: 0,
        window_blocked: 0,
        data_segments: 0,
        events: 0,
        samples: Vec::new(),
        segments: Vec::new(),
        decisions: Vec::new(),
    }
}

impl World {
    /// What the run gave, up to now.
    pub fn into_result(mut self) -> RunResult {
        let (now, begin) = (self.now, self.begin);
        let duration = now.saturating_sub(begin);
        let from = self.scenario.direction.sender();
        let Report { flows, delays } = self.apps[0].report();
        let rivals = self.apps[1..].iter().flat_map(|app| app.report().flows).collect();
        let totals = self.hosts.totals(now, from);
        let under_way = self.under_way(from);
        let mut paths = Vec::new();
        for (i, path) in self.scenario.paths.iter().enumerate() {
            let link = match from {
                Side::Client => &path.up,
                Side::Server => &path.down,
            };
            let capacity = link.capacity_integral(begin, now);
            paths.push(self.network.meter.path(i, &path.name, under_way[i], capacity));
        }
        let (segments, decisions) = match self.recorder.take() {
            Some(recorder) => recorder.finish(begin),
            None => Default::default(),
        };
        RunResult {
            outcome: self.outcome.unwrap_or(Outcome::TimeLimit),
            flows: flows
                .into_iter()
                .map(|flow| FlowResult { start: flow.start.saturating_sub(begin), ..flow })
                .collect(),
            rivals,
            duration,
            delivered_bytes: self.hosts.delivered(from.other()),
            message_delays: delays,
            paths,
            ofo_mean: totals.ofo_integral as f64 / duration.max(1) as f64,
            ofo_max: totals.ofo_max,
            ofo_samples: self.network.meter.ofo_samples,
            retransmissions: totals.retransmissions,
            timeouts: totals.timeouts,
            reinjected_bytes: totals.reinjected_bytes,
            opportunistic_bytes: totals.opportunistic_bytes,
            duplicated_bytes: totals.duplicated_bytes,
            received_twice_bytes: totals.received_twice_bytes,
            penalisations: totals.penalisations,
            window_blocked: totals.window_blocked,
            data_segments: totals.data_segments,
            events: self.events,
            samples: self.network.meter.samples,
            segments,
            decisions,
        }
    }

    /// By path: the workload's packets in the direction of data that are in a queue or in flight. Takes them
    /// out, so it is the last thing that happens to the links.
    fn under_way(&mut self, from: Side) -> Vec<u64> {
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
