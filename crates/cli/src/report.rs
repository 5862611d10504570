//! `toehold report`: the findings of runs as a page, as Markdown, or as pictures.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use toehold_lab::report::{self, Picture, Saved};
use toehold_lab::samples::write_whole;
use toehold_lab::say;

use crate::measurement;

/// The default file of the page.
const PAGE: &str = "report.html";

/// Make a page of one or more runs: findings, charts, tables, raw data, in one file that works
/// offline
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  toehold report\n  toehold report results/2026-11-21T10-15-00Z-sockets --out sockets.html\n  toehold report --markdown -"
)]
pub(crate) struct Arguments {
    /// Directories of runs, in the order of the page; also interrupted ones [default: the latest
    /// run]
    #[arg(value_name = "RUN_DIR")]
    runs: Vec<PathBuf>,

    /// File of the page [default: report.html, unless only other forms are asked for]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Also write Markdown, for pasting; `-` prints it
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Also write the charts as SVG for slides, a file each
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Also write the charts as PNG for slides, a file each
    #[arg(long, value_name = "DIR")]
    png: Option<PathBuf>,

    /// Directory of runs, for the latest one
    /// [default: $XDG_STATE_HOME/toehold/results, or ~/.local/state/toehold/results]
    #[arg(long, value_name = "DIR", env = "TOEHOLD_RESULTS")]
    results: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let directories = match arguments.runs.is_empty() {
        true => vec![latest(arguments.results.as_deref())?],
        false => arguments.runs,
    };
    let runs = directories.iter().map(|directory| Saved::read(directory));
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    if let Some(directory) = &arguments.svg {
        write_pictures(&runs, directory, "svg", |picture| {
            Ok(picture.svg.clone().into_bytes())
        })?;
    }
    if let Some(directory) = &arguments.png {
        write_pictures(&runs, directory, "png", |picture| Ok(picture.png()?))?;
    }
    if let Some(path) = &arguments.markdown {
        let text = report::markdown(&runs);
        match path.as_os_str() == "-" {
            true => print(&text)?,
            false => write(path, text.as_bytes())?,
        }
    }
    let has_other = arguments.markdown.is_some() || arguments.svg.is_some() || arguments.png.is_some();
    let page = arguments.out.or_else(|| (!has_other).then(|| PAGE.into()));
    if let Some(path) = page {
        write(&path, report::page(&runs).as_bytes())?;
        say(&std::path::absolute(&path).unwrap_or(path).display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}

/// The run that began last.
fn latest(results: Option<&Path>) -> Result<PathBuf> {
    let results = measurement::results(results)?;
    let entries = match fs::read_dir(&results) {
        Ok(entries) => entries.collect::<std::io::Result<Vec<_>>>(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let entries = entries.with_context(|| format!("cannot read {}", results.display()))?;
    // The names of runs begin with the time.
    let runs = entries.into_iter().map(|entry| entry.path());
    let runs = runs.filter(|path| path.join("run.json").is_file());
    runs.max().ok_or_else(|| {
        anyhow!(
            "there is no run in {}: measure something first (toehold bench sockets --quick), or name a run's directory",
            results.display()
        )
    })
}

/// Writes a file for each chart; with several runs, file names begin with the run's number.
fn write_pictures(
    runs: &[Saved],
    directory: &Path,
    ending: &str,
    bytes: impl Fn(&Picture) -> Result<Vec<u8>>,
) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    for (index, run) in runs.iter().enumerate() {
        let experiment = &run.report.header.plan.experiment;
        let number = if runs.len() > 1 {
            format!("{}-", index + 1)
        } else {
            String::new()
        };
        for picture in report::pictures(run) {
            // The name comes from a file, and may contain a path.
            let name = format!("{number}{experiment}-{}.{ending}", picture.name).replace('/', "-");
            write(&directory.join(name), &bytes(&picture)?)?;
        }
    }
    Ok(())
}

fn print(text: &str) -> Result<()> {
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .context("cannot print the report")
}

/// Writes the whole file or nothing.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole(path, bytes).with_context(|| format!("cannot write {}: name another file", path.display()))
}
