//! What commands and scripts may ask of transfers, of comparisons and of advice. Each setting stands here
//! once: command lines, the Python package and the playground take it from these tables.

use std::sync::Arc;

use ropewalk_algorithms::{Registries, algorithm};
use ropewalk_engine::Span;
use ropewalk_engine::congestion::{CongestionControl, DEFAULT_NAME};
use ropewalk_engine::registry::Spec;
use ropewalk_settings::argument::{list, size_within};
use ropewalk_settings::diagnostic::{Diagnostic, InputError, Source};
use ropewalk_settings::given::{Given, Tables};
use ropewalk_settings::shape::{Field, Kind, Shape, key};
use ropewalk_sim::{Direction, PathSpec, Scenario, Workload};

use crate::compare::{System, Worth, said_worth, usual_workloads};
use crate::scenario::{BUFFER, DIRECTION_WORDS, DIRECTIONS, Experiment, MOST_BYTES};

/// What schedules a single run or a measurement, where nothing is said of it.
pub const USUAL_SCHEDULER: &str = "minrtt";

const SCHEDULERS: Field =
    key("schedulers", Kind::Text, "Schedulers, separated by commas").alias("scheduler").value("LIST");
const SIZES: Field =
    key("sizes", Kind::Sizes, "Flow size, 1 B to 1 TiB, or several separated by commas").option("size");
const DIRECTION: Field = key("direction", DIRECTIONS, "Which end sends the data");
const CONGESTION: Field =
    key("congestion", Kind::Text, "Congestion control. Default: the scenario's, else cubic").value("NAME");
const CONTROL: Field =
    key("congestion", Kind::Text, "Congestion control of all").default(DEFAULT_NAME).value("NAME");
const AMOUNT: Kind = Kind::TimeWithin(Span::from_millis(1), Span::from_secs(24 * 3600));
const WHOLE: Kind = Kind::Integer(0, u64::MAX);
const SEED: Field = key("seed", WHOLE, "First seed").default("1");
const VALUE: Field = key(
    "value",
    Kind::Text,
    "What bytes on metered paths are worth: 'a second is worth 5 MB of lte'. All of them count then; without \
     it only those that are sent again, at 5 MB to the second",
);
const OPEN_ON: Field = key(
    "open-on",
    Kind::Text,
    "The path on which connections open: first, best (where plain TCP is fastest), race (whose handshake \
     ends first), remember (what an earlier connection found out), or its name",
)
.default("first")
.value("WORD|PATH");
const JOINS: Kind = Kind::Choice(&["early", "late"]);
const JOIN: Field = key(
    "join",
    JOINS,
    "When joins begin: with the third ACK, or after the peer's first DSS, as Linux's. Default: as the \
     scenario says, which is late",
);
const JOIN_EARLY: Field = Field {
    summary: "When joins begin: with the third ACK, or after the peer's first DSS, as Linux's",
    ..JOIN.default("early")
};

const fn asked(name: &'static str, fields: &'static [Field]) -> Shape {
    Shape { name, summary: "What is asked for", fields }
}

/// What is sent, and how.
pub const TRANSFERS: &Tables = &[("[transfers]", &asked("transfers", &[SCHEDULERS, SIZES, DIRECTION]))];

/// What transfers with real packets are asked for; the seed is also that of links before programs.
pub const EMULATE: &Tables = &[(
    "[emulate]",
    &asked(
        "emulate",
        &[
            SCHEDULERS,
            SIZES,
            DIRECTION,
            JOIN,
            OPEN_ON,
            key("seed", WHOLE, "Seed of the links' randomness").default("1"),
        ],
    ),
)];

/// What an explanation of decisions is asked for.
pub const EXPLAIN: &Tables = &[(
    "[explain]",
    &asked(
        "explain",
        &[
            SCHEDULERS.default(USUAL_SCHEDULER),
            SIZES,
            DIRECTION,
            CONGESTION,
            key(
                "seed",
                WHOLE,
                "Seed: the run that `compare` does with it. Where changes repeat, or nothing is random, \
                 seeds start at different times",
            )
            .default("1"),
        ],
    ),
)];

/// What the recorded flows of a proxy are simulated again with.
pub const SHADOW: &Tables = &[(
    "[shadow]",
    &asked(
        "shadow",
        &[
            SCHEDULERS.default("linux,minrtt,blest,ecf,ropewalk"),
            key("flows", Kind::Integer(1, 4096), "Most flows, those with the most bytes")
                .default("40")
                .value("COUNT"),
            key("smallest", Kind::Bytes(1, MOST_BYTES), "Smallest flow that is simulated").default("64 KiB"),
            CONTROL,
        ],
    ),
)];

