//! The `ropewalk` command.

use std::process::ExitCode;

/// Under gateway's load glibc's allocator keeps ever more free memory (docs/gateway.md); this one gives it back.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    ropewalk::run(ropewalk_lab::Registries::builtin(), std::env::args_os())
}
