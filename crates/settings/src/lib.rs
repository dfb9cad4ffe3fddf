//! What people write, read with care: quantities with their units, and TOML files. Each file's contents are
//! data ([`shape`]), from which its reader, its errors and its JSON Schema are made. Errors show their place
//! and what is allowed.
#![forbid(unsafe_code)]

pub mod argument;
pub mod diagnostic;
pub mod given;
pub mod input;
pub mod name;
pub mod read;
pub mod schema;
pub mod shape;
pub mod units;
pub mod written;
