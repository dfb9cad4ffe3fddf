//! Algorithms by name, with parameters: `ecf(beta=0.5)`, `blest:linux`, `capacity(gamma=0.5, delta=1.0)`.
//!
//! A [`Registry`] is a value that the caller owns and may add to; there is no global table. The same
//! type serves schedulers and congestion controls.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// One parameter of an algorithm.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// One line, with the unit.
    pub summary: &'static str,
    /// Its default.
    pub default: f64,
    /// Least and greatest value allowed.
    pub range: (f64, f64),
    /// Which values of the range it takes, and how they are written.
    pub kind: Kind,
    /// Takes a part of the rule away, to see what that part is worth; users aren't told of it.
    pub for_ablation: bool,
}

/// How a parameter's value is written. Every value is held as a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Any number of the range.
    Number,
    /// A whole number of the range.
    Whole,
    /// `true` or `false`; also 1 or 0.
    Switch,
    /// One of these words; also its place in the list, counted from 0.
    Choice(&'static [&'static str]),
}

impl Parameter {
    /// A number.
    pub const fn number(name: &'static str, default: f64, range: (f64, f64), summary: &'static str) -> Self {
        Parameter { name, summary, default, range, kind: Kind::Number, for_ablation: false }
    }

    /// A whole number.
    pub const fn whole(name: &'static str, default: f64, range: (f64, f64), summary: &'static str) -> Self {
        Parameter { name, summary, default, range, kind: Kind::Whole, for_ablation: false }
    }

    /// A switch.
    pub const fn switch(name: &'static str, default: bool, summary: &'static str) -> Self {
        let default = if default { 1.0 } else { 0.0 };
        Parameter { name, summary, default, range: (0.0, 1.0), kind: Kind::Switch, for_ablation: false }
    }

    /// A part of the rule, which is on but for ablations.
    pub const fn ablation(name: &'static str, summary: &'static str) -> Self {
        Parameter { for_ablation: true, ..Parameter::switch(name, true, summary) }
    }

    /// One of several words; `default` is a place in the list.
    pub const fn choice(
        name: &'static str,
        default: usize,
        words: &'static [&'static str],
        summary: &'static str,
    ) -> Self {
        let range = (0.0, (words.len() - 1) as f64);
        Parameter {
            name,
            summary,
            default: default as f64,
            range,
            kind: Kind::Choice(words),
            for_ablation: false,
        }
    }

    /// The value that `text` writes, if it is allowed.
    pub fn read(&self, text: &str) -> Option<f64> {
        let value = match (self.kind, text) {
            (Kind::Switch, "true") => 1.0,
            (Kind::Switch, "false") => 0.0,
            (Kind::Choice(words), _) if words.contains(&text) => {
                words.iter().position(|word| *word == text)? as f64
            }
            _ => text.parse::<f64>().ok()?,
        };
        let (least, greatest) = self.range;
        let whole = self.kind == Kind::Number || value == libm::trunc(value);
        (whole && value >= least && value <= greatest).then_some(value)
    }

    /// A value as [`Parameter::read`] takes it.
    pub fn write(&self, value: f64) -> String {
        match self.kind {
            Kind::Switch => (value != 0.0).to_string(),
            Kind::Choice(words) => {
                words.get(value as usize).map_or_else(|| value.to_string(), ToString::to_string)
            }
            Kind::Number | Kind::Whole => value.to_string(),
        }
    }

    /// What is allowed, for people: `a number from 0 to 1`.
    pub fn allowed(&self) -> String {
        let (least, greatest) = self.range;
        match self.kind {
            Kind::Number => format!("a number from {least} to {greatest}"),
            Kind::Whole => format!("a whole number from {least} to {greatest}"),
            Kind::Switch => "true or false".to_string(),
            Kind::Choice(words) => words.join(", ").to_string(),
        }
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
    /// Which rule of the contract: `single-path` (one path only: places as `minrtt` does), `even-split` (two
    /// identical paths: each at least 45 % of the bytes), `eligible` (names only subflows that may carry
    /// data: no backup while another is usable), `cwnd` (names only subflows whose windows have room),
    /// `work-conserving` (never waits with data to send and nothing in flight). For congestion controls:
    /// `ssthresh` (a loss leaves 2 segments at least), `single-path` (one subflow: as its parent), `harmless`
    /// (coupled subflows together grow no faster than one TCP), and those that `congestion/contract_tests.rs`
    /// asks for by name.
    pub rule: &'static str,
    /// Rationale, with the paper's section.
    pub reason: &'static str,
}

