use super::*;

fn figure(rows: &[&str], columns: &[(&str, f64)]) -> Figure {
    let rows = rows.iter().map(|row| format!("{{ label = \"{row}\" }}")).collect::<Vec<_>>().join(",");
    let columns: Vec<String> =
        columns.iter().map(|(label, x)| format!("{{ label = \"{label}\", x = {x} }}")).collect();
    let columns = columns.join(",");
    toml::from_str(&format!("id = \"t\"\ntitle = \"\"\nrows = [{rows}]\ncolumns = [{columns}]")).unwrap()
}

fn grid(means: &[&[f64]]) -> Grid {
    // A little noise, not the same in each row.
    let noise = [0.0, 0.01, -0.01, 0.02, -0.02];
    let cell = |row: usize, mean: f64| CellOutcome {
        metric: "fct".into(),
        values: (0..5).map(|run| mean * (1.0 + noise[(run + row) % 5])).collect(),
        bound: None,
        incomplete: 0.0,
    };
    let cells =
        means.iter().enumerate().map(|(row, line)| line.iter().map(|mean| cell(row, *mean)).collect());
    Grid { figure: 0, variant: MAIN.into(), cells: cells.collect() }
}

fn verdict(figure: &Figure, grid: &Grid, published: &[Published], test: &str) -> Verdict {
    let test: Test = toml::from_str(test).unwrap();
    let cells = View { figure, grid, published }.test(&test).unwrap();
    let contradicts = cells.iter().any(|cell| cell.contradicts);
    overall(&[summed(MAIN.into(), &cells)], contradicts)
}

const BEST: &str = "kind = \"best\"\nrow = \"a\"\ncolumns = \"all\"\nties = false";

#[test]
fn three_of_four_cells_are_enough_and_half_are_not() {
    let figure = figure(&["a", "b"], &[("1", 1.0), ("2", 2.0), ("3", 3.0), ("4", 4.0)]);
    let of = |b: &[f64]| verdict(&figure, &grid(&[&[1.0; 4], b]), &[], BEST);
    assert_eq!(of(&[1.2, 1.2, 1.2, 0.8]), Verdict::Reproduced);
    assert_eq!(of(&[1.2, 1.2, 0.8, 0.8]), Verdict::NotReproduced);
}

#[test]
fn the_same_runs_are_a_tie_not_a_failure() {
    let figure = figure(&["a", "b"], &[("1", 1.0), ("2", 2.0)]);
    let mut same = grid(&[&[1.0, 1.0], &[1.0, 1.0]]);
    same.cells[1] = same.cells[0].clone();
    assert_eq!(verdict(&figure, &same, &[], BEST), Verdict::Indistinguishable);
    let ties = BEST.replace("false", "true");
    assert_eq!(verdict(&figure, &same, &[], &ties), Verdict::Reproduced);
}

#[test]
fn a_difference_known_to_be_small_is_a_tie_and_one_that_counts_is_not() {
    let figure = figure(&["a", "b"], &[("1", 1.0)]);
    let of = |by: f64, claim: &str| {
        let noise = [0.0, 0.001, -0.001, 0.0005, -0.0005];
        let mut close = grid(&[&[1.0], &[1.0]]);
        close.cells[0][0].values = noise.iter().map(|part| by + part).collect();
        close.cells[1][0].values = vec![1.0; 5];
        verdict(&figure, &close, &[], claim)
    };
    assert_eq!(of(1.0005, BEST), Verdict::Indistinguishable);
    assert_eq!(of(0.99, BEST), Verdict::Reproduced);
    assert_eq!(of(1.01, BEST), Verdict::NotReproduced);
    let change = "kind = \"change\"\nrow = \"a\"\nagainst = \"b\"\ncolumns = \"all\"\nbetween = [-30, -10]";
    assert_eq!(of(1.0005, change), Verdict::Indistinguishable);
    assert_eq!(of(0.99, change), Verdict::Direction);
}

