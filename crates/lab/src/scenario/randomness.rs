//! Whether a scenario is random: the one predicate for it.

use ropewalk_link::{ChangeAction, LinkSpec, Loss};
use ropewalk_sim::{Scenario, Traffic};

/// All links of a scenario, in both directions.
pub(crate) fn links(scenario: &Scenario) -> impl Iterator<Item = &LinkSpec> {
    let paths = scenario.paths.iter().flat_map(|path| [&path.up, &path.down]);
    paths.chain(scenario.bottlenecks.iter().flat_map(|link| [&link.up, &link.down]))
}

/// Whether a run of the scenario draws random numbers: jitter, duplicates, loss (from the start or by a
/// scheduled change), or background traffic at random times. If not, runs with different seeds are the same.
pub fn is_random(scenario: &Scenario) -> bool {
    let traffic = |traffic: &Traffic| match traffic {
        Traffic::TcpLimited { .. } | Traffic::UdpOnOff { .. } => true,
        Traffic::TcpSaturated { .. } | Traffic::MptcpSaturated { .. } | Traffic::TcpFlows { .. } => false,
    };
    links(scenario).any(is_random_link) || scenario.background.iter().any(|source| traffic(&source.traffic))
}

fn is_random_link(link: &LinkSpec) -> bool {
    let loses = |loss: &Loss| *loss != Loss::None;
    let later = |action: &ChangeAction| matches!(action, ChangeAction::Loss(loss) if loses(loss));
    link.jitter.is_some()
        || link.duplicate > 0.0
        || loses(&link.loss)
        || link.changes.iter().any(|change| later(&change.action))
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::{Span, Time};
    use ropewalk_link::Change;

    use super::*;
    use crate::scenario::{default_around, path};

    fn scenario(text: &str) -> Scenario {
        default_around(vec![path(text).unwrap()])
    }

    #[test]
    fn jitter_and_loss_are_random() {
        assert!(!is_random(&scenario("a: 5 Mbit/s, 20 ms")));
        assert!(is_random(&scenario("a: 5 Mbit/s, 20 ms +-5 ms")));
        assert!(is_random(&scenario("a: 5 Mbit/s, 20 ms, 1 %")));
    }

    #[test]
    fn a_scheduled_loss_is_random_and_a_scheduled_rate_is_not() {
        let with = |action: ChangeAction| {
            let mut scenario = scenario("a: 5 Mbit/s, 20 ms");
            scenario.paths[0].down.changes = vec![Change::once(Time::from_nanos(1), action)];
            scenario
        };
        assert!(is_random(&with(ChangeAction::Loss(Loss::Bernoulli(0.1)))));
        assert!(!is_random(&with(ChangeAction::Loss(Loss::None))));
        assert!(!is_random(&with(ChangeAction::Delay(Span::from_nanos(5)))));
    }
}
