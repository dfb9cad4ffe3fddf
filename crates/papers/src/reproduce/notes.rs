//! `notes.toml`: words about what was found. A number in them is a reference to a result, which the page
//! fills in; a reference to a difference says which way it goes, and is an error once the result no longer
//! does.
//!
//! | reference | filled in |
//! |---|---|
//! | `{figure/row/column}` | the mean, with its unit |
//! | `{figure/row/column/less/other}` | `12 % less`: row against `other`; an error unless it is less |
//! | `{figure/row/column/more/other}` | `12 % more`, likewise |
//! | `{figure/row/column/level/other}` | `within 2 %`, or an error |
//! | `{figure/row/all/more/other}` | with the geometric mean over the figure's columns; so are `less` and `level` |
//! | `{agree/claim}`, `{agree/claim/claim}` | `13 of 14`: how many comparisons of these claims agree, of all of them |
//! | `{half/claim}`, `{half/claim/claim}` | `3 of 5`: likewise, of those that are no ties; an error unless it is half of them or more |
//! | `{under-half/claim}` | likewise; an error unless it is less than half |
//!
//! `claim@figure` is a claim in that one of its readings, as assumed.
//!
//! `fitted:` before it: in the fitted setting. `connections of a page: one for each object:` before it: in
//! that value of an open setting, as `paper.toml` names both. So a note says what an experiment shows, and is
//! an error once it shows something else.
//!
//! A note's key is a claim's, or `summary`; `real-summary` is that of the results in real time.

use std::collections::BTreeMap;

use super::effect::MARGIN;
use super::error::{NoteError, ReferenceError};
use super::measure::unit;
use super::plan::MAIN;
use super::{Paper, World};

/// Means by figure, setting, row and column; the metric too.
pub type Results = BTreeMap<(String, String, String, String), (String, f64)>;

/// Comparisons by setting and claim.
pub type Agreements = BTreeMap<(String, String), Counted>;

/// How many of a claim's comparisons agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Those that agree.
    pub agree: usize,
    /// Those that are ties.
    pub ties: usize,
    /// All of them.
    pub all: usize,
}

/// The key of the note on a world's results as a whole.
pub const fn summary(world: World) -> &'static str {
    match world {
        World::Simulated => "summary",
        World::Emulated => "real-summary",
    }
}

/// A paper's notes on results of this world, by key.
pub fn of(paper: &Paper, world: World) -> impl Iterator<Item = (&str, &str)> {
    let here = move |id: &str| {
        let claim = paper.claims.iter().find(|claim| claim.id == id);
        claim.map_or(id == summary(world), |claim| paper.world_of(claim) == world)
    };
    let notes = paper.notes.iter().map(|(id, note)| (id.as_str(), note.as_str()));
    notes.filter(move |(id, _)| here(id))
}

/// Fills a note's references in.
///
/// # Errors
/// A reference to what isn't there, or that its result contradicts.
pub fn fill(note: &str, results: &Results, agreements: &Agreements) -> Result<String, NoteError> {
    let mut text = String::new();
    let mut rest = note;
    while let Some((before, after)) = rest.split_once('{') {
        let (reference, behind) = after.split_once('}').ok_or_else(|| NoteError::Unclosed(after.into()))?;
        text += before;
        text += &one(reference, results, agreements)
            .map_err(|error| NoteError::Reference { reference: reference.into(), error })?;
        rest = behind;
    }
    Ok(text + rest)
}

