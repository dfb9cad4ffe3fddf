//! Plain text tables: columns aligned, the first to the left, the rest to the right.

use unicode_width::UnicodeWidthStr;

/// A table that is being filled.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    left: usize,
}

impl Table {
    /// A table with these headings, of which the first `left` columns are aligned to the left. A heading may have two lines.
    pub fn new(left: usize, head: &[&str]) -> Self {
        Table { head: head.iter().map(|text| (*text).to_string()).collect(), rows: Vec::new(), left }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The text, each line indented by two.
    pub fn render(&self) -> String {
        let widest = |text: &String| text.lines().map(UnicodeWidthStr::width).max().unwrap_or(0);
        let mut widths: Vec<usize> = self.head.iter().map(widest).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let line = |cells: &[String]| {
            let mut text = String::from(" ");
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let pad = " ".repeat(width - cell.width());
                text += if column == 0 { " " } else { "  " };
                text += &if column < self.left { format!("{cell}{pad}") } else { format!("{pad}{cell}") };
            }
            text.trim_end().to_string() + "\n"
        };
        let upper = |text: &String| text.split_once('\n').map_or(String::new(), |(upper, _)| upper.into());
        let lower = |text: &String| text.rsplit('\n').next().unwrap_or_default().to_string();
        let mut text = String::new();
        if self.head.iter().any(|text| text.contains('\n')) {
            text += &line(&self.head.iter().map(upper).collect::<Vec<_>>());
        }
        text += &line(&self.head.iter().map(lower).collect::<Vec<_>>());
        for row in &self.rows {
            text += &line(row);
        }
        text
    }
}
