//! Sites: servers one behind the other, each on a node of its own, with content and clients.
//!
//! A [`Deployment`] says which. [`up`] starts a process that holds the site, the runner, and returns
//! when a request has gone through the whole chain. [`load()`] measures the site. [`down`] ends it.
//! A site ends with its runner, for any reason: the laboratory's keeper removes what is left.

mod candidate;
mod content;
mod deployment;
mod error;
mod fetch;
mod files;
mod init;
mod load;
mod measure;
mod needs;
mod nodes;
mod record;
mod room;
mod runner;
mod servers;
mod storage;
mod view;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub use candidate::{CandidateTier, SiteCandidate};
pub use content::{ContentClass, ContentSource, MOST_CONTENT_SCALE};
pub use deployment::{Deployment, MOST_CLIENTS, SiteStack, TierPlan};
pub use error::SiteFailure;
pub use fetch::{FETCH_NAME, main as fetch};
pub use init::plan;
pub use load::{LoadOptions, SiteLoad, TierLoad, load};
pub(crate) use measure::{DeploymentRun, measure};
pub use needs::{SiteNeed, needs};
pub use record::{SiteState, Sites};
pub use runner::{HELD_OPTION, RUNNER_NAME, SiteLife, main as run};
pub use servers::ServerProgram;
pub use storage::{SiteDisk, SiteFileSystem, StoragePlan};
pub use view::{SiteView, TierView};

/// Time for a site to end.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// Interval of checks on its end.
const END_LOOK: Duration = Duration::from_millis(20);

/// Brings the site of a plan up, which `toehold` then holds in a process of its own. `say` hears
/// what is being done.
///
/// # Errors
///
/// If a mistake is in the plan, something is missing, or a server does not answer. Nothing is left
/// then.
pub fn up(
    plan: &Path,
    sites: &Sites,
    toehold: &Path,
    say: impl FnMut(&str),
) -> Result<SiteView, SiteFailure> {
    begin(plan, sites, toehold, SiteLife::Own, say).map(|(site, _)| site)
}

/// Brings the site of a plan up, and returns the process that holds it.
fn begin(
    plan: &Path,
    sites: &Sites,
    toehold: &Path,
    life: SiteLife,
    mut say: impl FnMut(&str),
) -> Result<(SiteView, Child), SiteFailure> {
    let text = std::fs::read_to_string(plan).map_err(|error| SiteFailure::File(plan.to_owned(), error))?;
    let deployment = Deployment::parse(plan, &text)?;
    let missing = needs(Some(&deployment), sites.path())
        .into_iter()
        .find(|need| !need.is_here);
    if let Some(need) = missing {
        return Err(SiteFailure::Missing(format!(
            "{} is missing: {}",
            need.what, need.remedy
        )));
    }
    let failed = |error| SiteFailure::File(toehold.to_owned(), error);
    let mut runner = Command::new("setsid");
    runner
        .arg(toehold)
        .arg(RUNNER_NAME)
        .arg(plan)
        .arg("--sites")
        .arg(sites.path());
    match life {
        SiteLife::Own => runner.stdin(Stdio::null()),
        SiteLife::WithInput => runner.arg(HELD_OPTION).stdin(Stdio::piped()),
    };
    runner.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = runner.spawn().map_err(failed)?;
    let lines = child.stdout.take().map(BufReader::new).map(BufRead::lines);
    let mut reason = "the process that holds the site ended".to_owned();
    for line in lines.into_iter().flatten().map_while(Result::ok) {
        if line == runner::UP {
            return Ok((SiteView::of(&sites.record_of(&deployment.name)?), child));
        }
        if let Some(step) = line.strip_prefix(runner::STEP) {
            say(step);
        } else if let Some(failure) = line.strip_prefix(runner::FAILED) {
            reason = failure.to_owned();
        }
    }
    // It has removed everything when it has ended.
    let _ = child.wait();
    Err(SiteFailure::Server(reason))
}

/// All sites, by name.
pub fn list(sites: &Sites) -> Vec<SiteView> {
    sites.all().iter().map(SiteView::of).collect()
}

/// Ends a site, or removes what a dead one has left. Nothing of it is there afterwards.
///
/// # Errors
///
/// If there is no such site, or if it does not end within a minute.
pub fn down(name: &str, sites: &Sites, toehold: &Path) -> Result<(), SiteFailure> {
    let record = sites.record_of(name)?;
    if record.state == SiteState::Dead {
        return sites.clear(name, toehold);
    }
    if let Ok(runner) = i32::try_from(record.runner) {
        // The runner holds its lock, so the number is still its own.
        let _ = kill(Pid::from_raw(runner), Signal::SIGTERM);
    }
    // A process that has ended, and is not waited for, has no command line.
    let line = format!("/proc/{}/cmdline", record.runner);
    let runs = || std::fs::read(&line).is_ok_and(|line| !line.is_empty());
    let deadline = Instant::now() + END_PATIENCE;
    while sites.directory_of(name).exists() || runs() {
        if Instant::now() > deadline {
            let seconds = END_PATIENCE.as_secs();
            return Err(SiteFailure::Server(format!(
                "{name} does not end within {seconds} s"
            )));
        }
        std::thread::sleep(END_LOOK);
    }
    Ok(())
}