fn one(reference: &str, results: &Results, agreements: &Agreements) -> Result<String, ReferenceError> {
    let (setting, path) =
        reference.rsplit_once(':').map_or((MAIN, reference), |(setting, path)| (setting, path));
    if !results.keys().any(|(_, known, ..)| known == setting) {
        return Err(ReferenceError::Setting(setting.into()));
    }
    let parts: Vec<&str> = path.split('/').collect();
    if let [counted @ ("agree" | "half" | "under-half"), claims @ ..] = parts.as_slice() {
        return agreed(counted, setting, claims, agreements);
    }
    let find = |row: &str| match parts.as_slice() {
        [figure, _, "all", ..] => over_all(figure, setting, row, results),
        [figure, _, column, ..] => {
            let key = (figure.to_string(), setting.to_string(), row.to_string(), column.to_string());
            results.get(&key).cloned().ok_or_else(|| {
                let (figure, setting, row, column) = key;
                ReferenceError::NoResult { figure, setting, row, column }
            })
        }
        _ => Err(ReferenceError::Parts),
    };
    let (metric, mean) = find(parts.get(1).copied().unwrap_or_default())?;
    let [_, _, _, relation, other] = parts.as_slice() else {
        return Ok(format!("{} {}", super::report::number(mean), unit(&metric)).trim_end().into());
    };
    let (_, against) = find(other)?;
    let change = (mean / against - 1.0) * 100.0;
    let level = change.abs() <= MARGIN;
    match *relation {
        "less" if change < -MARGIN => Ok(format!("{:.0} % less", -change)),
        "more" if change > MARGIN => Ok(format!("{change:.0} % more")),
        "level" if level => Ok(format!("within {MARGIN:.0} %")),
        "less" | "more" | "level" => {
            let change = format!("{change:+.1}");
            Err(ReferenceError::Contradicted { change, relation: (*relation).into() })
        }
        _ => Err(ReferenceError::Relation((*relation).into())),
    }
}

/// A row's geometric mean over its figure's columns, which have one measure.
fn over_all(
    figure: &str,
    setting: &str,
    row: &str,
    results: &Results,
) -> Result<(String, f64), ReferenceError> {
    let own: Vec<&(String, f64)> = results
        .iter()
        .filter(|((of, known, label, _), _)| of == figure && known == setting && label == row)
        .map(|(_, found)| found)
        .collect();
    let Some((metric, _)) = own.first().filter(|first| own.iter().all(|one| one.0 == first.0 && one.1 > 0.0))
    else {
        let (figure, setting, row) = (figure.into(), setting.into(), row.into());
        return Err(ReferenceError::NoResult { figure, setting, row, column: "all".into() });
    };
    let logs: f64 = own.iter().map(|one| libm::log(one.1)).sum();
    Ok((metric.clone(), libm::exp(logs / own.len() as f64)))
}

/// How many comparisons of these claims agree: of all, or of those that are no ties.
fn agreed(
    counted: &str,
    setting: &str,
    claims: &[&str],
    agreements: &Agreements,
) -> Result<String, ReferenceError> {
    let mut sum = Counted::default();
    for claim in claims {
        let of = agreements.get(&(setting.into(), (*claim).into()));
        let of = of.ok_or_else(|| ReferenceError::Claim((*claim).into(), setting.into()))?;
        sum.agree += of.agree;
        sum.ties += of.ties;
        sum.all += of.all;
    }
    let Counted { agree, ties, all } = sum;
    let apart = all - ties;
    let half = apart > 0 && 2 * agree >= apart;
    match counted {
        "agree" => Ok(format!("{agree} of {all}")),
        "half" if half => Ok(format!("{agree} of {apart}")),
        "under-half" if !half => Ok(format!("{agree} of {apart}")),
        _ => Err(ReferenceError::Half { agree, apart, relation: counted.into() }),
    }
}

