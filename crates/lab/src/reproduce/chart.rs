//! A figure drawn: published points, the ruled setting and the fitted one with 95 % intervals. SVG that needs nothing
//! else and is readable on light and dark pages.

use std::fmt::Write as _;

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
    /// Labels of the places 0, 1, 2...
    pub(super) places: Vec<String>,
    pub(super) curves: Vec<Curve>,
}

const COLOURS: [&str; 6] = ["#2b6cb0", "#c05621", "#2f855a", "#b83280", "#6b46c1", "#718096"];
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 44.0;

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Chart {
    /// The picture; empty if there is nothing to draw.
    pub(super) fn svg(&self) -> String {
        let values = self.curves.iter().flat_map(|curve| &curve.points).flat_map(|(_, value, around)| {
            let (low, high) = around.unwrap_or((*value, *value));
            [*value, low, high]
        });
        let values: Vec<f64> = values.filter(|value| *value > 0.0 && value.is_finite()).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        if !(least.is_finite() && most > 0.0) {
            return String::new();
        }
        // A logarithmic axis shows ratios, which the claims are about.
        let (bottom, top) = (libm::log10(least) - 0.06, libm::log10(most) + 0.06);
        let inner = HEIGHT - TOP - BOTTOM;
        let y = |value: f64| {
            let log = libm::log10(value.max(least)).clamp(bottom, top);
            TOP + inner * (1.0 - (log - bottom) / (top - bottom))
        };
        let step = (WIDTH - LEFT - 20.0) / self.places.len().max(1) as f64;
        let x = |place: f64| LEFT + step * (place + 0.5);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\" fill=\"#718096\"><title>{0}</title>\n<text x=\"{LEFT}\" y=\"18\" font-size=\"14\">{0}</text>\n",
            escape(&self.title)
        );
        for tick in ticks(bottom, top) {
            let at = y(tick);
            let _ = writeln!(
                text,
                "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#a0aec0\" stroke-width=\".5\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
                WIDTH - 20.0,
                LEFT - 6.0,
                at + 4.0
            );
        }
        let _ = writeln!(text, "<text x=\"6\" y=\"{}\">{}</text>", TOP - 8.0, escape(&self.unit));
        for (place, label) in self.places.iter().enumerate() {
            let _ = writeln!(
                text,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                x(place as f64),
                HEIGHT - BOTTOM + 18.0,
                escape(label)
            );
        }
        let mut along = LEFT;
        for (row, label) in self.rows.iter().enumerate() {
            let colour = COLOURS[row % COLOURS.len()];
            let _ = writeln!(
                text,
                "<circle cx=\"{along:.1}\" cy=\"34\" r=\"4\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"38\">{}</text>",
                along + 8.0,
                escape(label)
            );
            along += 24.0 + 7.0 * label.chars().count() as f64;
        }
        let rows = self.rows.len().max(1) as f64;
        for curve in &self.curves {
            let colour = COLOURS[curve.row % COLOURS.len()];
            let shift = (curve.row as f64 - (rows - 1.0) / 2.0) * (step * 0.5 / rows).min(9.0);
            let mut line = String::new();
            for (place, value, around) in &curve.points {
                let (at, height) = (x(*place) + shift, y(*value));
                let _ = write!(line, "{}{at:.1} {height:.1}", if line.is_empty() { "M" } else { "L" });
                if let Some((low, high)) = around {
                    let _ = writeln!(
                        text,
                        "<path d=\"M{at:.1} {:.1}V{:.1}\" stroke=\"{colour}\"/>",
                        y(*low),
                        y(*high)
                    );
                }
                let _ = match curve.kind {
                    Kind::Published => writeln!(
                        text,
                        "<circle cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"5\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
                    ),
                    Kind::Ruled => {
                        writeln!(
                            text,
                            "<circle cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"3\" fill=\"{colour}\"/>"
                        )
                    }
                    Kind::Fitted => writeln!(
                        text,
                        "<path d=\"M{:.1} {height:.1}l4 -4l4 4l-4 4z\" fill=\"{colour}\"/>",
                        at - 4.0
                    ),
                };
            }
            let dashes = match curve.kind {
                Kind::Published => continue,
                Kind::Ruled => "",
                Kind::Fitted => " stroke-dasharray=\"5 3\"",
            };
            let _ = writeln!(
                text,
                "<path d=\"{line}\" fill=\"none\" stroke=\"{colour}\" opacity=\".6\"{dashes}/>"
            );
        }
        let _ = writeln!(
            text,
            "<text x=\"{LEFT}\" y=\"{}\">rings: published; discs: as ruled; diamonds, dashed: fitted; bars: 95 %</text>\n</svg>",
            HEIGHT - 6.0
        );
        text
    }
}

/// 1, 2 and 5 times powers of ten between two logarithms.
fn ticks(bottom: f64, top: f64) -> Vec<f64> {
    let mut found = Vec::new();
    for power in libm::floor(bottom) as i32..=libm::ceil(top) as i32 {
        for digit in [1.0, 2.0, 5.0] {
            let value = digit * libm::pow(10.0, f64::from(power));
            let log = libm::log10(value);
            if (bottom..=top).contains(&log) {
                found.push(libm::round(value * 1e9) / 1e9);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_each_point_once_and_nothing_for_nothing() {
        let curve =
            |kind| Curve { row: 0, kind, points: vec![(0.0, 1.0, None), (1.0, 2.0, Some((1.5, 2.5)))] };
        let mut chart = Chart {
            title: "a < b".into(),
            unit: "s".into(),
            rows: vec!["a".into()],
            places: vec!["1".into(), "2".into()],
            curves: vec![curve(Kind::Published), curve(Kind::Ruled), curve(Kind::Fitted)],
        };
        let svg = chart.svg();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("a &lt; b"));
        assert_eq!(svg.matches("r=\"5\"").count(), 2);
        assert_eq!(svg.matches("r=\"3\"").count(), 2);
        assert_eq!(svg.matches("l4 -4").count(), 2);
        chart.curves.clear();
        assert_eq!(chart.svg(), "");
    }
}
