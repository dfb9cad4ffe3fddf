//! Plain text tables: columns aligned, the first to the left, the rest to the right.

use unicode_width::UnicodeWidthStr;

/// A table that is being filled.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    left: usize,
    /// Most columns of characters: beyond, those aligned to the right are a space apart, not two.
    most: usize,
}

impl Table {
    /// A table with these headings, of which the first `left` columns are aligned to the left. A heading may
    /// have several lines.
    pub fn new(left: usize, head: &[&str]) -> Self {
        Table {
            head: head.iter().map(|text| (*text).to_string()).collect(),
            rows: Vec::new(),
            left,
            most: usize::MAX,
        }
    }

    /// With one space between the columns that are aligned to the right, where two make it wider than this.
    #[must_use]
    pub fn within(self, most: usize) -> Self {
        Table { most, ..self }
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
        let wide = widths.iter().map(|width| width + 2).sum::<usize>();
        let narrow = if wide > self.most { 1 } else { 2 };
        let line = |cells: &[String]| {
            let mut text = String::from(" ");
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let pad = " ".repeat(width - cell.width());
                let gap = if column > self.left { narrow } else { 2 };
                text += &" ".repeat(if column == 0 { 1 } else { gap });
                text += &if column < self.left { format!("{cell}{pad}") } else { format!("{pad}{cell}") };
            }
            text.trim_end().to_string() + "\n"
        };
        let mut text = String::new();
        let high = self.head.iter().map(|text| text.lines().count()).max().unwrap_or(0);
        for from_below in (0..high).rev() {
            let part = |text: &String| text.lines().rev().nth(from_below).unwrap_or_default().to_string();
            text += &line(&self.head.iter().map(part).collect::<Vec<_>>());
        }
        for row in &self.rows {
            text += &line(row);
        }
        text
    }
}
