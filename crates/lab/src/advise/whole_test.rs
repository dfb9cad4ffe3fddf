//! The whole self-test of the advice: the advice itself, whether measurements narrow it, and how often ranges
//! hold the truth.

use ropewalk_algorithms::Registries;
use ropewalk_engine::registry::SpecError;

use super::coverage::{Coverage, Link, coverage};
use super::narrowing::{Links, Narrowing, narrowing};
use super::run::Execution;
use super::selftest::{Case, SelfTest, self_test};
use crate::kept::Kept;

/// The first seed of the scenarios: none below was looked at while the advice was made.
const FIRST_SEED: u64 = 1_000_000;

/// Most pairs of links on which measurements are made.
const PAIRS: u32 = 200;

/// Most links on which the models of tools measure.
const LINKS: u32 = 400;

/// Where what is finished is kept.
#[derive(Clone, Copy)]
pub struct Stores<'a> {
    /// Scenarios.
    pub scenarios: &'a (dyn Kept<Case> + Sync),
    /// Pairs of links.
    pub pairs: &'a (dyn Kept<Links> + Sync),
    /// Links.
    pub links: &'a (dyn Kept<Link> + Sync),
}

/// How it went.
#[derive(Clone, PartialEq, Debug)]
pub struct WholeTest {
    /// The advice, on scenarios drawn at random.
    pub advice: SelfTest,
    /// Whether measurements narrow it.
    pub narrowing: Narrowing,
    /// How often ranges hold the truth.
    pub coverage: Coverage,
}

/// Makes it, with so many scenarios; what is in the stores isn't run again. `begin` is called before each
/// part, with how much there is of what, and `each` with what that gave, whenever one is done. None if it was
/// stopped.
///
/// # Errors
/// If an algorithm that is tried isn't registered.
pub fn whole_test<P: Sync>(
    registries: &Registries,
    scenarios: u32,
    seed: u64,
    stores: Stores<'_>,
    execution: Execution<'_>,
    begin: impl Fn(u32, &'static str) -> P,
    each: impl Fn(&P) + Sync,
) -> Result<Option<WholeTest>, SpecError> {
    let part = begin(scenarios, "scenarios");
    let first = FIRST_SEED.wrapping_add(seed);
    let advice =
        self_test(registries, scenarios as usize, first, stores.scenarios, execution, || each(&part))?;
    drop(part);
    let Some(advice) = advice else { return Ok(None) };
    let (seed, pairs, links) = (seed.wrapping_sub(1), scenarios.min(PAIRS), scenarios.min(LINKS));
    let part = begin(pairs, "pairs of links");
    let narrowed = narrowing(registries, pairs as usize, seed, stores.pairs, execution, || each(&part))?;
    drop(part);
    let Some(narrowing) = narrowed else { return Ok(None) };
    let part = begin(links, "links");
    let found = coverage(registries, links as usize, seed, stores.links, execution, || each(&part))?;
    Ok(found.map(|coverage| WholeTest { advice, narrowing, coverage }))
}