#[test]
fn the_sum_over_the_columns_is_one_comparison() {
    let figure = figure(&["a", "b"], &[("1", 1.0), ("2", 2.0), ("3", 3.0)]);
    let grid = grid(&[&[1.0, 5.0, 2.0], &[1.2, 7.0, 1.9]]);
    let sum = format!("{BEST}\nsum = true");
    assert_eq!(verdict(&figure, &grid, &[], BEST), Verdict::NotReproduced);
    assert_eq!(verdict(&figure, &grid, &[], &sum), Verdict::Reproduced);
    assert_eq!(verdict(&figure, &grid, &[], &format!("{sum}\nmost = true")), Verdict::NotReproduced);
}

fn printed(row: &str, value: f64) -> Published {
    let (table, column, unit) = ("t".into(), "1".into(), "s".into());
    Published { table, row: row.into(), column, value, half: 0.005, unit }
}

#[test]
fn printed_numbers_can_contradict_the_claim_or_be_too_close_to_tell() {
    let figure = figure(&["a", "b"], &[("1", 1.0)]);
    let even = grid(&[&[1.0], &[0.999]]);
    let against = [printed("a", 1.01), printed("b", 1.0)];
    assert_eq!(verdict(&figure, &even, &against, BEST), Verdict::Contradicts);
    let close = [printed("a", 1.0), printed("b", 1.005)];
    assert_eq!(verdict(&figure, &even, &close, BEST), Verdict::BelowResolution);
}

#[test]
fn a_change_of_the_right_sign_and_the_wrong_size_is_a_direction() {
    let figure = figure(&["a", "b"], &[("1", 1.0)]);
    let change = "kind = \"change\"\nrow = \"a\"\nagainst = \"b\"\ncolumns = \"all\"\nbetween = [-30, -10]";
    let of = |a: f64| verdict(&figure, &grid(&[&[a], &[1.0]]), &[], change);
    assert_eq!(of(0.8), Verdict::Reproduced);
    assert_eq!(of(0.93), Verdict::Direction);
    assert_eq!(of(1.2), Verdict::NotReproduced);
}

#[test]
fn noise_is_no_crossing() {
    let columns = [("1", 1.0), ("2", 2.0), ("3", 3.0), ("4", 4.0)];
    let figure = figure(&["a", "b"], &columns);
    let crossing = "kind = \"crossing\"\nrow = \"a\"\nagainst = \"b\"\nbetween = [2, 3]";
    let of = |a: &[f64]| verdict(&figure, &grid(&[a, &[1.0; 4]]), &[], crossing);
    assert_eq!(of(&[0.8, 0.9, 1.1, 1.2]), Verdict::Reproduced);
    assert_eq!(of(&[0.8, 1.001, 0.999, 1.2]), Verdict::Reproduced);
    assert_eq!(of(&[0.8, 1.2, 0.8, 1.2]), Verdict::NotReproduced);
    assert_eq!(of(&[0.8, 0.8, 0.8, 1.2]), Verdict::Direction);
}

#[test]
fn the_fitted_setting_makes_it_inferred() {
    let setting = |variant: &str, verdict| InSetting {
        variant: variant.into(),
        verdict,
        agree: 0,
        ties: 0,
        cells: 1,
        detail: String::new(),
    };
    let main = setting(MAIN, Verdict::Indistinguishable);
    let other = setting("queue: 9", Verdict::Reproduced);
    assert_eq!(overall(&[main.clone(), other], false), Verdict::Indistinguishable);
    let fitted = setting(FITTED, Verdict::Reproduced);
    assert_eq!(overall(&[main.clone(), fitted], false), Verdict::Inferred);
    assert_eq!(overall(&[main], true), Verdict::Contradicts);
}

