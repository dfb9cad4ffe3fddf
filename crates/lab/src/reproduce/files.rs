//! The papers' folders, compiled in. A new paper is a new folder plus one entry here.

use std::collections::BTreeMap;

use super::{Paper, published};

/// A folder's files.
struct Files {
    name: &'static str,
    paper: &'static str,
    claims: &'static str,
    published: &'static str,
    notes: &'static str,
    scenarios: &'static [(&'static str, &'static str)],
}

macro_rules! text {
    ($name:literal, $file:literal) => {
        include_str!(concat!("../../../../papers/", $name, "/", $file))
    };
}

macro_rules! papers {
    ($($name:literal: $($scenario:literal),+;)+) => {
        /// The papers' names.
        pub const NAMES: &[&str] = &[$($name),+];
        const FILES: &[Files] = &[$(Files {
            name: $name,
            paper: text!($name, "paper.toml"),
            claims: text!($name, "claims.toml"),
            published: text!($name, "published.csv"),
            notes: text!($name, "notes.toml"),
            scenarios: &[$(($scenario, text!($name, $scenario))),+],
        }),+];
    };
}

papers! {
    "cfs-2019": "testbed.toml", "web.toml";
    "kim-choi": "links.toml";
    "blest-2016": "3g-wlan.toml", "wlan-wlan.toml", "real.toml";
    "yang-2013": "testbed.toml", "cross.toml", "biased.toml", "satellite.toml";
    "5g-2019": "separate.toml", "competing.toml", "shared.toml";
}

/// The claims of `claims.toml`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    claim: Vec<super::Claim>,
}

/// A paper by name; none if there is no such paper.
///
/// # Errors
/// What is wrong in its files, with the file's name.
pub fn load(name: &str) -> Option<Result<Paper, String>> {
    let files = FILES.iter().find(|files| files.name == name)?;
    Some(read(files))
}

fn read(files: &Files) -> Result<Paper, String> {
    let wrong = |file: &str, what: String| format!("papers/{}/{file}: {what}", files.name);
    let plan = toml::from_str(files.paper).map_err(|error| wrong("paper.toml", error.to_string()))?;
    let claims: Claims =
        toml::from_str(files.claims).map_err(|error| wrong("claims.toml", error.to_string()))?;
    let notes: BTreeMap<String, String> =
        toml::from_str(files.notes).map_err(|error| wrong("notes.toml", error.to_string()))?;
    let published = published::parse(files.published).map_err(|error| wrong("published.csv", error))?;
    let scenarios = files.scenarios.iter().map(|(name, text)| ((*name).to_string(), (*text).to_string()));
    Ok(Paper {
        name: files.name.into(),
        plan,
        claims: claims.claim,
        published,
        notes,
        scenarios: scenarios.collect(),
    })
}
