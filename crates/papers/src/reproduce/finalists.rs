//! Which of the nearest settings is named. The least distance alone may be luck. So of the settings that are
//! as near as the nearest, within the noise of their runs, the one with the most weight in the prior is
//! named. A setting within 10 % of the published numbers is near enough whatever the runs can tell apart: a
//! model of a testbed, and a testbed from day to day, are no better. Where the paper gives orders, not
//! numbers, there is no such margin. A setting that is farther than what was assumed explains nothing: it
//! isn't named.

use ropewalk_lab::stats;

/// The distance at which measured numbers are 10 % off.
pub(super) const NEAR_ENOUGH: f64 = 0.095_310_179_804_324_87;

/// A setting that ran again, in parts of its runs.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Finalist {
    /// Its distance over all of its runs.
    pub(super) distance: f64,
    /// Its distance without one part, for each part; the parts of all finalists have the same seeds.
    pub(super) without: Vec<f64>,
    /// Its density in the prior.
    pub(super) prior: f64,
    /// The cells' means over all of its runs.
    pub(super) measured: Vec<f64>,
}

impl Finalist {
    /// From what each part of its runs gave.
    pub(super) fn new(parts: &[&Vec<f64>], prior: f64, distance: impl Fn(&[f64]) -> f64) -> Self {
        let mean = |left_out: Option<usize>| {
            let kept = || parts.iter().enumerate().filter(|(place, _)| Some(*place) != left_out);
            let count = kept().count().max(1) as f64;
            let cells = parts.first().map_or(0, |part| part.len());
            let cell = |cell: usize| kept().map(|(_, part)| part[cell]).sum::<f64>() / count;
            (0..cells).map(cell).collect::<Vec<f64>>()
        };
        let measured = mean(None);
        let without = (0..parts.len()).map(|place| distance(&mean(Some(place)))).collect();
        Finalist { distance: distance(&measured), without, prior, measured }
    }

    /// Whether its distance can't be told apart from a nearer one's: the 95 % interval of the difference, by
    /// the jackknife over the parts, contains 0. Or it is near enough.
    fn is_as_near_as(&self, nearest: &Finalist, enough: f64) -> bool {
        if self.distance <= enough {
            return true;
        }
        let apart: Vec<f64> = self.without.iter().zip(&nearest.without).map(|(a, b)| a - b).collect();
        let parts = apart.len() as f64;
        if parts < 2.0 {
            return self.distance <= nearest.distance;
        }
        let mean = stats::mean(&apart);
        let squares: f64 = apart.iter().map(|one| (one - mean) * (one - mean)).sum();
        let error = libm::sqrt((parts - 1.0) / parts * squares);
        self.distance - nearest.distance <= stats::t_quantile(0.975, parts - 1.0) * error
    }
}

/// What was chosen.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Chosen {
    /// The place of the setting that is named.
    pub(super) place: usize,
    /// The place of the nearest.
    pub(super) nearest: usize,
    /// How many are as near as the nearest, itself included.
    pub(super) equally_near: usize,
}

/// The most plausible of those that are as near as the nearest, or at a distance of `enough` at most, and no
/// farther than `assumed`; of equally plausible ones the nearest.
pub(super) fn choose(finalists: &[Finalist], enough: f64, assumed: f64) -> Option<Chosen> {
    let by_distance = |a: &usize, b: &usize| finalists[*a].distance.total_cmp(&finalists[*b].distance);
    let nearest = (0..finalists.len()).min_by(by_distance)?;
    let near: Vec<usize> = (0..finalists.len())
        .filter(|place| finalists[*place].is_as_near_as(&finalists[nearest], enough))
        .filter(|place| *place == nearest || finalists[*place].distance <= assumed)
        .collect();
    let place = near.iter().copied().min_by(|a, b| {
        let plausible = finalists[*b].prior.total_cmp(&finalists[*a].prior);
        plausible.then_with(|| by_distance(a, b))
    })?;
    Some(Chosen { place, nearest, equally_near: near.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell whose parts are so far from the published 0.
    fn finalist(parts: &[f64], prior: f64) -> Finalist {
        let parts: Vec<Vec<f64>> = parts.iter().map(|part| vec![*part]).collect();
        Finalist::new(&parts.iter().collect::<Vec<_>>(), prior, |cells| cells[0].abs())
    }

    #[test]
    fn of_equally_near_settings_the_most_plausible_is_named() {
        let lucky = finalist(&[0.10, 0.14, 0.09, 0.11], 0.01);
        let plausible = finalist(&[0.13, 0.10, 0.12, 0.11], 0.5);
        let choose = |finalists: &[Finalist]| choose(finalists, NEAR_ENOUGH, f64::INFINITY);
        let found = choose(&[lucky.clone(), plausible.clone()]).unwrap();
        assert_eq!(found, Chosen { place: 1, nearest: 0, equally_near: 2 });
        // A setting that is farther, and known to be, isn't named however plausible it is.
        let far = finalist(&[0.20, 0.24, 0.19, 0.21], 0.9);
        let found = choose(&[far, lucky.clone(), plausible.clone()]).unwrap();
        assert_eq!(found, Chosen { place: 2, nearest: 1, equally_near: 2 });
        // Without noise only the least distance counts.
        let exact = [finalist(&[0.1; 4], 0.1), finalist(&[0.101; 4], 0.9)];
        assert_eq!(choose(&exact).unwrap().place, 0);
        // But what is within 10 % is near enough.
        let enough = [finalist(&[0.02; 4], 0.1), finalist(&[0.095; 4], 0.5), finalist(&[0.096; 4], 0.9)];
        assert_eq!(choose(&enough).unwrap(), Chosen { place: 1, nearest: 0, equally_near: 2 });
        assert_eq!(super::choose(&enough, 0.0, 1.0).unwrap().place, 0);
        // What is farther than the setting as assumed isn't named; the nearest is, whatever was assumed.
        let both = [lucky, plausible];
        assert_eq!(super::choose(&both, 0.0, 0.112).unwrap().place, 0);
        assert_eq!(super::choose(&both, 0.0, 0.01).unwrap().place, 0);
        assert_eq!(super::choose(&both, 0.0, 0.12).unwrap().place, 1);
        // Equally plausible: the nearer one.
        let even = [finalist(&[0.13, 0.10, 0.12, 0.11], 0.5), finalist(&[0.10, 0.14, 0.09, 0.11], 0.5)];
        assert_eq!(choose(&even).unwrap().place, 1);
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn the_distance_is_of_the_mean_over_all_parts() {
        let one = finalist(&[0.1, 0.3], 1.0);
        assert!((one.distance - 0.2).abs() < 1e-12);
        assert_eq!(one.without, [0.3, 0.1]);
    }
}
