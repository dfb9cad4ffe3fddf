//! A figure drawn: published points, the ruled setting and the fitted one with 95 % intervals. SVG that needs
//! nothing else and is readable on light and dark pages.

use std::fmt::Write as _;

use super::axis::Axis;
use super::svg::{escape, letters, wrap};

/// A point: place on the axis, value, interval.
pub(super) type Point = (f64, f64, Option<(f64, f64)>);

/// A curve or a set of points.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Curve {
    /// Which row: its colour.
    pub(super) row: usize,
    /// How it is drawn.
    pub(super) kind: Kind,
    pub(super) points: Vec<Point>,
}

/// What a curve is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Published,
    Ruled,
    Fitted,
}

/// A figure.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) rows: Vec<String>,
    /// Places along the figure: 0, 1, 2...
    pub(super) places: usize,
    /// Labels, with the places that they are at.
    pub(super) labels: Vec<(f64, String)>,
    /// Changes, which can be below zero, on a linear axis.
    pub(super) changes: bool,
    /// Points are joined by lines: they are values of one measure.
    pub(super) joined: bool,
    pub(super) curves: Vec<Curve>,
}

const COLOURS: [&str; 6] = ["#2b6cb0", "#c05621", "#2f855a", "#b83280", "#6b46c1", "#718096"];
const WIDTH: f64 = 760.0;
/// Of the part with the points.
const INNER: f64 = 232.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const FONT: f64 = 12.0;
const TITLE_FONT: f64 = 14.0;
const LINE: f64 = 18.0;

