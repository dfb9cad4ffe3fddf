//! BBR over modelled links: draft-ietf-ccwg-bbr's goals (section 3.1) with wide margins.

use crate::common;
use ropewalk_engine::{Span, Time};

use common::{MILLISECOND, SECOND, goodput, single, spec, summary};
use ropewalk_link::Loss;
use ropewalk_sim::{
    Background, Direction, Outcome, Recording, RunResult, RunSpec, Scenario, Traffic, Workload, networks, run,
};

/// 20 Mbit/s, 40 ms round trip: a bandwidth-delay product of 67 packets.
const RATE: u64 = 20_000_000;

/// Payload's share of what the link carries: segments of 1448 bytes in packets of 1500.
const PAYLOAD: f64 = 1448.0 / 1500.0;

fn link(queue: u32, seconds: u64) -> Scenario {
    let scenario = networks::over(vec![networks::path("one", RATE, 20 * MILLISECOND, queue)]);
    Scenario { workload: Workload::Bulk { duration: seconds * SECOND }, ..scenario }
}

/// Share of what the link can carry.
fn share(result: &RunResult) -> f64 {
    goodput(result) / (RATE as f64 * PAYLOAD)
}

fn bulk(scenario: Scenario, control: &str) -> RunResult {
    let result = run(&single(scenario, 0, control));
    assert!(result.outcome == Outcome::Complete, "{}", summary(&result));
    result
}

#[test]
fn alone_it_fills_the_link_without_a_standing_queue() {
    for queue in [40, 200, 2000] {
        let scenario = Scenario { warmup: 3 * SECOND, ..link(queue, 20) };
        let result = bulk(scenario, "bbr");
        println!(
            "queue {queue}: {:.3} of the link, mean {:.1} ms",
            share(&result),
            result.paths[0].queue_delay_mean / 1e6
        );
        assert!(share(&result) >= 0.95, "queue {queue}: {}\n{}", share(&result), summary(&result));
        // The mean queue is far below a bandwidth-delay product (40 ms), whatever there is room for.
        assert!(result.paths[0].queue_delay_mean < 20e6, "queue {queue}\n{}", summary(&result));
    }
}

#[test]
fn startup_takes_a_queue_of_about_a_bandwidth_delay_product_and_drain_empties_it() {
    let recording = Recording { samples_every: Some(10 * MILLISECOND), ..Recording::default() };
    let result = run(&RunSpec { recording, ..single(link(2000, 4), 0, "bbr") });
    let srtt = |from: u64, to: u64| {
        let within = result.samples.iter().filter(|sample| (from..to).contains(&sample.at.as_millis()));
        within
            .flat_map(|sample| &sample.subflows)
            .map(|subflow| subflow.srtt / MILLISECOND)
            .max()
            .unwrap_or(0)
    };
    assert!(srtt(0, 1500) <= 40 + 60, "{} ms", srtt(0, 1500));
    assert!(srtt(1500, 2500) <= 40 + 20, "{} ms", srtt(1500, 2500));
}

/// Section 5.3.3.5.3: N round trips with loss rate p outside probing leave (1 - p)^N; with the pacing margin
/// of 1 % and half of the round trips losing something, 60 rounds average about 0.8.
#[test]
fn random_loss_of_one_percent_costs_what_the_draft_says_and_cubic_more() {
    let mut scenario = link(200, 20);
    scenario.paths[0].down.loss = Loss::Bernoulli(0.01);
    let (bbr, cubic) = (bulk(scenario.clone(), "bbr"), bulk(scenario, "cubic"));
    println!("1 %: BBR {:.3}, cubic {:.3} of the link", share(&bbr), share(&cubic));
    assert!(share(&bbr) >= 0.7, "{}\n{}", share(&bbr), summary(&bbr));
    assert!(share(&cubic) < 0.6 * share(&bbr), "{}", share(&cubic));
}

#[test]
fn random_loss_of_two_percent_leaves_it_most_of_the_link() {
    let mut scenario = link(200, 20);
    scenario.paths[0].down.loss = Loss::Bernoulli(0.02);
    let bbr = bulk(scenario, "bbr");
    println!("2 %: BBR {:.3} of the link", share(&bbr));
    assert!(share(&bbr) >= 0.4, "{}\n{}", share(&bbr), summary(&bbr));
}

#[test]
fn beside_cubic_both_get_a_part() {
    for queue in [70, 300] {
        let mut scenario = link(queue, 40);
        scenario.background.push(Background {
            path: 0,
            direction: Direction::Download,
            traffic: Traffic::TcpSaturated { congestion: "cubic".into() },
            extra_delay: Span::ZERO,
            start: Time::ZERO,
            stop: None,
        });
        let result = bulk(scenario, "bbr");
        println!("queue {queue}: BBR has {:.3} of the link", share(&result));
        assert!((0.05..0.95).contains(&share(&result)), "queue {queue}: {}", share(&result));
    }
}

#[test]
fn two_subflows_over_two_links_fill_both() {
    let paths = vec![
        networks::path("one", RATE, 20 * MILLISECOND, 200),
        networks::path("two", 2 * RATE, 40 * MILLISECOND, 200),
    ];
    let workload = Workload::Bulk { duration: 20 * SECOND };
    let scenario = Scenario { workload, warmup: 3 * SECOND, ..networks::over(paths) };
    let result = run(&spec(scenario, "minrtt", "bbr"));
    let both = goodput(&result) / (3.0 * RATE as f64 * 1424.0 / 1500.0);
    assert!(both >= 0.9, "{both}\n{}", summary(&result));
}

/// Section 5.6.3: 20 Mbit/s are 2500 bytes in a millisecond, so that a quantum is two segments. cubic sends
/// what an ACK admits.
#[test]
fn what_leaves_is_paced_from_the_first_segment_on() {
    let recording = Recording { segments: true, ..Recording::default() };
    let burst = |control: &str| {
        let result = run(&RunSpec { recording, ..single(link(200, 3), 0, control) });
        let mut times: Vec<Time> = result.segments.iter().map(|segment| segment.sent).collect();
        times.sort_unstable();
        times.chunk_by(|one, other| one == other).map(<[Time]>::len).max()
    };
    // Startup paces at 2.77 times what it measures: a millisecond's worth is up to seven segments.
    assert!(burst("bbr") <= Some(7), "{:?}", burst("bbr"));
    assert!(burst("cubic") >= Some(10), "{:?}", burst("cubic"));
}

#[test]
fn a_run_repeats_exactly() {
    let mut scenario = link(100, 5);
    scenario.paths[0].down.loss = Loss::Bernoulli(0.005);
    let (one, two) = (bulk(scenario.clone(), "bbr"), bulk(scenario, "bbr"));
    assert_eq!((one.delivered_bytes, one.events), (two.delivered_bytes, two.events));
}
