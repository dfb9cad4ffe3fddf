//! Handshakes whose third ACK is lost or reordered (RFC 8684 3.1, 3.2): the connection stays Multipath TCP,
//! its second subflow joins, and no byte is lost.

use crate::common;

use common::{Net, PathScript, bytes};
use ropewalk_engine::mptcp::Event;
use ropewalk_wire::Flags;

fn reordering() -> PathScript {
    PathScript { reorder: 1.0, ..PathScript::clean(10) }
}

fn close(mut net: Net) {
    net.ends[0].shutdown(net.now, net.client);
    net.finish();
}

fn assert_multipath(net: &Net, subflows: usize, case: &str) {
    let fallbacks: Vec<_> =
        net.events.iter().filter(|(_, event)| matches!(event, Event::Fallback(_))).collect();
    assert!(net.client_multipath(), "{case}: {fallbacks:?}");
    let server = net.server.and_then(|id| net.ends[1].connection(id)).expect("the server's connection");
    assert!(server.is_multipath(), "{case}");
    for end in 0..2 {
        let added = net
            .events
            .iter()
            .filter(|(at, event)| *at == end && matches!(event, Event::SubflowAdded { .. }))
            .count();
        assert_eq!(added + 1, subflows, "{case}, end {end}: {:?}", net.events);
    }
}

#[test]
fn any_reordering_of_the_handshake_keeps_multipath() {
    for seed in 0..60 {
        for replies in [false, true] {
            let mut net = Net::new("minrtt", "cubic", vec![reordering(), reordering()]);
            net.seed(seed);
            net.transfer_some(200_000);
            if replies {
                net.reply(bytes(9, 100_000));
            }
            assert_multipath(&net, 2, &format!("seed {seed}, replies {replies}"));
            close(net);
        }
    }
}

#[test]
fn the_third_ack_and_any_of_the_first_data_packets_are_lost() {
    for lost in 0_u32..64 {
        let mut net = Net::new("minrtt", "cubic", vec![PathScript::clean(10); 2]);
        let mut seen = 0;
        net.tamper = Some(Box::new(move |from, segment| {
            if from != 0 || segment.flags.contains(Flags::SYN) {
                return true;
            }
            seen += 1;
            seen > 6 || lost >> (seen - 1) & 1 == 0
        }));
        net.transfer_some(200_000);
        assert_multipath(&net, 2, &format!("lost {lost:06b}"));
        close(net);
    }
}
