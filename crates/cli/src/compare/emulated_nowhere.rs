//! Where there is no Linux, there are no comparisons with real packets.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ropewalk_command_line::{Failure, ProgressLine};
use ropewalk_lab::compare::{Comparison, Request};
use ropewalk_lab::real_time::Ends;

use crate::evidence;

fn refused() -> Failure {
    Failure::Other("`--world emulated` needs Linux: network namespaces and TUN devices".into())
}

pub(super) fn prepare() -> Result<(), Failure> {
    Err(refused())
}

pub(super) fn in_real_time(
    _: &Request,
    _: Ends,
    _: &ProgressLine,
    _: &Arc<AtomicBool>,
    _: &evidence::Options,
) -> Result<Comparison, Failure> {
    Err(refused())
}
