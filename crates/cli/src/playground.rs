//! `ropewalk playground`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ropewalk_algorithms::Registries;
use ropewalk_command_line::settings::Tables;
use ropewalk_command_line::{Failure, output};
use ropewalk_lab::{ask, scenario};
use ropewalk_settings::diagnostic::{Diagnostic, Source};
use ropewalk_settings::input::{self, Opened, ReadError, Want};
use serde_json::{Value, json};

use crate::options::{self, Common};

/// The engine for browsers, packed by gzip: its name beside the program, or in `lib/ropewalk` beside the
/// program's folder.
const ENGINE: &str = "ropewalk.wasm.gz";

/// Text of recorded links that the page puts into an address, bytes: `LARGEST_IN_ADDRESS` in
/// web/src/address.js.
pub(crate) const LONGEST_IN_ADDRESS: usize = 200_000;

/// More than any engine has.
const LARGEST_ENGINE: Want = Want { most: 64 << 20, pipe: false };

/// Write the laboratory as one HTML file, which compares schedulers in the browser
///
/// It needs no network and no installation: it can be opened from a disk, sent by mail, or put on any web
/// server. Paths, sizes and schedulers that are given are what it opens with.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalk playground
  ropewalk playground --path 'home: dsl' --path 'phone: 4g' --output home.html
  ropewalk playground --scenario my-links.toml

In a source tree, `web/playground` builds the engine for browsers, this program, and the page.")]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// The page's file
    #[arg(long, short, value_name = "FILE", default_value = "playground.html")]
    output: PathBuf,
    /// The engine for browsers, packed by gzip [default: ropewalk.wasm.gz in this program's folder or in
    /// ../lib/ropewalk]
    #[arg(long, value_name = "FILE")]
    engine: Option<PathBuf>,
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    // Without options the page opens with its own example.
    let asked = if options.common.is_default() { json!({}) } else { asked(registries, &options.common)? };
    let engine = match &options.engine {
        Some(file) => engine(file)?,
        None => {
            let program = std::env::current_exe().unwrap_or_default();
            let folder = program.parent().unwrap_or(Path::new(""));
            let places = [folder.join(ENGINE), folder.join("../lib/ropewalk").join(ENGINE)];
            let found = places.into_iter().find(|file| file.exists()).ok_or_else(|| {
                Diagnostic::new(format!(
                    "there is no engine for browsers (`{ENGINE}`) in this program's folder"
                ))
                .help("`web/playground` in the source tree builds it; `--engine` names one")
            })?;
            engine(&found)?
        }
    };
    output::write_file(&options.output, &ropewalk_page::playground(&engine, &asked))?;
    output::print(&format!("{}\n", options.output.display()))
}

fn engine(file: &Path) -> Result<Vec<u8>, Failure> {
    let name = file.display();
    let refuse = |reason: String| Diagnostic::new(format!("can't use the engine `{name}`: {reason}"));
    let bytes = input::open(file, LARGEST_ENGINE)
        .and_then(Opened::whole)
        .map_err(|error| refuse(error.to_string()))?;
    // What gzip's files begin with.
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(refuse("it isn't packed by gzip".into()).help("as in `gzip -9 ropewalk.wasm`").into());
    }
    Ok(bytes)
}

/// What the page's fields hold for this; an error where it can't be compared.
pub(crate) fn asked<T: Tables>(registries: &Registries, common: &Common<T>) -> Result<Value, Failure> {
    common.load(registries)?;
    ask::sizes(&common.given, scenario::MOST_BYTES)?;
    ask::schedulers(&common.given)?;
    let links = match &common.scenario {
        Some(name) => options::load(registries, name).map(|loaded| {
            let built_in = scenario::builtins().iter().any(|known| known.name == name);
            if built_in { name.clone() } else { loaded.text }
        })?,
        None if common.paths.is_empty() => scenario::DEFAULT.into(),
        None => common.paths.join("\n"),
    };
    let files = traces(registries, &common.paths, common.scenario.as_deref());
    let mut asked = json!({ "links": links });
    // What the page has no field for.
    let mut without = Vec::new();
    for (field, values) in common.given.keys() {
        match field.name {
            "sizes" | "schedulers" | "direction" | "congestion" | "budget" | "seed" | "value" => {
                asked[field.name] = values.join(", ").into();
            }
            _ => without.extend(field.option.map(|option| format!("--{option}"))),
        }
    }
    if !without.is_empty() {
        asked["without"] = without.join(", ").into();
    }
    if !files.is_empty() {
        asked["files"] = json!(files);
    }
    Ok(asked)
}

thread_local! {
    /// Files that the scenario at hand names.
    static READ: RefCell<BTreeMap<PathBuf, String>> = const { RefCell::new(BTreeMap::new()) };
}

/// Opens a file, and remembers it.
fn remembering(path: &Path, want: Want) -> Result<Opened, ReadError> {
    let bytes = input::open(path, want)?.whole()?;
    if let Ok(text) = String::from_utf8(bytes.clone()) {
        READ.with_borrow_mut(|read| read.insert(path.to_path_buf(), text));
    }
    Ok(Opened::new(std::io::Cursor::new(bytes), want.most))
}

/// The recorded links that the question names, each by the name it has there.
fn traces(registries: &Registries, paths: &[String], scenario: Option<&str>) -> BTreeMap<String, String> {
    READ.take();
    let mut folder = PathBuf::new();
    let mut links = String::new();
    if let Some(name) = scenario {
        let loaded = options::load(registries, name).ok().filter(|_| Path::new(name).is_file());
        let Some(loaded) = loaded else { return BTreeMap::new() };
        folder = Path::new(name).parent().map(Path::to_path_buf).unwrap_or_default();
        let registries = Registries { open_file: remembering, ..Registries::builtin() };
        let source = Source::new(name, loaded.text.as_str());
        // What is wrong with it has been told.
        let _ = scenario::parse(&source, "scenario", &folder, &registries);
        links = loaded.text;
    } else {
        let _ = scenario::paths(paths, remembering);
    }
    let name = |path: &Path| {
        let whole = path.display().to_string();
        let is_named = folder.as_os_str().is_empty() || links.contains(&whole);
        match path.strip_prefix(&folder) {
            Ok(within) if !is_named => within.display().to_string(),
            _ => whole,
        }
    };
    READ.take().into_iter().map(|(path, text)| (name(&path), text)).collect()
}
