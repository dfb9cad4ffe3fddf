//! The `ropewalk-papers` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ropewalk_papers::run(ropewalk_algorithms::Registries::builtin(), std::env::args_os())
}
