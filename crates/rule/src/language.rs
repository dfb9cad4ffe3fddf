//! What of Rhai a rule may use.

use rhai::packages::{
    ArithmeticPackage, BasicArrayPackage, BasicFnPackage, BasicIteratorPackage, BasicMapPackage,
    BasicStringPackage, LanguageCorePackage, LogicPackage, MoreStringPackage, Package,
};
use rhai::{Engine, FLOAT, INT};

use crate::{OPERATIONS, scheduler, view};

/// An engine for rules: what they may call, and how much they may take.
pub(crate) fn engine() -> Engine {
    let mut engine = Engine::new_raw();
    LanguageCorePackage::new().register_into_engine(&mut engine);
    ArithmeticPackage::new().register_into_engine(&mut engine);
    LogicPackage::new().register_into_engine(&mut engine);
    BasicStringPackage::new().register_into_engine(&mut engine);
    MoreStringPackage::new().register_into_engine(&mut engine);
    BasicIteratorPackage::new().register_into_engine(&mut engine);
    BasicFnPackage::new().register_into_engine(&mut engine);
    BasicArrayPackage::new().register_into_engine(&mut engine);
    BasicMapPackage::new().register_into_engine(&mut engine);
    // The system's power and its text in a rule are no part of a decision.
    for symbol in ["**", "**=", "eval", "print", "debug", "sleep"] {
        engine.disable_symbol(symbol);
    }
    engine
        .set_max_operations(OPERATIONS)
        .set_max_call_levels(16)
        .set_max_expr_depths(64, 32)
        .set_max_string_size(4096)
        .set_max_array_size(1024)
        .set_max_map_size(1024);
    mathematics(&mut engine);
    view::register(&mut engine);
    scheduler::register(&mut engine);
    engine
}

/// Functions of numbers, the same to the bit on every machine: Rhai's own package takes the system's.
fn mathematics(engine: &mut Engine) {
    engine
        .register_fn("sqrt", libm::sqrt)
        .register_fn("exp", libm::exp)
        .register_fn("ln", libm::log)
        .register_fn("pow", libm::pow)
        .register_fn("floor", libm::floor)
        .register_fn("ceiling", libm::ceil)
        .register_fn("round", libm::round)
        .register_fn("sqrt", |x: INT| libm::sqrt(x as FLOAT))
        .register_fn("exp", |x: INT| libm::exp(x as FLOAT))
        .register_fn("ln", |x: INT| libm::log(x as FLOAT))
        .register_fn("pow", |x: FLOAT, y: INT| libm::pow(x, y as FLOAT))
        .register_fn("pow", |x: INT, y: FLOAT| libm::pow(x as FLOAT, y))
        .register_fn("pow", |x: INT, y: INT| libm::pow(x as FLOAT, y as FLOAT))
        .register_fn("to_float", |x: INT| x as FLOAT)
        .register_fn("to_float", |x: FLOAT| x)
        .register_fn("to_int", |x: FLOAT| x as INT)
        .register_fn("to_int", |x: INT| x)
        .register_fn("min", |x: INT, y: INT| x.min(y))
        .register_fn("max", |x: INT, y: INT| x.max(y))
        .register_fn("min", |x: FLOAT, y: FLOAT| x.min(y))
        .register_fn("max", |x: FLOAT, y: FLOAT| x.max(y))
        .register_fn("min", |x: FLOAT, y: INT| x.min(y as FLOAT))
        .register_fn("max", |x: FLOAT, y: INT| x.max(y as FLOAT))
        .register_fn("min", |x: INT, y: FLOAT| (x as FLOAT).min(y))
        .register_fn("max", |x: INT, y: FLOAT| (x as FLOAT).max(y));
}
