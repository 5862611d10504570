//! Charts as pictures, for slides and for pages without scripts: SVG, and PNG of it.

mod scale;
mod stacked;

use std::sync::{Arc, OnceLock};

use plotters::prelude::*;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{self, fontdb};

use super::figure::{Figure, Series, panels};
use super::layout;
use super::saved::Saved;
use crate::workload::Better;
use scale::Scale;
pub(super) use stacked::stacked;

/// Size of a slide, in pixels.
const SIZE: (u32, u32) = (1280, 720);

/// Horizontal position of the legend.
const LEGEND: i32 = 1000;

/// Pixels for a name in the legend.
const NAME: i32 = 230;

/// Height of a line of the legend, in pixels. If the lines do not fit, they share the height.
const LINE: i32 = 30;
const LINES: i32 = 630;

const TITLE: i32 = 28;
const TEXT: i32 = 20;

/// Distinguishable with every kind of colour vision (Okabe and Ito), and dark enough on white.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 135, 100),
    RGBColor(178, 84, 140),
    RGBColor(70, 70, 70),
    RGBColor(140, 108, 0),
    RGBColor(40, 150, 205),
    RGBColor(120, 60, 180),
];

/// A chart of a run.
#[derive(Debug)]
pub struct Picture {
    /// Name for a file, without an extension.
    pub name: String,
    /// The chart as SVG.
    pub svg: String,
}

/// Reasons why a picture cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// The machine has no font, without which a chart is unreadable.
    #[error("there is no font on this machine: install one (fonts-dejavu-core), or take SVG")]
    NoFont,
    /// The drawing library failed.
    #[error("cannot draw it: {0}")]
    Drawing(String),
}

/// The main figures of a run and their ratios.
pub fn pictures(run: &Saved) -> Vec<Picture> {
    let panels = panels(&run.report, &run.samples);
    let shown = panels.iter().flat_map(|panel| {
        let main = panel.figures.first().map(|figure| (figure, false));
        main.into_iter()
            .chain(panel.ratios.as_ref().map(|ratios| (ratios, true)))
    });
    let picture = |(figure, is_ratio): (&Figure, bool)| Picture {
        name: figure.name.clone(),
        svg: svg(figure, is_ratio),
    };
    let layouts = run.report.layouts_by_cell();
    let layouts = layouts.iter().filter_map(|layouts| {
        let bars = layout::bars(layouts);
        let svg = stacked(&layout::title(layouts), &bars);
        let name = layouts[0].workload.to_lowercase().replace('_', "-");
        (!bars.is_empty()).then_some(Picture { name, svg })
    });
    layouts.chain(shown.map(picture)).collect()
}

impl Picture {
    /// The picture as PNG, with twice the pixels of the SVG in each direction.
    pub fn png(&self) -> Result<Vec<u8>, PictureError> {
        let options = usvg::Options {
            fontdb: fonts().ok_or(PictureError::NoFont)?,
            ..usvg::Options::default()
        };
        let gave_up = |error: &dyn std::fmt::Display| PictureError::Drawing(error.to_string());
        let tree = usvg::Tree::from_str(&self.svg, &options).map_err(|error| gave_up(&error))?;
        let mut pixels = Pixmap::new(2 * SIZE.0, 2 * SIZE.1).ok_or_else(|| gave_up(&"no memory"))?;
        resvg::render(&tree, Transform::from_scale(2.0, 2.0), &mut pixels.as_mut());
        pixels.encode_png().map_err(|error| gave_up(&error))
    }
}

/// The fonts of this machine, if it has any.
fn fonts() -> Option<Arc<fontdb::Database>> {
    static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let fonts = FONTS.get_or_init(|| {
        let mut fonts = fontdb::Database::new();
        fonts.load_system_fonts();
        // Any available font replaces a missing sans serif font.
        let family = fonts.query(&fontdb::Query {
            families: &[fontdb::Family::Name("DejaVu Sans"), fontdb::Family::SansSerif],
            ..fontdb::Query::default()
        });
        let face = family
            .and_then(|id| fonts.face(id))
            .or_else(|| fonts.faces().next());
        if let Some(name) = face.and_then(|face| Some(face.families.first()?.0.clone())) {
            fonts.set_sans_serif_family(name);
        }
        Arc::new(fonts)
    });
    (!fonts.is_empty()).then(|| fonts.clone())
}

