//! No run is ever below its bound: random paths, workloads and algorithms.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use ropewalk_algorithms::Registries;
use ropewalk_engine::{Span, Time};
use ropewalk_lab::{bound, objective};
use ropewalk_link::{Change, ChangeAction, Jitter, JitterShape, LinkSpec, Loss, Queue, Rate, RateTrace};
use ropewalk_sim::{
    Background, Bottleneck, Direction, EndSpec, Mode, PathSpec, Recording, RunSpec, Scenario, Traffic,
    Workload,
};

const MS: Span = Span::from_millis(1);

fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![
        8 => (1u64..200).prop_map(|mbit| Rate::Constant(mbit * 1_000_000)),
        1 => Just(Rate::Constant(u64::MAX)),
        2 => prop::collection::vec(0u32..5, 2..200).prop_map(|gaps| {
            let mut at = 1;
            let opportunities = gaps.into_iter().map(|gap| { at += gap; at }).collect();
            Rate::Trace(Arc::new(RateTrace::new("random", opportunities)))
        }),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let action = prop_oneof![
        rate().prop_map(ChangeAction::Rate),
        (0u64..100).prop_map(|ms| ChangeAction::Delay(ms * MS)),
        Just(ChangeAction::Down),
        Just(ChangeAction::Up),
    ];
    (0u64..1500, action).prop_map(|(at, action)| Change::once(Time::ZERO + at * MS, action))
}

prop_compose! {
    fn link()(
        rate in rate(),
        delay in 0u64..150,
        jitter in prop::option::of((1u64..60, 0u8..3, any::<bool>())),
        loss in prop_oneof![3 => Just(0.0), 1 => 0.0..0.03],
        queue in 4u32..400,
        duplicate in prop_oneof![4 => Just(0.0), 1 => 0.0..0.1],
        overhead in prop_oneof![3 => Just(0u32), 1 => Just(38)],
        changes in prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(change(), 1..4)],
    ) -> LinkSpec {
        let shape = |n| match n {
            0 => JitterShape::Uniform,
            1 => JitterShape::Normal,
            _ => JitterShape::Pareto,
        };
        LinkSpec {
            rate,
            delay: delay * MS,
            jitter: jitter.map(|(spread, kind, keeps_order)| {
                Jitter { spread: spread * MS, shape: shape(kind), keeps_order }
            }),
            loss: if loss > 0.0 { Loss::Bernoulli(loss) } else { Loss::None },
            queue: Queue::Packets { limit: queue, ecn_threshold: None },
            duplicate,
            overhead,
            limit_counts_transit: false,
            changes,
        }
    }
}

fn workload() -> impl Strategy<Value = Workload> {
    prop_oneof![
        4 => (1u64..2_000_000).prop_map(|bytes| Workload::Flow { bytes }),
        1 => (2u32..8, 1000u64..300_000).prop_map(|(count, bytes)| Workload::Flows { count, bytes }),
        1 => (prop::collection::vec(100u64..60_000, 1..30), 1u32..7)
            .prop_map(|(objects, connections)| {
                Workload::Web { objects, connections, request: 400, persistent: true }
            }),
        1 => (200u64..2000).prop_map(|ms| Workload::Bulk { duration: ms * MS }),
        1 => (1u64..100_000, 1u32..10, 0u64..100).prop_map(|(response, count, think)| {
            Workload::RequestResponse { request: 300, response, count, think: think * MS }
        }),
    ]
}

prop_compose! {
    fn scenario()(
        links in prop::collection::vec(
            (link(), link(), prop_oneof![Just(1500u32), Just(576), Just(9000)]),
            1..4,
        ),
        shared in prop::option::of((link(), link())),
        workload in workload(),
        upload in any::<bool>(),
        cross_traffic in any::<bool>(),
        initial_window in prop_oneof![3 => Just(10u32), 1 => 1u32..40],
        autotune in any::<bool>(),
        warmup in 0u64..300,
    ) -> Scenario {
        let end = EndSpec { initial_window, autotune, ..EndSpec::default() };
        let behind = shared.is_some();
        Scenario {
            name: "random".into(),
            summary: String::new(),
            paths: links.into_iter().enumerate().map(|(i, (up, down, mtu))| PathSpec {
                name: format!("path{i}"),
                up,
                down,
                mtu,
                backup: false,
                // The third path goes round the shared link.
                bottleneck: (behind && i < 2).then_some(0),
                metered: None,
            }).collect(),
            bottlenecks: shared
                .into_iter()
                .map(|(up, down)| Bottleneck { name: "shared".into(), up, down })
                .collect(),
            background: if cross_traffic {
                let traffic = Traffic::TcpFlows {
                    congestion: "reno".into(),
                    bytes: 50_000,
                    pause: 20 * MS,
                    times: None,
                    receive_buffer: None,
                };
                let direction = if upload { Direction::Upload } else { Direction::Download };
                vec![Background {
                    path: 0,
                    direction,
                    traffic,
                    extra_delay: Span::ZERO,
                    start: Time::ZERO,
                    stop: None,
                }]
            } else {
                Vec::new()
            },
            workload,
            direction: if upload { Direction::Upload } else { Direction::Download },
            client: end.clone(),
            server: end,
            warmup: warmup * MS,
            limit: 20_000 * MS,
        }
    }
}

fn holds(spec: &RunSpec) -> Result<(), TestCaseError> {
    let result = ropewalk_sim::run(spec);
    let bound = bound::of(spec);
    if let Some(measured) = objective::of(&spec.scenario.workload, &result) {
        // Exchanges over links that change, and bulk that can't begin, have none.
        if let Some(bound) = bound {
            prop_assert!(bound.capacity <= bound.window, "{bound:?}");
            prop_assert!(measured >= bound.window - 1e-9, "{measured} s, below {bound:?}");
        } else {
            let exchanges = matches!(spec.scenario.workload, Workload::RequestResponse { .. });
            prop_assert!(exchanges, "no bound");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_run_is_below_its_bound(
        scenario in scenario(),
        scheduler in prop::sample::select(vec![
            "minrtt", "linux", "redundant", "cfs", "otias", "roundrobin", "ecf", "daps",
        ]),
        congestion in prop::sample::select(vec!["cubic", "reno", "olia", "lia", "balia", "wvegas"]),
        seed in any::<u64>(),
    ) {
        let registries = Registries::builtin();
        let paths = scenario.paths.len();
        let mut spec = RunSpec {
            scenario: Arc::new(scenario),
            scheduler: registries.schedulers.parse(scheduler).unwrap(),
            congestion: registries.congestion.parse(congestion).unwrap(),
            mode: Mode::Multipath,
            seed,
            start_phase: Span::from_nanos(seed) % (50 * MS),
            recording: Recording::default(),
        };
        holds(&spec)?;
        for path in 0..paths {
            spec.mode = Mode::SinglePath(path);
            holds(&spec)?;
        }
    }
}

/// A few by default; `PROPTEST_CASES` for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(24)
}
