//! Learned schedulers: what they observe, and networks from a file that run as schedulers in every world, as
//! `policy:FILE`.
//!
//! The file is JSON:
//! `{"format": 1, "paths": 2, "shift": [...], "scale": [...], "layers": [{"weights": [[...]], "bias":
//! [...], "activation": "tanh"}, ...]}`. An observation ([`observe`]) goes through `log1p` where `"log":
//! true`, has `shift` subtracted and is divided by `scale`; each layer is `activation(weights x + bias)`.
//! The last one scores each path and, last, waiting; the highest score among what is possible is the
//! action. `ropewalk.learn.export` writes such files.

use std::path::Path;
use std::sync::Arc;

use ropewalk_engine::metrics::CaState;
use ropewalk_engine::registry::{Entry, Registry, Spec, SpecError};
use ropewalk_engine::scheduler::{Decision, Mechanisms, Rationale, Rule, Scheduler, View};
use ropewalk_engine::{PathId, Span, Time, testing};
use ropewalk_settings::input::{OpenFile, Opened, Want};
use serde::Deserialize;

/// Largest file, bytes.
const LARGEST: u64 = 64 << 20;

/// One number of an observation: name, unit, and the bound that it is clipped to.
pub type Feature = (&'static str, &'static str, f32);

/// Of the connection.
pub const CONNECTION: [Feature; 7] = [
    ("time", "s", 1e5),
    ("unsent", "B", 1e13),
    ("window_left", "B", 1e13),
    ("una", "B", 1e13),
    ("declared_size", "B", 1e13),
    ("closed", "", 1.0),
    ("chunks_in_flight", "", 1e7),
];

/// Of each path.
pub const PATH: [Feature; 20] = [
    ("usable", "", 1.0),
    ("available", "", 1.0),
    ("backup", "", 1.0),
    ("srtt", "s", 1e3),
    ("rttvar", "s", 1e3),
    ("min_rtt", "s", 1e3),
    ("last_rtt", "s", 1e3),
    ("cwnd", "segments", 1e6),
    ("ssthresh", "segments", 1e6),
    ("in_flight", "segments", 1e6),
    ("window_space", "segments", 1e6),
    ("queued_bytes", "B", 1e10),
    ("mss", "B", 65535.0),
    ("lost_out", "segments", 1e6),
    ("retrans_out", "segments", 1e6),
    ("pacing_rate", "B/s", 1e12),
    ("delivery_rate", "B/s", 1e12),
    ("recovery", "", 1.0),
    ("lost_total", "segments", 1e9),
    ("since_progress", "s", 1e3),
];

/// Fills an observation of a connection over so many paths, and which actions are possible: a path with room,
/// or to wait. `begin`: when the workload starts.
pub fn observe(view: &View<'_>, paths: usize, begin: Time, observation: &mut Vec<f32>, mask: &mut Vec<u8>) {
    observation.clear();
    mask.clear();
    mask.resize(paths + 1, 0);
    let put = |values: &mut Vec<f32>, (_, _, bound): Feature, value: f64| {
        values.push((value as f32).clamp(0.0, bound));
    };
    let seconds = |span: Span| span.as_nanos() as f64 / 1e9;
    let flag = |is: bool| f64::from(u8::from(is));
    let own = [
        seconds(view.now.saturating_sub(begin)),
        view.unsent as f64,
        view.window_left as f64,
        view.una as f64,
        view.declared_size.unwrap_or(0) as f64,
        flag(view.closed),
        view.in_flight.len() as f64,
    ];
    for (feature, value) in CONNECTION.into_iter().zip(own) {
        put(observation, feature, value);
    }
    for (path, possible) in mask.iter_mut().enumerate().take(paths) {
        // Of several subflows on a path, the latest counts.
        let flow = view.subflows.iter().rev().find(|flow| flow.path == PathId(path as u16));
        let Some(flow) = flow else {
            observation.extend([0.0; PATH.len()]);
            continue;
        };
        let available = view.eligible(flow) && flow.available();
        *possible = u8::from(available);
        let values = [
            flag(view.eligible(flow)),
            flag(available),
            flag(flow.backup),
            seconds(flow.rtt.smoothed),
            seconds(flow.rtt.var),
            seconds(flow.rtt.min),
            seconds(flow.rtt.latest),
            f64::from(flow.cwnd()),
            f64::from(flow.ssthresh()),
            f64::from(flow.in_flight()),
            f64::from(flow.window_space()),
            flow.queued_bytes as f64,
            f64::from(flow.mss),
            f64::from(flow.lost_out()),
            f64::from(flow.retrans_out()),
            flow.rate.pacing as f64,
            flow.rate.delivery as f64,
            flag(matches!(flow.ca_state(), CaState::Recovery | CaState::Loss)),
            flow.totals.lost as f64,
            seconds(view.now.saturating_sub(flow.last_progress)),
        ];
        for (feature, value) in PATH.into_iter().zip(values) {
            put(observation, feature, value);
        }
    }
    // Waiting is always allowed: the engine goes on by itself where nothing could end a wait.
    mask[paths] = 1;
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Activation {
    None,
    Relu,
    Tanh,
}

#[derive(Clone, Debug, Deserialize)]
struct Layer {
    /// A row for each output.
    weights: Vec<Vec<f64>>,
    bias: Vec<f64>,
    activation: Activation,
}

/// A network.
#[derive(Clone, Debug, Deserialize)]
pub struct Policy {
    format: u32,
    paths: usize,
    #[serde(default)]
    log: bool,
    shift: Vec<f64>,
    scale: Vec<f64>,
    layers: Vec<Layer>,
}

/// What is wrong with a policy's text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// It isn't JSON, or a field is missing or of another type.
    #[error("{0}")]
    Text(String),
    /// A format of another version.
    #[error("format {0}; this version reads 1")]
    Format(u32),
    /// A list of numbers has another length.
    #[error("`{name}` has {found} numbers, expected {expected}")]
    Length {
        /// The list.
        name: &'static str,
        /// Its length.
        found: usize,
        /// What the paths need.
        expected: usize,
    },
    /// A layer's weights don't fit the layer before, or its bias.
    #[error("layer {number} doesn't fit: it has {inputs} inputs")]
    Layer {
        /// Its place, from 0.
        number: usize,
        /// What the layer before has as outputs.
        inputs: usize,
    },
    /// The last layer has another number of outputs than there are actions.
    #[error("the last layer has {found} outputs, expected {expected}")]
    Outputs {
        /// How many it has.
        found: usize,
        /// One per path, and one to wait.
        expected: usize,
    },
}

