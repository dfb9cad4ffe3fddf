//! Recordings as scenario files.

use super::*;

fn direction(bits_per_s: Vec<u64>, is_full: impl Fn(usize) -> bool) -> RecordedDirection {
    let full = bits_per_s.iter().enumerate().map(|(at, rate)| is_full(at).then_some(*rate));
    RecordedDirection { full_bits_per_s: full.collect(), bits_per_s, packets: Vec::new() }
}

fn link(down: RecordedDirection) -> RecordedLink {
    let seconds = down.bits_per_s.len();
    RecordedLink {
        interface: "wlan0".into(),
        up: direction(vec![1000; seconds], |_| false),
        rtt_s: vec![Some(0.02); seconds],
        loaded_rtt_s: vec![None; seconds],
        probes: vec![(1, 0); seconds],
        down,
        ..RecordedLink::default()
    }
}

fn told(link: RecordedLink) -> Told {
    let seconds = link.down.bits_per_s.len();
    Recording { seconds, links: vec![link], flows: Vec::new() }.to_scenario("x").unwrap()
}

#[test]
fn a_rate_is_what_a_full_link_carried() {
    let mut carried = vec![3_000_000; 20];
    carried.extend([10_000_000; 20]);
    carried.extend([5_000_000; 30]);
    carried.extend([4_000_000; 20]);
    // Full at 10 Mbit/s, then paced by whoever sent, then full at 4 Mbit/s.
    let rates = Rates::of(&direction(carried, |at| (20..40).contains(&at) || at >= 70)).unwrap();
    let at = |at: usize| rates.bits_per_s[at];
    assert_eq!((at(0), at(30), at(60), at(89)), (10_000_000, 10_000_000, 10_000_000, 4_000_000));
    assert_eq!(rates.full, 40);
    // More than a full link carries is news.
    let mut faster = vec![10_000_000; 5];
    faster.push(15_000_000);
    assert_eq!(Rates::of(&direction(faster, |at| at < 5)).unwrap().bits_per_s[5], 15_000_000);
}

#[test]
fn the_rate_of_a_link_that_was_never_full_is_at_least_what_it_carried() {
    let mut carried = vec![0; 20];
    carried.extend([10_008_530; 20]);
    carried.extend([50_000; 30]);
    carried.extend([4_000_000; 20]);
    let never = |carried: Vec<u64>| direction(carried, |_| false);
    let rates = Rates::of(&never(carried.clone())).unwrap();
    let at = |at: usize| rates.bits_per_s[at];
    assert_eq!((at(0), at(60), at(89), rates.full), (10_008_530, 10_008_530, 4_000_000, 0));
    let told = told(link(never(carried)));
    assert_eq!(told.at_least, [("wlan0".to_string(), "10 Mbit/s".to_string())]);
    assert!(told.text.contains("# At least this rate"), "{}", told.text);
    assert!(Rates::of(&never(vec![50_000; 30])).is_none());
    // A link that stands by: handshakes.
    assert!(Rates::of(&never(vec![0, 0, 332_000, 190_000, 0])).is_none());
}

#[test]
fn delays_are_those_without_a_queue_and_queues_are_told() {
    let mut one = link(direction(vec![8_000_000; 20], |at| (5..15).contains(&at)));
    // A queue, and another way of the packets afterwards.
    one.rtt_s[5..15].fill(None);
    one.loaded_rtt_s[5..15].fill(Some(0.22));
    one.rtt_s[15..].fill(Some(0.06));
    let text = told(one).text;
    assert!(text.contains("delay = \"10 ms\"") && text.contains("at = \"15 s\""), "{text}");
    assert!(!text.contains("75 ms") && text.contains("delay = \"30 ms\" }"), "{text}");
    // 220 ms and a tenth more, in the direction that was full.
    let (up, down) = text.split_once("[path.down]").unwrap();
    assert!(down.contains("queue = \"220 ms\"") && !up.contains("queue = "), "{text}");
}

#[test]
fn a_pause_is_a_change_over_time_and_no_jitter() {
    let mut one = link(direction(vec![8_000_000; 20], |_| true));
    one.pauses = vec![Period { start_s: 7.25, seconds: 0.4 }, Period { start_s: 9.0, seconds: 0.05 }];
    let text = told(one).text;
    for needed in [
        "delay = \"10 ms +-10 us\"",
        "{ at = \"7.25 s\", every = \"20 s\", delay = \"410 ms\" }",
        "{ at = \"7.45 s\", every = \"20 s\", delay = \"210 ms\" }",
        "{ at = \"7.65 s\", every = \"20 s\", delay = \"10 ms\" }",
    ] {
        assert!(text.contains(needed), "no {needed} in {text}");
    }
    assert!(!text.contains("at = \"9"), "{text}");
}

