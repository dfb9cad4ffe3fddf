use super::testing::{Chunks, Scene, subflow, unmeasured};
use super::*;
use crate::metrics::SubflowStatus;
use crate::testing::WithoutSender as _;

#[test]
fn room_counts_from_the_first_unassigned_byte() {
    let mut scene = Scene::new(vec![]);
    (scene.una, scene.send_window, scene.next_offset, scene.unsent) = (1000, 5000, 2000, 1);
    assert_eq!(scene.view().room(), 4000);
    assert!(scene.view().sendable() && !scene.view().blocked());
    scene.next_offset = 6000;
    assert_eq!(scene.view().room(), 0);
    assert!(!scene.view().sendable() && scene.view().blocked());
    scene.unsent = 0;
    assert!(!scene.view().blocked(), "nothing waits for the window");
    scene.next_offset = 2000;
    assert!(!scene.view().sendable(), "nothing is there");
    scene.next_offset = 7000;
    assert_eq!(scene.view().room(), 0, "a window that shrank");
}

#[test]
fn the_front_is_by_srtt_then_id_and_agrees_with_the_iterators() {
    let mut scene = Scene::new(vec![subflow(0, 20, 10, 10), subflow(1, 20, 10, 0), subflow(2, 20, 10, 0)]);
    let ids = |scene: &Scene| {
        let (view, id) = (scene.view(), |subflow: &SubflowMetrics| subflow.id.0);
        let front = view.front();
        assert_eq!(front.usable, View::fastest(view.usable()));
        assert_eq!(front.available, View::fastest(view.available()));
        (front.usable.map(id), front.available.map(id))
    };
    assert_eq!(ids(&scene), (Some(0), Some(1)));
    scene.subflows[2].rtt.smoothed -= Span::from_nanos(1);
    assert_eq!(ids(&scene), (Some(2), Some(2)));
    scene.subflows[2].backup = true;
    assert_eq!(ids(&scene), (Some(0), Some(1)));
    assert!(!scene.view().eligible(&scene.subflows[2]) && scene.view().eligible(&scene.subflows[1]));
    scene.subflows[0].state = SubflowStatus::Closed;
    scene.subflows[1].state = SubflowStatus::Handshaking;
    assert_eq!(ids(&scene), (Some(2), Some(2)), "the backup, when no other is usable");
    assert!(scene.view().eligible(&scene.subflows[2]) && !scene.view().eligible(&scene.subflows[1]));
    scene.subflows[2].state = SubflowStatus::Closing;
    assert_eq!(ids(&scene), (None, None));
}

#[test]
fn a_subflow_without_a_sample_counts_only_while_it_has_room() {
    let mut scene = Scene::new(vec![subflow(0, 20, 10, 10), unmeasured(1, 10, 9), subflow(2, 30, 10, 0)]);
    let front = |scene: &Scene| {
        let front = scene.view().front();
        (front.usable.map(|subflow| subflow.id.0), front.available.map(|subflow| subflow.id.0))
    };
    assert_eq!(front(&scene), (Some(1), Some(1)));
    scene.subflows[1].set_packets_out(10);
    assert_eq!(front(&scene), (Some(0), Some(2)));
    scene.subflows[0].rtt.smoothed = Span::ZERO;
    assert_eq!(front(&scene), (Some(2), Some(2)));
    scene.subflows.pop();
    assert_eq!(front(&scene), (None, None));
}

#[test]
fn faster_than_ignores_subflows_without_a_sample() {
    let mut scene = Scene::new(vec![subflow(0, 20, 10, 10), unmeasured(1, 10, 0), subflow(2, 30, 10, 0)]);
    scene.subflows.push(subflow(3, 29, 10, 10));
    let ids = |scene: &Scene| {
        scene.view().faster_than(&scene.subflows[2]).map(|subflow| subflow.id.0).collect::<Vec<_>>()
    };
    assert_eq!(ids(&scene), [0, 3]);
    scene.subflows[3].rtt.smoothed = scene.subflows[2].rtt.smoothed;
    assert_eq!(ids(&scene), [0]);
    scene.subflows[0].backup = true;
    assert!(ids(&scene).is_empty());
}

#[test]
fn reasons_are_built_only_when_enabled() {
    let mut off = Rationale::default();
    off.say(|| unreachable!("nobody listens"));
    assert!(!off.on());
    let mut on = Rationale::listening();
    assert!(on.on());
    on.say(|| "because".to_string());
    assert_eq!(on.take(), "because");
    assert_eq!(on.take(), "");
}

#[test]
fn metrics_are_empty_by_default() {
    assert_eq!(testing::build("minrtt").metrics(), []);
    assert_eq!(testing::build("blest").metrics(), [("lambda", 1.0)]);
    assert_eq!(testing::build("blest:linux").metrics(), [("lambda", 1.2)]);
    assert_eq!(testing::build("ecf").metrics(), [("waiting", 0.0)]);
    assert_eq!(testing::build("rtt-gate").metrics(), [("admitted", 0.0)]);
}

#[test]
fn what_is_in_flight() {
    let mut scene = Scene::new(vec![]);
    assert!(scene.chunks.is_empty());
    let chunk = Chunk { offset: 5, len: 10, carriers: 0b101, last: SubflowId(2), sent_at: Time::ZERO };
    scene.chunks = Chunks([(5, chunk)].into());
    assert!(!scene.chunks.is_empty());
    assert!(chunk.carried_by(SubflowId(0)) && !chunk.carried_by(SubflowId(1)));
    assert!(format!("{:?}", scene.view()).contains("unsent: 1000000"));
}
