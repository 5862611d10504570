//! Tests the page in a real browser. Charts are drawn, no script fails, and the page is readable in
//! light and dark, on a desktop and on a phone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use resvg::tiny_skia::Pixmap;
use serde::Deserialize;

use super::page;
use crate::report::tests::saved;

/// The observations of a script beside the page.
#[derive(Debug, Deserialize)]
struct Seen {
    charts: usize,
    drawn: usize,
    folded: usize,
    unfolded: usize,
    /// Candidates whose names are missing beside their marks in the first chart.
    unnamed: Vec<String>,
    tip: String,
    linear: String,
    themes: Vec<String>,
    papers: Vec<String>,
    wide: i32,
    /// Excess width of the table of the machine and the settings.
    facts: i32,
    errors: Vec<String>,
}

/// Loads the page into a frame of a phone's width, and acts like a person.
const PERSON: &str = r#"<!doctype html><meta charset="utf-8">
<iframe id="frame" width="390" height="844"></iframe><pre id="seen"></pre>
<script type="application/json" id="page">PAGE</script>
<script>
const frame = document.getElementById("frame");
const errors = [];
frame.addEventListener("load", () => {
  const inside = frame.contentWindow;
  const page = frame.contentDocument;
  inside.addEventListener("error", (event) => errors.push(event.message));
  const count = (all) => page.querySelectorAll(all).length;
  const drawn = () => [...page.querySelectorAll(".chart")].filter((it) => it.querySelectorAll("svg path").length > 4).length;
  const paper = () => inside.getComputedStyle(page.body).backgroundColor;
  // Charts and values are drawn in animation frames, which a busy browser makes rarely. Continues
  // when the condition holds, or after many frames without it, to report the state.
  const when = (isSo, then, left = 200) =>
    isSo() || left === 0
      ? then()
      : inside.requestAnimationFrame(() => setTimeout(() => when(isSo, then, left - 1), 20));
  const seen = { charts: count(".chart"), folded: count("details.more .chart"), themes: [], papers: [] };
  const wide = () => page.documentElement.scrollWidth - inside.innerWidth;
  const tip = () => (page.querySelector(".tip") ? page.querySelector(".tip").textContent : "");
  const button = page.querySelector(".tools");
  const theme = page.getElementById("theme");

  const looks = () => {
    seen.drawn = drawn();
    seen.wide = wide();
    page.querySelectorAll("details").forEach((it) => { it.open = true; });
    const facts = page.querySelector(".facts");
    seen.facts = facts.offsetWidth - facts.parentElement.clientWidth;
    const chart = page.querySelector(".chart");
    const at = chart.getBoundingClientRect();
    for (const kind of ["mousemove", "mouseover"]) {
      chart.querySelector("svg").dispatchEvent(new inside.MouseEvent(kind, {
        bubbles: true, clientX: at.left + at.width / 2, clientY: at.top + at.height / 2,
      }));
    }
    const named = [...chart.querySelectorAll("svg text")].map((it) => it.textContent);
    const first = JSON.parse(page.getElementById("charts").textContent).find((it) => it.id === chart.id);
    seen.unnamed = first.series.map((it) => it.name).filter((name) => !named.includes(name));
    when(() => tip() !== "" && drawn() === seen.charts, acts);
  };
  const acts = () => {
    seen.tip = tip();
    button.click();
    seen.linear = button.textContent;
    for (let click = 0; click < 3; click++) {
      theme.click();
      seen.themes.push(theme.textContent);
      seen.papers.push(paper());
    }
    when(() => drawn() === seen.charts, says);
  };
  const says = () => {
    seen.unfolded = drawn();
    seen.wide = Math.max(seen.wide, wide());
    seen.errors = errors;
    document.getElementById("seen").textContent = JSON.stringify(seen);
  };
  when(() => drawn() === seen.charts - seen.folded, looks);
});
frame.srcdoc = JSON.parse(document.getElementById("page").textContent);
</script>"#;

