//! Workload, background traffic, the ends' settings and the experiment's defaults, out of a scenario file.

use ropewalk_engine::config::{AckCounting, LossDetection, ReceiveTuning, SendTuning, WindowLimit};
use ropewalk_engine::{Span, Time};
use ropewalk_settings::name::bad_name;
use ropewalk_settings::read::{Table, Value};
use ropewalk_settings::units;
use ropewalk_sim::{
    Background, Counting, Direction, EndSpec, HOSTS, Host, KeyFrames, PathManager, PathSpec, Times, Traffic,
    Workload,
};

use super::ScenarioReader;
use super::links::unknown_help;
use super::shape::{BACKGROUNDS, END, EXPERIMENT, KEY_FRAMES, MOST_BYTES, WORKLOADS};
use super::{Experiment, Names};

pub(crate) const DIRECTION_WORDS: &[(&str, Direction)] =
    &[("download", Direction::Download), ("upload", Direction::Upload)];

const PATH_MANAGERS: &[(&str, PathManager)] =
    &[("ropewalk", PathManager::Ropewalk), ("linux", PathManager::Linux)];

impl ScenarioReader {
    /// A `direction`.
    pub fn direction(&mut self, table: &Table<'_>) -> Option<Direction> {
        self.choice(table, "direction", DIRECTION_WORDS)
    }

    /// `[workload]`; one flow of 1 MiB if there is none.
    pub fn workload(&mut self, file: &Table<'_>) -> Workload {
        let fallback = Workload::Flow { bytes: 1 << 20 };
        let Some(value) = file.get("workload") else { return fallback };
        let Some(table) = self.tagged(WORKLOADS, "workload", value) else { return fallback };
        self.workload_of(&table).unwrap_or(fallback)
    }

    fn workload_of(&mut self, table: &Table<'_>) -> Option<Workload> {
        let request = |reader: &mut Self| Some(reader.bytes(table, "request").unwrap_or(400) as u32);
        match table.shape.name {
            "flow" => Some(Workload::Flow { bytes: self.size(table, "size")? }),
            "flows" => {
                let count = self.integer(table, "count")? as u32;
                let bytes = self.size(table, "size")?;
                self.total(table, u128::from(bytes) * u128::from(count));
                Some(Workload::Flows { count, bytes })
            }
            "web" => {
                let objects = self.sizes(table, "objects")?;
                let connections = self.integer(table, "connections").unwrap_or(6) as u32;
                let persistent = self.switch(table, "persistent").unwrap_or(true);
                Some(Workload::Web { objects, connections, request: request(self)?, persistent })
            }
            "cbr" => Some(Workload::Cbr {
                frame: self.bytes(table, "frame")? as u32,
                rate: self.quantity(table.get("rate")?, "1 Mbit/s", units::rate)?,
                key: self.key_frames(table),
                duration: self.some_time(table, "duration")?,
                deadline: match table.get("deadline") {
                    Some(_) => Some(self.some_time(table, "deadline")?),
                    None => None,
                },
            }),
            "bulk" => Some(Workload::Bulk { duration: self.some_time(table, "duration")? }),
            _ => {
                let response = self.size(table, "response")?;
                let count = self.integer(table, "count")? as u32;
                self.total(table, u128::from(response) * u128::from(count));
                let think = self.time(table, "think").unwrap_or_default();
                Some(Workload::RequestResponse { request: request(self)?, response, count, think })
            }
        }
    }

    fn key_frames(&mut self, table: &Table<'_>) -> Option<KeyFrames> {
        let table = self.table(&KEY_FRAMES, table.get("key-frames")?)?;
        let (frame, every) = (self.bytes(&table, "frame")?, self.integer(&table, "every")?);
        Some(KeyFrames { frame: frame as u32, every: every as u32 })
    }

    fn size(&mut self, table: &Table<'_>, key: &str) -> Option<u64> {
        self.bytes(table, key)
    }

    fn total(&mut self, table: &Table<'_>, bytes: u128) {
        if bytes > u128::from(MOST_BYTES) {
            self.wrong(table.span.clone(), "this workload is larger than 1 TiB in all", "here", "");
        }
    }

    /// A time that isn't 0.
    pub(super) fn some_time(&mut self, table: &Table<'_>, key: &str) -> Option<Span> {
        let time = self.time(table, key)?;
        if !time.is_zero() {
            return Some(time);
        }
        self.wrong(table.place(key), format!("`{key}` must be more than 0"), "found 0", "");
        None
    }

