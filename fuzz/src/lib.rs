//! The fuzz targets' substance, apart from the fuzzer: what is checked ([`checks`] for packets, [`convert`],
//! [`engine`], [`protocol`], [`texts`]). See docs/fuzzing.md.
#![forbid(unsafe_code)]

pub mod checks;
pub mod convert;
pub mod engine;
pub mod protocol;
pub mod texts;