/// Runs the browser; returns its output and its console's.
fn browse(directory: &Path, arguments: &[&str], file: &Path) -> (String, String) {
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ])
        .args([
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
        ])
        .args(["--enable-logging=stderr", "--virtual-time-budget=30000"])
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .args(arguments)
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("chromium runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// The output of the browser's console.
fn console(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("CONSOLE")).collect()
}

#[test]
#[ignore = "needs chromium"]
fn page_shows_charts_values_and_themes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("person.html");
    let mut run = saved();
    run.report.header.plan.title = "</script><img src=x onerror=alert(1)>".into();
    fs::write(&file, PERSON.replace("PAGE", &super::embed::json(&page(&[run])))).unwrap();
    let (dom, log) = browse(directory.path(), &["--dump-dom"], &file);
    assert_eq!(console(&log), [""; 0]);
    for (scheme, name, paper) in SCHEMES {
        let pixels = shot(
            directory.path(),
            &format!("phone-{name}"),
            scheme,
            "420,900",
            &file,
        );
        let of_paper = pixels.pixels().iter().filter(|pixel| pixel.red() == paper);
        let share = of_paper.count() * 100 / pixels.pixels().len();
        assert!(share > 40, "{share} % of the phone are paper in {name}");
    }
    let seen = dom
        .split("<pre id=\"seen\">")
        .nth(1)
        .and_then(|rest| rest.split("</pre>").next());
    let seen: Seen = serde_json::from_str(&seen.unwrap().replace("&lt;", "<").replace("&gt;", ">")).unwrap();
    assert!(seen.charts > 10 && seen.folded > 0, "{seen:?}");
    assert_eq!(
        seen.drawn,
        seen.charts - seen.folded,
        "what is not folded away is drawn: {seen:?}"
    );
    assert_eq!(
        seen.unfolded, seen.charts,
        "the rest is drawn when it is unfolded: {seen:?}"
    );
    assert!(
        seen.tip.contains("64B") && seen.tip.contains("[0.500–1.50]"),
        "{seen:?}"
    );
    assert_eq!(seen.linear, "Logarithmic axis", "{seen:?}");
    assert_eq!(
        seen.unnamed, [""; 0],
        "the legend is cut off on the phone: {seen:?}"
    );
    assert_eq!(
        seen.themes,
        ["Theme: light", "Theme: dark", "Theme: as the system’s"]
    );
    assert_eq!(seen.papers[..2], ["rgb(255, 255, 255)", "rgb(20, 23, 27)"]);
    assert!(seen.wide <= 0, "nothing is wider than the phone: {seen:?}");
    assert!(seen.facts <= 0, "the machine is cut off on the phone: {seen:?}");
    assert_eq!(seen.errors, [""; 0]);
}

/// The preferred colour scheme of the browser, its name, and the red of its background.
const SCHEMES: [(&str, &str, u8); 2] = [("1", "light", 255), ("0", "dark", 20)];

/// Takes a screenshot of the page, in which no script has failed.
fn shot(directory: &Path, name: &str, scheme: &str, size: &str, page: &Path) -> Pixmap {
    let shot = shots(directory).join(format!("{name}.png"));
    let arguments = [
        format!("--screenshot={}", shot.display()),
        format!("--window-size={size}"),
        format!("--blink-settings=preferredColorScheme={scheme}"),
    ];
    let (_, log) = browse(directory, &arguments.each_ref().map(String::as_str), page);
    assert_eq!(console(&log), [""; 0]);
    Pixmap::decode_png(&fs::read(shot).unwrap()).unwrap()
}

/// The directory for screenshots, if the user wants to keep them, otherwise a temporary one.
fn shots(directory: &Path) -> PathBuf {
    std::env::var_os("TOEHOLD_SCREENSHOTS").map_or(directory.to_owned(), PathBuf::from)
}