#[test]
fn a_verdict_of_both_settings_is_counted_where_more_agree() {
    let setting = |variant: &str, verdict, agree| InSetting {
        variant: variant.into(),
        verdict,
        agree,
        ties: 0,
        cells: 15,
        detail: String::new(),
    };
    let deciding = |verdict, settings: &[InSetting]| {
        let judgement = Judgement {
            id: String::new(),
            text: String::new(),
            figure: String::new(),
            verdict,
            settings: settings.to_vec(),
            readings: Vec::new(),
        };
        judgement.deciding().unwrap().variant.clone()
    };
    let none = Verdict::NotReproduced;
    let other = setting("queue: 9", none, 14);
    assert_eq!(deciding(none, &[setting(MAIN, none, 0), other.clone(), setting(FITTED, none, 10)]), FITTED);
    assert_eq!(deciding(none, &[setting(MAIN, none, 5), other, setting(FITTED, none, 5)]), MAIN);
    let direction = Verdict::Direction;
    assert_eq!(deciding(direction, &[setting(MAIN, direction, 1), setting(FITTED, none, 10)]), MAIN);
    let holds = Verdict::Reproduced;
    assert_eq!(deciding(holds, &[setting(MAIN, holds, 12), setting(FITTED, holds, 15)]), MAIN);
    assert_eq!(deciding(Verdict::Inferred, &[setting(MAIN, none, 0), setting(FITTED, holds, 12)]), FITTED);
}

#[test]
fn each_column_has_the_order_of_its_published_numbers() {
    let figure = figure(&["a", "b", "unprinted"], &[("1", 1.0)]);
    let grid = grid(&[&[1.0], &[1.2], &[9.0]]);
    let order = "kind = \"published-order\"";
    assert_eq!(verdict(&figure, &grid, &[printed("a", 1.0), printed("b", 1.5)], order), Verdict::Reproduced);
    assert_eq!(
        verdict(&figure, &grid, &[printed("a", 1.5), printed("b", 1.0)], order),
        Verdict::NotReproduced
    );
}

#[test]
fn a_sentence_about_several_rows_is_one_claim() {
    let figure = figure(&["base", "a", "b"], &[("1", 1.0)]);
    let test = "kind = \"change\"\nrow = \"a\"\nmore = [\"b\"]\nagainst = \"base\"\ncolumns \
                = \"all\"\nbetween = [10, 30]";
    assert_eq!(verdict(&figure, &grid(&[&[1.0], &[1.2], &[1.25]]), &[], test), Verdict::Reproduced);
    assert_ne!(verdict(&figure, &grid(&[&[1.0], &[1.2], &[1.0]]), &[], test), Verdict::Reproduced);
}

/// A curve that leaves the bounds and comes back hasn't settled, whatever its mean.
#[test]
fn settling_is_staying() {
    let paper = crate::reproduce::load("blest-2016").unwrap().unwrap();
    let curve = |label: &str, late: [f64; 4]| Series {
        figure: "lambda".into(),
        label: label.into(),
        variant: MAIN.into(),
        metric: "lambda".into(),
        points: (0..5)
            .map(|n| (10.0 + 6.0 * n as f64, if n == 0 { 2.0 } else { late[n - 1] }, 0.0))
            .collect(),
    };
    let series: Vec<Series> = ["0.001", "0.003", "0.005", "0.01", "0.02"]
        .iter()
        .zip([[0.5; 4], [0.5, 0.4, 0.3, 0.2], [0.5, 0.5, 0.01, 0.5], [0.5, 1.5, 0.1, 0.5], [0.0; 4]])
        .map(|(delta, late)| curve(&format!("delta {delta}"), late))
        .collect();
    let judged = judge(&paper, &[], &series, World::Simulated, Some("lambda"));
    let claim = judged.iter().find(|judgement| judgement.id == "lambda-below-1").unwrap();
    // What was before the twentieth second doesn't count.
    assert_eq!((claim.settings[0].agree, claim.settings[0].cells), (2, 5));
    assert!(claim.settings[0].detail.contains("delta 0.005: 0.010 to 0.500"), "{}", claim.settings[0].detail);
}
