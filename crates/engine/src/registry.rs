//! Algorithms by name, with parameters: `ecf(beta=0.5)`, `blest:linux`, `capacity(gamma=0.5, delta=1.0)`.
//!
//! A [`Registry`] is a value that the caller owns and may add to; there is no global table. The same
//! type serves schedulers and congestion controls.

use std::collections::BTreeMap;
use std::fmt;

/// One parameter of an algorithm.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// One line, with the unit.
    pub summary: &'static str,
    /// Its default.
    pub default: f64,
    /// Least and greatest value allowed. A switch has 0 and 1 and also takes `true` and `false`.
    pub range: (f64, f64),
}

impl Parameter {
    /// A number.
    pub const fn number(name: &'static str, default: f64, range: (f64, f64), summary: &'static str) -> Self {
        Parameter { name, summary, default, range }
    }

    /// A switch.
    pub const fn switch(name: &'static str, default: bool, summary: &'static str) -> Self {
        Parameter { name, summary, default: if default { 1.0 } else { 0.0 }, range: (0.0, 1.0) }
    }
}

/// A named set of parameter values: `blest:linux`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Preset {
    /// What stands after the colon.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// What it sets.
    pub values: &'static [(&'static str, f64)],
}

/// A departure from the contract that every algorithm's tests check, declared as data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exception {
    /// Which rule of the contract: `single-path`, `even-split`, `cwnd`, `work-conserving`.
    pub rule: &'static str,
    /// Why, with the paper's section.
    pub reason: &'static str,
}

/// An algorithm that can be built by name. `T` is what is built.
pub struct Entry<T: ?Sized> {
    /// Its name.
    pub name: &'static str,
    /// The rule in one line.
    pub summary: &'static str,
    /// Paper, section and equation, or RFC.
    pub source: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Its presets.
    pub presets: &'static [Preset],
    /// Departures from the shared contract.
    pub exceptions: &'static [Exception],
    /// Builds it. The values are complete and in range.
    pub build: fn(&Values) -> Box<T>,
}

impl<T: ?Sized> Clone for Entry<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Entry<T> {}

impl<T: ?Sized> fmt::Debug for Entry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Parameter values: those given, those of the preset, then the defaults.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Values(BTreeMap<&'static str, f64>);

impl Values {
    /// A number.
    ///
    /// # Panics
    /// If the entry declares no such parameter: a mistake of the algorithm's author.
    pub fn number(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(value) => *value,
            None => panic!("the algorithm reads parameter `{name}`, which its entry doesn't declare"),
        }
    }

    /// A switch.
    pub fn switch(&self, name: &str) -> bool {
        self.number(name) != 0.0
    }
}

/// A specification that can't be built; the message says what is allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct SpecError {
    /// For people.
    pub message: String,
    /// Byte range of the offending part in the specification.
    pub span: (usize, usize),
}

/// A specification that has been checked: build from it as often as there are connections.
pub struct Spec<T: ?Sized> {
    /// The canonical text: name, preset, and the parameters that differ from the defaults.
    pub text: String,
    /// The entry.
    pub entry: Entry<T>,
    values: Values,
}

impl<T: ?Sized> Clone for Spec<T> {
    fn clone(&self) -> Self {
        Spec { text: self.text.clone(), entry: self.entry, values: self.values.clone() }
    }
}

impl<T: ?Sized> fmt::Debug for Spec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spec({})", self.text)
    }
}

impl<T: ?Sized> Spec<T> {
    /// A fresh instance.
    pub fn build(&self) -> Box<T> {
        (self.entry.build)(&self.values)
    }
}

/// The algorithms that can be named.
pub struct Registry<T: ?Sized> {
    kind: &'static str,
    entries: Vec<Entry<T>>,
}

impl<T: ?Sized> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.entries).finish()
    }
}

impl<T: ?Sized> Registry<T> {
    /// An empty one; `kind` is the word for messages ("scheduler").
    pub fn new(kind: &'static str) -> Self {
        Registry { kind, entries: Vec::new() }
    }