impl Policy {
    /// Reads a policy's text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        let policy: Policy =
            serde_json::from_str(text).map_err(|error| PolicyError::Text(error.to_string()))?;
        if policy.format != 1 {
            return Err(PolicyError::Format(policy.format));
        }
        let mut width = CONNECTION.len() + policy.paths * PATH.len();
        for (name, values) in [("shift", &policy.shift), ("scale", &policy.scale)] {
            if values.len() != width {
                return Err(PolicyError::Length { name, found: values.len(), expected: width });
            }
        }
        for (number, layer) in policy.layers.iter().enumerate() {
            let fits = layer.weights.iter().all(|row| row.len() == width);
            if !fits || layer.weights.len() != layer.bias.len() {
                return Err(PolicyError::Layer { number, inputs: width });
            }
            width = layer.bias.len();
        }
        if width != policy.paths + 1 {
            return Err(PolicyError::Outputs { found: width, expected: policy.paths + 1 });
        }
        Ok(policy)
    }

    /// The possible action with the highest score; of equal ones the first.
    fn act(&self, observation: &[f32], mask: &[u8]) -> usize {
        let scaled =
            observation.iter().zip(self.shift.iter().zip(&self.scale)).map(|(value, (shift, scale))| {
                let value = f64::from(*value);
                ((if self.log { libm::log1p(value) } else { value }) - shift) / scale
            });
        let mut values: Vec<f64> = scaled.collect();
        for layer in &self.layers {
            let rows = layer.weights.iter().zip(&layer.bias);
            values = rows
                .map(|(row, bias)| {
                    let sum: f64 = row.iter().zip(&values).map(|(weight, value)| weight * value).sum();
                    match layer.activation {
                        Activation::None => sum + bias,
                        Activation::Relu => f64::max(sum + bias, 0.0),
                        Activation::Tanh => libm::tanh(sum + bias),
                    }
                })
                .collect();
        }
        let possible = (0..values.len()).filter(|action| mask[*action] != 0);
        possible.fold(self.paths, |best, action| {
            if mask[best] == 0 || values[action] > values[best] { action } else { best }
        })
    }
}

/// A connection's scheduler.
#[derive(Debug)]
struct Learned {
    policy: Arc<Policy>,
    begin: Option<Time>,
    observation: Vec<f32>,
    mask: Vec<u8>,
}

