//! A comparison as the document that `compare --json` prints and a page shows.

use ropewalk_link::{LinkSpec, Loss, Queue, Rate};
use ropewalk_sim::{Direction, PathSpec, Scenario};
use serde_json::{Value, json};

use super::Origin;
use crate::compare::{Comparison, Ranking, Row, verdict};
use crate::{stats, units};

/// The whole document; `ropes` as [`super::rope::trace`] gives them.
pub fn document(origin: &Origin, scenario: &Scenario, comparison: &Comparison, ropes: Vec<Value>) -> Value {
    let mut fields = origin.fields("comparison");
    let body = json!({
        "scenario": comparison.scenario,
        "summary": scenario.summary,
        "direction": match scenario.direction {
            Direction::Upload => "upload",
            Direction::Download => "download",
        },
        "paths": scenario.paths.iter().map(path).collect::<Vec<_>>(),
        "background": scenario.background.len(),
        "congestion": comparison.congestion,
        "runs": comparison.runs,
        "seed": comparison.seed,
        "limit_s": comparison.limit,
        "interrupted": comparison.interrupted,
        "verdict": verdict(comparison),
        "rankings": comparison.rankings.iter().map(|ranking| json!({
            "workload": ranking.title,
            "measure": ranking.measure.name(),
            "unit": ranking.measure.unit(),
            "size_bytes": ranking.bytes,
            "best_tcp": ranking.best_tcp,
            "warnings": warnings(ranking),
            "rows": ranking.rows.iter().map(row).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "ropes": ropes,
    });
    if let Value::Object(body) = body {
        fields.extend(body);
    }
    Value::Object(fields)
}

/// Where the first one's lead is a difference that the runs don't bear out.
pub fn warnings(ranking: &Ranking) -> Vec<String> {
    let Some(first) = ranking.rows.first() else { return Vec::new() };
    let others =
        [("linux", first.versus_linux), (ranking.best_tcp.as_deref().unwrap_or("tcp"), first.versus_tcp)];
    let told = others.iter().filter_map(|(name, ratio)| stats::warning(&first.label, name, ratio.as_ref()?));
    told.collect()
}

fn ratio(ratio: Option<stats::Ratio>) -> Value {
    ratio.map_or(
        Value::Null,
        |r| json!({ "ratio": r.ratio, "interval": r.interval.map(|(a, b)| [a, b]), "p": r.p, "t_test_p": r.t_p }),
    )
}

fn row(row: &Row) -> Value {
    json!({
        "scheduler": row.label,
        "single_path": row.single_path,
        "finished_runs": row.finished,
        "runs": row.runs,
        "fct_mean_s": row.mean,
        "fct_p50_s": row.p50,
        "fct_p95_s": row.p95,
        "fct_mean_interval_s": row.interval.map(|(a, b)| [a, b]),
        "ties_with_best": row.ties_with_best,
        "versus_linux": ratio(row.versus_linux),
        "versus_best_tcp": ratio(row.versus_tcp),
        "bound_s": row.bound.map(|bound| json!({ "capacity": bound.capacity, "window": bound.window })),
        "over_bound": row.over_bound().map(|(capacity, window)| json!({ "capacity": capacity, "window": window })),
        "repeated_bytes_mean": row.duplicated,
        "retransmitted_segments_mean": row.retransmissions,
        "timeouts_mean": row.timeouts,
        "fct_s": row.seconds,
    })
}

/// A path in words, as a reader of the report wants it.
fn path(path: &PathSpec) -> Value {
    json!({
        "name": path.name,
        "rtt_ms": (path.up.delay + path.down.delay) as f64 / 1e6,
        "down": link(&path.down),
        "up": link(&path.up),
        "backup": path.backup,
    })
}

fn link(link: &LinkSpec) -> Value {
    let loss = match link.loss {
        Loss::None => "none".to_string(),
        Loss::Bernoulli(p) => units::write_probability(p),
        Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
            let bad = to_bad / (to_bad + to_good);
            format!("{:.2} %, in bursts", 100.0 * (loss_good + (loss_bad - loss_good) * bad))
        }
    };
    let queue = match link.queue {
        Queue::Packets { limit, .. } => units::write_packets(limit),
        Queue::Bytes { limit, .. } => units::write_bytes(limit),
        Queue::CoDel { limit, .. } => format!("CoDel, {}", units::write_packets(limit)),
    };
    json!({
        "rate": match &link.rate {
            Rate::Constant(rate) => units::write_rate(*rate),
            Rate::Trace(trace) => format!("trace {}", trace.name),
        },
        "delay": units::write_duration(link.delay),
        "jitter": link.jitter.map(|jitter| units::write_duration(jitter.spread)),
        "loss": loss,
        "queue": queue,
    })
}
