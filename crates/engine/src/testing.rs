//! Helpers for testing a scheduler: single decisions in a [`Scene`], whole connections in a [`Model`], the
//! contract of all schedulers ([`departures`]), and the texts of reasons.
//!
//! ```
//! use ropewalk_engine::testing::{Scene, build, departures, subflow};
//!
//! // Two subflows of 10 and 100 ms, windows of 10 segments, the first one full.
//! let scene = Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 100, 10, 3)]);
//! assert_eq!(scene.chosen(&mut *build("minrtt")), Some(1));
//! assert!(departures(|| build("minrtt")).is_empty());
//! ```

pub use crate::scheduler::contract::departures;
pub use crate::scheduler::testing::{
    Chunks, MSS, Model, Pipe, Placement, Scene, build, run, set_rtt, subflow, unmeasured,
};
pub use crate::scheduler::text::{Kib, Ms, Subflow, no_room, nothing_to_send};
pub use crate::tcp::WithoutSender;
#[doc(hidden)]
pub use crate::tcp::keyed_isn;
