//! Heat maps: an entrant against the oracle over a family's two quantities.

use std::fmt::Write;

use super::{FAMILIES, Results, Score};

/// A family's cells, row by row.
#[derive(Clone, PartialEq, Debug)]
pub struct Map {
    /// The family.
    pub family: &'static str,
    /// What it is about.
    pub summary: &'static str,
    /// Names of the columns' and the rows' quantity.
    pub axes: (&'static str, &'static str),
    /// Values of the columns.
    pub columns: Vec<f64>,
    /// Values of the rows, and the ratios; none: not measured.
    pub rows: Vec<(f64, Vec<Option<f64>>)>,
}

/// The maps of all families of the grid that were measured.
pub fn maps(results: &Results, score: &Score) -> Vec<Map> {
    let at = |family: &str, x: f64, y: f64| {
        let cell = results.cells.iter().find(|cell| cell.family == family && cell.x == x && cell.y == y)?;
        score.cells.iter().find(|scored| scored.id == cell.id).map(|scored| scored.oracle)
    };
    let all = FAMILIES.iter().map(|family| Map {
        family: family.name,
        summary: family.summary,
        axes: (family.x.name, family.y.name),
        columns: family.x.levels.to_vec(),
        rows: family
            .y
            .levels
            .iter()
            .map(|y| (*y, family.x.levels.iter().map(|x| at(family.name, *x, *y)).collect()))
            .collect(),
    });
    all.filter(|map| map.rows.iter().any(|(_, row)| row.iter().any(Option::is_some))).collect()
}

/// Regret in percent, with its sign.
fn percent(ratio: f64) -> String {
    format!("{:+.0}", (ratio - 1.0) * 100.0)
}

impl Map {
    /// As text.
    pub fn render(&self) -> String {
        let mut text = format!("{}: {}\n", self.family, self.summary);
        let _ = write!(text, "{:>10} ", "");
        for column in &self.columns {
            let _ = write!(text, "{column:>7}");
        }
        let _ = writeln!(text, "   {}", self.axes.0);
        for (row, ratios) in &self.rows {
            let _ = write!(text, "{row:>10} ");
            for ratio in ratios {
                let shown = ratio.map_or_else(|| ".".into(), percent);
                let _ = write!(text, "{shown:>7}");
            }
            text.push('\n');
        }
        let _ = writeln!(text, "{:>10}", self.axes.1);
        text
    }
}

/// From green (the oracle's half) over white (the oracle's time) to red (its double).
fn colour(ratio: f64) -> String {
    let depth = (libm::log2(ratio).abs() * 1.6).min(1.0);
    let mix = |to: f64| (255.0 + (to - 255.0) * depth).round() as u8;
    let (red, green, blue) = if ratio > 1.0 { (214.0, 72.0, 60.0) } else { (46.0, 139.0, 87.0) };
    format!("#{:02x}{:02x}{:02x}", mix(red), mix(green), mix(blue))
}

/// All maps as one picture.
pub fn svg(title: &str, maps: &[Map]) -> String {
    const CELL: usize = 46;
    const ROW: usize = 22;
    const LEFT: usize = 64;
    const COLUMNS: usize = 3;
    const WIDTH: usize = 370;
    let height = |map: &Map| 62 + ROW * map.rows.len();
    let bands: Vec<usize> =
        maps.chunks(COLUMNS).map(|band| band.iter().map(height).max().unwrap_or(0) + 14).collect();
    let (width, total) = (COLUMNS * WIDTH, 34 + bands.iter().sum::<usize>());
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {total}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{total}\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"20\" font-size=\"14\">{title}</text>\n"
    );
    let mut top = 34;
    for (band, maps) in maps.chunks(COLUMNS).enumerate() {
        for (place, map) in maps.iter().enumerate() {
            let left = place * WIDTH + 8;
            let _ = writeln!(
                out,
                "<g transform=\"translate({left},{top})\">\n<title>{}</title>\n<text y=\"12\" \
                 font-weight=\"bold\">{}</text>\
                 <text y=\"26\" fill=\"#555\">across: {}</text><text y=\"39\" fill=\"#555\">down: {}</text>",
                map.summary, map.family, map.axes.0, map.axes.1
            );
            for (column, value) in map.columns.iter().enumerate() {
                let x = LEFT + column * CELL + CELL / 2;
                let _ = writeln!(out, "<text x=\"{x}\" y=\"54\" text-anchor=\"middle\">{value}</text>");
            }
            for (row, (value, ratios)) in map.rows.iter().enumerate() {
                let y = 58 + row * ROW;
                let _ = writeln!(
                    out,
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{value}</text>",
                    LEFT - 6,
                    y + 15
                );
                for (column, ratio) in ratios.iter().enumerate() {
                    let Some(ratio) = ratio else { continue };
                    let x = LEFT + column * CELL;
                    let _ = writeln!(
                        out,
                        "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{ROW}\" fill=\"{}\" \
                         stroke=\"#fff\"/>\
                         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                        colour(*ratio),
                        x + CELL / 2,
                        y + 15,
                        percent(*ratio)
                    );
                }
            }
            out.push_str("</g>\n");
        }
        top += bands[band];
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_text_follow_the_ratio() {
        assert_eq!(colour(1.0), "#ffffff");
        assert_eq!(colour(2.0), "#d6483c");
        assert_eq!(colour(0.25), "#2e8b57");
        let map = Map {
            family: "f",
            summary: "s",
            axes: ("x", "y"),
            columns: vec![1.0, 2.0],
            rows: vec![(64.0, vec![Some(1.1), None])],
        };
        assert!(map.render().contains("+10"), "{}", map.render());
        let picture = svg("t", &[map]);
        assert!(picture.contains(">+10<") && picture.matches("<rect").count() == 2);
    }
}
