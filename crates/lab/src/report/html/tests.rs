use std::collections::BTreeMap;

use html5ever::tendril::TendrilSink;
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use sha2::{Digest, Sha256};

use super::page;
use crate::report::Saved;
use crate::report::figure::panels;
use crate::report::format::digits;
use crate::report::tests::saved;

/// An element of a page as a browser parses it.
struct Element {
    name: String,
    attributes: BTreeMap<String, String>,
    /// All text within it.
    text: String,
    within: Vec<Element>,
}

impl Element {
    fn parse(page: &str) -> Self {
        let dom = html5ever::parse_document(RcDom::default(), html5ever::ParseOpts::default()).one(page);
        let errors = dom.errors.borrow();
        assert!(errors.is_empty(), "{errors:?}");
        Self::of(&dom.document)
    }

    fn of(node: &Handle) -> Self {
        let (mut name, mut attributes) = (String::new(), BTreeMap::new());
        if let NodeData::Element {
            name: qualified,
            attrs,
            ..
        } = &node.data
        {
            name = qualified.local.to_string();
            let pairs = attrs.borrow();
            let pairs = pairs
                .iter()
                .map(|one| (one.name.local.to_string(), one.value.to_string()));
            attributes = pairs.collect();
        }
        let mut element = Self {
            name,
            attributes,
            text: String::new(),
            within: Vec::new(),
        };
        for child in node.children.borrow().iter() {
            if let NodeData::Text { contents } = &child.data {
                element.text.push_str(&contents.borrow());
            }
            let child = Self::of(child);
            element.text.push_str(&child.text);
            if !child.name.is_empty() {
                element.within.push(child);
            }
        }
        element
    }

    /// The element and everything within it.
    fn all(&self) -> Vec<&Element> {
        let mut all = vec![self];
        self.within.iter().for_each(|element| all.extend(element.all()));
        all
    }

    fn named(&self, name: &str) -> Vec<&Element> {
        self.all()
            .into_iter()
            .filter(|element| element.name == name)
            .collect()
    }

    fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

fn scripts(page: &Element) -> (Vec<&Element>, Vec<&Element>) {
    page.named("script")
        .into_iter()
        .partition(|script| script.attribute("type") == "application/json")
}

#[test]
fn every_figure_of_every_run_is_drawn_and_in_a_table() {
    let runs = [saved(), saved()];
    let page = Element::parse(&page(&runs));
    let charts = scripts(&page).0[0].text.clone();
    let charts: Vec<serde_json::Value> = serde_json::from_str(&charts).unwrap();
    let mut figures = 0;
    for (index, run) in runs.iter().enumerate() {
        for panel in panels(&run.report, &run.samples) {
            for figure in panel.figures.iter().chain(&panel.ratios) {
                figures += 1;
                let id = format!("run{}-chart-{}", index + 1, figure.name);
                assert!(
                    charts.iter().any(|chart| chart["id"] == id.as_str()),
                    "{id} for the script"
                );
                let shown = page.named("figure").into_iter();
                let mut shown =
                    shown.filter(|shown| shown.all().iter().any(|element| element.attribute("id") == id));
                let cells = shown
                    .next()
                    .expect(&id)
                    .named("td")
                    .into_iter()
                    .map(|cell| cell.text.clone());
                let cells = cells.collect::<Vec<_>>();
                let points = figure.series.iter().flat_map(|series| &series.points);
                for point in points {
                    let median = digits(point.estimate.median);
                    assert!(
                        cells.iter().any(|cell| cell.starts_with(&median)),
                        "{median} in {id}: {cells:?}"
                    );
                }
            }
        }
    }
    assert!(figures > 20, "{figures}");
    assert_eq!(charts.len(), figures);
}

#[test]
fn identifiers_are_unique_and_links_resolve() {
    let page = Element::parse(&page(&[saved(), saved()]));
    let all = page.all();
    let mut ids = all
        .iter()
        .map(|element| element.attribute("id"))
        .filter(|id| !id.is_empty())
        .collect::<Vec<_>>();
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count);
    let links = page
        .named("a")
        .into_iter()
        .filter_map(|link| link.attribute("href").strip_prefix('#'));
    for link in links {
        assert!(ids.contains(&link), "{link}");
    }
}

#[test]
fn page_of_several_runs_names_its_figures() {
    let mut other = saved();
    other.report.header.plan.experiment = "toe/fig3".into();
    let page = Element::parse(&page(&[saved(), other]));
    assert_eq!(page.named("h1")[0].text, "2 experiments: sockets to toe/fig3");
    for name in ["li", "h2"] {
        let is_named = |element: &&Element| element.text.starts_with("toe/fig3 ");
        assert_eq!(page.named(name).into_iter().filter(is_named).count(), 1, "{name}");
    }
    // There are two figures about interrupts, in different units.
    for summary in page.named("summary") {
        assert!(
            summary.text.matches("interrupts;").count() <= 1,
            "{}",
            summary.text
        );
    }
}

#[test]
fn page_loads_nothing() {
    let text = page(&[saved()]);
    let page = Element::parse(&text);
    for element in page.all() {
        assert!(
            ![
                "link", "base", "iframe", "object", "embed", "form", "audio", "video"
            ]
            .contains(&&*element.name),
            "{}",
            element.name
        );
        for name in ["src", "srcset", "href", "poster", "action", "data", "background"] {
            let value = element.attribute(name);
            let is_here = value.is_empty() || value.starts_with('#') || value.starts_with("data:");
            assert!(is_here, "{} {name}={value}", element.name);
        }
        assert!(
            !element.attributes.keys().any(|name| name.starts_with("on")),
            "{}",
            element.name
        );
    }
    for style in page.named("style") {
        assert!(!style.text.contains("url(") && !style.text.contains("@import"));
    }
}

