//! `ropewalk-papers validate --kernel-data`.

use std::path::{Path, PathBuf};

use ropewalk_algorithms::Registries;
use ropewalk_command_line::{Failure, output};
use ropewalk_lab::table::Table;
use ropewalk_settings::diagnostic::Diagnostic;
use serde_json::json;

use crate::kernels::{self, Cell, GROUPS};

/// A cell, and what the simulator needs for it, milliseconds.
struct Line {
    cell: Cell,
    ours: f64,
}

impl Line {
    fn ratio(&self) -> f64 {
        self.ours / self.cell.kernel_ms()
    }

    fn is_within(&self, share: f64) -> bool {
        (self.ratio() - 1.0).abs() <= share
    }
}

/// How many cells of a group agree.
struct Agreement {
    words: &'static str,
    cells: usize,
    within_5: usize,
    within_10: usize,
    worst: [f64; 2],
}

fn agreement(lines: &[Line]) -> Vec<Agreement> {
    let of = |(group, words): &(&'static str, &'static str)| {
        let own: Vec<&Line> = lines.iter().filter(|line| line.cell.group == *group).collect();
        let within = |share: f64| own.iter().filter(|line| line.is_within(share)).count();
        let ratios = || own.iter().map(|line| line.ratio());
        let worst = [ratios().fold(f64::MAX, f64::min), ratios().fold(0.0, f64::max)];
        Agreement { words, cells: own.len(), within_5: within(0.05), within_10: within(0.1), worst }
    };
    GROUPS.iter().map(of).filter(|group| group.cells > 0).collect()
}

/// Cells beyond 5 %, by variant, paths and the scheduler's first letters: why.
const MISSES: &[(&str, &str, &str, &str)] = &[
    (
        "stock-2304",
        "",
        "roundrobin-b128",
        "The window has half a segment to spare, so that which segment finds it full decides; the slow path \
         carries 40 % here, 45 % there.",
    ),
    (
        "distro-headers-4352",
        "s1",
        "default-b128",
        "More is repeated on the fast path than by the kernel, whose penalisations and repeats are two of a \
         kind.",
    ),
    (
        "distro-headers-4352",
        "s2",
        "default-b128",
        "Without one of the mechanisms the kernel waits in each window for an ACK of a single segment on \
         the slow path; here another ACK comes first, the cause isn't known. With both, less is repeated \
         here.",
    ),
    (
        "distro-headers-4352-DATA_ACK-pushes-late",
        "",
        "roundrobin",
        "Which segment finds the window full decides, as with early DATA_ACKs.",
    ),
    (
        "redundant-fixed",
        "",
        "default-exact2",
        "The segment beyond the window is queued when the window is filled at one moment; the kernel queues \
         it in whichever push fills it.",
    ),
    (
        "redundant-fixed",
        "s1",
        "redundant",
        "The kernel's module repeats segments on the path that carried them: of 256 KiB 318 packets came \
         over the fast path, not 187 (of 1 MiB 959, not 727, of 4 MiB 3,170, not 2,905).",
    ),
    (
        "redundant-fixed",
        "s1",
        "",
        "The kernel's receive window opens at once, some 100 ms after the start, and the burst loses 50 to \
         70 segments; here each arrival opens it by two.",
    ),
    (
        "redundant-fixed",
        "s2",
        "blest",
        "BLEST waits by the size of the receive window, which grows otherwise in that kernel; its own runs \
         differ by 4 %.",
    ),
];

/// Why a cell is beyond 5 %.
fn reason(line: &Line) -> &'static str {
    let [_, variant, scheduler, _, paths] = &line.cell.measured.names;
    let is_of = |miss: &&(&str, &str, &str, &str)| {
        miss.0 == variant && (miss.1.is_empty() || miss.1 == paths) && scheduler.starts_with(miss.2)
    };
    MISSES.iter().find(is_of).map_or("The cause isn't known.", |miss| miss.3)
}

/// Where the comparison goes.
pub(crate) struct Output<'a> {
    /// As JSON, not as text.
    pub json: bool,
    /// Also as Markdown.
    pub markdown: Option<&'a PathBuf>,
}

/// Runs each cell and prints how far the simulator is from the kernel. `folder`: of tables; none: what comes
/// with the program.
pub(crate) fn run(registries: &Registries, folder: Option<&Path>, to: &Output<'_>) -> Result<(), Failure> {
    let measured = match folder {
        Some(folder) => kernels::read_folder(folder),
        None => kernels::read(kernels::TABLE),
    };
    let measured = measured.map_err(|reason| Failure::Input(Diagnostic::new(reason).into()))?;
    let rows = measured.len();
    let mut lines = Vec::new();
    for cell in measured.into_iter().filter_map(kernels::cell) {
        let ours = cell.simulate(registries).map_err(Failure::Other)?;
        lines.push(Line { cell, ours });
    }
    lines.sort_by_key(|line| GROUPS.iter().position(|(group, _)| *group == line.cell.group));
    let left_out = rows - lines.len();
    if let Some(file) = to.markdown {
        output::write_file(file, &markdown(&lines))?;
    }
    if to.json {
        output::print(&format!("{:#}\n", document(&lines, left_out)))
    } else {
        output::print(&text(&lines, left_out))
    }
}