/// A kernel that implements Multipath TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kernel {
    /// Mainline Linux.
    Linux,
    /// The out-of-tree kernel of multipath-tcp.org (github.com/multipath-tcp/mptcp).
    MultipathTcp,
}

impl Kernel {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Linux => "Linux",
            Kernel::MultipathTcp => "multipath-tcp.org",
        }
    }

    /// That it has an algorithm, under the name that it has here; since when isn't noted.
    pub const fn has(self) -> InKernel {
        InKernel { kernel: self, name: None, since: None, is_default: false }
    }
}

/// How a kernel has an algorithm: `Kernel::Linux.has().called("default").by_default()`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct InKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// Its name there, where that is another.
    pub name: Option<&'static str>,
    /// The first version that has it, where not every version of Multipath TCP does.
    pub since: Option<&'static str>,
    /// Whether the kernel uses it unless told otherwise.
    pub is_default: bool,
}

impl InKernel {
    /// Under another name.
    #[must_use]
    pub const fn called(self, name: &'static str) -> InKernel {
        InKernel { name: Some(name), ..self }
    }

    /// From this version on.
    #[must_use]
    pub const fn since(self, version: &'static str) -> InKernel {
        InKernel { since: Some(version), ..self }
    }

    /// As the kernel's default.
    #[must_use]
    pub const fn by_default(self) -> InKernel {
        InKernel { is_default: true, ..self }
    }
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
    /// The kernels that have an algorithm of this name, each once; its rules may be a preset's.
    pub kernels: &'static [InKernel],
    /// Whether comparisons take it without being told its name; of schedulers only.
    pub compared_by_default: bool,
    /// Of congestion controls whose subflows know of each other: what it is with one subflow, by name. A
    /// preset is the preset of that name there, if there is one.
    pub single_path: Option<&'static str>,
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

impl<T: ?Sized> Entry<T> {
    /// What most have: no parameters, no presets, no exceptions, in no kernel. The rest is for the entry
    /// to say.
    pub const fn of(build: fn(&Values) -> Box<T>) -> Entry<T> {
        Entry {
            name: "",
            summary: "",
            source: "",
            parameters: &[],
            presets: &[],
            exceptions: &[],
            kernels: &[],
            compared_by_default: true,
            single_path: None,
            build,
        }
    }

    /// How a kernel has it, if it does.
    pub fn in_kernel(&self, kernel: Kernel) -> Option<&'static InKernel> {
        self.kernels.iter().find(|one| one.kernel == kernel)
    }

    /// The parameters that users are told of.
    pub fn shown_parameters(&self) -> impl Iterator<Item = &'static Parameter> {
        self.parameters.iter().filter(|parameter| !parameter.for_ablation)
    }

    /// The algorithm with its parameters' defaults, as a connection's settings take it. An algorithm of one's
    /// own needs no registry for that.
    pub fn spec(self) -> Spec<T> {
        let values = Values(self.parameters.iter().map(|p| (p.name, p.default)).collect());
        Spec { text: self.name.to_string(), entry: self, values: Arc::new(values), factory: None }
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

/// Builds the instances of an algorithm that needs more than its parameters: one written in another language,
/// say.
pub type Factory<T> = Arc<dyn Fn(&Values) -> Box<T> + Send + Sync>;

/// A specification that has been checked: build from it as often as there are connections.
pub struct Spec<T: ?Sized> {
    /// The canonical text: name, preset, and the parameters that differ from the defaults.
    pub text: String,
    /// The entry.
    pub entry: Entry<T>,
    /// Shared, since each run of thousands clones it several times.
    values: Arc<Values>,
    factory: Option<Factory<T>>,
}

impl<T: ?Sized> Clone for Spec<T> {
    fn clone(&self) -> Self {
        Spec {
            text: self.text.clone(),
            entry: self.entry,
            values: Arc::clone(&self.values),
            factory: self.factory.clone(),
        }
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
        match &self.factory {
            None => (self.entry.build)(&self.values),
            Some(factory) => factory(&self.values),
        }
    }
}

/// The algorithms that can be named.
pub struct Registry<T: ?Sized> {
    kind: &'static str,
    entries: Vec<Entry<T>>,
    factories: BTreeMap<&'static str, Factory<T>>,
}

impl<T: ?Sized> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.entries).finish()
    }
}