impl Chart {
    /// The picture; empty if there is nothing to draw.
    pub(super) fn svg(&self) -> String {
        let values = self.curves.iter().flat_map(|curve| &curve.points).flat_map(|(_, value, around)| {
            let (low, high) = around.unwrap_or((*value, *value));
            [*value, low, high]
        });
        let values: Vec<f64> = values.collect();
        let Some(axis) = Axis::of(&values, self.changes, INNER) else { return String::new() };
        let step = (WIDTH - LEFT - RIGHT) / self.places.max(1) as f64;
        let title = wrap(&self.title, letters(WIDTH - 12.0, TITLE_FONT));
        let legend = self.legend();
        let rows = legend.last().map_or(0.0, |(_, line, _)| line + 1.0);
        let top = LINE * (title.len() as f64 + rows) + 28.0;
        let between = self.labels.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(f64::INFINITY, f64::min);
        let room = letters(step * between.min(self.places as f64), FONT);
        let labels: Vec<_> = self.labels.iter().map(|(place, label)| (*place, wrap(label, room))).collect();
        let deepest = labels.iter().map(|(_, lines)| lines.len()).max().unwrap_or(0) as f64;
        let height = top + INNER + LINE * deepest + 30.0;
        let y = |value: f64| top + INNER - axis.height(value);
        let x = |place: f64| LEFT + step * (place + 0.5);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" \
             font-size=\"{FONT}\" fill=\"#718096\"><title>{}</title>\n",
            escape(&self.title)
        );
        for (line, words) in title.iter().enumerate() {
            let _ = writeln!(
                text,
                "<text x=\"6\" y=\"{}\" font-size=\"{TITLE_FONT}\">{}</text>",
                LINE * (line as f64 + 1.0),
                escape(words)
            );
        }
        for tick in axis.ticks() {
            let at = y(tick);
            let _ = writeln!(
                text,
                "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#a0aec0\" stroke-width=\".5\"/><text x=\"{}\" \
                 y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0
            );
        }
        let _ = writeln!(text, "<text x=\"6\" y=\"{}\">{}</text>", top - 9.0, escape(&self.unit));
        for (place, lines) in &labels {
            for (line, words) in lines.iter().enumerate() {
                let _ = writeln!(
                    text,
                    "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    x(*place),
                    top + INNER + LINE * (line as f64 + 1.0),
                    escape(words)
                );
            }
        }
        for (row, (along, line, label)) in legend.iter().enumerate() {
            let colour = COLOURS[row % COLOURS.len()];
            let at = LINE * (title.len() as f64 + line + 1.0);
            let _ = writeln!(
                text,
                "<circle cx=\"{along:.1}\" cy=\"{}\" r=\"4\" fill=\"{colour}\"/><text x=\"{:.1}\" \
                 y=\"{at}\">{}</text>",
                at - 4.0,
                along + 8.0,
                escape(label)
            );
        }
        let rows = self.rows.len().max(1) as f64;
        for curve in &self.curves {
            let shift = (curve.row as f64 - (rows - 1.0) / 2.0) * (step * 0.5 / rows).min(9.0);
            self.curve(&mut text, curve, |place| x(place) + shift, y);
        }
        let _ = writeln!(text, "<text x=\"6\" y=\"{}\">{}</text>\n</svg>", height - 8.0, self.key());
        text
    }

    /// Where each row's label is: along the line, and on which line.
    fn legend(&self) -> Vec<(f64, f64, &str)> {
        let (mut along, mut line) = (10.0, 0.0);
        let mut found = Vec::new();
        for label in &self.rows {
            let width = 26.0 + FONT * 0.56 * label.chars().count() as f64;
            if along > 10.0 && along + width > WIDTH {
                (along, line) = (10.0, line + 1.0);
            }
            found.push((along, line, label.as_str()));
            along += width;
        }
        found
    }

    /// What the marks are, of those that are there.
    fn key(&self) -> String {
        let drawn = |kind| self.curves.iter().any(|curve| curve.kind == kind && !curve.points.is_empty());
        let bars = self.curves.iter().flat_map(|curve| &curve.points).any(|point| point.2.is_some());
        let diamonds = if self.joined { "diamonds, dashed: fitted" } else { "diamonds: fitted" };
        let marks = [
            (drawn(Kind::Published), "rings: published"),
            (drawn(Kind::Ruled), "discs: as assumed"),
            (drawn(Kind::Fitted), diamonds),
            (bars, "bars: 95 % interval"),
        ];
        let words: Vec<&str> = marks.iter().filter(|(there, _)| *there).map(|(_, words)| *words).collect();
        words.join("; ")
    }

    fn curve(&self, text: &mut String, curve: &Curve, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) {
        let colour = COLOURS[curve.row % COLOURS.len()];
        let mut line = String::new();
        for (place, value, around) in &curve.points {
            let (at, height) = (x(*place), y(*value));
            let _ = write!(line, "{}{at:.1} {height:.1}", if line.is_empty() { "M" } else { "L" });
            if let Some((low, high)) = around {
                let (low, high) = (y(*low), y(*high));
                let _ = writeln!(text, "<path d=\"M{at:.1} {low:.1}V{high:.1}\" stroke=\"{colour}\"/>");
            }
            let _ = match curve.kind {
                Kind::Published => writeln!(
                    text,
                    "<circle cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"5\" fill=\"none\" stroke=\"{colour}\" \
                     stroke-width=\"2\"/>"
                ),
                Kind::Ruled => {
                    writeln!(text, "<circle cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"3\" fill=\"{colour}\"/>")
                }
                Kind::Fitted => writeln!(
                    text,
                    "<path d=\"M{:.1} {height:.1}l4 -4l4 4l-4 4z\" fill=\"{colour}\"/>",
                    at - 4.0
                ),
            };
        }
        let dashes = match curve.kind {
            Kind::Published => return,
            Kind::Ruled => "",
            Kind::Fitted => " stroke-dasharray=\"5 3\"",
        };
        if self.joined && curve.points.len() > 1 {
            let _ = writeln!(
                text,
                "<path d=\"{line}\" fill=\"none\" stroke=\"{colour}\" opacity=\".6\"{dashes}/>"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let curve =
            |kind| Curve { row: 0, kind, points: vec![(0.0, 1.0, None), (1.0, 2.0, Some((1.5, 2.5)))] };
        Chart {
            title: "a < b".into(),
            unit: "s".into(),
            rows: vec!["a".into()],
            places: 2,
            labels: vec![(0.0, "1".into()), (1.0, "2".into())],
            changes: false,
            joined: true,
            curves: vec![curve(Kind::Published), curve(Kind::Ruled), curve(Kind::Fitted)],
        }
    }

    #[test]
    fn draws_each_point_once_and_nothing_for_nothing() {
        let mut chart = chart();
        let svg = chart.svg();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("a &lt; b"));
        assert_eq!(svg.matches("r=\"5\"").count(), 2);
        assert_eq!(svg.matches("r=\"3\"").count(), 2);
        assert_eq!(svg.matches("l4 -4").count(), 2);
        assert_eq!(svg.matches("opacity").count(), 2);
        chart.curves.clear();
        assert_eq!(chart.svg(), "");
    }

    #[test]
    fn the_key_names_only_marks_that_are_there() {
        let mut chart = chart();
        assert_eq!(
            chart.key(),
            "rings: published; discs: as assumed; diamonds, dashed: fitted; bars: 95 % interval"
        );
        chart.curves.retain(|curve| curve.kind == Kind::Ruled);
        chart.curves[0].points.pop();
        assert_eq!(chart.key(), "discs: as assumed");
    }

    /// Places of different measures: a line between them would say that something goes from one to the other.
    #[test]
    fn values_of_different_measures_are_not_joined() {
        let svg = Chart { joined: false, ..chart() }.svg();
        assert_eq!(svg.matches("opacity").count(), 0);
    }

    /// Nothing is cut off at the right, and nothing runs into what is beside it.
    #[test]
    fn long_words_go_on_in_the_next_line() {
        let title = "number of timeouts ".repeat(7);
        let rows: Vec<String> = (0..9).map(|row| format!("a long name of row {row}")).collect();
        let labels = vec![(0.0, "Packets sent on subflow 1 ".repeat(4)), (1.0, "2".into())];
        let chart = Chart { title, rows, labels, ..chart() };
        let svg = chart.svg();
        let lines: Vec<&str> = svg.lines().filter(|line| line.starts_with("<text")).collect();
        for line in &lines {
            let words = line.split('>').nth(1).unwrap().trim_end_matches("</text");
            assert!(words.chars().count() <= 100, "{words}");
        }
        assert_eq!(lines.iter().filter(|line| line.contains("number of")).count(), 2);
        assert_eq!(lines.iter().filter(|line| line.contains("Packets sent")).count(), 2);
        let legend = chart.legend();
        assert!(legend.last().unwrap().1 > 0.0);
        let far = |(along, _, label): &(f64, f64, &str)| along + 8.0 + 6.7 * label.len() as f64;
        assert!(legend.iter().all(|one| far(one) <= WIDTH));
    }
}