#[test]
fn few_lost_probes_are_no_loss() {
    let mut one = link(direction(vec![8_000_000; 50], |_| true));
    one.probes[7] = (0, 2);
    assert!(!told(one.clone()).text.contains("loss = "));
    // 4 of 100 both ways.
    one.probes = vec![(2, 0); 48];
    one.probes.extend([(0, 2); 2]);
    let text = told(one).text;
    assert_eq!(text.matches("loss = \"2.02 %\"").count(), 2, "{text}");
}

#[test]
fn losses_are_those_of_data_each_way_and_else_of_probes() {
    let mut one = link(direction(vec![8_000_000; 50], |_| true));
    one.down.packets = vec![(100, 1); 50];
    one.up.packets = vec![(10, 1); 50];
    one.probes = vec![(2, 0); 50];
    let text = told(one.clone()).text;
    let (up, down) = text.split_once("[path.down]").unwrap();
    assert!(down.contains("loss = \"1 %\"") && !up.contains("loss = "), "{text}");
    // Two of very many may be chance.
    one.down.packets = vec![(1000, 0); 50];
    one.down.packets[3].1 = 2;
    assert!(!told(one).text.contains("loss = "));
}

#[test]
fn an_outage_begins_and_ends_when_it_did() {
    let changes = |outages: &[(f64, f64)]| {
        let mut one = link(direction(vec![8_000_000; 20], |_| true));
        one.outages = outages
            .iter()
            .map(|(start_s, seconds)| Period { start_s: *start_s, seconds: *seconds })
            .collect();
        let text = told(one).text;
        let lines = text.split("[path.down]").nth(1).unwrap().lines().filter(|line| line.contains("link ="));
        lines.map(|line| line.trim().replace(", every = \"20 s\"", "")).collect::<Vec<_>>()
    };
    assert_eq!(
        changes(&[(3.25, 2.5)]),
        ["{ at = \"3.25 s\", link = \"down\" },", "{ at = \"5.75 s\", link = \"up\" },"]
    );
    // One that lasts until the end ends with it, unless the recording begins with another.
    assert_eq!(
        changes(&[(17.0, 3.5)]),
        ["{ at = \"0 ms\", link = \"up\" },", "{ at = \"17 s\", link = \"down\" },"]
    );
    assert_eq!(
        changes(&[(0.0, 1.0), (17.0, 3.0)]),
        [
            "{ at = \"0 ms\", link = \"down\" },",
            "{ at = \"1 s\", link = \"up\" },",
            "{ at = \"17 s\", link = \"down\" },"
        ]
    );
}

#[test]
fn the_last_seconds_are_cut_out() {
    let flow = |start_s| RecordedFlow {
        start_s,
        seconds: 1.0,
        bytes_down: 1,
        bytes_up: 1,
        scheduler: "linux".into(),
    };
    let mut one = link(direction((0..10).collect(), |at| at == 9));
    let pause = |start_s| Period { start_s, seconds: 0.25 };
    one.pauses = vec![pause(3.0), pause(8.5)];
    let recording = Recording { seconds: 10, links: vec![one], flows: vec![flow(2.0), flow(8.0)] };
    let last = recording.last(3);
    assert_eq!((last.seconds, &last.links[0].down.bits_per_s), (3, &vec![7, 8, 9]));
    assert_eq!(last.links[0].down.full_bits_per_s, [None, None, Some(9)]);
    assert_eq!((last.links[0].pauses[0], last.links[0].pauses.len()), (pause(1.5), 1));
    assert_eq!(last.flows, [flow(1.0)]);
}

#[test]
fn without_traffic_there_is_no_scenario() {
    assert_eq!(Recording::default().to_scenario("x"), Err(RecordError::Short(0)));
    let idle = link(direction(vec![0; 9], |_| false));
    let idle = Recording { seconds: 9, links: vec![idle], flows: Vec::new() };
    assert_eq!(idle.to_scenario("x"), Err(RecordError::Idle));
}