#[test]
#[ignore = "needs chromium"]
fn screenshots_in_light_and_dark_show_charts() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("page.html");
    fs::write(&file, page(&[saved()])).unwrap();
    for (scheme, name, paper) in SCHEMES {
        let pixels = shot(directory.path(), name, scheme, "1280,2400", &file);
        let corner = pixels.pixel(2, 2).unwrap();
        assert_eq!(corner.red(), paper, "{name}");
        let of_candidates: &[[u8; 3]] = match name {
            "light" => &[[0, 114, 178], [213, 94, 0]],
            _ => &[[86, 180, 233], [255, 140, 58]],
        };
        for colour in of_candidates {
            let is_it = |pixel: &&resvg::tiny_skia::PremultipliedColorU8| {
                [pixel.red(), pixel.green(), pixel.blue()] == *colour
            };
            let found = pixels.pixels().iter().filter(is_it).count();
            assert!(found > 50, "{found} pixels of {colour:?} in {name}");
        }
    }
}

#[test]
#[ignore = "needs chromium"]
fn layout_that_closes_is_drawn_in_the_colours_of_its_actors() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layout.html");
    fs::write(&file, page(&[crate::report::layout::tests::saved()])).unwrap();
    let (scheme, name, _) = SCHEMES[0];
    let pixels = shot(directory.path(), name, scheme, "1280,900", &file);
    let of_actors = [
        [0, 114, 178],
        [213, 94, 0],
        [0, 135, 100],
        [178, 84, 140],
        [70, 70, 70],
    ];
    for colour in of_actors {
        let is_it = |pixel: &&resvg::tiny_skia::PremultipliedColorU8| {
            [pixel.red(), pixel.green(), pixel.blue()] == colour
        };
        let found = pixels.pixels().iter().filter(is_it).count();
        assert!(found > 200, "{found} pixels of {colour:?}");
    }
}

#[test]
#[ignore = "needs chromium, pdftotext"]
fn printed_page_has_no_text_on_other_text() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("page.html");
    fs::write(&file, page(&[saved()])).unwrap();
    for size in ["210mm 297mm", "215.9mm 279.4mm"] {
        let sized = format!("<style>@page {{ size: {size}; }}</style></head>");
        let html = fs::read_to_string(&file).unwrap().replacen("</head>", &sized, 1);
        let (sheet, paper) = (
            directory.path().join("sheet.html"),
            directory.path().join("paper.pdf"),
        );
        fs::write(&sheet, html).unwrap();
        let print = format!("--print-to-pdf={}", paper.display());
        browse(directory.path(), &[&print, "--no-pdf-header-footer"], &sheet);
        let output = Command::new("pdftotext")
            .arg("-bbox")
            .arg(&paper)
            .arg("-")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let pages: Vec<Vec<Printed>> = text.split("<page ").skip(1).map(printed).collect();
        let words: usize = pages.iter().map(Vec::len).sum();
        assert!(words > 200, "{words} words on paper of {size}");
        for page in &pages {
            for (index, word) in page.iter().enumerate() {
                let mut others = page[index + 1..].iter();
                let covers = others.find(|other| word.is_under(other)).map(|other| &other.text);
                let text = &word.text;
                assert_eq!(covers, None, "lies on {text:?} on paper of {size}");
            }
        }
    }
}

/// A printed word, in points from the page's upper left corner.
#[derive(Debug)]
struct Printed {
    text: String,
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Printed {
    /// Whether the two have a third of the smaller one's area in common.
    fn is_under(&self, other: &Printed) -> bool {
        let area = |word: &Printed| (word.right - word.left) * (word.bottom - word.top);
        let width = self.right.min(other.right) - self.left.max(other.left);
        let height = self.bottom.min(other.bottom) - self.top.max(other.top);
        width > 0.0 && height > 0.0 && width * height > area(self).min(area(other)) / 3.0
    }
}

/// Reads the words of a page as `pdftotext -bbox` writes them.
fn printed(page: &str) -> Vec<Printed> {
    let word = |line: &str| {
        let field = |name: &str| -> Option<f64> {
            let rest = line.split(&format!("{name}=\"")).nth(1)?;
            rest.split('"').next()?.parse().ok()
        };
        Some(Printed {
            left: field("xMin")?,
            top: field("yMin")?,
            right: field("xMax")?,
            bottom: field("yMax")?,
            text: line.split('>').nth(1)?.split('<').next()?.to_owned(),
        })
    };
    page.lines()
        .filter(|line| line.contains("<word "))
        .filter_map(word)
        .collect()
}
