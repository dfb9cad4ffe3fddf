use super::super::testing::{MSS, Pipe, Scene, build, run, subflow, unmeasured};
use super::*;
use crate::testing::WithoutSender as _;
use crate::{MILLISECOND, SubflowId};

fn chunk(offset: u64, by: u8, sent_at: Time) -> (u64, Chunk) {
    (offset, Chunk { offset, len: MSS, carriers: 1 << by, last: SubflowId(by), sent_at })
}

fn repeats(subflow: u8, offset: u64, purpose: Purpose) -> Decision {
    Decision::Duplicate { subflow: SubflowId(subflow), offset, purpose }
}

/// A fast subflow that is full and a slow one with room, at 100 ms; the fast one's window left at 95 ms.
fn fast_full() -> Scene {
    let mut scene = Scene::new(vec![subflow(0, 10, 10, 10), subflow(1, 100, 10, 0)]);
    scene.now = Time::ZERO + 100 * MILLISECOND;
    scene.subflows[0].last_progress = Time::ZERO + 95 * MILLISECOND;
    scene.subflows[0].set_ssthresh(10);
    scene
}

#[test]
fn a_link_of_unknown_rate_is_taken_to_send_ten_segments_in_a_round_trip() {
    let (path, mut subflow) = (Path::new(), subflow(0, 20, 10, 10));
    assert_eq!(path.cost(&subflow) * f64::from(MSS), 2e6);
    subflow.rate.link_byte_time = 1e3;
    assert_eq!(path.cost(&subflow) * f64::from(MSS), 1e6, "a segment per millisecond");
}

#[test]
fn a_segment_waits_for_those_before_it() {
    let mut path = Path::new();
    let mut subflow = subflow(0, 20, 40, 0);
    subflow.rate.link_byte_time = 1e3;
    let now = Time::ZERO + 200 * MILLISECOND;
    assert_eq!(path.arrival(&subflow, now), 11e6, "half a round trip, and its own time on the link");
    path.on_new(&subflow, now);
    subflow.set_packets_out(1);
    assert_eq!(path.arrival(&subflow, now), 12e6, "after the one before it");
    assert_eq!(path.arrival(&subflow, now + MILLISECOND), 11e6);
    // 39 in flight are 19 more than a round trip without a queue holds.
    subflow.set_packets_out(39);
    assert_eq!(path.arrival(&subflow, now + 5 * MILLISECOND), 30e6);
}

#[test]
fn a_lone_subflow_gets_a_sixteenth_of_its_window_at_once() {
    let scheduler = &mut *build("ropewalk");
    for (window, segments) in [(10, 1), (40, 2), (800, 50)] {
        let mut scene = Scene::new(vec![subflow(0, 20, window, 0)]);
        scene.unsent = 1_000_000;
        let all = Decision::Send { subflow: SubflowId(0), bytes: segments * MSS };
        assert_eq!(scene.ask(scheduler), all);
        scene.subflows.push(subflow(1, 40, window, 0));
        let one = Decision::Send { subflow: SubflowId(0), bytes: MSS };
        assert_eq!(scene.ask(&mut *build("ropewalk")), one, "there is a choice");
    }
}

#[test]
fn a_segment_goes_where_it_arrives_first() {
    let scheduler = &mut *build("ropewalk");
    let mut scene = Scene::new(vec![subflow(0, 30, 10, 0), subflow(1, 20, 10, 0)]);
    assert_eq!(scene.chosen(scheduler), Some(1));
    scene.subflows[1].backup = true;
    assert_eq!(scene.chosen(scheduler), Some(0), "a backup waits");
}

#[test]
fn the_slow_subflow_gets_what_lies_ahead_or_nothing() {
    let mut scene = fast_full();
    let decision = scene.ask(&mut *build("ropewalk"));
    let Decision::SendAt { subflow: SubflowId(1), offset, .. } = decision else { panic!("{decision:?}") };
    // The fast one delivers some windows of 10 segments in 50 ms.
    assert!((20_000..60_000).contains(&offset), "{offset}");
    scene.unsent = offset * 3 / 4;
    assert_eq!(scene.ask(&mut *build("ropewalk")), Decision::Wait { until: None });
    let reason = scene.reason(&mut *build("ropewalk"));
    assert!(reason.starts_with("wait for {subflow 0}"), "{reason}");
    scene.writer_waits = true;
    assert_eq!(scene.chosen(&mut *build("ropewalk")), Some(1), "more is to come");
    scene.writer_waits = false;
    scene.unsent = 1_000_000;
    scene.send_window = 5_000;
    scene.now = Time::ZERO + 1000 * MILLISECOND;
    scene.subflows[0].last_progress = Time::ZERO + 995 * MILLISECOND;
    let window = &mut *build("ropewalk(grow=false)");
    assert_eq!(scene.ask(window), Decision::Wait { until: None }, "the window would be blocked");
}

#[test]
fn cfs_2019_figure_3_ends_as_early_as_with_cfs() {
    let pipes = [Pipe::new(10, 10), Pipe::new(100, 10)];
    let done = run("ropewalk", &pipes, 30);
    assert!(done.completed.unwrap() <= Time::ZERO + 25 * MILLISECOND, "{:?}", done.completed);
}

fn tail() -> Scene {
    let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), subflow(1, 100, 10, 3)]);
    (scene.unsent, scene.next_offset, scene.now) = (0, 30_000, Time::ZERO + 100 * MILLISECOND);
    scene.subflows[1].last_progress = Time::ZERO + 95 * MILLISECOND;
    scene
        .chunks
        .0
        .extend([10_000, 20_000, 21_000].map(|offset| chunk(offset, 1, Time::ZERO + 90 * MILLISECOND)));
    scene.una = 10_000;
    scene
}

