//! How many runs each stratum gets: as many as its differences vary and its runs are cheap.
//!
//! For a given cost the variance of a mean over strata is least where stratum `w` has runs in proportion to
//! `sd_w / sqrt(cost_w)` (Neyman 1934; Cochran, "Sampling Techniques", 3rd edition 1977, 5.5). One allocation
//! serves all candidates that run, so it follows their mean variance (Cochran, 5A.3). It can only add runs.

/// A stratum as it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Stratum {
    /// Runs of each candidate so far.
    pub runs: u32,
    /// Of a run of all candidates that run on, segments.
    pub cost: f64,
    /// Mean variance of the differences.
    pub variance: f64,
}

/// Runs by stratum such that all runs of those that run on cost `total`, with those that were made.
pub(super) fn allocate(strata: &[Stratum], total: f64) -> Vec<u32> {
    let worth = |of: &Stratum| libm::sqrt(of.variance / of.cost.max(1.0));
    let most = strata.iter().map(worth).fold(0.0, f64::max);
    let share = |of: &Stratum| if most > 0.0 { worth(of) / most } else { 1.0 };
    let runs = |scale: f64| -> Vec<u32> {
        strata.iter().map(|one| ((scale * share(one)) as u32).max(one.runs)).collect()
    };
    let cost = |scale: f64| {
        strata.iter().zip(runs(scale)).map(|(one, runs)| one.cost.max(1.0) * f64::from(runs)).sum::<f64>()
    };
    let (mut low, mut high) = (0.0, f64::from(u32::MAX));
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if cost(middle) <= total { low = middle } else { high = middle }
    }
    runs(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stratum(runs: u32, cost: f64, variance: f64) -> Stratum {
        Stratum { runs, cost, variance }
    }

    #[test]
    fn runs_go_where_results_vary_and_cost_little() {
        // A large flow costs 16 times as much and varies as much: a quarter of the runs.
        let strata = [stratum(60, 100.0, 0.01), stratum(60, 1600.0, 0.01)];
        let found = allocate(&strata, 400.0 * 100.0 + 100.0 * 1600.0);
        assert!(found[0].abs_diff(400) <= 4 && found[1].abs_diff(100) <= 1, "{found:?}");
        // What was run stays, and what it cost isn't there for others.
        let strata = [stratum(60, 100.0, 0.01), stratum(200, 1600.0, 0.01)];
        let found = allocate(&strata, 100.0 * 100.0 + 200.0 * 1600.0);
        assert_eq!(found, [100, 200]);
    }

    #[test]
    fn nothing_that_varies_is_shared_evenly_and_a_small_budget_adds_nothing() {
        let still = [stratum(8, 100.0, 0.0), stratum(8, 300.0, 0.0)];
        assert_eq!(allocate(&still, 4000.0), [10, 10]);
        assert_eq!(allocate(&still, 3200.0), [8, 8]);
        assert_eq!(allocate(&[stratum(8, 0.0, 0.0)], -1.0), [8]);
    }
}
