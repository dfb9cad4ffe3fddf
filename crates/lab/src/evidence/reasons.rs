//! Comments of packets: the decision that sent it, its reason, and how long the scheduler had waited before.

use std::collections::BTreeMap;

use ropewalk_engine::scheduler::Decision;
use ropewalk_evidence::Path;
use ropewalk_sim::{DecisionTrace, RunResult, Transmission};

/// A decision as a phrase; `path` is the name of the path concerned.
pub fn phrase(decision: &DecisionTrace, path: Option<&str>) -> String {
    let path = path.unwrap_or("?");
    let (from, to) = (decision.offset, decision.offset + u64::from(decision.bytes));
    match decision.decision {
        Decision::Send { .. } | Decision::SendAt { .. } => format!("send {from}..{to} on {path}"),
        Decision::Queue { .. } => format!("queue {from}..{to} on {path}"),
        Decision::Duplicate { .. } => format!("duplicate {from}..{to} on {path}"),
        Decision::Withdraw { .. } => format!("withdraw what waits on {path}"),
        _ => decision.decision.name().into(),
    }
}

/// The key of a decision: connection, path, whether it repeats data, stream offset.
type DecisionKey = (u32, u16, bool, u64);

/// A decision that sent data, and the first of the waits before it.
struct SendDecision<'a> {
    decision: &'a DecisionTrace,
    waited: Option<&'a DecisionTrace>,
}

/// The comment of each segment of the result's traces, by index.
pub(super) fn comments(result: &RunResult, paths: &[Path]) -> Vec<String> {
    let mut made: BTreeMap<DecisionKey, Vec<SendDecision<'_>>> = BTreeMap::new();
    let mut waits: BTreeMap<u32, &DecisionTrace> = BTreeMap::new();
    for decision in &result.decisions {
        if matches!(decision.decision, Decision::Wait { .. }) {
            waits.entry(decision.connection).or_insert(decision);
            continue;
        }
        let Some(path) = decision.path else { continue };
        if matches!(decision.decision, Decision::Withdraw { .. }) {
            continue;
        }
        let repeats = matches!(decision.decision, Decision::Duplicate { .. });
        let waited = waits.remove(&decision.connection);
        let key = (decision.connection, path, repeats, decision.offset);
        made.entry(key).or_default().push(SendDecision { decision, waited });
    }
    let name = |path: u16| paths.get(usize::from(path)).map(|path| path.name.as_str());
    let comment = |segment: &ropewalk_sim::SegmentTrace| {
        let repeats = match segment.transmission {
            Transmission::New => false,
            Transmission::Duplicated => true,
            Transmission::Retransmitted => return "retransmitted on the same subflow".into(),
            Transmission::Reinjected => return "reinjected: another subflow carried it and failed to".into(),
        };
        let key = |offset| (segment.connection, segment.path, repeats, offset);
        let found = made.range(key(0)..=key(segment.offset)).next_back().and_then(|(_, decisions)| {
            let mut before = decisions.iter().filter(|made| made.decision.at <= segment.sent);
            before.next_back().or(decisions.first())
        });
        match found {
            Some(found) if segment.offset < found.decision.offset + u64::from(found.decision.bytes) => {
                describe(found, name(segment.path))
            }
            _ if repeats => "duplicated by the scheduler or by opportunistic retransmission".into(),
            _ => "new data".into(),
        }
    };
    result.segments.iter().map(comment).collect()
}

fn describe(made: &SendDecision<'_>, path: Option<&str>) -> String {
    let decision = made.decision;
    let mut text = String::new();
    if let Some(wait) = made.waited {
        let waited = decision.at.saturating_sub(wait.at).as_millis_f64();
        text = format!("waited {waited:.1} ms{}; ", because(&wait.reason));
    }
    text + &phrase(decision, path) + &because(&decision.reason)
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::{Span, SubflowId, Time};
    use ropewalk_sim::{Outcome, SegmentTrace};

    use super::*;

    fn result(decisions: Vec<DecisionTrace>, segments: Vec<SegmentTrace>) -> RunResult {
        RunResult { segments, decisions, ..RunResult::new(Outcome::Complete) }
    }

    #[test]
    fn a_segment_finds_the_decision_that_sent_it() {
        let trace = |at, decision, path, offset, bytes, reason: &str| DecisionTrace {
            at,
            connection: 0,
            decision,
            path,
            offset,
            bytes,
            reason: reason.into(),
        };
        let subflow = SubflowId(1);
        let send = Decision::Send { subflow, bytes: 3000 };
        let decisions = vec![
            trace(
                Time::ZERO + Span::from_millis(1),
                Decision::Wait { until: None },
                None,
                0,
                0,
                "lte would be late",
            ),
            trace(Time::ZERO + Span::from_millis(2), Decision::Wait { until: None }, None, 0, 0, "still"),
            trace(Time::ZERO + Span::from_millis(4), send, Some(1), 0, 3000, "wifi is free"),
            trace(Time::ZERO + Span::from_millis(5), send, Some(0), 3000, 1000, ""),
        ];
        let segment = |path, offset, transmission| SegmentTrace {
            connection: 0,
            path,
            offset,
            len: 1000,
            sent: Time::ZERO + Span::from_millis(6),
            arrived: None,
            acked: None,
            transmission,
        };
        let segments = vec![
            segment(1, 2000, Transmission::New),
            segment(0, 3000, Transmission::New),
            segment(0, 4000, Transmission::New),
            segment(1, 2000, Transmission::Retransmitted),
            segment(0, 0, Transmission::Duplicated),
        ];
        let path = |name: &str| Path { name: name.into(), description: String::new() };
        assert_eq!(
            comments(&result(decisions, segments), &[path("lte"), path("wifi")]),
            [
                "waited 3.0 ms: lte would be late; send 0..3000 on wifi: wifi is free",
                "send 3000..4000 on lte",
                "new data",
                "retransmitted on the same subflow",
                "duplicated by the scheduler or by opportunistic retransmission",
            ]
        );
    }
}
