//! The receiving half of a subflow: reassembly, delayed ACKs, the window that is advertised.

pub(super) mod delack;
pub(super) mod reassembly;
mod segment_ring;
pub(super) mod window;
