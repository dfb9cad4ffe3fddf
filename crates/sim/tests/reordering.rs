//! Reordering by jitter, in the handshake too, doesn't cause a fallback to plain TCP.

use crate::common;

use common::{MILLISECOND, spec};
use ropewalk_link::{Jitter, JitterShape};
use ropewalk_sim::{Direction, Mode, Outcome, RunSpec, networks, run};

#[test]
fn reordering_in_the_handshake_causes_no_fallback() {
    for direction in [Direction::Upload, Direction::Download] {
        for spread in [2, 9] {
            let mut scenario = networks::two_equal(20_000_000, 10 * MILLISECOND);
            scenario.direction = direction;
            for path in &mut scenario.paths {
                for link in [&mut path.up, &mut path.down] {
                    let spread = spread * MILLISECOND;
                    link.jitter = Some(Jitter { spread, shape: JitterShape::Uniform, keeps_order: false });
                }
            }
            let base = spec(scenario, "roundrobin", "cubic");
            assert_eq!(base.mode, Mode::Multipath);
            for seed in 1..=20 {
                let result = run(&RunSpec { seed, ..base.clone() });
                let case = format!("{direction:?}, +-{spread} ms, seed {seed}");
                assert_eq!(result.outcome, Outcome::Complete, "{case}");
                // Plain TCP has one subflow.
                assert!(result.paths.iter().all(|path| path.bytes > 0), "{case}: {:?}", result.paths);
            }
        }
    }
}
