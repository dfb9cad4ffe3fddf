//! Comparisons with real packets.

use ropewalk_sim::Mode;

use super::{Candidate, Request};
use crate::emulated::{EmulatedError, Ends, KERNEL, check, kernel_congestion};

/// Checks that the emulated world can run `request`, and adapts it: runs are made one at a time; a kernel as sender keeps
/// only its own scheduler; if the engine sends, a row for the kernel as sender is added where the kernel has the congestion
/// control.
///
/// # Errors
/// The request can't be run: see [`EmulatedError`].
pub fn for_emulation(request: &Request, ends: Ends) -> Result<Request, EmulatedError> {
    check(&request.scenario, &request.workloads)?;
    let mut request = Request { jobs: 1, ..request.clone() };
    let multipath = |candidate: &&Candidate| candidate.mode == Mode::Multipath;
    if ends.sender_kernel {
        request
            .candidates
            .retain(|candidate| candidate.mode != Mode::Multipath || candidate.scheduler.text == "linux");
        if request.candidates.iter().find(multipath).is_none() {
            return Err(EmulatedError::KernelScheduler);
        }
    } else if kernel_congestion(&request.congestion.text).is_ok()
        && let Some(first) = request.candidates.iter().find(multipath)
    {
        let mut scheduler = first.scheduler.clone();
        scheduler.text = KERNEL.into();
        let kernel = Candidate { label: KERNEL.into(), scheduler, mode: Mode::Multipath };
        request.candidates.push(kernel);
    }
    Ok(request)
}
