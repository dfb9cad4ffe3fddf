//! What the features `serde` and `qlog` add.

#[cfg(feature = "qlog")]
mod common;
// The documentation of `qlog` shows it.
#[cfg(feature = "qlog")]
#[path = "../examples/qlog.rs"]
mod example;

// `qlog` brings the JSON.
#[cfg(all(feature = "serde", feature = "qlog"))]
mod serialised {
    use ropewalk_engine::{CloseReason, ConnectionConfig, EndpointConfig, Event, ResetReason, Span};

    #[test]
    fn settings_come_back_and_may_be_left_out() {
        let mut config = ConnectionConfig::with_algorithms("ecf(beta=0.5)", "olia").expect("known");
        config.tcp.user_timeout = Some(Span::from_nanos(5));
        let text = serde_json::to_string(&config).expect("serialised");
        let back: ConnectionConfig = serde_json::from_str(&text).expect("as it was written");
        assert_eq!((back.scheduler.text, back.congestion.text), (config.scheduler.text, "olia".to_string()));
        assert_eq!((back.tcp, back.send_buffer), (config.tcp, config.send_buffer));
        let partial: ConnectionConfig =
            serde_json::from_str(r#"{ "tcp": { "nagle": true }, "scheduler": "blest" }"#)
                .expect("the rest is default");
        assert!(partial.tcp.nagle && partial.tcp.sack && partial.scheduler.text == "blest");
        let unknown = serde_json::from_str::<ConnectionConfig>(r#"{ "scheduler": "fastest" }"#);
        assert!(unknown.expect_err("no such scheduler").to_string().contains("known: minrtt"));
        let limits: EndpointConfig =
            serde_json::from_str(r#"{ "backlog": 3 }"#).expect("the rest is default");
        assert_eq!(limits, EndpointConfig { backlog: 3, ..EndpointConfig::default() });
    }

    #[test]
    fn events_come_back() {
        let reason = CloseReason::ResetByPeer(Some(ResetReason::Other(77)));
        let event = Event::Reset { reason };
        let text = serde_json::to_string(&event).expect("serialised");
        assert_eq!(serde_json::from_str::<Event>(&text).expect("as it was written"), event);
    }
}

#[cfg(feature = "qlog")]
mod logged {
    use ropewalk_engine::qlog::{Log, Vantage};
    use serde_json::Value;

    use super::common::{Net, PathScript};

    #[test]
    fn the_documentations_example_runs() {
        super::example::main().expect("its own assertions");
    }

    #[test]
    fn a_transfer_is_a_sequence_of_records() {
        let paths = vec![PathScript::clean(10), PathScript::clean(15)];
        let mut net = Net::new("minrtt", "lia", paths);
        let segments = net.log();
        net.transfer_some(20_000);
        net.pass(300);
        let mut log = Log::new(Vec::new(), "two paths", Vantage::Client).expect("memory");
        for (from, segment) in segments.borrow().iter() {
            let told = if *from == 0 {
                log.sent(net.now, ropewalk_engine::PathId(0), segment)
            } else {
                log.received(net.now, ropewalk_engine::PathId(0), segment)
            };
            told.expect("memory");
        }
        for (_, event) in net.events.iter().filter(|(end, _)| *end == 0) {
            log.event(net.now, net.client, event).expect("memory");
        }
        let connection = net.ends[0].connection(net.client).expect("open");
        log.metrics(net.now, net.client, connection).expect("memory");
        let text = String::from_utf8(log.into_inner().expect("memory")).expect("text");
        let records: Vec<Value> = text
            .split_terminator('\n')
            .map(|line| serde_json::from_str(line.strip_prefix('\u{1e}').expect("RFC 7464")).expect("JSON"))
            .collect();
        assert_eq!(records[0]["serialization_format"], "application/qlog+json-seq");
        assert_eq!(records[0]["trace"]["vantage_point"]["type"], "client");
        // Every event is of the one schema that the header names.
        let schemas = serde_json::json!(["urn:ropewalk:qlog:events:mptcp"]);
        assert_eq!(records[0]["trace"]["event_schemas"], schemas);
        for record in &records[1..] {
            assert!(record["name"].as_str().expect("a name").starts_with("mptcp:"), "{record}");
            assert!(record["time"].is_f64() && record["data"].is_object(), "{record}");
        }
        let names = |name: &str| records.iter().filter(|record| record["name"] == name).count();
        assert_eq!(names("mptcp:segment_sent") + names("mptcp:segment_received"), segments.borrow().len());
        assert_eq!((names("mptcp:subflow_added"), names("mptcp:metrics_updated")), (1, 2));
        let sent: u64 = records
            .iter()
            .filter(|record| record["name"] == "mptcp:segment_sent")
            .filter_map(|record| record["data"]["raw"]["payload_length"].as_u64())
            .sum();
        assert_eq!(sent, 20_000);
        let metrics = records.last().expect("some");
        assert!(
            metrics["data"]["smoothed_rtt"].as_f64().is_some_and(|rtt| (29.0..32.0).contains(&rtt)),
            "{metrics}"
        );
    }
}