    /// A list of sizes; `"12 x 5 KiB"` stands for twelve.
    fn sizes(&mut self, table: &Table<'_>, key: &str) -> Option<Vec<u64>> {
        let value = table.get(key)?;
        let Some(list) = value.get_ref().as_array() else {
            self.wrong(
                value.span(),
                format!("`{key}` must be a list of sizes"),
                "not a list",
                "[\"64 KiB\", \"12 x 5 KiB\"]",
            );
            return None;
        };
        let mut sizes = Vec::new();
        for item in list {
            let (count, size) = self.quantity(item, "64 KiB", repeated)?;
            if size == 0 || sizes.len() as u64 + count > 100_000 {
                let message = if size == 0 { "a size must be more than 0" } else { "more than 100000 sizes" };
                self.wrong(item.span(), message, "here", "");
                return None;
            }
            sizes.extend(std::iter::repeat_n(size, count as usize));
        }
        if sizes.is_empty() {
            self.wrong(value.span(), format!("`{key}` is empty"), "here", "[\"64 KiB\"]");
            return None;
        }
        Some(sizes)
    }

    /// All `[[background]]`s.
    pub(crate) fn background(
        &mut self,
        file: &Table<'_>,
        paths: &[PathSpec],
        direction: Direction,
        names: &Names<'_>,
    ) -> Vec<Background> {
        let mut found = Vec::new();
        for value in self.array(file, "background") {
            if let Some(one) = self.background_of(value, paths, direction, names) {
                found.extend(one);
            }
        }
        if found.len() > 1000 {
            self.wrong(
                file.place("background"),
                "more than 1000 background sources",
                format!("{}", found.len()),
                "",
            );
        }
        found
    }

    fn background_of(
        &mut self,
        value: &Value<'_>,
        paths: &[PathSpec],
        direction: Direction,
        names: &Names<'_>,
    ) -> Option<Vec<Background>> {
        let table = self.tagged(BACKGROUNDS, "background traffic", value)?;
        let named = table.get("path")?;
        let name = self.text(named)?;
        let path = paths.iter().position(|known| known.name == name);
        if path.is_none() {
            let help = unknown_help(name, paths.iter().map(|known| known.name.as_str()), "add a `[[path]]`");
            self.wrong(named.span(), format!("there is no path `{name}`"), format!("found `{name}`"), help);
        }
        let direction = self.direction(&table).unwrap_or(direction);
        let extra_delay = self.time(&table, "extra-delay").unwrap_or_default();
        let start = Time::ZERO + self.time(&table, "start").unwrap_or_default();
        let stop = self.time(&table, "stop").map(|stop| Time::ZERO + stop);
        if stop.is_some_and(|stop| stop <= start) {
            self.wrong(table.place("stop"), "`stop` must come after `start`", "found here", "");
        }
        let count = self.integer(&table, "count").unwrap_or(1);
        let traffic = match table.shape.name {
            "tcp-saturated" => Traffic::TcpSaturated { congestion: self.congestion(&table, names) },
            "mptcp-saturated" => Traffic::MptcpSaturated {
                scheduler: match table.get("scheduler") {
                    Some(value) => self.checked(value, names.scheduler).unwrap_or_default(),
                    None => "ropewalk".into(),
                },
                congestion: self.congestion(&table, names),
            },
            "tcp-limited" => Traffic::TcpLimited {
                congestion: self.congestion(&table, names),
                packets_per_second: self.number(&table, "packets-per-second")?,
                packet: self.bytes(&table, "packet").unwrap_or(1000) as u32,
            },
            "tcp-flows" => Traffic::TcpFlows {
                congestion: self.congestion(&table, names),
                bytes: self.size(&table, "size")?,
                pause: self.time(&table, "pause").unwrap_or_default(),
                times: self.integer(&table, "times").filter(|times| *times > 0).map(|times| times as u32),
                receive_buffer: self.bytes(&table, "receive-buffer"),
            },
            _ => Traffic::UdpOnOff {
                rate: self.quantity(table.get("rate")?, "1 Mbit/s", units::rate)?,
                packet: self.bytes(&table, "packet").unwrap_or(1000) as u32,
                on: self.some_time(&table, "on")?,
                on_shape: self.times(&table, "on-shape").unwrap_or(Times::Pareto),
                off: self.some_time(&table, "off")?,
                off_shape: self.times(&table, "off-shape").unwrap_or(Times::Exponential),
            },
        };
        let one = Background { path: path?, direction, traffic, extra_delay, start, stop };
        Some(vec![one; count as usize])
    }

    fn times(&mut self, table: &Table<'_>, key: &'static str) -> Option<Times> {
        self.choice(table, key, &[("pareto", Times::Pareto), ("exponential", Times::Exponential)])
    }

