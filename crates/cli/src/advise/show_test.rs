//! What `ropewalk advise --self-test` prints.

use ropewalk_lab::advise::{CERTAINTY, Case, Coverage, Narrowing, Quantity, SelfTest};
use ropewalk_lab::stats;
use ropewalk_lab::table::Table;
use serde_json::{Value, json};

fn share(part: usize, of: usize) -> String {
    format!("{part} of {of} ({:.1} %)", part as f64 / of.max(1) as f64 * 100.0)
}

type Baseline = (&'static str, &'static str, fn(&Case) -> f64);

/// Whose regret is shown: its name, its name in JSON, its time.
const BASELINES: [Baseline; 4] = [
    ("advise", "regret", |case| case.chosen),
    ("always `linux`, first subflow on the path that looks best", "regret_linux", |case| case.linux),
    ("always `linux`, first subflow on the first path", "regret_linux_first", |case| case.linux_first),
    ("plain TCP on the path that looks best", "regret_tcp", |case| case.tcp),
];

pub(super) fn text(found: &SelfTest, narrowed: &Narrowing, ranges: &Coverage, seed: u64) -> String {
    let (scenarios, multipath) = (found.cases.len(), found.multipath());
    let mut text = format!("{scenarios} scenarios drawn at random, seen with errors as large as assumed\n\n");
    for (head, part, of) in [
        ("multipath recommended", multipath, scenarios),
        ("  true gain in the 90 % interval", found.covered(), multipath),
        ("  gain above what it says", found.faster(), multipath),
        ("  gain below what it says", multipath - found.covered() - found.faster(), multipath),
        ("  slower than plain TCP by 1 %", found.worse_than_tcp(), multipath),
        ("plain TCP recommended", scenarios - multipath, scenarios),
        ("  multipath 5 % faster", found.missed(), scenarios - multipath),
    ] {
        text += &format!("  {head:<34} {}\n", share(part, of));
    }
    text += &format!(
        "\nMultipath TCP is promised to be faster in at least {:.0} %: slower in at most {:.0} %.\n",
        CERTAINTY * 100.0,
        (1.0 - CERTAINTY) * 100.0
    );
    let mut table = Table::new(1, &["regret against hindsight", "mean", "p50", "p95", "most"]);
    for (name, _, of) in BASELINES {
        let mut cells = vec![name.to_string()];
        match stats::Summary::of(&found.regret(of)) {
            Some(all) => cells
                .extend([all.mean, all.p50, all.p95, all.max].map(|value| format!("{:.1} %", value * 100.0))),
            None => cells.extend(["-"; 4].map(String::from)),
        }
        table.row(cells);
    }
    text += &format!("\n{}\n", table.render());
    let (pairs, (before, after)) = (narrowed.links.len(), narrowed.held());
    text += &format!(
        "{pairs} pairs of links drawn at random, stated with errors as large as assumed; a ping and a \
         transfer on each are added\n\n"
    );
    for (head, part) in [
        ("true gain in the 90 % interval, stated", before),
        ("  with measurements", after),
        ("interval wider by more than 5 %", narrowed.wider()),
        ("  if measurements alone counted", narrowed.wider_alone()),
    ] {
        text += &format!("  {head:<38} {}\n", share(part, pairs));
    }
    text += &format!("  {:<38} {:.2} of that before\n", "mean width with measurements", narrowed.ratio());
    text += &format!(
        "\n{} links drawn at random, each measured by the model of each tool: ranges of 90 % that hold the \
         truth\n\n",
        ranges.links.len()
    );
    let heads: Vec<&str> = std::iter::once("tool").chain(Quantity::ALL.map(Quantity::name)).collect();
    let mut table = Table::new(1, &heads);
    for (tool, columns) in ranges.table() {
        let cell = |cell: Option<(usize, usize)>| {
            cell.map_or("-".into(), |(held, all)| format!("{:.1} %", held as f64 / all.max(1) as f64 * 100.0))
        };
        table.row(std::iter::once(tool).chain(columns.map(cell)).collect());
    }
    text += &table.render();
    text + &format!("\n\nSeed {seed}. With --json: every scenario, every pair and every link.\n")
}

pub(super) fn json(found: &SelfTest, narrowed: &Narrowing, ranges: &Coverage, seed: u64) -> String {
    let mut value = json!({
        "scenarios": found.cases.len(),
        "seed": seed,
        "multipath": found.multipath(),
        "covered": found.covered(),
        "coverage": found.covered() as f64 / found.multipath().max(1) as f64,
        "faster_than_interval": found.faster(),
        "slower_than_tcp": found.worse_than_tcp(),
        "missed": found.missed(),
        "cases": found.cases,
        "narrowing": {
            "pairs": narrowed.links.len(),
            "held_as_stated": narrowed.held().0,
            "held_with_measurements": narrowed.held().1,
            "wider": narrowed.wider(),
            "wider_by_measurements_alone": narrowed.wider_alone(),
            "mean_width_ratio": narrowed.ratio(),
            "links": narrowed.links,
        },
        "ranges": ranges.table().into_iter().map(|(tool, columns)| {
            let of = Quantity::ALL.iter().zip(columns).filter_map(|(quantity, cell)| {
                let (held, all) = cell?;
                Some((quantity.name().to_string(), json!({ "held": held, "of": all })))
            });
            json!({ "tool": tool, "quantities": of.collect::<serde_json::Map<_, _>>() })
        }).collect::<Vec<_>>(),
        "measured_links": ranges.links,
    });
    for (_, name, of) in BASELINES {
        value[name] = stats::Summary::of(&found.regret(of))
            .map_or(Value::Null, |s| json!({ "mean": s.mean, "p50": s.p50, "p95": s.p95, "max": s.max }));
    }
    format!("{value:#}\n")
}
