//! A report as a page: one file that works offline, for people with a browser.
//!
//! Nothing in it comes from elsewhere, and its content security policy keeps it so: the
//! only scripts that run are those whose hashes it names. Whatever was measured, said by
//! a program or read from a file is hostile: the template escapes it where it is text,
//! [`embed`] where a script reads it.

mod embed;
mod view;

use askama::Template;

use super::saved::Saved;
use super::worst::{HEADS, TITLE};
use view::RunView;

/// Apache ECharts, which draws the charts; `assets/echarts` says where it is from.
const ECHARTS: &str = include_str!("../../../assets/echarts/echarts.common.min.js");

/// What the page does by itself.
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
    let page = Page {
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
