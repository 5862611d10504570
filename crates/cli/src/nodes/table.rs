//! Tables on a terminal.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, presets};

/// A table whose columns after the first `left` are figures.
pub(crate) fn new(columns: &[&str], left: usize) -> Table {
    let mut table = Table::new();
    let style = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());
    table.load_style(style).set_header(columns);
    match console::Term::stdout().size_checked() {
        Some((_, width)) => table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