#[test]
fn page_has_only_scripts_of_its_policy() {
    let page = Element::parse(&page(&[saved()]));
    let policy = page.named("meta").into_iter();
    let mut policy = policy.filter(|meta| meta.attribute("http-equiv") == "Content-Security-Policy");
    let policy = policy.next().unwrap().attribute("content");
    let (data, run) = scripts(&page);
    assert_eq!((data.len(), run.len()), (2, 2));
    for script in run {
        use base64::Engine;
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(&script.text));
        assert!(policy.contains(&format!("'sha256-{hash}'")), "{policy}");
    }
    assert!(policy.starts_with("default-src 'none'"));
}

/// A run in which all strings are `text`.
fn run_that_says(text: &str) -> Saved {
    let mut run = saved();
    let report = &mut run.report;
    report.header.plan.title = text.into();
    report.header.plan.experiment = text.into();
    report.header.plan.seed = 1;
    report.header.began = text.into();
    report.header.host.cpu = Some(text.into());
    report.header.host.kernel = Some(text.into());
    report.header.build.commit = text.into();
    report.results = text.into();
    for failure in &mut report.failures {
        (failure.reason, failure.output) = (text.into(), text.into());
        failure.candidate = text.into();
    }
    for (index, name) in ["toehold", "kernel-veth", "floor", "missing"]
        .into_iter()
        .enumerate()
    {
        let renamed = if index == 0 {
            text.to_owned()
        } else {
            format!("{text}{index}")
        };
        rename(&mut run, name, &renamed);
    }
    run.damage.push(text.into());
    run
}

fn rename(run: &mut Saved, name: &str, renamed: &str) {
    let report = &mut run.report;
    let plan = &mut report.header.plan;
    let comparisons = plan
        .comparisons
        .iter_mut()
        .flat_map(|it| [&mut it.candidate, &mut it.baseline]);
    let samples = run.samples.iter_mut().map(|sample| &mut sample.candidate);
    let names = plan.candidates.iter_mut().chain(comparisons).chain(samples);
    names
        .filter(|known| known.as_str() == name)
        .for_each(|known| *known = renamed.to_owned());
    let took = std::time::Duration::from_secs(3);
    let failures = report.failures.clone();
    *report = crate::report::Report::new(
        report.header.clone(),
        &run.samples,
        took,
        true,
        report.machine,
        &report.results.clone(),
    );
    report.failures = failures;
}

#[test]
fn output_of_programs_and_machines_is_text() {
    let shape = |text: &str| {
        let page = Element::parse(&page(&[run_that_says(text)]));
        let names = page
            .all()
            .iter()
            .map(|element| element.name.clone())
            .collect::<Vec<_>>();
        let attributes = page
            .all()
            .iter()
            .map(|element| element.attributes.len())
            .sum::<usize>();
        (names, attributes, page)
    };
    let (names, attributes, _) = shape("harmless");
    for hostile in [
        "</script><script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "<!--<script>",
        "]]></style></title></pre></textarea><svg onload=alert(1)>",
        "&lt;b&gt; {{ 7 * 7 }} ${7*7} \u{2028}\u{202e}",
    ] {
        let (hostile_names, hostile_attributes, page) = shape(hostile);
        assert_eq!(hostile_names, names, "{hostile} makes or hides an element");
        assert_eq!(
            hostile_attributes, attributes,
            "{hostile} makes or hides an attribute"
        );
        let texts = ["title", "h1", "pre", "li"].map(|name| page.named(name));
        for elements in texts {
            assert!(
                elements.iter().any(|element| element.text.contains(hostile)),
                "{hostile} is not shown"
            );
        }
        let charts = &scripts(&page).0[0].text;
        let charts: Vec<serde_json::Value> = serde_json::from_str(charts).unwrap();
        assert_eq!(charts[0]["series"][0]["name"], hostile);
    }
}

#[test]
fn failed_candidate_is_shown_with_its_output() {
    let page = Element::parse(&page(&[saved()]));
    let output = page
        .named("pre")
        .into_iter()
        .find(|pre| pre.text.contains("line 1"));
    assert!(output.unwrap().text.ends_with("line 9\n"), "all of its output");
    let items = page
        .named("li")
        .into_iter()
        .map(|item| item.text.clone())
        .collect::<Vec<_>>();
    for part in [
        "floor at stream, round 2 failed: no answer in time",
        "missing was not measured: install it; not with that MTU",
    ] {
        assert!(
            items.iter().any(|item| item.starts_with(part)),
            "{part} in {items:?}"
        );
    }
}

#[test]
fn run_without_figures_is_a_page() {
    let mut run = saved();
    run.samples.clear();
    run.report.metrics.clear();
    run.report.ratios.clear();
    let page = Element::parse(&page(&[run]));
    assert!(page.named("p").iter().any(|p| p.text == "Nothing was measured."));
    assert_eq!(scripts(&page).0[0].text, "[]");
    assert!(Element::parse(&super::page(&[])).text.contains("No runs"));
}

#[test]
fn chart_library_matches_its_description() {
    let described = include_str!("../../../assets/echarts/README.md");
    let hash = Sha256::digest(super::ECHARTS);
    let hash = hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(described.contains(&hash), "{hash}");
}
