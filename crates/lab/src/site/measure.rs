//! Measures a cell of a plan on a deployment: a new site for each measurement.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::candidate::SiteCandidate;
use super::error::SiteFailure;
use super::files;
use super::load::{LoadExtent, load_raw};
use super::record::Sites;
use super::runner::SiteLife;
use crate::pair::PairError;
use crate::programs::Files;
use crate::programs::web::Extent;
use crate::samples::Side;
use crate::settings::Settings;
use crate::workload::{SiteStart, Workload};

/// Answers to each client before a count, with which connections begin.
const RUN_UP: u64 = 4;

/// Time for a site to end by itself. Its keeper then ends it.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// Interval of checks on its end.
const LOOK: Duration = Duration::from_millis(10);

/// A deployment in a run of the laboratory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeploymentRun<'a> {
    /// The deployment.
    pub(crate) candidate: &'a SiteCandidate,
    /// The `toehold` command.
    pub(crate) toehold: &'a Path,
    /// How measurements are taken.
    pub(crate) settings: &'a Settings,
}

/// A site of the laboratory. Dropping it ends it.
#[derive(Debug)]
struct LabSite(Child);

impl Drop for LabSite {
    fn drop(&mut self) {
        // Its input is its life.
        drop(self.0.stdin.take());
        let deadline = Instant::now() + END_PATIENCE;
        while Instant::now() < deadline {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(LOOK);
        }
        // Its keeper removes the rest. Both may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The counts of the clients and of the tiers. All that is started for them ends with it.
///
/// # Errors
///
/// If something is missing, if the site fails, or if `stop` is set meanwhile.
pub(crate) fn measure(
    workload: &Workload,
    run: DeploymentRun<'_>,
    stop: &AtomicBool,
) -> Result<(Side, Side), PairError> {
    let measured = match workload.is_of_files() {
        true => files::measure(workload, run),
        false => measure_site(workload, run),
    };
    measured.map_err(|error| match error {
        _ if stop.load(Ordering::Relaxed) => PairError::Interrupted,
        SiteFailure::Missing(what) => PairError::Unavailable(what),
        error => PairError::Failed(error.to_string()),
    })
}

fn measure_site(workload: &Workload, run: DeploymentRun<'_>) -> Result<(Side, Side), SiteFailure> {
    let settings = run.settings;
    let text = run
        .candidate
        .site_plan(workload, settings.cores, settings.trace.as_deref());
    // All else was checked with the plan.
    let text = text.map_err(SiteFailure::Missing)?;
    // The directory, with its keeper, is gone when this function returns or its process ends.
    let files = Files::make(run.toehold)?;
    let plan = files.path().join("site.toml");
    let failed = |error| SiteFailure::File(plan.clone(), error);
    fs::write(&plan, text).map_err(failed)?;
    let sites = Sites::in_directory(&files.path().join("sites")).map_err(failed)?;
    let (site, runner) = super::begin(&plan, &sites, run.toehold, SiteLife::WithInput, |_| ())?;
    let _site = LabSite(runner);
    let raw = load_raw(&sites, &site.name, None, &extent(workload, settings))?;
    Ok(raw.sides())
}

/// The requests of a workload. With a number of them, all candidates answer the same ones.
fn extent(workload: &Workload, settings: &Settings) -> LoadExtent {
    let (requests, start, clients) = match workload {
        Workload::Site {
            requests,
            start,
            clients,
            ..
        } => (u64::from(*requests), *start, u64::from(*clients)),
        _ => (0, SiteStart::Warm, 1),
    };
    let several = |span_ms: u64| match requests {
        0 => Extent::Span(Duration::from_millis(span_ms)),
        requests => Extent::Answers(requests),
    };
    LoadExtent {
        warm_up: (start == SiteStart::Warm).then(|| several(settings.warm_up_ms.max(settings.span_ms))),
        count: several(settings.span_ms),
        run_up: Extent::Answers(RUN_UP * clients),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Cell;

    fn workload(more: &str) -> Workload {
        let text = format!(
            r#"{{"kind": "site", "content": "class0", "alpha": 1.0, "clients": 4, "scale": 1{more}}}"#
        );
        serde_json::from_str::<Cell>(&text).unwrap().workload
    }

    #[test]
    fn cold_start_has_no_requests_before() {
        let settings = Settings {
            warm_up_ms: 50,
            span_ms: 250,
            patience_ms: 1000,
            cores: [0, 1],
            congestion: "reno".into(),
            trace: None,
            far: None,
        };
        let warm = extent(&workload(r#", "requests": 500"#), &settings);
        assert_eq!(warm.warm_up, Some(Extent::Answers(500)));
        assert_eq!(warm.count, Extent::Answers(500));
        assert_eq!(warm.run_up, Extent::Answers(16));
        let cold = extent(&workload(r#", "start": "cold""#), &settings);
        assert_eq!(cold.warm_up, None);
        assert_eq!(cold.count, Extent::Span(Duration::from_millis(250)));
    }
}
