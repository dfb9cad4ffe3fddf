//! `ropewalk-papers`.

mod arena;
mod gallery;
mod kernels;
mod reproduce;
mod validate;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ropewalk_algorithms::Registries;
use ropewalk_command_line::{EXIT_CODES, end};

#[derive(Debug, Parser)]
#[command(
    name = "ropewalk-papers",
    version,
    about = "What the documentation's results are made with",
    after_help = EXIT_CODES
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The source papers' experiments: published and measured, and a verdict per claim
    Reproduce(reproduce::Options),
    /// Let all schedulers compete over a grid of scenarios
    Arena(arena::Options),
    /// Compare the simulator with real packets: the same transfers in both worlds
    Validate(validate::Options),
    /// Write the page of all algorithms, with where each wins and loses
    Gallery(gallery::Options),
}

/// Runs the command line `arguments`, the program's name first.
pub fn run(registries: Registries, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Arguments = match ropewalk_command_line::parse(Arguments::command(), arguments) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    end(match arguments.command {
        Command::Reproduce(options) => reproduce::run(&registries, &options),
        Command::Arena(options) => arena::run(&registries, &options),
        Command::Validate(options) => validate::run(&registries, &options),
        Command::Gallery(options) => gallery::run(&registries, &options),
    })
}
