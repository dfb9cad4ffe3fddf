//! A file's settings as options: each key that a command line may have becomes an option of its name, with
//! its bounds and its default in its help. What is given is written as a file ([`Written`]), which the file's
//! own reader reads.

use std::marker::PhantomData;
use std::sync::Arc;

use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use ropewalk_settings::diagnostic::Source;
use ropewalk_settings::shape::{Field, Kind, Shape};
use ropewalk_settings::written::Written;

/// The tables of a file whose keys are options.
pub trait Tables {
    /// Headers, as in `[proxy]` and `[[listener]]`, and the tables behind them. A table in two brackets is
    /// there even if no key of it is given.
    const TABLES: &'static [(&'static str, &'static Shape)];
}

/// The options that are given.
#[derive(Clone, Debug)]
pub struct Given<T> {
    values: Vec<(&'static Field, Vec<Arc<Source>>)>,
    tables: PhantomData<T>,
}

impl<T: Tables> Given<T> {
    /// The file that says the same.
    pub fn written(&self) -> Written {
        let mut written = Written::default();
        for (header, shape) in T::TABLES {
            written.table(header);
            for (field, values) in &self.values {
                if shape.fields.iter().any(|of_table| std::ptr::eq(of_table, *field)) {
                    written.key(shape, field.name, values);
                }
            }
        }
        written
    }

    /// The keys that are given, with their values as they are written on a command line.
    pub fn keys(&self) -> impl Iterator<Item = (&'static Field, Vec<&str>)> {
        self.values
            .iter()
            .map(|(field, values)| (*field, values.iter().map(|one| one.text.as_ref()).collect()))
    }

    /// The names of the options that are given.
    pub fn options(&self) -> impl Iterator<Item = &'static str> {
        self.values.iter().filter_map(|(field, _)| field.option)
    }
}

fn fields<T: Tables>() -> impl Iterator<Item = (&'static Field, &'static str)> {
    let all = T::TABLES.iter().flat_map(|(_, shape)| shape.fields);
    all.filter_map(|field| Some((field, field.option?)))
}

/// What stands for a key's value in help.
pub fn placeholder(field: &Field) -> &'static str {
    match field.kind {
        _ if !field.value.is_empty() => field.value,
        Kind::Choice(_) => "WORD",
        Kind::File => "FILE",
        Kind::Socket => "ADDRESS:PORT",
        Kind::Time | Kind::TimeWithin(..) | Kind::TimeWithSpread => "TIME",
        Kind::Address => "ADDRESS",
        Kind::Bytes(..) | Kind::BytesOrNone(_) => "SIZE",
        Kind::Rate | Kind::Rates => "RATE",
        Kind::Integer(..) | Kind::Number(..) => "NUMBER",
        Kind::Switch => "true|false",
        _ => "TEXT",
    }
}

fn argument(field: &'static Field, option: &'static str) -> Arg {
    let is_list = matches!(field.kind, Kind::Texts);
    let mut help = field.summary.to_string();
    if is_list {
        help.push_str("; repeat it for each");
    }
    if let Some(bounds) = field.kind.bounds() {
        help.push_str(&format!(": {bounds}"));
    }
    if !field.default.is_empty() {
        help.push_str(&format!(" [default: {}]", field.default));
    }
    let argument = Arg::new(option).long(option).value_name(placeholder(field)).help(help);
    match field.kind {
        Kind::Switch => argument.num_args(0..=1).require_equals(true).default_missing_value(""),
        _ if is_list => argument.action(ArgAction::Append),
        _ => argument,
    }
}

impl<T: Tables> clap::Args for Given<T> {
    fn augment_args(command: Command) -> Command {
        fields::<T>().fold(command, |command, (field, option)| command.arg(argument(field, option)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Tables> FromArgMatches for Given<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Given<T>, Error> {
        let given = fields::<T>().filter_map(|(field, option)| {
            let values = matches.get_many::<String>(option)?;
            let source = |value: &String| Source::new(format!("--{option}"), value.as_str());
            Some((field, values.map(source).collect()))
        });
        Ok(Given { values: given.collect(), tables: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Given::from_arg_matches(matches)?;
        Ok(())
    }
}
