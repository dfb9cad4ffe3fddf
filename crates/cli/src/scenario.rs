//! `ropewalk scenario list|show|check|schema`.

use ropewalk_algorithms::Registries;
use ropewalk_command_line::{Failure, output};
use ropewalk_lab::scenario;
use ropewalk_lab::table::Table;
use serde_json::json;

/// List built-in scenarios, and check your own
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ropewalk scenario show wifi-lte > mine.toml\n  ropewalk scenario check \
                  mine.toml"
)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the built-in scenarios
    #[command(after_help = "Example:\n  ropewalk scenario list")]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a scenario's file, to read or to start your own from
    #[command(after_help = "Example:\n  ropewalk scenario show wifi-lte")]
    Show {
        /// A built-in scenario's name, or a file
        name: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a file; every error is shown with its place
    #[command(after_help = "Example:\n  ropewalk scenario check mine.toml")]
    Check {
        /// A file, or a built-in scenario's name
        file: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of scenario files
    #[command(after_help = "Example:\n  ropewalk scenario schema > scenario.schema.json")]
    Schema {
        /// As JSON (it always is)
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    match &options.action {
        Action::List { json } => list(registries, *json),
        Action::Show { name, json } => {
            let loaded =
                scenario::load_any(name, registries).map_err(|error| error.of_argument("NAME", name))?;
            if *json {
                output::print(&format!(
                    "{:#}\n",
                    json!({ "name": loaded.scenario.name, "toml": loaded.text })
                ))
            } else {
                output::print(&loaded.text)
            }
        }
        Action::Check { file, json } => {
            let loaded = match scenario::load_any(file, registries) {
                Ok(loaded) => loaded,
                Err(error) => {
                    let error = error.of_argument("FILE", file);
                    if *json {
                        output::print(&format!("{:#}\n", json!({ "ok": false, "errors": error.json() })))?;
                    }
                    return Err(error.into());
                }
            };
            let (name, paths) = (&loaded.scenario.name, loaded.scenario.paths.len());
            if *json {
                output::print(&format!("{}\n", json!({ "ok": true, "name": name, "paths": paths })))
            } else {
                let counted = if paths == 1 { "1 path".into() } else { format!("{paths} paths") };
                output::print(&format!("{file}: scenario `{name}` with {counted} is fine\n"))
            }
        }
        Action::Schema { .. } => output::print(&format!("{:#}\n", scenario::schema())),
    }
}

fn list(registries: &Registries, json: bool) -> Result<(), Failure> {
    let mut table = Table::new(2, &["name", "what it is"]);
    let mut values = Vec::new();
    for built_in in scenario::builtins() {
        let loaded = built_in.load(registries)?;
        values.push(json!({ "name": built_in.name, "summary": loaded.scenario.summary }));
        table.row(vec![built_in.name.into(), loaded.scenario.summary]);
    }
    if json { output::print(&format!("{:#}\n", json!(values))) } else { output::print(&table.render()) }
}
