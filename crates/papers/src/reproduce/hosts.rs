//! `ropewalk-papers reproduce hosts`: the lines of each host profile, and the difference that each one makes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use ropewalk_algorithms::Registries;
use ropewalk_lab::{scenario, stats};
use ropewalk_settings::diagnostic::Source;
use ropewalk_sim::{HOSTS, Line, RunSpec, run};

use super::PaperError;

/// What a line makes of a transfer.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// The profile.
    pub profile: &'static str,
    /// The line; none: the whole profile.
    pub line: Option<Line>,
    /// Mean completion time with it alone, against Linux 6.18, per cent.
    pub alone: f64,
    /// Mean completion time of the profile without it, against the profile, per cent.
    pub without: f64,
}

/// Where the differences are measured: losses, queues and unequal delays, so that every line has something to
/// act on.
const NETWORK: &str = r#"
limit = "600 s"
[[path]]
name = "wlan"
rate = "25 Mbit/s"
rtt = "50 ms +-10 ms"
reordering = true
loss = "1 %"
queue = "100 packets"
[[path]]
name = "lte"
rate = "10 Mbit/s"
rtt = "130 ms +-5 ms"
queue = "200 packets"
[workload]
kind = "request-response"
response = "1 MiB"
count = 6
think = "500 ms"
"#;

/// In words, for the page.
const NETWORK_WORDS: &str = "6 responses of 1 MiB over one connection, 500 ms apart, `minrtt`, CUBIC; 25 \
                             Mbit/s, 50 ms +-10 ms with \
    reordering and 1 % loss beside 10 Mbit/s, 130 ms +-5 ms";

/// Mean time of all exchanges over seeds, with these lines in `[ends]`.
fn time(lines: &[&str], runs: u32, registries: &Registries) -> Result<f64, PaperError> {
    let text = format!("{NETWORK}[ends]\n{}\n", lines.join("\n"));
    let wrong = |reason: String| PaperError::File { paper: "hosts".into(), file: "scenario", reason };
    let loaded = scenario::parse(&Source::new("hosts", text), "hosts", Path::new(""), registries)
        .map_err(|error| wrong(error.render(false)))?;
    let parse = |error: ropewalk_engine::registry::SpecError| wrong(error.message);
    let scheduler = registries.schedulers.parse("minrtt").map_err(parse)?;
    let congestion = registries.congestion.parse(ropewalk_engine::congestion::DEFAULT_NAME).map_err(parse)?;
    let base = Arc::new(loaded.scenario);
    let times = (1..=u64::from(runs)).map(|seed| {
        let spec = RunSpec { seed, ..RunSpec::new((*base).clone(), scheduler.clone(), congestion.clone()) };
        let result = run(&spec);
        let limit = base.limit.as_nanos() as f64;
        result.flows.iter().map(|flow| flow.fct.map_or(limit, |fct| fct.as_nanos() as f64)).sum::<f64>()
    });
    Ok(stats::mean(&times.collect::<Vec<_>>()))
}

/// Measures every line of every profile.
///
/// # Errors
/// A line that the scenario's reader doesn't take.
pub fn differences(runs: u32, registries: &Registries) -> Result<Vec<Difference>, PaperError> {
    let today = time(&[], runs, registries)?;
    let against = |value: f64, base: f64| (value / base - 1.0) * 100.0;
    let mut found = Vec::new();
    for (name, _, lines) in HOSTS.iter().filter(|(.., lines)| !lines.is_empty()) {
        let host = format!("host = \"{name}\"");
        let whole = time(&[&host], runs, registries)?;
        found.push(Difference { profile: name, line: None, alone: against(whole, today), without: 0.0 });
        for line in *lines {
            let own = format!("{} = {}", line.key, line.value);
            let back = format!("{} = {}", line.key, line.today);
            found.push(Difference {
                profile: name,
                line: Some(*line),
                alone: against(time(&[&own], runs, registries)?, today),
                without: against(time(&[&host, &back], runs, registries)?, whole),
            });
        }
    }
    Ok(found)
}