fn text(lines: &[Line], left_out: usize) -> String {
    let mut table =
        Table::new(4, &["variant", "paths", "scheduler", "size", "kernel ms", "ours ms", "ratio", ""]);
    for line in lines {
        let [_, variant, scheduler, _, paths] = &line.cell.measured.names;
        table.row(vec![
            variant.clone(),
            paths.clone(),
            scheduler.clone(),
            format!("{} KiB", line.cell.measured.size / 1024),
            format!("{:.1}", line.cell.kernel_ms()),
            format!("{:.1}", line.ours),
            format!("{:.3}", line.ratio()),
            match (line.is_within(0.05), line.is_within(0.1)) {
                (true, _) => "",
                (_, true) => "*",
                _ => "**",
            }
            .into(),
        ]);
    }
    let mut summary = Table::new(1, &["", "cells", "within 5 %", "within 10 %", "least ratio", "greatest"]);
    for group in agreement(lines) {
        let share = |count: usize| format!("{count} ({:.0} %)", 100.0 * count as f64 / group.cells as f64);
        summary.row(vec![
            group.words.into(),
            group.cells.to_string(),
            share(group.within_5),
            share(group.within_10),
            format!("{:.3}", group.worst[0]),
            format!("{:.3}", group.worst[1]),
        ]);
    }
    format!(
        "{}\nratio: ours over the kernel's median; * beyond 5 %, ** beyond 10 %; {left_out} rows have no \
         counterpart\n\n{}",
        table.render(),
        summary.render()
    )
}

fn markdown(lines: &[Line]) -> String {
    let mut text = String::from(
        "# The simulator against the out-of-tree kernels\n\nMade by `ropewalk-papers validate --kernel-data \
         --markdown docs/kernels.md`.\n\n\
         Completion times of Linux 3.14 with MPTCP 0.89 and of Linux 4.19 with MPTCP 0.95 in virtual time \
         (crates/papers/data/kernels.csv says how), beside the simulator's with the host profile and preset \
         of the same version ([hosts.md](hosts.md)).\n\n| cells | number | within 5 % | within 10 % | ratios \
         |\n|---|---:|---:|---:|---:|\n",
    );
    for group in agreement(lines) {
        let share = |count: usize| format!("{count} ({:.0} %)", 100.0 * count as f64 / group.cells as f64);
        let (five, ten) = (share(group.within_5), share(group.within_10));
        let [least, greatest] = group.worst;
        text += &format!(
            "| {} | {} | {five} | {ten} | {least:.3} to {greatest:.3} |\n",
            group.words, group.cells
        );
    }
    text += "\nratio: the simulator's time over the kernel's median. Names as in the table of measurements; \
             beyond 5 %:\n\n\
             | variant | paths | scheduler | size, KiB | kernel, ms | simulated, ms | ratio | why \
             |\n|---|---|---|---:|---:|---:|---:|---:|\n";
    let mut reasons: Vec<&str> = Vec::new();
    for line in lines.iter().filter(|line| !line.is_within(0.05)) {
        let [_, variant, scheduler, _, paths] = &line.cell.measured.names;
        let why = reason(line);
        let number = reasons.iter().position(|known| *known == why).unwrap_or_else(|| {
            reasons.push(why);
            reasons.len() - 1
        });
        text += &format!(
            "| {variant} | {paths} | {scheduler} | {} | {:.1} | {:.1} | {:.3} | {} |\n",
            line.cell.measured.size / 1024,
            line.cell.kernel_ms(),
            line.ours,
            line.ratio(),
            number + 1
        );
    }
    text += "\nWhy:\n\n";
    for (number, why) in (1..).zip(reasons) {
        text += &format!("{number}. {why}\n");
    }
    text
}

fn document(lines: &[Line], left_out: usize) -> serde_json::Value {
    json!({
        "cells": lines.iter().map(|line| json!({
            "group": line.cell.group,
            "kernel": line.cell.measured.names[0],
            "variant": line.cell.measured.names[1],
            "kernel_scheduler": line.cell.measured.names[2],
            "congestion": line.cell.measured.names[3],
            "paths": line.cell.measured.names[4],
            "size": line.cell.measured.size,
            "scheduler": line.cell.scheduler,
            "kernel_ms": line.cell.kernel_ms(),
            "ours_ms": line.ours,
            "ratio": line.ratio(),
        })).collect::<Vec<_>>(),
        "agreement": agreement(lines).iter().map(|group| json!({
            "group": group.words,
            "cells": group.cells,
            "within_5_percent": group.within_5,
            "within_10_percent": group.within_10,
        })).collect::<Vec<_>>(),
        "left_out": left_out,
    })
}