    /// Adds an algorithm.
    ///
    /// # Panics
    /// If the name is taken.
    pub fn add(&mut self, entry: Entry<T>) -> &mut Self {
        assert!(
            !self.entries.iter().any(|known| known.name == entry.name),
            "`{}` is registered twice",
            entry.name
        );
        self.entries.push(entry);
        self
    }

    /// All, in order of registration.
    pub fn entries(&self) -> &[Entry<T>] {
        &self.entries
    }

    /// Parses `name`, `name:preset`, `name(key=value, ...)` or `name:preset(key=value, ...)`.
    ///
    /// # Errors
    /// An unknown name, preset or parameter, or a value out of range: the message lists what is allowed.
    pub fn parse(&self, text: &str) -> Result<Spec<T>, SpecError> {
        let error = |message: String, part: &str| {
            let start = part.as_ptr() as usize - text.as_ptr() as usize;
            SpecError { message, span: (start, start + part.len()) }
        };
        let trimmed = text.trim();
        let (head, arguments) = match trimmed.split_once('(') {
            None => (trimmed, None),
            Some((head, rest)) => match rest.strip_suffix(')') {
                Some(arguments) => (head.trim_end(), Some(arguments)),
                None => return Err(error(format!("`{trimmed}`: expected `)` at the end"), rest)),
            },
        };
        let (name, preset) = match head.split_once(':') {
            None => (head, None),
            Some((name, preset)) => (name.trim_end(), Some(preset.trim_start())),
        };
        let Some(entry) = self.entries.iter().find(|entry| entry.name == name) else {
            let known: Vec<_> = self.entries.iter().map(|entry| entry.name).collect();
            return Err(error(format!("unknown {} `{name}`; known: {}", self.kind, known.join(", ")), name));
        };
        let mut values = Values(entry.parameters.iter().map(|p| (p.name, p.default)).collect());
        let mut canonical = name.to_string();
        if let Some(preset) = preset {
            let Some(found) = entry.presets.iter().find(|known| known.name == preset) else {
                let known: Vec<_> = entry.presets.iter().map(|p| p.name).collect();
                let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
                return Err(error(format!("`{name}` has no preset `{preset}`; presets: {known}"), preset));
            };
            for (key, value) in found.values {
                values.0.insert(key, *value);
            }
            canonical = format!("{name}:{preset}");
        }
        let base = values.clone();
        for argument in arguments.into_iter().flat_map(|list| list.split(',')) {
            let argument = argument.trim();
            if argument.is_empty() {
                continue;
            }
            let Some((key, value)) = argument.split_once('=') else {
                return Err(error(format!("`{argument}`: expected `parameter=value`"), argument));
            };
            let (key, value) = (key.trim(), value.trim());
            let Some(parameter) = entry.parameters.iter().find(|p| p.name == key) else {
                return Err(error(format!("`{name}` has no parameter `{key}`; {}", describe(entry)), key));
            };
            let number = match value {
                "true" if parameter.range == (0.0, 1.0) => Some(1.0),
                "false" if parameter.range == (0.0, 1.0) => Some(0.0),
                _ => value.parse::<f64>().ok(),
            };
            let (least, greatest) = parameter.range;
            match number {
                Some(number) if number >= least && number <= greatest => {
                    values.0.insert(parameter.name, number);
                }
                _ => {
                    let message = format!(
                        "`{name}`: {key} = `{value}` is not allowed; a number from {least} to {greatest} is"
                    );
                    return Err(error(message, value));
                }
            }
        }
        let changed: Vec<_> = entry
            .parameters
            .iter()
            .filter(|p| values.0[p.name] != base.0[p.name])
            .map(|p| format!("{}={}", p.name, values.0[p.name]))
            .collect();
        if !changed.is_empty() {
            canonical = format!("{canonical}({})", changed.join(", "));
        }
        Ok(Spec { text: canonical, entry: *entry, values })
    }
}

fn describe<T: ?Sized>(entry: &Entry<T>) -> String {
    if entry.parameters.is_empty() {
        return "it has none".to_string();
    }
    let list: Vec<_> = entry
        .parameters
        .iter()
        .map(|p| format!("{} ({} to {}, default {})", p.name, p.range.0, p.range.1, p.default))
        .collect();
    format!("it has: {}", list.join(", "))
}
