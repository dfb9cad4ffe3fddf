//! The `ropewalkd` command.

use std::process::ExitCode;

/// With the gateway's many short connections, glibc's allocator keeps more and more free memory
/// (docs/gateway-measured.md). jemalloc returns it to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    ropewalkd::run(ropewalk_algorithms::Registries::builtin(), std::env::args_os())
}
