//! The papers' folders, compiled in. A new paper is a new folder plus one entry here.

use std::collections::BTreeMap;
use std::path::Path;

use super::open::{self, Fitted};
use super::{Paper, PaperError, published};

/// A folder's files.
struct Files<'a> {
    name: &'a str,
    paper: &'a str,
    claims: &'a str,
    published: &'a str,
    notes: &'a str,
    open: &'a str,
    fitted: &'a str,
    scenarios: Vec<(&'a str, &'a str)>,
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

        /// Names of a paper's scenario files.
        fn scenarios(name: &str) -> &'static [&'static str] {
            match name {
                $($name => &[$($scenario),+],)+
                _ => &[],
            }
        }

        fn compiled(name: &str) -> Option<Files<'static>> {
            match name {
                $($name => Some(Files {
                    name: $name,
                    paper: text!($name, "paper.toml"),
                    claims: text!($name, "claims.toml"),
                    published: text!($name, "published.csv"),
                    notes: text!($name, "notes.toml"),
                    open: text!($name, "open.toml"),
                    fitted: text!($name, "fitted.toml"),
                    scenarios: vec![$(($scenario, text!($name, $scenario))),+],
                }),)+
                _ => None,
            }
        }
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
pub fn load(name: &str) -> Option<Result<Paper, PaperError>> {
    compiled(name).map(|files| read(&files))
}

/// A paper's files as they are in `folder/name` now, instead of those compiled in.
///
/// # Errors
/// A file can't be read, or what is wrong in it.
pub fn load_from(folder: &Path, name: &str) -> Result<Paper, PaperError> {
    let text = |file: &str| {
        let path = folder.join(name).join(file);
        std::fs::read_to_string(&path).map_err(|error| PaperError::Unreadable {
            file: path.display().to_string(),
            reason: error.to_string(),
        })
    };
    let texts = ["paper.toml", "claims.toml", "published.csv", "notes.toml", "open.toml", "fitted.toml"];
    let [paper, claims, published, notes, open, fitted] = texts.map(text);
    let own = scenarios(name).iter().map(|file| Ok((*file, text(file)?)));
    let own = own.collect::<Result<Vec<_>, PaperError>>()?;
    read(&Files {
        name,
        paper: &paper?,
        claims: &claims?,
        published: &published?,
        notes: &notes?,
        open: &open?,
        fitted: &fitted?,
        scenarios: own.iter().map(|(name, text)| (*name, text.as_str())).collect(),
    })
}

fn read(files: &Files<'_>) -> Result<Paper, PaperError> {
    let wrong = |file: &'static str, reason: &dyn ToString| PaperError::File {
        paper: files.name.into(),
        file,
        reason: reason.to_string(),
    };
    let plan = toml::from_str(files.paper).map_err(|error| wrong("paper.toml", &error))?;
    let claims: Claims = toml::from_str(files.claims).map_err(|error| wrong("claims.toml", &error))?;
    let notes: BTreeMap<String, String> =
        toml::from_str(files.notes).map_err(|error| wrong("notes.toml", &error))?;
    let published = published::parse(files.published).map_err(|error| wrong("published.csv", &error))?;
    let unknowns = open::parse(files.open).map_err(|error| wrong("open.toml", &error))?;
    let fitted = Fitted::parse(files.fitted).map_err(|error| wrong("fitted.toml", &error))?;
    let scenarios = files.scenarios.iter().map(|(name, text)| ((*name).to_string(), (*text).to_string()));
    Ok(Paper {
        name: files.name.into(),
        plan,
        claims: claims.claim,
        published,
        notes,
        unknowns,
        fitted,
        scenarios: scenarios.collect(),
    })
}
