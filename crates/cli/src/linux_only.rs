//! Commands that need Linux: elsewhere they say so.

use ropewalk_command_line::Failure;

/// Whatever it is given.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<String>,
}

fn refuse(what: &str) -> Failure {
    Failure::Other(format!("{what} needs Linux: network namespaces, TUN devices and its Multipath TCP"))
}

pub(crate) mod emulate {
    use std::process::ExitCode;

    use ropewalk_algorithms::Registries;
    use ropewalk_command_line::Failure;
    use ropewalk_lab::report::Origin;

    pub(crate) use super::Options;

    pub(crate) fn run(_: &Registries, _: &Options, _: &Origin) -> Result<ExitCode, Failure> {
        Err(super::refuse("`ropewalk emulate`"))
    }
}

pub(crate) mod perf {
    use std::process::ExitCode;

    use ropewalk_algorithms::Registries;
    use ropewalk_command_line::Failure;

    pub(crate) use super::Options;

    pub(crate) fn run(_: &Registries, _: &Options) -> Result<ExitCode, Failure> {
        Err(super::refuse("`ropewalk perf`"))
    }
}