    fn congestion(&mut self, table: &Table<'_>, names: &Names<'_>) -> String {
        let Some(value) = table.get("congestion") else { return "reno".into() };
        self.checked(value, names.congestion).unwrap_or_default()
    }

    /// A text that an algorithm registry accepts.
    fn checked(&mut self, value: &Value<'_>, check: super::Check<'_>) -> Option<String> {
        let text = self.text(value)?;
        if let Some(error) = check(text) {
            let place = self.inside(value.span(), text, error.span.0..error.span.1);
            self.wrong(place, error.message, "found here", "");
            return None;
        }
        Some(text.to_string())
    }

    /// Both ends.
    pub fn ends(&mut self, file: &Table<'_>) -> (EndSpec, EndSpec) {
        let both = self.end(file, "ends", &EndSpec::default());
        (self.end(file, "client", &both), self.end(file, "server", &both))
    }

    fn end(&mut self, file: &Table<'_>, key: &str, above: &EndSpec) -> EndSpec {
        let Some(table) = file.get(key).and_then(|value| self.table(&END, value)) else {
            return above.clone();
        };
        let profiles: Vec<_> = HOSTS.iter().map(|(name, profile, _)| (*name, *profile)).collect();
        let above = &self.choice(&table, "host", &profiles).map_or_else(|| above.clone(), EndSpec::of);
        EndSpec {
            send_buffer: self.bytes(&table, "send-buffer").unwrap_or(above.send_buffer),
            receive_buffer: self.bytes(&table, "receive-buffer").unwrap_or(above.receive_buffer),
            autotune: self.switch(&table, "autotune").unwrap_or(above.autotune),
            checksum: self.switch(&table, "checksum").unwrap_or(above.checksum),
            ecn: self.switch(&table, "ecn").unwrap_or(above.ecn),
            min_rto: self.some_time_or(&table, "min-rto", above.min_rto),
            initial_window: self.integer(&table, "initial-window").map_or(above.initial_window, |w| w as u32),
            early_join: self.switch(&table, "early-join").unwrap_or(above.early_join),
            path_manager: self.choice(&table, "path-manager", PATH_MANAGERS).unwrap_or(above.path_manager),
            host: self.host(&table, above.host),
        }
    }

    /// The keys that a host profile sets.
    fn host(&mut self, table: &Table<'_>, above: Host) -> Host {
        let threshold = self.integer(table, "initial-threshold").map(|segments| segments as u32);
        let first = self.integer(table, "initial-receive-window").map(|segments| segments as u32);
        let data_ack = self.choice(
            table,
            "data-ack",
            &[("with-ack", (false, false)), ("first", (true, false)), ("first-by-window", (true, true))],
        );
        let (data_ack_first, subflow_windows) =
            data_ack.unwrap_or((above.data_ack_first, above.subflow_windows));
        let quick_acks = self.integer(table, "quick-acks").map(|acks| acks as u32);
        Host {
            profile: above.profile,
            loss_detection: self
                .choice(
                    table,
                    "loss-detection",
                    &[("rack", LossDetection::Rack), ("duplicate-acks", LossDetection::DuplicateAcks)],
                )
                .unwrap_or(above.loss_detection),
            forward_retransmit: self.switch(table, "forward-retransmit").unwrap_or(above.forward_retransmit),
            data_ack_first,
            subflow_windows,
            whole_segments: self.switch(table, "whole-segments").unwrap_or(above.whole_segments),
            short_dsn: self
                .choice(table, "dsn", &[("64-bit", false), ("32-bit", true)])
                .unwrap_or(above.short_dsn),
            old_acks: self
                .choice(table, "acks", &[("linux-6.18", false), ("linux-3.14", true)])
                .unwrap_or(above.old_acks),
            early_retransmit: self.switch(table, "early-retransmit").unwrap_or(above.early_retransmit),
            tail_loss_probe: self.switch(table, "tail-loss-probe").unwrap_or(above.tail_loss_probe),
            undo: self.switch(table, "undo").unwrap_or(above.undo),
            sack: self.switch(table, "sack").unwrap_or(above.sack),
            timestamps: self.switch(table, "timestamps").unwrap_or(above.timestamps),
            loss_window_one: self
                .choice(table, "loss-window", &[("in-flight", false), ("one", true)])
                .unwrap_or(above.loss_window_one),
            prr_slow_start: self
                .choice(table, "prr", &[("conservative", false), ("slow-start", true)])
                .unwrap_or(above.prr_slow_start),
            window_limit: self
                .choice(
                    table,
                    "window-limit",
                    &[
                        ("per-window", WindowLimit::PerWindow),
                        ("per-ack", WindowLimit::PerAck),
                        ("always", WindowLimit::Always),
                    ],
                )
                .unwrap_or(above.window_limit),
            ack_counting: self
                .choice(
                    table,
                    "ack-counting",
                    &[
                        ("segments", AckCounting::Segments),
                        ("one-in-avoidance", AckCounting::OneInAvoidance),
                        ("one", AckCounting::One),
                    ],
                )
                .unwrap_or(above.ack_counting),
            idle_restart: self.switch(table, "idle-restart").unwrap_or(above.idle_restart),
            rtt_tick: self.time(table, "rtt-tick").unwrap_or(above.rtt_tick),
            initial_receive_window: first.unwrap_or(above.initial_receive_window),
            initial_receive_space: self
                .bytes(table, "initial-receive-space")
                .unwrap_or(above.initial_receive_space),
            initial_threshold: threshold
                .map_or(above.initial_threshold, |segments| if segments == 0 { u32::MAX } else { segments }),
            delayed_ack: self.some_time_or(table, "delayed-ack", above.delayed_ack),
            quick_acks: quick_acks.unwrap_or(above.quick_acks),
            counting: self
                .choice(table, "buffers", &[("payload", Counting::Payload), ("memory", Counting::Memory)])
                .unwrap_or(above.counting),
            send_segment_memory: self
                .bytes(table, "send-segment-memory")
                .map_or(above.send_segment_memory, |bytes| bytes as u32),
            receive_segment_memory: self
                .bytes(table, "receive-segment-memory")
                .map_or(above.receive_segment_memory, |bytes| bytes as u32),
            receive_tuning: self
                .choice(
                    table,
                    "receive-tuning",
                    &[
                        ("longest", ReceiveTuning::Longest),
                        ("longest-in-steps", ReceiveTuning::LongestInSteps),
                        ("prompt", ReceiveTuning::Prompt),
                    ],
                )
                .unwrap_or(above.receive_tuning),
            send_tuning: self
                .choice(
                    table,
                    "send-tuning",
                    &[
                        ("own-window", SendTuning::OwnWindow),
                        ("longest-round-trip", SendTuning::LongestRoundTrip),
                    ],
                )
                .unwrap_or(above.send_tuning),
            cubic: self
                .choice(
                    table,
                    "cubic",
                    &[("rfc", ""), ("linux-3.14", "linux-3.14"), ("linux-4.19", "linux-4.19")],
                )
                .unwrap_or(above.cubic),
        }
    }

