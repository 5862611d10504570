//! A report as a page: one file that works offline in a browser.
//!
//! The page loads nothing, and its content security policy enforces that: only scripts with the
//! listed hashes run. Measured values, programs' output and files are hostile. The template escapes
//! them in text, and [`embed`] in data for scripts.

mod embed;
mod view;

use askama::Template;

use super::saved::Saved;
use super::worst::{HEADS, TITLE};
use view::RunView;

/// Apache ECharts, which draws the charts; `assets/echarts` describes its origin.
const ECHARTS: &str = include_str!("../../../assets/echarts/echarts.common.min.js");

/// The page's own script.
const SCRIPT: &str = include_str!("page.js");

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    title: &'a str,
    policy: String,
    style: &'static str,
    echarts: &'static str,
    script: &'static str,
    version: &'static str,
    runs: &'a [RunView],
    has_expected: bool,
    data: String,
    layouts: String,
}

/// The page of some runs.
pub fn page(runs: &[Saved]) -> String {
    let views = runs
        .iter()
        .enumerate()
        .map(|(index, run)| RunView::of(index, run))
        .collect::<Vec<_>>();
    let title = match &views[..] {
        [] => "No runs".to_owned(),
        [only] => only.title.clone(),
        [first, .., last] => format!("{} experiments: {} to {}", views.len(), first.name, last.name),
    };
    let charts = views.iter().flat_map(|view| view.charts()).collect::<Vec<_>>();
    let layouts = views.iter().flat_map(|view| &view.layouts);
    let layouts = layouts.map(|layout| &layout.chart).collect::<Vec<_>>();
    let page = Page {
        layouts: embed::json(&layouts),
        title: &title,
        policy: embed::policy(&[ECHARTS, SCRIPT]),
        style: include_str!("page.css"),
        echarts: ECHARTS,
        script: SCRIPT,
        version: env!("CARGO_PKG_VERSION"),
        has_expected: views
            .iter()
            .flat_map(|view| &view.findings)
            .any(|finding| finding.expected.is_some()),
        runs: &views,
        data: embed::json(&charts),
    };
    page.render().expect("nothing in the template can fail")
}

#[cfg(test)]
mod browser;
#[cfg(test)]
mod tests;
