//! Tidy tables: one row per run (or segment, or decision), one typed column per quantity, with names that
//! need no quoting and end in the unit: `fct_s`, `goodput_bps`, `path_lte_rtt_s`. CSV files and the
//! Python package's Arrow tables are made from these.

use ropewalk_engine::{Span, Time};
use ropewalk_sim::{RunResult, Transmission};

use crate::objective::OBJECTIVE;

/// One column of a table; `None` is a missing value.
#[derive(Clone, PartialEq, Debug)]
pub enum Column {
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Numbers.
    Number(Vec<Option<f64>>),
    /// Texts.
    Text(Vec<Option<String>>),
    /// True or false.
    Flag(Vec<bool>),
}

impl Column {
    /// An empty column of the same type.
    pub fn fresh(&self) -> Column {
        match self {
            Column::Whole(_) => Column::Whole(Vec::new()),
            Column::Number(_) => Column::Number(Vec::new()),
            Column::Text(_) => Column::Text(Vec::new()),
            Column::Flag(_) => Column::Flag(Vec::new()),
        }
    }

    /// Its type's name.
    pub fn type_name(&self) -> &'static str {
        match self {
            Column::Whole(_) => "whole",
            Column::Number(_) => "number",
            Column::Text(_) => "text",
            Column::Flag(_) => "flag",
        }
    }

    /// An empty column of the type of this name.
    pub fn of_type(name: &str) -> Option<Column> {
        let all = [
            Column::Whole(Vec::new()),
            Column::Number(Vec::new()),
            Column::Text(Vec::new()),
            Column::Flag(Vec::new()),
        ];
        all.into_iter().find(|one| one.type_name() == name)
    }

    /// Adds a field of a CSV file; false if it has another type. A field that is empty is a missing value.
    #[must_use]
    pub fn push_field(&mut self, field: &str) -> bool {
        let is_missing = field.is_empty();
        match self {
            Column::Whole(values) => field.parse().map(|value| values.push(value)).is_ok(),
            Column::Number(values) => {
                let value = field.parse().ok();
                values.push(value);
                is_missing || value.is_some()
            }
            Column::Text(values) => {
                values.push((!is_missing).then(|| field.to_string()));
                true
            }
            Column::Flag(values) => field.parse().map(|value| values.push(value)).is_ok(),
        }
    }

    /// How many values it has.
    pub fn len(&self) -> usize {
        match self {
            Column::Whole(values) => values.len(),
            Column::Number(values) => values.len(),
            Column::Text(values) => values.len(),
            Column::Flag(values) => values.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a number.
    pub fn push_number(&mut self, value: Option<f64>) {
        match self {
            Column::Whole(values) => values.push(value.unwrap_or(0.0) as i64),
            Column::Number(values) => values.push(value),
            Column::Flag(values) => values.push(value == Some(1.0)),
            Column::Text(values) => values.push(value.map(|value| value.to_string())),
        }
    }

    /// Adds a text to a column of texts.
    pub fn push_text(&mut self, text: Option<String>) {
        if let Column::Text(values) = self {
            values.push(text);
        }
    }

    /// Adds a whole number to a column of whole numbers.
    pub fn push_whole(&mut self, whole: u64) {
        if let Column::Whole(values) = self {
            values.push(whole as i64);
        }
    }
}

/// A column's name, type, unit and meaning.
#[derive(Clone, PartialEq, Debug)]
pub struct Head {
    /// Its name.
    pub name: String,
    /// Unit of its values; empty: none.
    pub unit: String,
    /// One line.
    pub meaning: String,
    /// An empty column of its type.
    pub kind: Column,
}

impl Head {
    /// Whole numbers.
    pub fn whole(name: &str, unit: &str, meaning: &str) -> Self {
        Head::new(name, unit, meaning, Column::Whole(Vec::new()))
    }

    /// Numbers.
    pub fn number(name: &str, unit: &str, meaning: &str) -> Self {
        Head::new(name, unit, meaning, Column::Number(Vec::new()))
    }

    /// Texts.
    pub fn text(name: &str, meaning: &str) -> Self {
        Head::new(name, "", meaning, Column::Text(Vec::new()))
    }

    /// True or false.
    pub fn flag(name: &str, meaning: &str) -> Self {
        Head::new(name, "", meaning, Column::Flag(Vec::new()))
    }

    /// Values of the type of `kind`, an empty column.
    pub fn new(name: &str, unit: &str, meaning: &str, kind: Column) -> Self {
        Head { name: name.into(), unit: unit.into(), meaning: meaning.into(), kind }
    }
}

/// A table in memory.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Table {
    /// What its columns are.
    pub heads: Vec<Head>,
    /// The columns, all of one length.
    pub columns: Vec<Column>,
    /// Where it comes from: names and texts for the schema's metadata.
    pub provenance: Vec<(String, String)>,
}