#[test]
fn at_the_tail_the_last_is_repeated_first() {
    let scheduler = &mut *build("ropewalk");
    let mut scene = tail();
    for offset in [21_000, 20_000] {
        assert_eq!(scene.ask(scheduler), repeats(0, offset, Purpose::Redundant));
        scene.chunks.0.get_mut(&offset).unwrap().carriers |= 1;
    }
    // A third of the 30,000 bytes written is the limit.
    assert_eq!(scene.ask(&mut *build("ropewalk(repeat=0)")), repeats(0, 10_000, Purpose::Redundant));
    let none = &mut *build("ropewalk(steal=false)");
    assert!(matches!(scene.ask(none), Decision::Wait { until: Some(_) }));
}

/// Three segments in flight on a link of unknown rate may take three round trips.
#[test]
fn a_link_of_unknown_rate_is_doubted_at_the_tail() {
    let mut scene = tail();
    scene.subflows = vec![subflow(0, 300, 10, 0), subflow(1, 100, 3, 3)];
    scene.subflows[1].last_progress = Time::ZERO + 95 * MILLISECOND;
    assert_eq!(scene.ask(&mut *build("ropewalk")), repeats(0, 21_000, Purpose::Redundant));
    assert!(matches!(scene.ask(&mut *build("ropewalk(doubt=false)")), Decision::Wait { .. }));
}

#[test]
fn a_late_head_is_repeated_and_before_that_awaited() {
    let scheduler = &mut *build("ropewalk(steal=false)");
    let mut scene = tail();
    scene.subflows[1].rtt.var = 5 * MILLISECOND;
    let due = Time::ZERO + (90 + 100 + 20) * MILLISECOND;
    // Without a hole it may wait in a queue, until 120 ms after the last that came back.
    scene.subflows[1].last_progress = Time::ZERO + 100 * MILLISECOND;
    let silent = Time::ZERO + 220 * MILLISECOND;
    assert_eq!(scene.ask(scheduler), Decision::Wait { until: Some(silent) });
    scene.subflows[1].set_sacked_out(1);
    assert_eq!(scene.ask(scheduler), Decision::Wait { until: Some(due) });
    scene.now = due;
    scene.subflows[1].last_progress = due - MILLISECOND;
    assert_eq!(scene.ask(scheduler), repeats(0, 10_000, Purpose::Opportunistic));
    // As the engine notes it: the copy's subflow is then the last that carries the head.
    let head = scene.chunks.0.get_mut(&10_000).unwrap();
    (head.carriers, head.last, head.sent_at) = (0b11, SubflowId(0), due);
    assert!(matches!(scene.ask(scheduler), Decision::Wait { .. }), "the others are under way");
    // Silence: all that it carries.
    scene.subflows[1].last_progress = Time::ZERO;
    assert_eq!(scene.ask(scheduler), repeats(0, 20_000, Purpose::Opportunistic));
}

#[test]
fn what_could_not_be_sent_ahead_is_not_tried_again() {
    let scheduler = &mut *build("ropewalk");
    let mut scene = fast_full();
    let ahead = scene.ask(scheduler);
    assert!(matches!(ahead, Decision::SendAt { .. }), "{ahead:?}");
    assert_eq!(scene.ask(scheduler), Decision::Wait { until: None }, "nothing was unsent from there on");
    scene.now += MILLISECOND;
    scene.unsent -= u64::from(MSS);
    assert!(matches!(scene.ask(scheduler), Decision::SendAt { .. }));
}

#[test]
fn a_silent_subflow_gets_nothing_new() {
    let scheduler = &mut *build("ropewalk(late=false)");
    let mut scene = Scene::new(vec![subflow(0, 10, 10, 3), subflow(1, 100, 10, 0)]);
    scene.now = Time::ZERO + 500 * MILLISECOND;
    scene.subflows[0].last_progress = Time::ZERO + 400 * MILLISECOND;
    scene.subflows[0].rtt.var = MILLISECOND;
    assert_eq!(scene.chosen(scheduler), Some(1));
    assert_eq!(scene.chosen(&mut *build("ropewalk(silent=false, late=false)")), Some(0));
    scene.subflows[1].set_packets_out(10);
    scene.subflows[1].last_progress = Time::ZERO + 480 * MILLISECOND;
    assert_eq!(scene.chosen(scheduler), None, "the other is worth the wait");
}

#[test]
fn a_subflow_without_a_sample_gets_one() {
    let scheduler = &mut *build("ropewalk");
    let mut scene = Scene::new(vec![subflow(0, 10, 10, 0), unmeasured(1, 10, 0)]);
    assert_eq!(scene.chosen(scheduler), Some(1));
    scene.subflows[1].set_packets_out(1);
    assert_eq!(scene.chosen(scheduler), Some(0));
    scene.subflows[0] = unmeasured(0, 10, 1);
    assert!(scene.chosen(scheduler).is_some(), "none has a sample");
}

#[test]
fn what_a_subflow_without_a_sample_carries_is_repeated_at_the_tail() {
    let mut scene = tail();
    scene.subflows[1] = unmeasured(1, 10, 1);
    scene.subflows[1].last_progress = Time::ZERO + 100 * MILLISECOND;
    scene.una = 21_000;
    scene.chunks.0.retain(|offset, _| *offset == 21_000);
    scene.chunks.0.get_mut(&21_000).unwrap().sent_at = Time::ZERO + 100 * MILLISECOND;
    assert_eq!(scene.ask(&mut *build("ropewalk(late=false)")), repeats(0, 21_000, Purpose::Redundant));
}
