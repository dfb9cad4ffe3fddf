//! One subflow against a peer that the test plays, by the RFCs' worked examples.

mod life;
mod recovery;
mod undo;