impl Table {
    /// A table without rows.
    pub fn new(heads: Vec<Head>) -> Self {
        let columns = heads.iter().map(|head| head.kind.fresh()).collect();
        Table { heads, columns, provenance: Vec::new() }
    }

    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, Column::len)
    }

    /// The schema's metadata: provenance, and two JSON objects with each column's unit and meaning.
    pub fn metadata(&self) -> Vec<(String, String)> {
        let map = |of: fn(&Head) -> &str| {
            let named = self.heads.iter().filter(|head| !of(head).is_empty());
            let map: serde_json::Map<_, _> = named.map(|head| (head.name.clone(), of(head).into())).collect();
            serde_json::Value::Object(map).to_string()
        };
        let mut all = vec![
            ("ropewalk.version".to_string(), env!("CARGO_PKG_VERSION").to_string()),
            ("ropewalk.units".to_string(), map(|head| &head.unit)),
            ("ropewalk.meanings".to_string(), map(|head| &head.meaning)),
        ];
        all.extend(self.provenance.iter().cloned());
        all
    }
}

/// A name that needs no quoting: `path.lte.rtt` becomes `path_lte_rtt`.
pub fn plain_name(text: &str) -> String {
    let letters = text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
    let name: String = letters.collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// What a column's name ends in, by the unit of its values.
pub fn suffix(unit: &str) -> &'static str {
    match unit {
        "s" => "_s",
        "bit/s" => "_bps",
        "B" => "_bytes",
        "packets" => "_packets",
        _ => "",
    }
}

/// Every data segment of a run that recorded them: when it was sent, arrived and was acknowledged. `paths`:
/// names.
pub fn segments(result: &RunResult, paths: &[String]) -> Table {
    let mut table = Table::new(vec![
        Head::whole("connection", "", "connection of the workload, from 0"),
        Head::text("path", "the path that it was sent on"),
        Head::whole("offset_bytes", "B", "stream offset of its first byte"),
        Head::whole("length_bytes", "B", "payload"),
        Head::number("sent_s", "s", "when it left the sender, from the workload's start"),
        Head::number("arrived_s", "s", "when it arrived; missing: lost"),
        Head::number("acked_s", "s", "when an ACK or SACK covered it; missing: never"),
        Head::text(
            "transmission",
            "new, retransmitted, reinjected (by the connection) or duplicated (by the scheduler)",
        ),
    ]);
    for segment in &result.segments {
        let transmission = match segment.transmission {
            Transmission::New => "new",
            Transmission::Retransmitted => "retransmitted",
            Transmission::Reinjected => "reinjected",
            Transmission::Duplicated => "duplicated",
        };
        table.columns[0].push_whole(u64::from(segment.connection));
        table.columns[1].push_text(paths.get(usize::from(segment.path)).cloned());
        table.columns[2].push_whole(segment.offset);
        table.columns[3].push_whole(u64::from(segment.len));
        table.columns[4].push_number(Some(segment.sent.as_secs_f64()));
        table.columns[5].push_number(segment.arrived.map(Time::as_secs_f64));
        table.columns[6].push_number(segment.acked.map(Time::as_secs_f64));
        table.columns[7].push_text(Some(transmission.into()));
    }
    table
}

