//! The counters by the kernel's names, and algorithms that are replaced before the first data.

use crate::common;

use common::{Net, PathScript};
use ropewalk_engine::{Span, Time, congestion, scheduler};

fn counter(net: &Net, end: usize, name: &str) -> u64 {
    let list = net.ends[end].mib();
    list.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name} in {list:?}")).1
}

#[test]
fn both_ends_count_what_happened_and_keep_it_when_the_connection_is_forgotten() {
    let mut paths = vec![PathScript::clean(10), PathScript::clean(30)];
    paths[0].loss = 0.02;
    let mut net = Net::new("roundrobin", "lia", paths);
    net.transfer(500_000);
    assert_eq!([0, 1].map(|end| counter(&net, end, "MPTcpExtMPCurrEstab")), [1, 1]);
    net.finish();
    // TIME-WAIT's end.
    let limit = net.now + Span::from_secs(600);
    assert!(net.run(limit, |net| net.ends.iter().all(|end| end.is_empty())));
    let expected = [
        [
            "MPTcpExtMPCapableSYNTX",
            "MPTcpExtMPCapableSYNACKRX",
            "MPTcpExtMPJoinSynTx",
            "MPTcpExtMPJoinSynAckRx",
        ],
        ["MPTcpExtMPCapableSYNRX", "MPTcpExtMPCapableACKRX", "MPTcpExtMPJoinSynRx", "MPTcpExtMPJoinAckRx"],
    ];
    for (end, names) in expected.into_iter().enumerate() {
        for name in names {
            assert_eq!(
                (counter(&net, end, name), counter(&net, 1 - end, name)),
                (1, 0),
                "{name} of end {end}"
            );
        }
    }
    assert_eq!((counter(&net, 0, "TcpActiveOpens"), counter(&net, 1, "TcpPassiveOpens")), (2, 2));
    assert!(counter(&net, 0, "TcpRetransSegs") > 0 && counter(&net, 0, "TcpOutSegs") > 300);
    for end in 0..2 {
        for quiet in ["MPTcpExtMPCurrEstab", "MPTcpExtMPFastcloseTx", "MPTcpExtDataCsumErr", "TcpOutRsts"] {
            assert_eq!(counter(&net, end, quiet), 0, "{quiet}");
        }
        let list = net.ends[end].mib();
        assert!(list.is_sorted() && list.windows(2).all(|pair| pair[0].0 != pair[1].0), "{list:?}");
    }
}

#[test]
fn a_fallback_and_a_fastclose_are_counted() {
    let mut path = PathScript::clean(10);
    path.strip_from = Some(0);
    let mut net = Net::new("minrtt", "lia", vec![path]);
    net.transfer(50_000);
    assert_eq!(counter(&net, 0, "MPTcpExtMPCapableFallbackSYNACK"), 1);
    let mut net = Net::new("minrtt", "lia", vec![PathScript::clean(10)]);
    net.transfer_some(50_000);
    net.ends[0].abort(net.now, net.client);
    let limit = net.now + Span::from_secs(10);
    net.run(limit, |net| counter(net, 1, "MPTcpExtMPFastcloseRx") > 0);
    assert_eq!(
        (counter(&net, 0, "MPTcpExtMPFastcloseTx"), counter(&net, 1, "MPTcpExtMPFastcloseRx")),
        (1, 1)
    );
}

#[test]
fn algorithms_can_be_replaced_before_the_first_data() {
    let used = |replace: bool| {
        let mut net = Net::new("single(path=0)", "reno", vec![PathScript::clean(10), PathScript::clean(10)]);
        let limit = Time::from_nanos(1_000_000_000);
        net.run(limit, |net| net.server.is_some());
        // The first DSS, after which the client joins.
        net.reply(common::bytes(5, 1));
        net.run(limit, |net| {
            net.ends[0].connection(net.client).is_some_and(|c| c.subflow_metrics().len() == 2)
        });
        if replace {
            let scheduler = scheduler::builtin().parse("roundrobin").unwrap();
            let congestion = congestion::builtin().parse("olia").unwrap();
            net.ends[0].set_algorithms(net.now, net.client, Some(&scheduler), Some(&congestion));
        }
        net.transfer(300_000);
        let used = net.bytes_by_subflow();
        net.finish();
        used
    };
    assert_eq!(used(false)[1], 0);
    assert!(used(true)[1] > 50_000);
}
