//! A file's settings as options: each key that a command line may have becomes an option of its name, with
//! its bounds and its default in its help.

use std::marker::PhantomData;
use std::ops::Deref;

use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use ropewalk_settings::given;
use ropewalk_settings::shape::{Field, Kind};

/// The tables of a file whose keys are options.
pub trait Tables: Clone + Send + Sync + 'static {
    /// Their headers and what they may hold.
    const TABLES: &'static given::Tables;
}

/// The options that are given.
#[derive(Clone, Debug)]
pub struct Given<T>(given::Given, PhantomData<T>);

impl<T: Tables> Given<T> {
    /// These options, with their values.
    pub fn of<'a>(given: impl IntoIterator<Item = (&'a str, Vec<String>)>) -> Given<T> {
        Given(given::Given::by_option(T::TABLES, given), PhantomData)
    }
}

impl<T> Deref for Given<T> {
    type Target = given::Given;

    fn deref(&self) -> &given::Given {
        &self.0
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
        Kind::Bytes(..) | Kind::BytesOrNone(_) | Kind::Sizes => "SIZE",
        Kind::Probability => "SHARE",
        Kind::Rate | Kind::Rates => "RATE",
        Kind::Integer(..) | Kind::Number(..) => "NUMBER",
        Kind::Switch => "true|false",
        _ => "TEXT",
    }
}

fn is_quantity(kind: &Kind) -> bool {
    !matches!(kind, Kind::Text | Kind::File | Kind::Socket | Kind::Address | Kind::Choice(_) | Kind::Texts)
}

fn argument(field: &'static Field, option: &'static str) -> Arg {
    let is_list = matches!(field.kind, Kind::Texts | Kind::Sizes);
    let mut help = field.line();
    if is_list {
        help.push_str("; repeat it for each");
    }
    if let Some(bounds) = field.kind.bounds() {
        help.push_str(&format!(" ({bounds})"));
    }
    if !field.default.is_empty() {
        help.push_str(&format!(" [default: {}]", field.default));
    }
    let argument = Arg::new(option).long(option).value_name(placeholder(field)).help(help);
    let action = if is_list { ArgAction::Append } else { ArgAction::Set };
    let argument = argument.aliases(field.alias).action(action);
    match field.kind {
        Kind::Switch => argument.num_args(0..=1).require_equals(true).default_missing_value(""),
        // A negative one is refused by the reader, in its words.
        _ => argument.allow_hyphen_values(is_quantity(&field.kind)),
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
        let given = fields::<T>()
            .filter_map(|(_, option)| Some((option, matches.get_many::<String>(option)?.cloned().collect())));
        Ok(Given::of(given))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Given::from_arg_matches(matches)?;
        Ok(())
    }
}
