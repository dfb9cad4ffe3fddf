//! Tests of the sender that look at its own state.

use super::cwnd_validation::CwndValidation;
use super::undo::Undo;
use crate::metrics::CaState;
use crate::tcp::TcpConfig;
use crate::tcp::testing::{End, MSS, plain_config, without_tlp};
use crate::testing::WithoutSender as _;
use crate::{MILLISECOND, Span, Time};

/// An end with ten segments in flight and a round-trip time of 100 ms.
fn ten_in_flight(tcp: TcpConfig) -> End {
    let mut end = End::open(tcp, 100);
    end.push(10 * MSS);
    assert_eq!(end.sent_data().len(), 10);
    end
}

fn is_app_limited(end: &End) -> bool {
    end.subflow.sender.rate.is_app_limited()
}

/// Linux's `tcp_rate_check_app_limited`: nothing to send, room in the window, and nothing lost that waits.
#[test]
fn a_sender_is_limited_by_the_application_with_an_empty_queue_room_and_nothing_to_repeat() {
    let limited = |segments: u64, unsent: u64, lost: u32| {
        let mut end = End::open(plain_config(), 100);
        end.push(segments * MSS);
        end.sent_data();
        if unsent > 0 {
            end.push(unsent);
        }
        let mut metrics = end.metrics().clone();
        metrics.set_lost_out(lost);
        end.subflow.sender.check_app_limited(&metrics);
        is_app_limited(&end)
    };
    assert!(limited(5, 0, 0));
    assert!(!limited(5, 1000, 0), "there is data");
    assert!(!limited(10, 0, 0), "the window is full");
    assert!(!limited(5, 0, 1), "something is to be sent again");
}

#[test]
fn a_fin_isnt_among_the_outstanding_ranges() {
    let mut end = End::open(plain_config(), 100);
    end.push(1500);
    end.sent_data();
    end.close();
    assert_eq!(end.sent().len(), 1, "the FIN");
    assert_eq!(end.subflow.outstanding().collect::<Vec<_>>(), [(0, 1000), (1000, 500)]);
}

#[test]
fn the_window_halves_for_each_whole_timeout_that_passed_before() {
    for (idle, cwnd) in [(199, 80), (200, 80), (201, 40), (400, 40), (401, 20), (4000, 10)] {
        let mut end = End::open(plain_config(), 100);
        end.metrics.rto = Span::from_nanos(200);
        end.metrics.set_cwnd(80);
        let mut validation = CwndValidation::default();
        validation.on_idle_restart(&mut end.split().0, Span::from_nanos(idle));
        assert_eq!(end.metrics().cwnd(), cwnd, "after {idle}");
    }
}

#[test]
fn retransmissions_of_an_earlier_episode_count_until_dsacks_report_them() {
    let mut undo = Undo::default();
    undo.begin(1000, 2);
    undo.on_dsack(2000, 1);
    assert!(!undo.all_reported());
    undo.on_dsack(3000, 1);
    assert!(undo.all_reported());
    undo.begin(1000, 0);
    undo.on_dsack(2000, 1);
    assert!(!undo.all_reported(), "nothing was sent again");
}

/// An echo of 0 isn't one, and without the option on both SYNs there is none.
#[test]
fn an_echo_gives_a_round_trip_time_only_if_it_was_negotiated_and_isnt_zero() {
    for (timestamps, echo, rtt) in
        [(true, 40, Some(60 * MILLISECOND)), (true, 0, None), (false, 40, None), (false, 0, None)]
    {
        let mut end = End::open(TcpConfig { timestamps, ..plain_config() }, 100);
        let mut segment = end.peer(ropewalk_wire::Flags::default(), 1);
        segment.timestamps = Some(ropewalk_wire::Timestamps { value: 1, echo });
        let (cx, subflow) = end.split();
        assert_eq!(super::timestamp_rtt(&subflow.common, &cx, &segment), rtt, "{timestamps} {echo}");
    }
}

/// Recovery begins, and before anything is sent again the missing data turns out to be late.
#[test]
fn a_recovery_that_sent_nothing_again_is_undone() {
    let mut end = ten_in_flight(plain_config());
    end.now = Time::ZERO + 200 * MILLISECOND;
    end.sack(1, &[(1001, 5001)]);
    assert_eq!(end.metrics().ca_state(), CaState::Recovery);
    end.ack(1 + 10 * MSS);
    assert_eq!(end.subflow.counters().full_undo, 1);
    assert!(end.metrics().cwnd() >= 10, "{}", end.metrics().cwnd());
}

/// RFC 5682 3.1, step 2.b needs new data that the peer's window admits. Without it retransmissions go on.
#[test]
fn f_rto_goes_on_with_retransmissions_when_the_peers_window_is_used_up() {
    let mut end = End::open(without_tlp(), 100);
    let mut update = end.peer(ropewalk_wire::Flags::default(), 1);
    update.window = 10_000;
    end.receive(update);
    end.push(20 * MSS);
    let again = end.wait(410);
    assert_eq!((again.len(), again.last().map(|(_, sent)| sent.segment.seq.0)), (11, Some(1)));
    let mut first = end.peer(ropewalk_wire::Flags::default(), 1001);
    first.window = 9000;
    end.receive(first);
    assert_eq!(end.sent_data().first(), Some(&(1001, 1000)));
}

/// Without SACK a duplicate ACK after a timeout stands for a delivered segment only once new data was sent
/// (Linux's `tcp_process_loss`).
#[test]
fn duplicates_after_a_timeout_count_only_beyond_the_recovery_point() {
    let mut end = End::open(TcpConfig { sack: false, ..without_tlp() }, 100);
    end.push(MSS);
    end.sent_data();
    end.now = Time::ZERO + 200 * MILLISECOND;
    end.ack(1001);
    end.push(5 * MSS);
    end.wait(450);
    end.push(3 * MSS);
    end.wait(510);
    assert_eq!((end.metrics().ca_state(), end.metrics().lost_out()), (CaState::Loss, 8));
    end.ack(1001);
    assert_eq!(end.metrics().sacked_out(), 0);
}

/// The pacing rate follows the window with each ACK that delivers something.
#[test]
fn an_ack_that_delivers_updates_the_pacing_rate() {
    let mut end = ten_in_flight(plain_config());
    let before = end.metrics().rate.pacing;
    end.now = Time::ZERO + 200 * MILLISECOND;
    end.ack(1 + 5 * MSS);
    assert!(end.metrics().rate.pacing > before, "{} {before}", end.metrics().rate.pacing);
}
