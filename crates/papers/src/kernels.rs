//! The kernels as the yardstick: completion times of the out-of-tree Multipath TCP kernels, beside the
//! simulator's with the host profile and the scheduler preset of the same version.
//!
//! A table is CSV with a head; lines that begin with `#` are remarks. Columns that are read: `kernel`,
//! `variant`, `scheduler`, `cc`, `paths`, `size` (bytes) and `seconds`. Rows that differ in nothing else are
//! runs of one cell, of which the median counts.

use std::path::Path;

use ropewalk_algorithms::Registries;
use ropewalk_lab::{scenario, stats};
use ropewalk_settings::diagnostic::Source;
use ropewalk_sim::{Mode, Outcome, RunSpec};

/// The measurements that come with the program.
pub const TABLE: &str = include_str!("../data/kernels.csv");

/// Cells that are judged together.
pub const GROUPS: &[(&str, &str)] = &[
    ("3.14 plain", "Linux 3.14, plain TCP"),
    ("3.14", "Linux 3.14 with MPTCP 0.89, growing buffers"),
    ("3.14 small", "Linux 3.14 with MPTCP 0.89, buffers of 128 KiB"),
    ("3.14 changed", "Linux 3.14 with MPTCP 0.89, a rule taken out of the kernel"),
    ("4.19 plain", "Linux 4.19, plain TCP"),
    ("4.19", "Linux 4.19 with MPTCP 0.95, growing buffers"),
    ("4.19 changed", "Linux 4.19 with MPTCP 0.95, a rule changed in the kernel"),
];

/// What a kernel's runs took.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The names in the table: kernel, variant, scheduler, congestion control and paths.
    pub names: [String; 5],
    /// The flow's size, bytes.
    pub size: u64,
    /// Seconds of each run.
    pub seconds: Vec<f64>,
}

/// A cell: what was measured, and how the simulator is set for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// Which of [`GROUPS`].
    pub group: &'static str,
    /// What was measured.
    pub measured: Measured,
    /// The scenario, as TOML.
    pub scenario: String,
    /// The scheduler; none: plain TCP on the first path.
    pub scheduler: Option<&'static str>,
}

/// Reads a table.
///
/// # Errors
/// The line and what is wrong with it.
pub fn read(text: &str) -> Result<Vec<Measured>, String> {
    const COLUMNS: [&str; 7] = ["kernel", "variant", "scheduler", "cc", "paths", "size", "seconds"];
    let mut places: Option<[usize; 7]> = None;
    let mut all: Vec<Measured> = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let wrong = |what: String| format!("line {}: {what}", number + 1);
        let values: Vec<&str> = line.split(',').collect();
        let Some(places) = places else {
            let place = |name: &str| {
                let found = values.iter().position(|column| *column == name);
                found.ok_or_else(|| wrong(format!("there is no column `{name}`")))
            };
            let mut found = [0; 7];
            for (place_of, name) in found.iter_mut().zip(COLUMNS) {
                *place_of = place(name)?;
            }
            places = Some(found);
            continue;
        };
        let value = |column: usize| {
            let found = values.get(places[column]).copied();
            found.ok_or_else(|| wrong(format!("there is no `{}`", COLUMNS[column])))
        };
        let names = [value(0)?, value(1)?, value(2)?, value(3)?, value(4)?].map(str::to_string);
        let not_a_number =
            |name: &str, found: &str| wrong(format!("`{name}` must be a number, not `{found}`"));
        let size = value(5)?.parse().map_err(|_| not_a_number("size", value(5).unwrap_or_default()))?;
        let seconds = value(6)?.parse().map_err(|_| not_a_number("seconds", value(6).unwrap_or_default()))?;
        match all.iter_mut().find(|cell| cell.names == names && cell.size == size) {
            Some(cell) => cell.seconds.push(seconds),
            None => all.push(Measured { names, size, seconds: vec![seconds] }),
        }
    }
    Ok(all)
}

