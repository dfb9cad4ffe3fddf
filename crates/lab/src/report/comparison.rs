//! A comparison as the document that `compare --json` prints and a page shows.

use ropewalk_engine::Span;
use ropewalk_engine::scheduler::BASELINE;
use ropewalk_link::{LinkSpec, Loss, Queue, Rate};
use ropewalk_settings::units;
use ropewalk_sim::{Direction, PathSpec, Scenario};
use serde_json::{Value, json};

use super::Origin;
use crate::compare::{
    Comparison, Decision, Design, Ended, FEW, Finding, MARGIN, PER_SECOND, PathPart, Ranking, Row, Standing,
    Versus, headline, verdict,
};
use crate::real_time::{self, RealTime};

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
        "fixed_runs": matches!(comparison.design, Design::Fixed(_)),
        "seed": comparison.seed,
        "limit_s": comparison.limit,
        "random": comparison.random,
        "interrupted": comparison.interrupted,
        "world": world(comparison.real_time),
        "verdict": verdict(comparison),
        "headline": told(comparison),
        "decision": comparison.decision.as_ref().map(decision),
        "worth": comparison.worth.text(),
        "rankings": comparison.rankings.iter().map(|ranking| json!({
            "workload": ranking.title,
            "measure": ranking.objective.name(),
            "unit": ranking.objective.unit(),
            "size_bytes": ranking.bytes,
            "best_tcp": ranking.best_tcp,
            "warnings": warnings(ranking, comparison.limit),
            "rows": ranking.rows.iter().map(|of| row(of, comparison)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "ropes": ropes,
    });
    if let Value::Object(body) = body {
        fields.extend(body);
    }
    Value::Object(fields)
}

/// The answer's sentences and names.
fn told(comparison: &Comparison) -> Value {
    let headline = headline(comparison);
    json!({
        "sentence": headline.sentence,
        "named": headline.named,
        "notes": headline.matters.iter().chain(&headline.notes).collect::<Vec<_>>(),
        "groups": headline.groups.iter().map(|(title, names)| json!({
            "title": title, "names": names,
        })).collect::<Vec<_>>(),
    })
}

/// How one stands to the fastest.
pub fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Equal => "equal",
        Standing::Open => "open",
        Standing::Slower => "slower",
    }
}

/// Who is equal, who is slower, and by how much: simultaneous intervals of the time over the fastest's.
pub fn decision(of: &Decision) -> Value {
    json!({
        "margin": MARGIN,
        "named": of.named.as_ref().map(|(name, _)| name),
        "fastest": of.fastest,
        "ended": match of.ended {
            Ended::Runs => "runs",
            Ended::Separated => "separated",
            Ended::Equivalent => "equivalent",
            Ended::Known => "known",
            Ended::Budget => "budget",
            Ended::Still => "nothing-random",
            Ended::Interrupted => "interrupted",
        },
        "runs": of.most_runs(),
        "runs_by_workload": of.runs,
        "segments": of.used,
        "budget_s": of.used as f64 / PER_SECOND as f64,
        "candidates": of.stands.iter().map(|(label, stand)| json!({
            "scheduler": label,
            "standing": standing(stand.standing),
            "ratio": stand.ratio,
            "interval": stand.interval.map(|(a, b)| [a, b]),
        })).collect::<Vec<_>>(),
    })
}

/// What the runs don't bear out: where they are too few, or didn't finish.
pub fn warnings(ranking: &Ranking, limit: f64) -> Vec<String> {
    let Some(first) = ranking.rows.first() else { return Vec::new() };
    let mut told: Vec<String> = ranking.rows.iter().filter_map(Row::why_overruled).collect();
    for row in ranking.rows.iter().filter(|row| row.unfinished() > 0) {
        let named = row.label == BASELINE || ranking.best_tcp.as_ref() == Some(&row.label);
        if let Some(why) = row.why_unfinished(limit).filter(|_| named) {
            told.push(format!("`{}`: {why}; nothing is compared with it", row.label));
        }
    }
    if (first.runs as usize) < FEW {
        let runs = if first.runs == 1 { "1 run is".into() } else { format!("{} runs are", first.runs) };
        told.push(format!("{runs} too few to compare: {FEW} are the least"));
        return told;
    }
    told
}

