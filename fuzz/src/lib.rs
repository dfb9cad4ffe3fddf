//! The fuzz targets' substance, apart from the fuzzer: what is checked ([`checks`]). See
//! docs/fuzzing.md.
#![forbid(unsafe_code)]

pub mod checks;
pub mod texts;