/// Results that are written out in a note instead of referred to: a number with a unit.
pub fn numbers_in_prose(note: &str) -> Vec<String> {
    let mut outside = String::new();
    let mut depth = 0;
    for letter in note.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ if depth == 0 => outside.push(letter),
            _ => {}
        }
    }
    let words: Vec<&str> = outside.split_whitespace().collect();
    let number = |word: &str| word.trim_start_matches(['+', '-', '(']).parse::<f64>().is_ok();
    let measured = |word: &str| {
        let word = word.trim_end_matches(['.', ',', ';', ':', ')']);
        ["%", "s", "ms", "Mbit/s", "MB/s", "KiB", "packets", "times", "points"].contains(&word)
    };
    let pairs = words.windows(2).filter(|pair| number(pair[0]) && measured(pair[1]));
    pairs.map(|pair| pair.join(" ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let key = |row: &str| ("t".to_string(), MAIN.to_string(), row.to_string(), "1 MB".to_string());
        Results::from([
            (key("a"), ("fct".into(), 0.8)),
            (key("b"), ("fct".into(), 1.0)),
            (key("c"), ("fct".into(), 1.01)),
        ])
    }

    #[test]
    fn references_are_filled_in() {
        let text = fill(
            "it takes {t/a/1 MB}, {t/a/1 MB/less/b}; c is {t/c/1 MB/level/b}.",
            &results(),
            &Agreements::new(),
        );
        assert_eq!(text.unwrap(), "it takes 0.800 s, 20 % less; c is within 2 %.");
    }

    #[test]
    fn an_experiment_is_referred_to_by_its_setting() {
        let mut results = results();
        let key = |row: &str| ("t".into(), "loss: 0.01 %".into(), row.into(), "1 MB".into());
        results.insert(key("a"), ("fct".into(), 2.0));
        results.insert(key("b"), ("fct".into(), 1.0));
        let text =
            fill("with loss a takes {loss: 0.01 %:t/a/1 MB/more/b}", &results, &Agreements::new()).unwrap();
        assert_eq!(text, "with loss a takes 100 % more");
        let none = Agreements::new();
        assert!(fill("{loss: 0.01 %:t/a/1 MB/less/b}", &results, &none).is_err());
        let error = fill("{loss: 1 %:t/a/1 MB}", &results, &none).unwrap_err().to_string();
        assert_eq!(error, "`{loss: 1 %:t/a/1 MB}`: there is no setting `loss: 1 %`");
    }

    #[test]
    fn all_columns_are_compared_by_their_geometric_mean() {
        let mut results = results();
        let key = |row: &str| ("t".to_string(), MAIN.to_string(), row.to_string(), "2 MB".to_string());
        results.insert(key("a"), ("fct".into(), 5.0));
        results.insert(key("b"), ("fct".into(), 9.0));
        let none = Agreements::new();
        assert_eq!(fill("{t/a/all}, {t/a/all/less/b}", &results, &none).unwrap(), "2.00 s, 33 % less");
        results.insert(key("b"), ("fct".into(), 0.0));
        assert!(fill("{t/a/all/less/b}", &results, &none).is_err());
    }

    #[test]
    fn a_sentence_that_its_result_contradicts_is_an_error() {
        for wrong in
            ["{t/b/1 MB/less/a}", "{t/a/1 MB/level/b}", "{t/c/1 MB/more/b}", "{t/a/2 MB}", "{t/a/1 MB"]
        {
            assert!(fill(wrong, &results(), &Agreements::new()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn agreeing_comparisons_of_several_claims_are_summed_up() {
        let key = |setting: &str, claim: &str| (setting.to_string(), claim.to_string());
        let counted = |agree, ties, all| Counted { agree, ties, all };
        let agreements = Agreements::from([
            (key(MAIN, "below"), counted(3, 0, 3)),
            (key(MAIN, "above"), counted(3, 0, 4)),
            (key(MAIN, "order"), counted(1, 3, 6)),
            (key("fitted", "above"), counted(4, 0, 4)),
        ]);
        let mut results = results();
        results.insert(("t".into(), "fitted".into(), "a".into(), "1 MB".into()), ("fct".into(), 0.8));
        let of = |note: &str| fill(note, &results, &agreements);
        assert_eq!(of("{agree/below/above} conditions").unwrap(), "6 of 7 conditions");
        assert_eq!(of("{fitted:agree/above}").unwrap(), "4 of 4");
        assert_eq!(of("{half/above/order}, {under-half/order/order}").unwrap(), "4 of 7, 2 of 6");
        let error = of("{half/order}").unwrap_err().to_string();
        assert_eq!(error, "`{half/order}`: 1 of 3 agree, not `half`");
        assert!(of("{under-half/above}").is_err());
        let error = of("{fitted:agree/below}").unwrap_err().to_string();
        assert_eq!(error, "`{fitted:agree/below}`: the claim `below` isn't judged in the setting `fitted`");
    }

    #[test]
    fn results_written_out_are_found_and_names_are_not() {
        assert_eq!(numbers_in_prose("it is 12 % ahead, 3.5 s."), ["12 %", "3.5 s."]);
        assert!(numbers_in_prose("Table 2, 128 KB, over 3G, {t/a/1 MB} in v0.90").is_empty());
    }
}
