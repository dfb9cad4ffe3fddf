//! `ropewalk list`.

use ropewalk_algorithms::Registries;
use ropewalk_command_line::{Failure, output};
use ropewalk_engine::registry::Registry;
use ropewalk_lab::table::Table;
use serde_json::{Value, json};

/// List schedulers and congestion controls, with a line and the source of each
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ropewalk list\n  ropewalk list --json | jq '.schedulers[].name'")]
pub(crate) struct Options {
    /// As JSON, with every parameter
    #[arg(long)]
    json: bool,
}

fn value<T: ?Sized>(registry: &Registry<T>) -> Value {
    let entries = registry.entries().iter().map(|entry| {
        json!({
            "name": entry.name,
            "summary": entry.summary,
            "source": entry.source,
            "kernels": entry.kernels.iter().map(|there| there.kernel.name()).collect::<Vec<_>>(),
            "parameters": entry.shown_parameters().map(|p| json!({
                "name": p.name, "summary": p.summary, "default": p.default, "least": p.range.0,
                "most": p.range.1,
            })).collect::<Vec<_>>(),
            "presets": entry.presets.iter().map(|p| json!({
                "name": p.name, "summary": p.summary,
            })).collect::<Vec<_>>(),
        })
    });
    entries.collect()
}

fn text<T: ?Sized>(title: &str, registry: &Registry<T>) -> String {
    let mut table = Table::new(3, &["name", "rule", "source"]);
    for entry in registry.entries() {
        table.row(vec![entry.name.into(), entry.summary.into(), entry.source.into()]);
    }
    format!("{title}\n\n{}\n", table.render())
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    if options.json {
        let all = json!({
            "schedulers": value(&registries.schedulers), "congestion": value(&registries.congestion),
        });
        return output::print(&format!("{all:#}\n"));
    }
    let text = text("Schedulers", &registries.schedulers)
        + &text("Congestion controls", &registries.congestion)
        + "Parameters go in brackets, presets behind a colon: ecf(beta=0.5), blest:linux. `--json` lists \
           them.\n";
    output::print(&text)
}