/// Reads the tables of a folder, all its `.csv` files in order of name.
///
/// # Errors
/// The file and what is wrong with it.
pub fn read_folder(folder: &Path) -> Result<Vec<Measured>, String> {
    let failed = |path: &Path, reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let entries = std::fs::read_dir(folder).map_err(|error| failed(folder, &error))?;
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    if files.is_empty() {
        return Err(failed(folder, &"there is no .csv file"));
    }
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| failed(&file, &error))?;
        all.extend(read(&text).map_err(|reason| failed(&file, &reason))?);
    }
    Ok(all)
}

/// A scheduler's name in the table, without the buffers' size: the group's end and ours.
fn scheduler(kernel: &str, name: &str) -> Option<(&'static str, Option<&'static str>)> {
    Some(match (kernel, name) {
        (_, "plain1") => (" plain", None),
        ("3.14", "default" | "default-late" | "default-nofwd") => ("", Some("minrtt:linux")),
        ("3.14", "default-nopen") => ("", Some("minrtt:linux(penalise=off)")),
        ("3.14", "default-noopt") => ("", Some("minrtt:linux(opportunistic=off)")),
        ("3.14", "default-neither" | "default-late-neither") => {
            ("", Some("minrtt:linux(opportunistic=off, penalise=off)"))
        }
        ("3.14", "roundrobin" | "roundrobin-late") => ("", Some("roundrobin")),
        ("4.19", "default") => ("", Some("minrtt:linux")),
        ("4.19", "default-exact2") => (" changed", Some("minrtt:mptcp-0.94")),
        ("4.19", "blest") => ("", Some("blest:linux")),
        ("4.19", "ecf") => ("", Some("ecf:linux")),
        ("4.19", "ecf-wide1") => (" changed", Some("ecf:linux(arithmetic=linux-64-bits)")),
        ("4.19", "ecf-wide2") => (" changed", Some("ecf:linux(arithmetic=linux-payload)")),
        ("4.19", "roundrobin") => ("", Some("roundrobin:mptcp-0.95")),
        ("4.19", "redundant") => ("", Some("redundant")),
        _ => return None,
    })
}

/// The paths that the table names.
fn paths(name: &str) -> Option<[(&'static str, &'static str); 2]> {
    match name {
        "s1" => Some([("50 Mbit/s", "20 ms"), ("20 Mbit/s", "60 ms")]),
        "s2" => Some([("10 Mbit/s", "10 ms"), ("10 Mbit/s", "100 ms")]),
        _ => None,
    }
}

/// How the simulator is set for what was measured; `None`: it has no such rule, or no such paths.
pub fn cell(measured: Measured) -> Option<Cell> {
    let [kernel, variant, name, congestion, on] = &measured.names;
    let (version, memory) = match kernel.as_str() {
        "3.14.33-mptcp0.89.5" if variant.starts_with("stock-2304") => ("3.14", 2304),
        "3.14.33-mptcp0.89.5" if variant.starts_with("distro-headers-4352") => ("3.14", 4352),
        "4.19.234-mptcp0.95.2" => ("4.19", 2304),
        _ => return None,
    };
    let changed = match variant.as_str() {
        "stock-2304" | "distro-headers-4352" => "",
        "distro-headers-4352-DATA_ACK-pushes-late" => "data-ack = \"with-ack\"\n",
        "distro-headers-4352-no-forward-retransmit" => "forward-retransmit = false\n",
        "redundant-fixed" => "",
        _ => return None,
    };
    let (small, name) = match name.split_once("-b128") {
        Some((before, after)) => (true, format!("{before}{after}")),
        None => (false, name.clone()),
    };
    let (end, scheduler) = scheduler(version, &name)?;
    let end = match end {
        "" if !changed.is_empty() => " changed",
        "" | " plain" if small => " small",
        other => other,
    };
    let group = format!("{version}{end}");
    let group = GROUPS.iter().find(|(known, _)| *known == group)?.0;
    let mut text = String::from("limit = \"300 s\"\n");
    for (name, (rate, rtt)) in ["first", "second"].into_iter().zip(paths(on)?) {
        text += &format!(
            "[[path]]\nname = \"{name}\"\nrate = \"{rate}\"\nrtt = \"{rtt}\"\nqueue = \"100 packets\"\n"
        );
    }
    text += &format!("[workload]\nkind = \"flow\"\nsize = \"{} B\"\n", measured.size);
    text += &format!("[experiment]\ncongestion = \"{congestion}\"\n[ends]\n");
    // A packet from veth is in its sender's buffer. Plain TCP has no checksum, and without offload a linear
    // buffer as well.
    text += &format!("send-segment-memory = \"{memory} B\"\nreceive-segment-memory = \"{memory} B\"\n");
    text += match version {
        "3.14" => "host = \"linux-3.14\"\n",
        _ => "host = \"linux-4.19\"\n",
    };
    text += &format!("checksum = {}\n{changed}", scheduler.is_some());
    if small {
        text += "send-buffer = \"128 KiB\"\nreceive-buffer = \"128 KiB\"\n";
    }
    Some(Cell { group, scenario: text, scheduler, measured })
}