/// What the client of a measurement is asked for, of the engine's connections.
pub const PERF_CLIENT: &Tables = &[(
    "[client]",
    &asked(
        "client",
        &[
            key("schedulers", Kind::Texts, "Schedulers of what the engine sends: flow i uses the i-th")
                .default(USUAL_SCHEDULER)
                .option("scheduler")
                .value("LIST"),
            key("congestion", Kind::Text, "Congestion control of what is sent, by the sender's name for it")
                .default(DEFAULT_NAME)
                .value("NAME"),
            key(
                "join",
                JOINS,
                "When the engine's joins begin. An early one saves a round trip; a kernel as server answers \
                 it, unless it overtakes the third ACK: then it is sent again",
            )
            .default("late"),
            key(
                "open-on",
                Kind::Text,
                "The path on which the engine's connections open: `first`, a path's number, or `race`: SYNs \
                 go out on all, and the first that answers is it",
            )
            .default("first")
            .value("PATH"),
        ],
    ),
)];

/// What the server of a measurement is asked for, of the engine's connections.
pub const PERF_SERVER: &Tables = &[(
    "[server]",
    &asked(
        "server",
        &[
            key(
                "scheduler",
                Kind::Text,
                "With the engine: the scheduler of what the server sends, unless a client asks for another",
            )
            .default(USUAL_SCHEDULER)
            .value("NAME"),
            key("congestion", Kind::Text, "With the engine: the congestion control, likewise")
                .default(DEFAULT_NAME)
                .value("NAME"),
        ],
    ),
)];

/// What the schedulers' arena is asked for, beside its cells.
pub const ARENA: &Tables = &[(
    "[arena]",
    &asked(
        "arena",
        &[SCHEDULERS, CONTROL, key("seed", WHOLE, "The first run's seed").default("1"), OPEN_ON, JOIN_EARLY],
    ),
)];

/// What comparisons are asked for, beside the paths.
pub const COMPARE: &Tables = &[(
    "[compare]",
    &asked(
        "compare",
        &[
            SCHEDULERS,
            SIZES,
            DIRECTION,
            CONGESTION,
            key(
                "budget",
                AMOUNT,
                "Most that is run before the answer is given: a second is 4 million simulated segments, \
                 about what two cores do, so that it means the same runs on every machine",
            )
            .default("10s"),
            key(
                "runs",
                Kind::Integer(1, 1_000_000),
                "Runs per scheduler. Default: the scenario's, else until decided or out of budget; with real \
                 packets 30",
            ),
            SEED,
            OPEN_ON,
            JOIN,
            key(
                "limit",
                AMOUNT,
                "Longest that a run may take, in simulated time from the workload's start. Default: the \
                 scenario's; without one 60 s, or ten times the least that the links allow",
            ),
            key("buffer", BUFFER, "Send and receive buffer of both ends, fixed"),
            VALUE,
        ],
    ),
)];

/// What advice is asked for, beside the paths and measurements of them.
pub const ADVISE: &Tables = &[(
    "[advise]",
    &asked(
        "advise",
        &[
            SCHEDULERS,
            SIZES,
            DIRECTION,
            key(
                "system",
                Kind::Choice(&System::NAMES),
                "What you can run, and only that is named: Linux's own Multipath TCP, the kernel of \
                 multipath-tcp.org, a router with OpenMPTCProuter (since 0.60, or up to 0.59, which has that \
                 kernel), Apple's or Android's phones, or Ropewalk's engine. Default: Linux's own where it \
                 is as fast, else Ropewalk's engine",
            )
            .option("for")
            .value("SYSTEM"),
            VALUE,
            key(
                "certainty",
                Kind::Probability,
                "In which share of the plausible variants of your paths Multipath TCP must be at most 5 % \
                 slower than plain TCP on the best",
            )
            .default("80 %"),
            CONGESTION,
            key(
                "budget",
                AMOUNT,
                "Most that is run to rank the candidates, as in `compare`. How sure the gain is, buffers, \
                 and where the answer flips are tried in addition",
            )
            .default("2.5s"),
            SEED,
        ],
    ),
)];

/// The direction that is asked for, if one is.
///
/// # Errors
/// It is none.
pub fn direction(given: &Given) -> Result<Option<Direction>, InputError> {
    given.read(|reader, table| Some(reader.choice(table, "direction", DIRECTION_WORDS)))
}

/// How many runs are asked for, if it is said.
///
/// # Errors
/// What isn't allowed.
pub fn runs(given: &Given) -> Result<Option<u32>, InputError> {
    given.read(|reader, table| Some(reader.integer(table, "runs").map(|runs| runs as u32)))
}

/// The seed that is asked for: the first one, where there are several runs.
///
/// # Errors
/// What isn't allowed.
pub fn seed(given: &Given) -> Result<u64, InputError> {
    given.read(|reader, table| reader.integer(table, "seed"))
}