/// `p` is the corrected p-value: below 0.05 the difference is significant. Without a test it is 1.
fn versus(versus: Option<Versus>) -> Value {
    match versus {
        None => Value::Null,
        Some(Versus::Unfinished { own, other }) => {
            json!({ "finding": "unfinished", "unfinished_runs": own, "unfinished_runs_of_other": other })
        }
        Some(Versus::Ratio { ratio, finding }) => {
            let (name, p) = match finding {
                Finding::Tested { p } if p < 0.05 => ("significant", p),
                Finding::Tested { p } => ("no significant difference", p),
                Finding::Alike => ("runs alike", 1.0),
                Finding::TooFew => ("too few runs", 1.0),
            };
            json!({
                "finding": name,
                "ratio": ratio.ratio,
                "interval": ratio.interval.map(|(a, b)| [a, b]),
                "p": p,
                "uncorrected_p": ratio.p,
                "t_test_p": ratio.t_p,
            })
        }
    }
}

/// The world of the runs, the stacks at both ends, and the accuracy of the clocks.
fn world(real_time: Option<RealTime>) -> Value {
    let Some(RealTime { ends, tally }) = real_time else { return json!({ "name": "simulated" }) };
    let end = |kernel| if kernel { "kernel" } else { "engine" };
    json!({
        "name": "emulated",
        "sender": end(ends.sender_kernel),
        "receiver": end(ends.receiver_kernel),
        "real_time": tally.json(),
    })
}

/// What wasn't measured is null: with real packets a path's bytes are the links', and a kernel doesn't report
/// everything.
fn row(row: &Row, comparison: &Comparison) -> Value {
    let limit = comparison.limit;
    let real = comparison.real_time;
    let path = |part: &PathPart| {
        json!({
            "name": part.name,
            "bytes_mean": real.is_none().then_some(part.bytes),
            "repeated_bytes_mean": real.is_none().then_some(part.repeated),
            "link_bytes_mean": real.map(|_| part.bytes),
            "queue_delay_mean_s": part.queue_delay_mean,
            "queue_delay_max_s": real.is_none().then_some(part.queue_delay_max),
        })
    };
    let kernel_sends = real.is_some_and(|real| real.ends.sender_kernel || row.label == real_time::KERNEL);
    let kernel_receives = real.is_some_and(|real| real.ends.receiver_kernel);
    json!({
        "scheduler": row.label,
        "single_path": row.single_path,
        "finished_runs": row.finished,
        "runs": row.runs,
        "unfinished": row.why_unfinished(limit),
        "fct_mean_s": row.mean,
        "fct_p50_s": row.p50,
        "fct_p95_s": row.p95,
        "fct_mean_interval_s": row.interval.map(|(a, b)| [a, b]),
        "standing": standing(row.standing),
        "versus_linux": versus(row.versus_linux),
        "versus_best_tcp": versus(row.versus_tcp),
        "bound_s": row.bound.map(|bound| json!({ "capacity": bound.capacity, "window": bound.window })),
        "over_bound": row.over_bound().map(|(capacity, window)| json!({
            "capacity": capacity, "window": window,
        })),
        "repeated_bytes_mean": row.duplicated,
        "scheduler_duplicated_bytes_mean": row.repeats.duplicated,
        "opportunistic_bytes_mean": row.repeats.opportunistic,
        "reinjected_bytes_mean": row.repeats.reinjected,
        "late_frames_share": row.late_frames,
        "goodput_mean_bit_per_s": row.goodput,
        "retransmitted_segments_mean": row.retransmissions,
        "timeouts_mean": row.timeouts,
        "overruled": row.each.iter().map(|run| run.overruled).sum::<u64>(),
        "why_overruled": row.why_overruled(),
        "out_of_order_bytes_mean": (!kernel_receives).then_some(row.ofo_mean),
        "out_of_order_bytes_max": (!kernel_receives).then_some(row.ofo_max),
        "window_blocked_s": (!kernel_sends).then_some(row.window_blocked),
        "paths": row.paths.iter().map(path).collect::<Vec<_>>(),
        "fct_s": row.each.iter().map(|run| run.seconds).collect::<Vec<_>>(),
    })
}

/// A path in words, as a reader of the report wants it.
fn path(path: &PathSpec) -> Value {
    let spreads =
        [&path.up, &path.down].into_iter().filter_map(|link| link.jitter.map(|jitter| jitter.spread));
    let jitter = Some(spreads.sum::<Span>()).filter(|spread| !spread.is_zero());
    json!({
        "name": path.name,
        "rtt_ms": (path.up.delay + path.down.delay).as_millis_f64(),
        "rtt_jitter": jitter.map(units::write_duration),
        "down": link(&path.down),
        "up": link(&path.up),
        "backup": path.backup,
        "metered": path.metered.is_some(),
        "price_per_gb": path.metered.and_then(|metered| metered.price),
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
