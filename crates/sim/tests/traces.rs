//! Small simulations as a reader of packet traces sees them: every packet sent, in `tests/snapshots`.
//!
//! Time in milliseconds; `->` is the client's packet; numbers count from the first of their direction. A
//! change that is meant: `INSTA_UPDATE=always cargo test -p ropewalk-sim --test all traces`, and read the
//! difference.

use crate::common;

use common::watch::watch;
use common::{MILLISECOND, single, spec};
use ropewalk_link::{Loss, Queue};
use ropewalk_sim::{Direction, RunSpec, Scenario, Workload, networks};

#[track_caller]
fn trace(spec: &RunSpec) -> String {
    let seen = watch(spec, true);
    assert_eq!(seen.result.outcome, ropewalk_sim::Outcome::Complete);
    seen.lines
}

fn small(mut scenario: Scenario, bytes: u64) -> Scenario {
    scenario.workload = Workload::Flow { bytes };
    scenario
}

/// Handshake with keys, the request, a join with its HMACs, mappings on two subflows.
#[test]
fn a_download_over_two_paths() {
    insta::assert_snapshot!(trace(&spec(small(networks::wifi_lte(), 60_000), "minrtt", "lia")));
}

/// Plain TCP: a queue of five packets drops slow start's burst; SACK, recovery, retransmissions.
#[test]
fn plain_tcp_through_a_short_queue() {
    let mut scenario = small(networks::one(5_000_000, 10 * MILLISECOND), 50_000);
    scenario.paths[0].down.queue = Queue::Packets { limit: 8, ecn_threshold: None };
    insta::assert_snapshot!(trace(&single(scenario, 0, "cubic")));
}

/// Every byte on both paths, checksums, losses: an upload.
#[test]
fn a_redundant_upload_with_checksums() {
    let mut scenario = small(networks::two_equal(10_000_000, 10 * MILLISECOND), 12_000);
    scenario.direction = Direction::Upload;
    (scenario.client.checksum, scenario.paths[0].up.loss) = (true, Loss::Bernoulli(0.2));
    insta::assert_snapshot!(trace(&spec(scenario, "redundant", "olia")));
}
