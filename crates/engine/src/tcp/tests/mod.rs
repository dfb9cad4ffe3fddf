//! One subflow against a peer that the test plays, by the RFCs' worked examples.

mod dup_ack;
mod life;
mod probes;
mod receive;
mod recovery;
mod requirements;
mod undo;
