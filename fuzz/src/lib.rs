//! The fuzz targets' substance, apart from the fuzzer: what is checked ([`checks`] for packets, [`convert`],
//! [`datagrams`],
//! [`engine`], [`protocol`], [`texts`]). See docs/fuzzing.md.
#![forbid(unsafe_code)]

pub mod checks;
pub mod convert;
pub mod datagrams;
pub mod engine;
pub mod protocol;
pub mod texts;
