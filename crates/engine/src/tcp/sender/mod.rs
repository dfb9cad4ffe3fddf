//! The sending half of a subflow: scoreboard, loss detection and recovery, congestion window.

mod ack;
pub(super) mod ack_summary;
pub(super) mod cwnd_validation;
pub(super) mod entry;
pub(super) mod pmtu;
pub(super) mod prr;
pub(super) mod rack;
pub(super) mod rate;
pub(super) mod recovery;
pub(super) mod rtt;
mod sack_bitmap;
pub(super) mod scoreboard;
pub(super) mod tlp;
pub(super) mod undo;