/// A rule of the out-of-tree kernels: what it is, the key or parameter, the kernels, and a cell that shows
/// it.
const RULES: &[[&str; 4]] = &[
    [
        "A DATA_ACK lets new data be scheduled before its segment's subflow acknowledgement; by 0.89 the \
         subflow's own window counts too, and is still that of before",
        "`data-ack`",
        "0.89 (`first-by-window`), 0.95 (`first`)",
        "s1, 128 KiB, 2304 B, default: 2104; 2068, 1585",
    ],
    [
        "In recovery holes that aren't marked as lost are retransmitted once nothing else is left",
        "`forward-retransmit`",
        "0.89 (Linux before 4.11)",
        "s1 16 MiB, 4352 B, default: 2311; 2375, 2360 (few are lost twice)",
    ],
    [
        "New data needs a whole segment's room in the peer's window",
        "`whole-segments`",
        "0.89, 0.95",
        "s2, 128 KiB, 4352 B, roundrobin: 12,036; 12,257, 10,411",
    ],
    [
        "An ACK waits while the window that it offers is smaller than the last; PSH doesn't hasten it",
        "`acks`",
        "0.89, 0.95",
        "s1, 128 KiB, 2304 B, roundrobin: 4209; 3813, 3317",
    ],
    [
        "A packet whose memory takes more of the window than it brings lets it open to half of the largest",
        "`receive-segment-memory`",
        "0.89, 0.95",
        "s2, 128 KiB, 4352 B, roundrobin: 12,036; 12,257, 8400",
    ],
    [
        "The send buffer takes whole segments while there is any space, each with its memory: 2304 bytes, \
         or 4352 where MAX_TCP_HEADER is 304 (wireless mesh and tunnels)",
        "`send-segment-memory`",
        "0.89, 0.95",
        "s1, 128 KiB, plain: 1561 with 2304 B, 2611 with 4352; 1559, 2607",
    ],
    [
        "DSNs on data have 32 bits: segments of 1428 bytes",
        "`dsn`",
        "0.89, 0.95",
        "s1, 128 KiB, 2304 B, roundrobin: 4209; 3813, 3732",
    ],
    [
        "HyStart judges an ACK before it begins a round, and begins one by sequence",
        "`cubic`",
        "0.89 (a sixteenth of the delay), 0.95 (an eighth)",
        "s2 4 MiB: 39 segments lost where HyStart ends slow start; here it comes later (211 lost)",
    ],
    [
        "Multipath TCP's receive window begins with 64 KiB of buffer",
        "`initial-receive-window`",
        "0.95",
        "s1 256 KiB: 139, plain 129",
    ],
    [
        "One segment beyond the congestion window is queued",
        "`one-more`: `minrtt:mptcp-0.94`, `roundrobin:mptcp-0.95`",
        "minRTT 0.90 to 0.94, round robin 0.90 to 0.95",
        "s2 256 KiB: 323, without it 233",
    ],
    [
        "ECF compares memory, in products of 32 bits",
        "`ecf:linux`; `arithmetic`",
        "0.95",
        "s2 1 MiB: 707; in 64 bits 685, with payload as well 890",
    ],
    [
        "BLEST's lambda rises when the window or the buffer blocks what it would send",
        "`blest:linux`",
        "0.95",
        "s2 4 MiB: 2720",
    ],
    [
        "Penalisation happens once in the selected subflow's round-trip time",
        "`penalise=linux`",
        "0.89, 0.95",
        "none of two subflows",
    ],
];