impl Scheduler for Learned {
    fn name(&self) -> &'static str {
        "policy"
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        let wait = Decision::Wait { until: None };
        if !view.sendable() || view.available().next().is_none() {
            return testing::nothing_to_send(view, rationale);
        }
        let begin = *self.begin.get_or_insert(view.now);
        observe(view, self.policy.paths, begin, &mut self.observation, &mut self.mask);
        let action = self.policy.act(&self.observation, &self.mask);
        let path = PathId(action as u16);
        match view.available().find(|flow| flow.path == path) {
            Some(flow) => {
                rationale.say(|| format!("the policy sends on {{subflow {}}}", flow.id.0));
                Decision::Send { subflow: flow.id, bytes: flow.mss }
            }
            None => {
                rationale.say(|| "the policy waits".into());
                wait
            }
        }
    }

    fn wants_events(&self) -> bool {
        false
    }

    fn mechanisms(&self) -> Mechanisms {
        Mechanisms { opportunistic: Rule::Paper, penalise: Rule::Paper }
    }
}

/// The scheduler that `policy:FILE` names, for so many paths; on the wire nobody knows how many there will
/// be.
///
/// # Errors
/// A file that can't be read, or isn't a policy for so many paths.
pub fn scheduler(
    text: &str,
    file: &str,
    open_file: OpenFile,
    paths: Option<usize>,
) -> Result<Spec<dyn Scheduler>, SpecError> {
    let wrong = |message: String| SpecError { message, span: (0, text.len()) };
    let bytes = open_file(Path::new(file), Want { most: LARGEST, pipe: true })
        .and_then(Opened::whole)
        .map_err(|reason| wrong(format!("can't read the policy `{file}`: {reason}")))?;
    let policy = Policy::parse(&String::from_utf8_lossy(&bytes))
        .map_err(|reason| wrong(format!("`{file}` is no policy: {reason}")))?;
    if let Some(paths) = paths.filter(|paths| *paths != policy.paths) {
        return Err(wrong(format!("the policy `{file}` is for {} paths: there are {paths}", policy.paths)));
    }
    let policy = Arc::new(policy);
    let mut registry = Registry::<dyn Scheduler>::new("scheduler");
    let entry = Entry::<dyn Scheduler> {
        name: "policy",
        summary: "a learned scheduler from a file",
        source: "yours",
        ..Entry::<dyn Scheduler>::of(|_| testing::build("minrtt"))
    };
    let factory = move |_: &_| -> Box<dyn Scheduler> {
        let policy = Arc::clone(&policy);
        Box::new(Learned { policy, begin: None, observation: Vec::new(), mask: Vec::new() })
    };
    registry.register_with(entry, Arc::new(factory))?;
    let mut spec = registry.parse("policy")?;
    spec.text = text.to_string();
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::testing::{Scene, WithoutSender as _, subflow};

    use super::*;

    /// Scores path 1 by its window's space, path 0 by nothing, and waiting by -1.
    fn text(paths: usize) -> String {
        let width = CONNECTION.len() + paths * PATH.len();
        let space = CONNECTION.len() + PATH.len() + 10;
        let row = |at: Option<usize>| {
            let values: Vec<String> =
                (0..width).map(|i| if Some(i) == at { "1" } else { "0" }.into()).collect();
            format!("[{}]", values.join(","))
        };
        let same = |value: &str| format!("[{}]", vec![value; width].join(","));
        format!(
            "{{\"format\":1,\"paths\":{paths},\"shift\":{},\"scale\":{},\"layers\":[{{\"weights\":[{},{},{}],\
             \"bias\":[0.5,0,-1],\"activation\":\"none\"}}]}}",
            same("0"),
            same("2"),
            row(None),
            row(Some(space)),
            row(None)
        )
    }

    #[test]
    fn the_best_possible_action_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.json");
        std::fs::write(&file, text(2)).unwrap();
        let name = format!("policy:{}", file.display());
        let registries = crate::Registries::builtin();
        let mut built = registries.scheduler(&name, 2).unwrap().build();
        let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 50, 10, 0)]);
        assert_eq!(scene.chosen(&mut *built), Some(1), "a space of 10 scores 5");
        scene.subflows[1].set_packets_out(10);
        assert_eq!(scene.chosen(&mut *built), Some(0));
        scene.subflows[0].set_packets_out(10);
        assert_eq!(scene.chosen(&mut *built), None);
        let wrong = registries.scheduler(&name, 3).unwrap_err();
        assert!(wrong.message.contains("is for 2 paths: there are 3"), "{wrong}");
        let missing = registries.scheduler("policy:nowhere.json", 2).unwrap_err();
        assert!(missing.message.contains("can't read the policy"), "{missing}");
    }

    #[test]
    fn what_does_not_fit_is_told() {
        assert!(Policy::parse("{}").unwrap_err().to_string().contains("missing field"));
        assert!(
            Policy::parse(&text(2).replace("\"format\":1", "\"format\":2"))
                .unwrap_err()
                .to_string()
                .contains("reads 1")
        );
        assert!(
            Policy::parse(&text(2).replace("\"paths\":2", "\"paths\":3"))
                .unwrap_err()
                .to_string()
                .contains("expected")
        );
    }
}