/// Whether joins begin early, if it is said.
///
/// # Errors
/// It isn't a word for that.
pub fn early_join(given: &Given) -> Result<Option<bool>, InputError> {
    given.read(|reader, table| Some(reader.choice(table, "join", &[("early", true), ("late", false)])))
}

/// The schedulers that are asked for, or those of the table, if it has any.
///
/// # Errors
/// None is named, or one twice.
pub fn schedulers(given: &Given) -> Result<Option<Vec<String>>, InputError> {
    given.text("schedulers").as_ref().map(listed).transpose()
}

/// The one scheduler of a table that takes one.
pub fn scheduler(given: &Given) -> String {
    given.text("scheduler").map_or_else(|| USUAL_SCHEDULER.into(), |source| source.text.to_string())
}

/// The path on which connections open.
pub fn open_on(given: &Given) -> String {
    given.text("open-on").map_or_else(String::new, |source| source.text.to_string())
}

/// Schedulers, separated by commas.
///
/// # Errors
/// None is named, or one twice.
pub fn listed(source: &Arc<Source>) -> Result<Vec<String>, InputError> {
    let text = &source.text;
    let names: Vec<&str> = list(text);
    if names.is_empty() {
        return Err(Diagnostic::new("no scheduler is named")
            .at(source, 0..text.len())
            .label("nothing found")
            .help("as in `minrtt,blest`; `ropewalk list` shows all; `all` takes all")
            .into());
    }
    if let Some((first, twice)) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        let place = text.rfind(twice).unwrap_or_default();
        let message = format!("`{twice}` is named twice, the second time in place {}", first + 1);
        return Err(Diagnostic::new(message).at(source, place..place + twice.len()).label("again").into());
    }
    Ok(names.into_iter().map(String::from).collect())
}

/// The flow sizes that are asked for.
///
/// # Errors
/// What is wrong with one, or that it has more than `most` bytes.
pub fn sizes(given: &Given, most: u64) -> Result<Vec<u64>, InputError> {
    let texts = given
        .texts("sizes")
        .iter()
        .flat_map(|source| source.text.split(',').map(|text| size_within(&source.name, text, (1, most))));
    texts.collect()
}

/// Flows of the sizes that are asked for, else of those that the experiment has; without any the usual
/// workloads if only paths are known (`usual`), else the scenario's.
pub(crate) fn workloads(
    given: &Given,
    usual: bool,
    experiment: &Experiment,
    scenario: &Scenario,
) -> Result<Vec<Workload>, InputError> {
    let asked = sizes(given, MOST_BYTES)?;
    Ok(match [&asked, &experiment.sizes].into_iter().find(|sizes| !sizes.is_empty()) {
        Some(sizes) => sizes.iter().map(|bytes| Workload::Flow { bytes: *bytes }).collect(),
        None if usual => usual_workloads(),
        None => vec![scenario.workload.clone()],
    })
}

/// The congestion control: what is asked for, else the experiment's, else the engine's default.
///
/// # Errors
/// It isn't known, or a parameter isn't allowed.
pub fn congestion(
    given: &Given,
    experiment: &Experiment,
    registries: &Registries,
) -> Result<Spec<dyn CongestionControl>, InputError> {
    let usual = || Source::new("congestion", experiment.congestion.as_deref().unwrap_or(DEFAULT_NAME));
    let said = || given.texts("congestion").first().cloned();
    let source = said().unwrap_or_else(usual);
    algorithm(&registries.congestion, &source.name, &source.text)
}

/// What bytes are worth.
pub(crate) fn worth(given: &Given, paths: &[PathSpec]) -> Result<Worth, InputError> {
    let Some(source) = given.text("value") else { return Ok(Worth::new(paths, None).unwrap_or_default()) };
    let said = said_worth(&source.text).map_err(|error| {
        Diagnostic::new(error.message).at(&source, error.span).label(error.label).help(error.help)
    })?;
    Worth::new(paths, Some(&said)).map_err(|error| {
        Diagnostic::new(error.to_string()).at(&source, 0..source.text.len()).label("here").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a default depends on a scenario, the words say it: by the engine's name for it.
    #[test]
    fn words_and_defaults_name_what_is_registered() {
        let registries = Registries::builtin();
        assert!(CONGESTION.summary.ends_with(&format!("else {DEFAULT_NAME}")));
        for tables in [COMPARE, ADVISE, EMULATE, EXPLAIN, SHADOW, PERF_CLIENT, PERF_SERVER, ARENA] {
            for field in tables.iter().flat_map(|(_, shape)| shape.fields) {
                for name in field.default.split(',').filter(|name| !name.is_empty()) {
                    match field.name {
                        "schedulers" | "scheduler" => {
                            assert!(registries.schedulers.parse(name).is_ok(), "{name}")
                        }
                        "congestion" => assert_eq!(name, DEFAULT_NAME),
                        _ => {}
                    }
                }
            }
        }
    }
}