impl<T: ?Sized> Registry<T> {
    /// An empty one; `kind` is the word for messages ("scheduler").
    pub fn new(kind: &'static str) -> Self {
        Registry { kind, entries: Vec::new(), factories: BTreeMap::new() }
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

    /// Adds an algorithm of one's own.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn register(&mut self, entry: Entry<T>) -> Result<&mut Self, SpecError> {
        if self.entries.iter().any(|known| known.name == entry.name) {
            let message = format!("a {} `{}` is there already: choose another name", self.kind, entry.name);
            return Err(SpecError { message, span: (0, 0) });
        }
        Ok(self.add(entry))
    }

    /// As [`Registry::register`], for an algorithm that `factory` builds instead of [`Entry::build`].
    ///
    /// # Errors
    /// If the name is taken.
    pub fn register_with(&mut self, entry: Entry<T>, factory: Factory<T>) -> Result<&mut Self, SpecError> {
        self.register(entry)?.factories.insert(entry.name, factory);
        Ok(self)
    }

    /// All, in order of registration.
    pub fn entries(&self) -> &[Entry<T>] {
        &self.entries
    }

    /// What a kernel uses unless told otherwise.
    pub fn default_of(&self, kernel: Kernel) -> Option<&Entry<T>> {
        self.entries.iter().find(|entry| entry.in_kernel(kernel).is_some_and(|there| there.is_default))
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
        let mut given = Vec::new();
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
            if given.contains(&key) {
                return Err(error(format!("`{name}`: {key} is given twice"), key));
            }
            given.push(key);
            let Some(number) = parameter.read(value) else {
                let allowed = parameter.allowed();
                let message = format!("`{name}`: {key} = `{value}` is not allowed; allowed: {allowed}");
                return Err(error(message, value));
            };
            values.0.insert(parameter.name, number);
        }
        let changed: Vec<_> = entry
            .parameters
            .iter()
            .filter(|p| values.0[p.name] != base.0[p.name])
            .map(|p| format!("{}={}", p.name, p.write(values.0[p.name])))
            .collect();
        if !changed.is_empty() {
            canonical = format!("{canonical}({})", changed.join(", "));
        }
        let factory = self.factories.get(entry.name).cloned();
        Ok(Spec { text: canonical, entry: *entry, values: Arc::new(values), factory })
    }
}

/// Registers built-in algorithms, in this order: a new one is its file and its line in the list. It makes
/// their modules and the function `builtin`. `cargo fmt` doesn't see modules in a macro; `./test` formats
/// them too.
macro_rules! algorithms {
    ($(#[$about:meta])* $kind:literal, $algorithm:ident: $($name:ident,)*) => {
        $(mod $name;)*

        $(#[$about])*
        pub fn builtin() -> $crate::registry::Registry<dyn $algorithm> {
            let mut all = $crate::registry::Registry::new($kind);
            $(all.add($name::ENTRY);)*
            all
        }
    };
}
pub(crate) use algorithms;

fn describe<T: ?Sized>(entry: &Entry<T>) -> String {
    let shown = entry.shown_parameters();
    let list: Vec<_> =
        shown.map(|p| format!("{} ({}; default {})", p.name, p.allowed(), p.write(p.default))).collect();
    if list.is_empty() { "it has none".to_string() } else { format!("it has: {}", list.join("; ")) }
}

#[cfg(test)]
mod tests;
