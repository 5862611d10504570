//! Figures and tables as text for people.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, presets};

use crate::statistics::Estimate;
use crate::workload::Quantity;

/// The properties of the output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// Columns of the terminal; `None` if tables are as wide as necessary.
    pub width: Option<u16>,
    /// Whether it shows colours.
    pub colours: bool,
}

/// A median with its interval.
pub(super) fn interval(ratio: &Estimate) -> String {
    format!(
        "{} [{}–{}]",
        digits(ratio.median),
        digits(ratio.low),
        digits(ratio.high)
    )
}

/// An empty table whose columns after the first `left` are aligned to the right.
pub(super) fn new_table(columns: impl Iterator<Item = String>, left: usize, look: Look) -> Table {
    let mut table = Table::new();
    let style = presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none());
    table.load_style(style).set_header(columns);
    match look.width {
        Some(width) => table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The unit for people, to which [`shown`] scales.
pub(super) fn unit(quantity: Quantity, is_long: bool) -> &'static str {
    match quantity {
        Quantity::Time if is_long => "(ms)",
        Quantity::Time => "(µs)",
        Quantity::Throughput => "(Gb/s)",
        Quantity::Rate => "(1/s)",
        Quantity::CpuPerThousand => "(ms/1000)",
        Quantity::CpuPerGigabyte => "(s/GB)",
        Quantity::Share | Quantity::Availability | Quantity::Hits | Quantity::Utilization => "(%)",
        Quantity::PerMessage => "(1/message)",
        Quantity::Interrupts => "(1/s)",
        Quantity::Pcbs => "(PCBs)",
        Quantity::FileBandwidth => "(MB/s)",
    }
}

/// A value in the unit for people.
pub(super) fn shown(value: f64, quantity: Quantity, is_long: bool) -> String {
    match quantity {
        Quantity::Time if is_long => digits(value / 1e6),
        Quantity::Time => digits(value / 1e3),
        Quantity::Throughput => digits(value / 1e9),
        Quantity::FileBandwidth => digits(value / 1e6),
        Quantity::Rate | Quantity::Interrupts => format!("{value:.0}"),
        Quantity::CpuPerThousand => digits(value * 1e3),
        Quantity::CpuPerGigabyte | Quantity::PerMessage | Quantity::Pcbs => digits(value),
        Quantity::Share | Quantity::Availability | Quantity::Hits | Quantity::Utilization => {
            digits(value * 100.0)
        }
    }
}

/// A figure with its unit, for people.
pub fn spoken(value: f64, quantity: Quantity) -> String {
    let unit = unit(quantity, false).trim_matches(['(', ')']);
    format!("{} {unit}", shown(value, quantity, false))
}

/// Three significant digits, without an exponent.
pub(super) fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = value.abs().max(1e-4).log10().floor() as i32;
    let decimals = usize::try_from(2 - magnitude).unwrap_or(0);
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_readable_unit() {
        let shown = |value, quantity| super::shown(value, quantity, false);
        assert_eq!(shown(850.4, Quantity::Time), "0.850");
        assert_eq!(shown(7_412.0, Quantity::Time), "7.41");
        assert_eq!(shown(123_456_789.0, Quantity::Time), "123457");
        assert_eq!(super::shown(1_234_567.0, Quantity::Time, true), "1.23");
        assert_eq!(shown(62.44e9, Quantity::Throughput), "62.4");
        assert_eq!(shown(33_123.6, Quantity::Rate), "33124");
        assert_eq!(shown(0.0016, Quantity::CpuPerThousand), "1.60");
        assert_eq!(shown(0.25, Quantity::CpuPerGigabyte), "0.250");
        assert_eq!(shown(0.0123, Quantity::Share), "1.23");
        assert_eq!(digits(0.0), "0");
        assert_eq!(digits(12_345.6), "12346");
    }
}