/// Every decision of the data's sender in a run that recorded them.
pub fn decisions(result: &RunResult, paths: &[String]) -> Table {
    let mut table = Table::new(vec![
        Head::number("time_s", "s", "when, from the workload's start"),
        Head::whole("connection", "", "connection of the workload, from 0"),
        Head::text("decision", "send, send_at, queue, duplicate, withdraw or wait"),
        Head::text("path", "the path concerned; missing: a wait"),
        Head::whole("offset_bytes", "B", "stream offset concerned"),
        Head::whole("length_bytes", "B", "what the engine took; 0: nothing could be sent"),
        Head::text("reason", "the scheduler's reason, with numbers"),
    ]);
    for decision in &result.decisions {
        let path = decision.path.and_then(|path| paths.get(usize::from(path)).cloned());
        table.columns[0].push_number(Some(decision.at.as_secs_f64()));
        table.columns[1].push_whole(u64::from(decision.connection));
        table.columns[2].push_text(Some(decision.decision.name().replace('-', "_")));
        table.columns[3].push_text(path);
        table.columns[4].push_whole(decision.offset);
        table.columns[5].push_whole(u64::from(decision.bytes));
        table.columns[6].push_text(Some(decision.reason.clone()));
    }
    table
}

/// The sender's windows and round-trip times over time, a row per subflow.
pub fn samples(result: &RunResult, paths: &[String]) -> Table {
    let mut table = Table::new(vec![
        Head::number("time_s", "s", "when, from the workload's start"),
        Head::whole("connection", "", "connection of the workload, from 0"),
        Head::text("path", "the subflow's path"),
        Head::whole("cwnd_segments", "segments", "congestion window"),
        Head::number("ssthresh_segments", "segments", "slow start threshold; missing: none yet"),
        Head::whole("in_flight_segments", "segments", "segments in flight"),
        Head::number("srtt_s", "s", "smoothed round-trip time; missing: no sample yet"),
        Head::whole("delivered_bytes", "B", "delivered in order so far, of the connection"),
        Head::whole("ofo_bytes", "B", "the receiver's out-of-order queue, of the connection"),
        Head::whole("window_left_bytes", "B", "connection-level send window left"),
    ]);
    for sample in &result.samples {
        for subflow in &sample.subflows {
            let threshold = (subflow.ssthresh < u32::MAX).then(|| f64::from(subflow.ssthresh));
            let columns = &mut table.columns;
            columns[0].push_number(Some(sample.at.as_secs_f64()));
            columns[1].push_whole(u64::from(sample.connection));
            columns[2].push_text(paths.get(usize::from(subflow.path)).cloned());
            columns[3].push_whole(u64::from(subflow.cwnd));
            columns[4].push_number(threshold);
            columns[5].push_whole(u64::from(subflow.in_flight));
            columns[6].push_number(Some(subflow.srtt).filter(|srtt| !srtt.is_zero()).map(Span::as_secs_f64));
            columns[7].push_whole(sample.delivered);
            columns[8].push_whole(sample.ofo);
            columns[9].push_whole(sample.window_left);
        }
    }
    table
}

