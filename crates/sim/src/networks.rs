//! Small networks for tests and benchmarks, with download of one flow as workload: change what matters.

use ropewalk_engine::Span;
use ropewalk_link::LinkSpec;

use crate::spec::{Bottleneck, Direction, EndSpec, PathSpec, Scenario, Workload};

/// A path whose two directions are alike: bits per second, one-way delay, queue in packets.
pub fn path(name: &str, rate: u64, delay: Span, queue: u32) -> PathSpec {
    PathSpec {
        name: name.to_string(),
        up: LinkSpec::plain(rate, delay, queue),
        down: LinkSpec::plain(rate, delay, queue),
        mtu: 1500,
        backup: false,
        bottleneck: None,
        metered: None,
    }
}

/// These paths, a download of 1 MiB, a limit of 120 s.
pub fn over(paths: Vec<PathSpec>) -> Scenario {
    Scenario {
        name: "test".to_string(),
        summary: String::new(),
        paths,
        bottlenecks: Vec::new(),
        background: Vec::new(),
        workload: Workload::Flow { bytes: 1 << 20 },
        direction: Direction::Download,
        client: EndSpec::default(),
        server: EndSpec::default(),
        warmup: Span::ZERO,
        limit: Span::from_secs(120),
    }
}

/// One path.
pub fn one(rate: u64, delay: Span) -> Scenario {
    over(vec![path("only", rate, delay, 100)])
}

/// Two paths that are alike.
pub fn two_equal(rate: u64, delay: Span) -> Scenario {
    over(vec![path("left", rate, delay, 100), path("right", rate, delay, 100)])
}

/// Wi-Fi and LTE: 50 Mbit/s at 10 ms one way, 20 Mbit/s at 30 ms.
pub fn wifi_lte() -> Scenario {
    over(vec![
        path("wifi", 50_000_000, Span::from_millis(10), 100),
        path("lte", 20_000_000, Span::from_millis(30), 300),
    ])
}

/// Two paths of 100 Mbit/s behind one link of 50 Mbit/s.
pub fn shared_bottleneck() -> Scenario {
    let mut scenario = two_equal(100_000_000, Span::from_millis(5));
    scenario.bottlenecks.push(Bottleneck {
        name: "shared".to_string(),
        up: LinkSpec::plain(50_000_000, Span::from_millis(5), 100),
        down: LinkSpec::plain(50_000_000, Span::from_millis(5), 100),
    });
    for path in &mut scenario.paths {
        path.bottleneck = Some(0);
    }
    scenario
}