/// A figure as a self-contained SVG.
pub(super) fn svg(figure: &Figure, is_ratio: bool) -> String {
    let mut svg = String::new();
    // Writing into a string cannot fail, and a picture without points is valid.
    let _ = draw(
        figure,
        is_ratio,
        &SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(),
    );
    svg
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Failed<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn draw<'a>(figure: &Figure, is_ratio: bool, canvas: &Canvas<'a>) -> Result<(), Failed<'a>> {
    canvas.fill(&WHITE)?;
    let better = match figure.better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
    };
    let title = format!("{} ({}, {better})", figure.measure, figure.unit);
    canvas.draw(&Text::new(title, (30, 20), ("sans-serif", TITLE)))?;
    let line = (LINES / figure.series.len().max(1) as i32).clamp(1, LINE);
    for (number, series) in figure.series.iter().enumerate() {
        legend(canvas, 70 + line * number as i32, line, series)?;
    }
    let (area, _) = canvas.split_horizontally(LEGEND);
    match &figure.axis {
        Some(axis) => swept(figure, axis, is_ratio, &area)?,
        None => named(figure, is_ratio, &area)?,
    }
    canvas.present()
}

/// Draws a line of the legend at `y`.
fn legend<'a>(canvas: &Canvas<'a>, y: i32, height: i32, series: &Series) -> Result<(), Failed<'a>> {
    let (colour, x) = (colour(series), LEGEND + 10);
    // A letter is about half as wide as it is high.
    let letters = series.name.chars().count().max(1) as i32;
    let size = (TEXT - 4).min(height).min(2 * NAME / letters);
    let middle = y + size / 2;
    if !series.is_paper {
        let line = vec![(x, middle), (x + 30, middle)];
        canvas.draw(&PathElement::new(line, colour.stroke_width(3)))?;
    }
    canvas.draw(&mark(series, (x + 15, middle)))?;
    canvas.draw(&Text::new(series.name.clone(), (x + 40, y), ("sans-serif", size)))
}

/// A point of a series.
fn mark<'a, At: Clone + 'static>(series: &Series, at: At) -> DynElement<'static, SVGBackend<'a>, At> {
    let colour = colour(series);
    match series.mark % 4 {
        _ if series.is_paper => Cross::new(at, 9, colour.stroke_width(4)).into_dyn(),
        0 => Circle::new(at, 5, colour.filled()).into_dyn(),
        1 => TriangleMarker::new(at, 7, colour.filled()).into_dyn(),
        2 => Circle::new(at, 8, colour.stroke_width(2)).into_dyn(),
        _ => Cross::new(at, 5, colour.stroke_width(2)).into_dyn(),
    }
}

fn colour(series: &Series) -> RGBColor {
    COLOURS[series.index % COLOURS.len()]
}

/// Draws the varied factor along the bottom, and values along the side.
fn swept<'a>(figure: &Figure, axis: &str, is_ratio: bool, area: &Canvas<'a>) -> Result<(), Failed<'a>> {
    let mut builder = ChartBuilder::on(area);
    builder
        .margin(20)
        .margin_top(70)
        .x_label_area_size(60)
        .y_label_area_size(90);
    let mut chart =
        builder.build_cartesian_2d(Scale::of_places(figure), Scale::of_values(figure, is_ratio))?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15));
    mesh.label_style(("sans-serif", TEXT))
        .x_desc(axis)
        .y_desc(&figure.unit)
        .draw()?;
    for series in &figure.series {
        let colour = colour(series);
        let at = |place: usize| figure.places[place].at.unwrap_or_default();
        let medians = series
            .points
            .iter()
            .map(|point| (at(point.place), point.estimate.median));
        chart.draw_series(medians.clone().map(|point| mark(series, point)))?;
        if series.is_paper {
            continue;
        }
        chart.draw_series(LineSeries::new(medians, colour.stroke_width(3)))?;
        let interval = |point: &super::figure::Point| {
            let (x, estimate) = (at(point.place), point.estimate);
            PathElement::new(
                vec![(x, estimate.low), (x, estimate.high)],
                colour.stroke_width(2),
            )
        };
        chart.draw_series(series.points.iter().map(interval))?;
    }
    Ok(())
}

/// Draws a row for each candidate at each place, and values along the bottom.
fn named<'a>(figure: &Figure, is_ratio: bool, area: &Canvas<'a>) -> Result<(), Failed<'a>> {
    let rows = Scale::of_rows(figure);
    let row = |place: usize, series: &Series| {
        -((place * (figure.series.len() + 1)) as f64)
            - figure
                .series
                .iter()
                .take_while(|one| one.name != series.name)
                .count() as f64
    };
    let mut builder = ChartBuilder::on(area);
    builder
        .margin(20)
        .margin_top(70)
        .x_label_area_size(60)
        .y_label_area_size(260);
    let mut chart = builder.build_cartesian_2d(Scale::of_values(figure, is_ratio), rows)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15));
    mesh.label_style(("sans-serif", TEXT))
        .x_desc(&figure.unit)
        .draw()?;
    for series in &figure.series {
        let colour = colour(series);
        for point in &series.points {
            let (y, estimate) = (row(point.place, series), point.estimate);
            let interval = vec![(estimate.low, y), (estimate.high, y)];
            chart.draw_series([PathElement::new(interval, colour.stroke_width(3))])?;
            chart.draw_series([Circle::new((estimate.median, y), 6, colour.filled())])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
