//! Layouts of a message's time as stacked bars.

use plotters::prelude::*;
use toehold_trace::kernel::KernelActor;

use super::scale::Scale;
use super::{COLOURS, Canvas, Failed, SIZE, TEXT, TITLE};
use crate::report::format::digits;
use crate::report::layout::LayoutBar;

/// How dense the colours are of stages of one actor, one after the other.
const DENSITIES: [f64; 4] = [1.0, 0.72, 0.5, 0.34];

/// Pixels of a letter in a bar.
const LETTER: i32 = 9;

/// The colour of closing errors.
const ERROR: RGBColor = RGBColor(166, 60, 0);

/// A bar for each candidate, its stages in order, and below it a bar for its closing error.
pub(in crate::report) fn stacked(title: &str, bars: &[LayoutBar]) -> String {
    let mut svg = String::new();
    // Writing into a string cannot fail.
    let _ = draw(
        title,
        bars,
        &SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(),
    );
    svg
}

fn draw<'a>(title: &str, bars: &[LayoutBar], canvas: &Canvas<'a>) -> Result<(), Failed<'a>> {
    canvas.fill(&WHITE)?;
    let title = format!("{title} (µs, lower is better)");
    canvas.draw(&Text::new(title, (30, 20), ("sans-serif", TITLE)))?;
    for (number, actor) in KernelActor::ALL.iter().enumerate() {
        let x = 30 + 190 * number as i32;
        let mark = Rectangle::new([(x, 66), (x + 18, 84)], COLOURS[number].filled());
        canvas.draw(&mark)?;
        canvas.draw(&Text::new(actor.name(), (x + 26, 64), ("sans-serif", TEXT)))?;
    }
    let whole = |bar: &LayoutBar| bar.segments.iter().map(|segment| segment.value).sum::<f64>();
    let longest = bars.iter().map(whole).fold(f64::MIN_POSITIVE, f64::max);
    let names = bars
        .iter()
        .flat_map(|bar| [bar.name.clone(), "closing error".into()]);
    let mut builder = ChartBuilder::on(canvas);
    builder
        .margin(20)
        .margin_top(100)
        .x_label_area_size(60)
        .y_label_area_size(200);
    let mut chart = builder.build_cartesian_2d(Scale::from_zero(longest), Scale::of_names(names))?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15));
    mesh.label_style(("sans-serif", TEXT)).x_desc("µs").draw()?;
    let pixels = f64::from(SIZE.0) - 240.0;
    for (number, bar) in bars.iter().enumerate() {
        let middle = -(2.0 * number as f64);
        let mut from = 0.0;
        let mut before = ("", 0);
        for segment in &bar.segments {
            let to = from + segment.value;
            before = match before {
                (actor, place) if actor == segment.actor => (actor, place + 1),
                _ => (segment.actor.as_str(), 0),
            };
            let colour = colour(&segment.actor).mix(DENSITIES[before.1 % DENSITIES.len()]);
            let corners = [(from, middle - 0.35), (to, middle + 0.35)];
            chart.draw_series([Rectangle::new(corners, colour.filled())])?;
            let name = segment.stage.trim_start_matches("kernel.");
            let room = (segment.value / longest * pixels) as i32;
            if room > LETTER * name.len() as i32 + 8 {
                let ink = if before.1 == 0 { WHITE } else { BLACK };
                let style = ("sans-serif", TEXT - 4).into_font().color(&ink);
                let at = EmptyElement::at((from, middle)) + Text::new(name.to_owned(), (4, -8), style);
                chart.draw_series([at])?;
            }
            from = to;
        }
        let error = bar.error.abs();
        let corners = [(0.0, middle - 1.35), (error, middle - 0.65)];
        chart.draw_series([Rectangle::new(corners, ERROR.filled())])?;
        let sign = if bar.error < 0.0 { "−" } else { "+" };
        let said = format!("{sign}{} %", digits(bar.error_share.abs() * 100.0));
        let style = ("sans-serif", TEXT - 2).into_font();
        let at = EmptyElement::at((error, middle - 1.0)) + Text::new(said, (8, -9), style);
        chart.draw_series([at])?;
    }
    canvas.present()
}

fn colour(actor: &str) -> RGBColor {
    let place = KernelActor::ALL.iter().position(|known| known.name() == actor);
    COLOURS[place.unwrap_or_default()]
}
