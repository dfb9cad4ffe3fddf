//! The statistics against scipy's and numpy's: `vectors/statistics.json`, written by `vectors/statistics.py`.

use ropewalk_lab::stats;
use serde_json::Value;

fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors/statistics.json")).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn near(found: f64, expected: f64, relative: f64, what: &str) {
    let allowed = relative * expected.abs().max(1e-300);
    assert!((found - expected).abs() <= allowed, "{what}: {found}, expected {expected}");
}

#[test]
fn means_and_percentiles_are_numpys() {
    for sample in vectors()["samples"].as_array().unwrap() {
        let name = sample["name"].as_str().unwrap();
        let found = stats::Summary::of(&numbers(&sample["values"])).unwrap();
        near(found.mean, number(&sample["mean"]), 1e-12, name);
        near(found.sd, number(&sample["sd"]), 1e-12, name);
        let percentiles = &sample["percentiles"];
        for (p, value) in [
            ("5", found.p5),
            ("25", found.p25),
            ("50", found.p50),
            ("75", found.p75),
            ("95", found.p95),
            ("99", found.p99),
        ] {
            near(value, number(&percentiles[p]), 1e-12, &format!("{name}, p{p}"));
        }
    }
}

#[test]
fn bootstrap_intervals_are_scipys_within_the_error_of_resampling() {
    for sample in vectors()["samples"].as_array().unwrap() {
        let values = numbers(&sample["values"]);
        for (kind, found) in [
            ("mean_interval", stats::mean_interval(&values, 1)),
            ("median_interval", stats::median_interval(&values, 1)),
        ] {
            let found = found.unwrap();
            let expected = numbers(&sample[kind]);
            // Of 2,000 resamples, an end at 2.5 % has a standard error of about 0.06 of the interval's length
            // for a smooth statistic; medians jump from one value of a small sample to the next.
            let length = expected[1] - expected[0];
            let allowed = length * if kind == "mean_interval" { 0.06 } else { 0.15 };
            for (end, expected) in [(found.0, expected[0]), (found.1, expected[1])] {
                let name = &sample["name"];
                assert!((end - expected).abs() <= allowed, "{name} {kind}: {found:?} {expected}");
            }
        }
    }
}

#[test]
fn paired_ratios_are_scipys() {
    for pair in vectors()["pairs"].as_array().unwrap() {
        let name = pair["name"].as_str().unwrap();
        let found = stats::paired_ratio(&numbers(&pair["a"]), &numbers(&pair["b"]), 1).unwrap();
        near(found.ratio, number(&pair["ratio"]), 1e-12, name);
        near(found.sd, number(&pair["sd"]), 1e-12, name);
        near(found.t_p, number(&pair["t_p"]), 1e-9, name);
        let (low, high) = found.interval.unwrap();
        let expected = numbers(&pair["interval"]);
        let allowed = 0.06 * (expected[1] - expected[0]);
        assert!(
            (low - expected[0]).abs() < allowed && (high - expected[1]).abs() < allowed,
            "{name}: {found:?}"
        );
    }
}

#[test]
fn distributions_are_scipys() {
    let vectors = vectors();
    for row in vectors["t"].as_array().unwrap() {
        near(stats::t_cdf(number(&row["t"]), number(&row["degrees"])), number(&row["cdf"]), 1e-10, "t");
    }
    for row in vectors["t_quantiles"].as_array().unwrap() {
        near(
            stats::t_quantile(number(&row["p"]), number(&row["degrees"])),
            number(&row["t"]),
            1e-9,
            "t quantile",
        );
    }
    for row in vectors["normal_quantiles"].as_array().unwrap() {
        let (found, expected) = (stats::normal_quantile(number(&row["p"])), number(&row["x"]));
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }
}
