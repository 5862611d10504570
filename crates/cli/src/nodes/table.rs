//! Tables on a terminal.
//!
//! A table on a terminal fits its width and splits no word. Optional columns are left out first;
//! then text is wrapped between words. A redirected table is complete.

use std::fmt;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Width, presets};

/// Spaces that a column takes beside its content.
const PADDING: usize = 2;

/// The user's choice for a table: every column, or only those that fit.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Wide {
    /// Show every column, even if the terminal is too narrow
    #[arg(long)]
    wide: bool,
}

impl Wide {
    /// Returns the columns of the terminal that output must fit into, if it goes to one.
    pub(crate) fn columns(self) -> Option<usize> {
        let terminal = console::Term::stdout().size_checked();
        terminal.filter(|_| !self.wide).map(|(_, columns)| columns.into())
    }
}

/// Rows of text under named columns.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<String>,
    /// The first columns are text; the others are figures.
    text: usize,
    /// Columns that a narrow terminal leaves out, the least important first.
    optional: &'static [&'static str],
    rows: Vec<Vec<String>>,
    /// Columns of the terminal; `None` shows everything.
    width: Option<usize>,
}

/// Makes a table whose columns after the first `text` are figures.
pub(crate) fn new(columns: &[impl ToString], text: usize) -> Table {
    Table {
        columns: columns.iter().map(ToString::to_string).collect(),
        text,
        optional: &[],
        rows: Vec::new(),
        width: Wide::default().columns(),
    }
}

impl Table {
    /// Sets the columns that a narrow terminal leaves out, the least important first.
    pub(crate) fn optional(mut self, columns: &'static [&'static str]) -> Self {
        self.optional = columns;
        self
    }

    /// Shows every column if the user asks for that.
    pub(crate) fn wide(mut self, wide: Wide) -> Self {
        self.width = wide.columns();
        self
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn add_row(&mut self, row: impl IntoIterator<Item = impl ToString>) {
        self.rows
            .push(row.into_iter().map(|cell| cell.to_string()).collect());
    }

    /// Returns the text of a column: its name, then its cells.
    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        let cells = self.rows.iter().filter_map(move |row| row.get(column));
        std::iter::once(&self.columns[column])
            .chain(cells)
            .map(String::as_str)
    }

    /// Returns the columns that fit, and the names of those that do not.
    fn choose(&self) -> (Vec<usize>, Vec<&'static str>) {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let mut left_out = Vec::new();
        let natural = |shown: &[usize]| -> usize {
            let widths = shown.iter().map(|&column| {
                let widest = self.cells(column).map(console::measure_text_width).max();
                widest.unwrap_or(0) + PADDING
            });
            widths.sum()
        };
        let mut optional = self.optional.iter();
        while self.width.is_some_and(|width| natural(&shown) > width)
            && let Some(name) = optional.next()
        {
            shown.retain(|&column| self.columns[column] != *name);
            left_out.push(*name);
        }
        (shown, left_out)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shown, left_out) = self.choose();
        let cells = |row: &[String]| -> Vec<String> {
            let cell = |&column: &usize| row.get(column).cloned().unwrap_or_default();
            shown.iter().map(cell).collect()
        };
        let mut table = comfy_table::Table::new();
        let style = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());
        table.load_style(style).set_header(cells(&self.columns));
        table.add_rows(self.rows.iter().map(|row| cells(row)));
        match self.width.and_then(|width| u16::try_from(width).ok()) {
            Some(width) => table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        for (column, &index) in table.column_iter_mut().zip(&shown) {
            if index >= self.text {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if self.width.is_some() {
                let words = self.cells(index).flat_map(|cell| cell.split(' '));
                let longest = words.map(console::measure_text_width).max().unwrap_or(0) + PADDING;
                let longest = u16::try_from(longest).unwrap_or(u16::MAX);
                column.set_constraint(if index < self.text {
                    ColumnConstraint::LowerBoundary(Width::Fixed(longest))
                } else {
                    ColumnConstraint::ContentWidth
                });
            }
        }
        write!(f, "{table}")?;
        if !left_out.is_empty() {
            write!(f, "\nnot shown: {} (--wide shows all)", left_out.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(width: Option<usize>) -> String {
        let mut table = new(&["fabric", "node", "IPv4", "IPv6", "peers"], 4).optional(&["IPv6", "fabric"]);
        table.width = width;
        table.add_row(["services", "web", "10.77.0.1/16", "fd77:77:77:77::10/64", "3"]);
        table.to_string()
    }

    #[test]
    fn table_on_narrow_terminal_leaves_optional_columns_out() {
        let text = nodes(Some(48));
        assert!(
            text.contains("services") && text.contains("10.77.0.1/16"),
            "{text}"
        );
        assert!(
            !text.contains("fd77:") && text.ends_with("not shown: IPv6 (--wide shows all)"),
            "{text}"
        );
        let text = nodes(Some(34));
        assert!(text.contains("not shown: IPv6, fabric"), "{text}");
    }

    #[test]
    fn table_without_terminal_shows_every_column() {
        let text = nodes(None);
        assert!(
            text.contains("fd77:77:77:77::10/64") && !text.contains("not shown"),
            "{text}"
        );
    }

    #[test]
    fn table_on_narrow_terminal_wraps_text_between_words() {
        let mut table = new(&["counter", "what", "value"], 2);
        table.width = Some(50);
        table.add_row([
            "tcp_retransmits",
            "Segments that were sent a second time.",
            "1234567890",
        ]);
        let text = table.to_string();
        for word in ["tcp_retransmits", "Segments", "second", "1234567890"] {
            assert!(text.contains(word), "{word} is cut: {text}");
        }
        assert!(
            text.lines().all(|line| console::measure_text_width(line) <= 50),
            "{text}"
        );
    }
}