/// The rules and the cells that show them.
fn kernels_table() -> String {
    let mut text = String::from(
        "\n## The out-of-tree kernels\n\nMPTCP 0.89 (`linux-3.14`) and 0.95 (`linux-4.19`) were run in \
         virtual time; \
         `ropewalk-papers validate --kernel-data` shows their completion times beside the simulator's. s1: \
         50 Mbit/s 20 ms and 20 Mbit/s \
         60 ms; s2: 10 Mbit/s 10 ms and 10 Mbit/s 100 ms; 4 MiB where nothing else is said; the kernel's \
         ms, then this simulator's with the rule and without it. `linux-6.18` has none of these rules.\n\n\
         | rule | key or parameter | MPTCP | a cell that shows it |\n|---|---|---|---|\n",
    );
    for [rule, key, kernels, cell] in RULES {
        text += &format!("| {rule} | {key} | {kernels} | {cell} |\n");
    }
    text += "\nPresets by version: default `minrtt:linux` (0.89, 0.95) and `minrtt:mptcp-0.94`; round robin \
             `roundrobin` (0.89) and \
             `roundrobin:mptcp-0.95`; `redundant`, `blest:linux` and `ecf:linux` (0.95).\n";
    text
}

/// docs/hosts.md.
pub fn hosts_page(found: &[Difference], runs: u32) -> String {
    let mut text = format!(
        "# Hosts\n\nMade by `ropewalk-papers reproduce hosts`.\n\n`host = \"linux-3.14\"` under `[ends]`, \
         `[client]` or `[server]` of a scenario makes an end as that system; other keys there replace \
         parts of it. `linux-6.18`, which the engine is, is the default. Each line is such a key, with its \
         source in the system. ns-3's links have `queue = \"100 packets\"`.\n\nThe columns: completion times \
         (mean of {runs} seeded runs) of the line alone, compared with Linux 6.18; and of the profile \
         without it, compared with the whole. {NETWORK_WORDS}.\n",
    );
    text += &kernels_table();
    let mut sources = BTreeSet::new();
    for (name, ..) in HOSTS.iter().filter(|(.., lines)| !lines.is_empty()) {
        text += &format!("\n## {name}\n\n");
        for one in found.iter().filter(|one| one.profile == *name) {
            match one.line {
                None => {
                    text += &format!(
                        "The whole profile: {:+.1} %.\n\n| key | value | source | alone | without it \
                         |\n|---|---|---|---:|---:|\n",
                        one.alone
                    );
                }
                Some(line) => {
                    let is_above = !sources.insert((line.key, line.source));
                    let source = if is_above { "as above" } else { line.source };
                    text += &format!(
                        "| `{}` | `{}` | {source} | {:+.1} % | {:+.1} % |\n",
                        line.key, line.value, one.alone, one.without
                    );
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_sim::EndSpec;

    fn ends(lines: &[String]) -> EndSpec {
        let text = format!("{NETWORK}[ends]\n{}\n", lines.join("\n"));
        let source = Source::new("test", text);
        scenario::parse(&source, "test", Path::new(""), &Registries::builtin()).unwrap().scenario.server
    }

    /// A profile is its lines: each is a key of the scenario, each makes a difference, and together they are
    /// all of it.
    #[test]
    fn a_profile_is_the_sum_of_its_lines() {
        for (name, profile, lines) in HOSTS {
            let mut own =
                ends(&lines.iter().map(|line| format!("{} = {}", line.key, line.value)).collect::<Vec<_>>());
            own.host.profile = *profile;
            assert_eq!(own, EndSpec::of(*profile), "{name}");
            assert_eq!(own, ends(&[format!("host = \"{name}\"")]), "{name}");
            for line in *lines {
                let today = ends(&[format!("{} = {}", line.key, line.today)]);
                assert_eq!(today, EndSpec::DEFAULT, "{name}: {} isn't today's", line.key);
                let alone = ends(&[format!("{} = {}", line.key, line.value)]);
                assert_ne!(alone, EndSpec::DEFAULT, "{name}: {} changes nothing", line.key);
            }
        }
    }

    #[test]
    fn other_keys_replace_parts_of_a_profile() {
        let end = ends(&["host = \"linux-3.14\"".into(), "rtt-tick = \"0 s\"".into()]);
        assert_eq!(end.host.rtt_tick.as_nanos(), 0);
        assert!(end.host.early_retransmit);
    }
}