/// Every run of a comparison, a row each.
pub fn comparison_runs(comparison: &crate::compare::Comparison, paths: &[String]) -> Table {
    let mut heads = vec![
        Head::text("scenario", "the scenario's name"),
        Head::text("workload", "what was transferred"),
        Head::text("scheduler", "the scheduler; `tcp PATH`: plain TCP on that path"),
        Head::text("congestion", "the congestion control"),
        Head::whole("seed", "", "the run's seed"),
        Head::text("outcome", "complete, limit (the time limit came first) or failed"),
        Head::flag("finished", "whether the workload was complete within the limit"),
        Head::number(OBJECTIVE.0, OBJECTIVE.1, OBJECTIVE.2),
        Head::number("bound_s", "s", "no scheduler could reach less `objective_s`: by the links alone"),
        Head::number("bound_window_s", "s", "the same with windows that start small and at most double"),
        Head::number("goodput_bps", "bit/s", "payload delivered over the duration"),
        Head::whole("retransmits", "segments", "retransmitted on their own subflow"),
        Head::whole("timeouts", "1", "retransmission timeouts"),
        Head::whole(
            "repeated_bytes",
            "B",
            "sent a second time: by design, opportunistically, or by the connection",
        ),
        Head::whole("overruled", "1", "how often the engine overruled the scheduler"),
        Head::number("ofo_mean_bytes", "B", "connection-level out-of-order queue, mean over time"),
        Head::whole("ofo_max_bytes", "B", "its maximum"),
        Head::number("window_blocked_s", "s", "new data waited for the connection-level window"),
    ];
    for path in paths {
        let name = |what: &str| format!("path_{}_{what}", plain_name(path));
        heads.push(Head::number(&name("sent_bytes"), "B", "payload sent on the path, repeats included"));
        heads.push(Head::number(&name("repeated_bytes"), "B", "of these, duplicated or reinjected here"));
        heads.push(Head::number(&name("queue_delay_mean_s"), "s", "queueing delay of what passed, mean"));
        heads.push(Head::number(&name("queue_delay_max_s"), "s", "its maximum"));
    }
    let mut table = Table::new(heads);
    for ranking in &comparison.rankings {
        for row in &ranking.rows {
            for run in &row.each {
                let outcome = match &run.outcome {
                    ropewalk_sim::Outcome::Complete => "complete",
                    ropewalk_sim::Outcome::TimeLimit => "limit",
                    ropewalk_sim::Outcome::Failed(_) => "failed",
                };
                let (texts, rest) = table.columns.split_at_mut(6);
                texts[0].push_text(Some(comparison.scenario.clone()));
                texts[1].push_text(Some(ranking.title.clone()));
                texts[2].push_text(Some(row.label.clone()));
                texts[3].push_text(Some(comparison.congestion.clone()));
                texts[4].push_whole(run.seed);
                texts[5].push_text(Some(outcome.into()));
                let own = [
                    Some(f64::from(u8::from(run.seconds.is_some()))),
                    run.seconds,
                    run.bound.map(|bound| bound.capacity),
                    run.bound.map(|bound| bound.window),
                    Some(run.goodput),
                    Some(run.retransmissions as f64),
                    Some(run.timeouts as f64),
                    Some(run.repeated as f64),
                    Some(run.overruled as f64),
                    Some(run.ofo_mean),
                    Some(run.ofo_max as f64),
                    Some(run.window_blocked),
                ];
                let of_paths = paths.iter().flat_map(|name| {
                    let part = run.paths.iter().find(|part| part.name == *name);
                    [
                        part.map(|part| part.bytes),
                        part.map(|part| part.repeated),
                        part.map(|part| part.queue_delay_mean),
                        part.map(|part| part.queue_delay_max),
                    ]
                });
                for (column, value) in rest.iter_mut().zip(own.into_iter().chain(of_paths)) {
                    column.push_number(value);
                }
            }
        }
    }
    table.provenance.push(("ropewalk.seed".into(), comparison.seed.to_string()));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_need_no_quoting() {
        assert_eq!(plain_name("path.Wi-Fi.rtt"), "path_wi_fi_rtt");
        assert_eq!(plain_name("5g"), "_5g");
    }

    #[test]
    fn the_metadata_has_units_and_meanings() {
        let mut table = Table::new(vec![Head::number("fct_s", "s", "time"), Head::text("scheduler", "who")]);
        table.provenance.push(("ropewalk.seed".into(), "7".into()));
        let metadata = table.metadata();
        let of = |key: &str| metadata.iter().find(|(known, _)| known == key).map(|(_, text)| text.as_str());
        assert_eq!(of("ropewalk.units"), Some("{\"fct_s\":\"s\"}"));
        assert_eq!(of("ropewalk.meanings"), Some("{\"fct_s\":\"time\",\"scheduler\":\"who\"}"));
        assert_eq!(of("ropewalk.seed"), Some("7"));
    }
}
