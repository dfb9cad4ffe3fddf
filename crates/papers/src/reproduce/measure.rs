//! What is kept of a run: every measure that a paper's table may show, by name.
//!
//! | name | unit | what |
//! |---|---|---|
//! | `fct` | s | completion time, the mean over concurrent flows; the limit for a flow that isn't complete |
//! | `request-fct` | s | of a page over one connection: from its first request to its last byte, without the opening |
//! | `incomplete` | | flows that weren't complete at the limit |
//! | `goodput`, `throughput` | Mbit/s, MB/s | delivered bytes over time, after the part that is skipped; 10^6 bytes |
//! | `delay`, `jitter` | ms | of frames: mean, and mean difference of one to the next |
//! | `ofo`, `ofo-max` | KiB | out-of-order queue, sampled every 10 ms: mean, maximum |
//! | `ofo-peak` | KiB | mean of the out-of-order queue's maxima, one of each 10 ms |
//! | `retransmissions` | packets | on their own subflow |
//! | `repeats` | packets | opportunistic retransmissions and reinjections, in segments of 1448 bytes |
//! | `opportunistic` | packets | the former alone: what a full window has sent again on another subflow |
//! | `retransmitted` | packets | retransmissions and repeats |
//! | `window-full` | % | share of the run during which new data waits for the connection-level send window |
//! | `timeouts` | | retransmission timeouts |
//! | `duplicated-share` | % | bytes repeated by the scheduler's design, of those delivered |
//! | `share:PATH`, `packets:PATH` | %, packets | a path's part |
//! | `competing-fct`, `gap` | s, | completion time of competing TCP flows; theirs over ours |
//! | `bound`, `window-bound` | | `fct` over the earliest that the links, and windows, allow |
//! | `real:...` | | in real time: how late packets left their links (p99, us), void runs, repeats, fallbacks |

use std::collections::BTreeMap;

use ropewalk_engine::Span;
use ropewalk_lab::bound;
use ropewalk_sim::{RunResult, RunSpec, Workload};

/// Measures by name.
pub(super) type Measures = BTreeMap<String, f64>;

/// Payload of a full segment with timestamps.
const SEGMENT: f64 = 1448.0;

/// A measure's unit.
pub(super) fn unit(metric: &str) -> &'static str {
    match metric.split(':').next().unwrap_or(metric) {
        "fct" | "competing-fct" | "request-fct" => "s",
        "goodput" => "Mbit/s",
        "throughput" => "MB/s",
        "delay" | "jitter" => "ms",
        "ofo" | "ofo-max" | "ofo-peak" => "KiB",
        "retransmissions" | "repeats" | "opportunistic" | "retransmitted" | "packets" => "packets",
        "duplicated-share" | "share" | "probability" | "window-full" => "%",
        _ => "",
    }
}

/// The label of a measure's axis: its unit or, where it has none, what is counted.
pub(super) fn axis_label(metric: &str) -> String {
    let (what, path) = metric.split_once(':').unwrap_or((metric, ""));
    match (what, unit(metric)) {
        ("cwnd", _) => format!("congestion window of {path}, segments"),
        ("in-flight", _) => format!("in flight on {path}, segments"),
        ("gap" | "bound" | "window-bound", _) => "ratio".into(),
        (_, "") => what.into(),
        (_, unit) => unit.into(),
    }
}

/// All measures of a run; `skip` of its start isn't counted in goodput and the out-of-order queue.
pub(super) fn measure(spec: &RunSpec, result: &RunResult, skip: Span) -> Measures {
    let mut found = Measures::new();
    let mut put = |name: &str, value: f64| {
        if value.is_finite() {
            found.insert(name.into(), value);
        }
    };
    let scenario = &spec.scenario;
    let limit = scenario.limit.as_secs_f64();
    let seconds = |time: Option<Span>| time.map_or(limit, Span::as_secs_f64);
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
        sum / count
    };
    let fct = mean(&mut result.flows.iter().map(|flow| seconds(flow.fct)));
    put("fct", fct);
    if matches!(scenario.workload, Workload::Web { connections: 1, .. }) {
        let asked: Span = result.message_delays.iter().copied().sum();
        put(
            "request-fct",
            if result.flows.iter().any(|flow| flow.fct.is_none()) { limit } else { asked.as_secs_f64() },
        );
    }
    put("incomplete", result.flows.iter().filter(|flow| flow.fct.is_none()).count() as f64);
    if let Some(bound) = bound::of(spec)
        && bound.capacity > 0.0
        && !matches!(scenario.workload, Workload::Bulk { .. })
    {
        put("bound", fct / bound.capacity);
        put("window-bound", fct / bound.window);
    }
    let competing = mean(&mut result.competing.iter().map(|flow| seconds(flow.fct)));
    put("competing-fct", competing);
    put("gap", competing / fct);
    let before = result.samples.iter().take_while(|sample| sample.at.since_origin() <= skip).last();
    let bytes = result.delivered_bytes.saturating_sub(before.map_or(0, |sample| sample.delivered)) as f64;
    let span = result.duration.saturating_sub(before.map_or(Span::ZERO, |_| skip)).as_secs_f64();
    put("goodput", bytes * 8.0 / 1e6 / span);
    put("throughput", bytes / 1e6 / span);
    let delays: Vec<f64> = result.message_delays.iter().map(|delay| delay.as_millis_f64()).collect();
    put("delay", mean(&mut delays.iter().copied()));
    put("jitter", mean(&mut delays.windows(2).map(|pair| (pair[1] - pair[0]).abs())));
    let skipped = (skip / Span::from_millis(10)) as usize;
    let kib =
        |samples: &[u32]| mean(&mut samples.iter().skip(skipped).map(|bytes| f64::from(*bytes) / 1024.0));
    put("ofo", kib(&result.ofo.samples));
    put("ofo-peak", kib(&result.ofo.peaks));
    if let Some(most) = result.ofo.samples.iter().skip(skipped).max() {
        put("ofo-max", f64::from(*most) / 1024.0);
    }
    let repeats = (result.totals.opportunistic_bytes + result.totals.reinjected_bytes) as f64 / SEGMENT;
    put("retransmissions", result.totals.retransmissions as f64);
    put("repeats", repeats);
    put("opportunistic", result.totals.opportunistic_bytes as f64 / SEGMENT);
    put("retransmitted", result.totals.retransmissions as f64 + repeats);
    put(
        "window-full",
        result.totals.window_blocked.as_nanos() as f64 * 100.0 / result.duration.as_nanos() as f64,
    );
    put("timeouts", result.totals.timeouts as f64);
    put("penalisations", result.totals.penalisations as f64);
    put("duplicated-share", result.totals.duplicated_bytes as f64 * 100.0 / result.delivered_bytes as f64);
    let sent: u64 = result.paths.iter().map(|path| path.bytes).sum();
    for path in &result.paths {
        put(&format!("share:{}", path.name), path.bytes as f64 * 100.0 / sent as f64);
        put(&format!("packets:{}", path.name), path.segments as f64);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::axis_label;

    #[test]
    fn every_axis_says_what_it_shows() {
        assert_eq!(axis_label("fct"), "s");
        assert_eq!(axis_label("timeouts"), "timeouts");
        assert_eq!(axis_label("gap"), "ratio");
        assert_eq!(axis_label("share:wlan"), "%");
        assert_eq!(axis_label("cwnd:subflow1"), "congestion window of subflow1, segments");
    }
}
