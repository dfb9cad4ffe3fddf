//! The `ropewalk` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ropewalk::run(ropewalk::Registries::builtin(), std::env::args_os())
}