impl Cell {
    /// The kernel's completion time, milliseconds: the median.
    pub fn kernel_ms(&self) -> f64 {
        stats::quantile(&stats::sorted(&self.measured.seconds), 0.5) * 1e3
    }

    /// The simulator's, milliseconds.
    ///
    /// # Errors
    /// A run that isn't complete, and why.
    pub fn simulate(&self, registries: &Registries) -> Result<f64, String> {
        let source = Source::new("kernels", self.scenario.clone());
        let loaded = scenario::parse(&source, "kernels", Path::new(""), registries)
            .map_err(|error| error.render(false))?;
        let congestion =
            registries.congestion.parse(&self.measured.names[3]).map_err(|error| error.message)?;
        let scheduler =
            registries.schedulers.parse(self.scheduler.unwrap_or("minrtt")).map_err(|error| error.message)?;
        let mode = if self.scheduler.is_some() { Mode::Multipath } else { Mode::SinglePath(0) };
        let result =
            ropewalk_sim::run(&RunSpec { mode, ..RunSpec::new(loaded.scenario, scheduler, congestion) });
        match (&result.outcome, result.flows.first().and_then(|flow| flow.fct)) {
            (Outcome::Complete, Some(time)) => Ok(time.as_millis_f64()),
            (outcome, _) => Err(format!("{}: {outcome:?}", self.title())),
        }
    }

    /// What the cell is, in words.
    pub fn title(&self) -> String {
        self.measured.names.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_a_cell() {
        let rows = read(TABLE).unwrap();
        assert!(rows.len() > 150, "{}", rows.len());
        let registries = Registries::builtin();
        for row in rows {
            let title = row.names.join(" ");
            let unknown = title.contains("unknown");
            let Some(cell) = cell(row) else {
                assert!(unknown, "{title}");
                continue;
            };
            if cell.measured.size == 65_536 {
                cell.simulate(&registries).unwrap();
            }
        }
    }

    #[test]
    fn rows_that_differ_in_nothing_else_are_runs_of_one_cell() {
        let text = "# a remark\nseconds,kernel,variant,scheduler,cc,paths,size\n\
                    0.1,k,v,s,c,p,5\n0.3,k,v,s,c,p,5\n0.2,k,v,s,c,p,6\n";
        let rows = read(text).unwrap();
        assert_eq!(rows.iter().map(|row| row.seconds.len()).collect::<Vec<_>>(), [2, 1]);
        assert!(cell(rows[0].clone()).is_none(), "no such kernel");
        assert_eq!(read("kernel,variant\n").unwrap_err(), "line 1: there is no column `scheduler`");
        let wrong = text.replace("0.3,k", "x,k");
        assert_eq!(read(&wrong).unwrap_err(), "line 4: `seconds` must be a number, not `x`");
    }
}
