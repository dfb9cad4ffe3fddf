//! The command as a library. A program with its own algorithms registers them and calls [`run`].
#![forbid(unsafe_code)]

mod doctor;
mod gateway;
mod install;
mod keys;
mod proxy;
mod record;
mod status;
mod template;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ropewalk_algorithms::Registries;
use ropewalk_command_line::{EXIT_CODES, Failure, by_goal, end, output};
use ropewalk_gateway::setup::Preview;

#[derive(Debug, Parser)]
#[command(
    name = "ropewalkd",
    version,
    about = "Multipath TCP for ordinary programs",
    long_about = "Multipath TCP for ordinary programs: the gateway stands before servers, the proxy before \
                  clients.\n\n`ropewalk advise` says which scheduler suits your links.",
    after_help = EXIT_CODES
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Multipath TCP before servers that have only TCP
    Gateway(Box<gateway::Options>),
    /// Carry ordinary programs' connections over many networks
    Proxy(Box<proxy::Options>),
    /// Make the secrets by which a proxy and its gateway authenticate each other
    Keys(keys::Options),
    /// Set up a service of systemd: its unit, its configuration and its key
    Install(install::Options),
    /// What this host lacks for a gateway or a proxy, and what to do about it
    Doctor(doctor::Options),
    /// What a running proxy or gateway does: links, connections, subflows, decisions
    Status(status::Options),
    /// A running proxy's links over the last hour, as a scenario file
    Record(record::Options),
}

/// The commands by what one wants to do, for `--help`.
const GOALS: [(&str, &[&str]); 3] = [
    ("Carry connections", &["gateway", "proxy"]),
    ("Set up", &["install", "keys", "doctor"]),
    ("See what it does", &["status", "record"]),
];

/// Runs the command line `arguments`, the program's name first.
pub fn run(registries: Registries, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Arguments =
        match ropewalk_command_line::parse(by_goal(Arguments::command(), &GOALS), arguments) {
            Ok(arguments) => arguments,
            Err(code) => return code,
        };
    end(match arguments.command {
        Command::Gateway(options) => gateway::run(&registries, &options),
        Command::Proxy(options) => proxy::run(&options),
        Command::Keys(options) => keys::run(&options),
        Command::Install(options) => install::run(&registries, &options),
        Command::Doctor(options) => doctor::run(&registries, &options),
        Command::Status(options) => status::run(&options),
        Command::Record(options) => record::run(&options),
    })
}

/// Prints what `--dry-run` shows.
fn show_preview(preview: &Preview, json: bool) -> Result<(), Failure> {
    output::print(&if json { format!("{:#}\n", preview.to_json()) } else { preview.to_text() })
}