    fn some_time_or(&mut self, table: &Table<'_>, key: &str, otherwise: Span) -> Span {
        if table.get(key).is_some() { self.some_time(table, key).unwrap_or(otherwise) } else { otherwise }
    }

    /// `[experiment]`.
    pub(crate) fn experiment(&mut self, file: &Table<'_>, names: &Names<'_>) -> Experiment {
        let mut experiment = Experiment::default();
        let Some(table) = file.get("experiment").and_then(|value| self.table(&EXPERIMENT, value)) else {
            return experiment;
        };
        if let Some(sizes) = self.sizes(&table, "sizes") {
            experiment.sizes = sizes;
        }
        experiment.congestion =
            table.get("congestion").and_then(|value| self.checked(value, names.congestion));
        experiment.runs = self.integer(&table, "runs").map(|runs| runs as u32);
        if let Some(value) = table.get("schedulers") {
            match value.get_ref().as_array() {
                Some(list) => {
                    experiment.schedulers =
                        list.iter().filter_map(|item| self.checked(item, names.scheduler)).collect();
                }
                None => self.wrong(
                    value.span(),
                    "`schedulers` must be a list",
                    "not a list",
                    "[\"minrtt\", \"ecf\"]",
                ),
            }
        }
        experiment
    }

    /// The scenario's own name.
    pub fn scenario_name(&mut self, file: &Table<'_>, otherwise: &str) -> String {
        let Some(value) = file.get("name") else { return otherwise.to_string() };
        let Some(name) = self.text(value) else { return otherwise.to_string() };
        if let Some(reason) = bad_name(name) {
            self.wrong(value.span(), "this name can't be used", format!("found `{name}`"), reason);
        }
        name.to_string()
    }
}

/// `5 KiB` or `12 x 5 KiB`.
fn repeated(text: &str) -> Result<(u64, u64), units::UnitError> {
    if let Some((count, size)) = text.split_once(" x ")
        && let Ok(count) = count.trim().parse::<u64>()
    {
        let offset = text.len() - size.len();
        let size = units::bytes(size).map_err(|mut error| {
            error.span = error.span.start + offset..error.span.end + offset;
            error
        })?;
        return Ok((count, size));
    }
    Ok((1, units::bytes(text)?))
}
