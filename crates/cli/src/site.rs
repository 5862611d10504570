//! `toehold site`: real tiers on nodes, and their measurement.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde::Serialize;
use toehold_lab::site::{self, Deployment, LoadOptions, SiteLife, SiteLoad, SiteNeed, SiteView, Sites};

use crate::nodes::{span, table};
use crate::{interrupt, json};

/// The schema of all its documents.
const SCHEMA: &str = "toehold/site/1";

/// Bring up a site of real servers, one behind the other on nodes, and find out which tier is full
///
/// A plan names the tiers, such as a proxy before a web server, what carries their connections, and
/// the content. Each tier has a node or a network namespace, a mount namespace and a control group
/// of its own. It needs root.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold site check
  toehold site init /var/www/html --log /var/log/nginx/access.log > shop.toml
  toehold site up shop.toml
  toehold site load shop --clients 16
  toehold site down shop")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: SiteCommand,
}

#[derive(Debug, Subcommand)]
enum SiteCommand {
    Check(Check),
    Init(Init),
    Up(Up),
    Load(LoadArguments),
    Ls(Ls),
    Down(Down),
}

/// The directory of sites, and the form of the output.
#[derive(Debug, clap::Args)]
struct Common {
    /// Directory of sites: their content, configurations and logs, while they are up
    #[arg(
        long,
        value_name = "DIR",
        env = "TOEHOLD_SITES",
        default_value = "/var/lib/toehold/sites"
    )]
    sites: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// List what sites need here, and what of that is missing
///
/// Exit status: 0, or 1 if something is missing that the plan, or every site, needs.
#[derive(Debug, clap::Args)]
struct Check {
    /// List what this plan needs
    #[arg(value_name = "PLAN")]
    plan: Option<PathBuf>,

    #[command(flatten)]
    common: Common,
}

/// Print a plan for a directory of files, and an access log with their requests
///
/// The plan has a proxy before a web server. Its comments say what was found. The log is in Combined
/// Log Format; `toehold site load` repeats its requests in their order.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  toehold site init /var/www/html --log /var/log/nginx/access.log > shop.toml"
)]
struct Init {
    /// Directory of the files; hidden files and links are left out
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Access log of a server of these files
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Print JSON, with the plan as a text
    #[arg(long)]
    json: bool,
}

/// Bring the site of a plan up, and print how to ask it
///
/// It is up when a request through all tiers has brought the right bytes. A process of its own holds
/// it until `toehold site down`. If that process is killed, everything of the site is removed.
#[derive(Debug, clap::Args)]
struct Up {
    /// The plan: docs/book/measure/site.md describes its fields
    #[arg(value_name = "PLAN")]
    plan: PathBuf,

    #[command(flatten)]
    common: Common,
}

/// Measure a site for some seconds: response times, and the processor time of each tier
///
/// Clients in one process ask for files in the order of the plan's content, each for one file at a
/// time. An answer of the wrong length, or none for 20 s, ends the load.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold site load shop
  toehold site load shop --clients 1 --span 60s --json | jq .tiers")]
struct LoadArguments {
    /// The site
    #[arg(value_name = "NAME")]
    name: String,

    /// Number of clients, up to that of the plan [default: that of the plan]
    #[arg(long, value_name = "N")]
    clients: Option<u8>,

    /// Duration of the measurement
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = span)]
    span: Duration,

    /// Duration of requests before it, which fill caches; 0s starts with caches as they are
    #[arg(long, value_name = "SPAN", default_value = "5s", value_parser = span)]
    warm_up: Duration,

    #[command(flatten)]
    common: Common,
}

/// List the sites that are up
#[derive(Debug, clap::Args)]
struct Ls {
    #[command(flatten)]
    common: Common,
}

/// End sites, and remove everything that they made
#[derive(Debug, clap::Args)]
struct Down {
    /// Names of sites
    #[arg(value_name = "NAME", required_unless_present = "all")]
    names: Vec<String>,

    /// All sites
    #[arg(long, conflicts_with = "names")]
    all: bool,

    #[command(flatten)]
    common: Common,
}

/// The command line of the process that holds a site.
#[derive(Debug, clap::Args)]
pub(crate) struct SiteRunner {
    plan: PathBuf,

    #[arg(long)]
    sites: PathBuf,

    /// End with standard input
    #[arg(long)]
    held: bool,
}

/// The command line of a request that shows whether a site works.
#[derive(Debug, clap::Args)]
pub(crate) struct SiteFetch {
    /// Address of the first tier
    address: std::net::SocketAddr,
    /// Name of the file in requests
    name: String,
    /// The file itself
    file: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        SiteCommand::Check(check) => check.run(),
        SiteCommand::Init(init) => init.run(),
        SiteCommand::Up(up) => up.run(),
        SiteCommand::Load(load) => load.run(),
        SiteCommand::Ls(ls) => ls.run(),
        SiteCommand::Down(down) => down.run(),
    }
}

impl SiteRunner {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let stop = interrupt::flag()?;
        let sites = Sites::in_directory(&self.sites)?;
        let life = if self.held {
            SiteLife::WithInput
        } else {
            SiteLife::Own
        };
        Ok(site::run(&self.plan, &sites, &own()?, life, &stop))
    }
}

impl SiteFetch {
    pub(crate) fn run(&self) -> ExitCode {
        site::fetch(self.address, &self.name, &self.file)
    }
}

/// The path of this program, for processes that have another working directory.
fn own() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program (is /proc mounted?)")
}

impl Common {
    fn sites(&self) -> Result<Sites> {
        Sites::in_directory(&self.sites).context("cannot find the working directory")
    }
}

impl Check {
    fn run(&self) -> Result<ExitCode> {
        let deployment = self.plan.as_deref().map(read).transpose()?;
        let needs = site::needs(deployment.as_ref(), &self.common.sites);
        let is_ready = needs.iter().all(|need| need.is_here || !need.is_required);
        if self.common.json {
            json::print(
                SCHEMA,
                &CheckedNeeds {
                    is_ready,
                    needs: &needs,
                },
            )?;
        } else {
            let mut listed = table::new(&["needed", "here", "for", "if it is missing"], 4);
            for need in &needs {
                let here = if need.is_here { "yes" } else { "no" };
                let remedy = if need.is_here { "" } else { &need.remedy };
                listed.add_row([&need.what, here, &need.purpose, remedy]);
            }
            writeln!(std::io::stdout(), "{listed}")?;
        }
        Ok(if is_ready {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn read(plan: &Path) -> Result<Deployment> {
    let text = std::fs::read_to_string(plan).with_context(|| format!("cannot read {}", plan.display()))?;
    Ok(Deployment::parse(plan, &text)?)
}

impl Init {
    fn run(&self) -> Result<ExitCode> {
        let plan = site::plan(&self.directory, self.log.as_deref())?;
        if self.json {
            json::print(SCHEMA, &PlanText { plan: &plan })?;
        } else {
            write!(std::io::stdout(), "{plan}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Up {
    fn run(&self) -> Result<ExitCode> {
        let is_shown = console::user_attended_stderr();
        let site = site::up(&self.plan, &self.common.sites()?, &own()?, |step| {
            if is_shown {
                toehold_lab::say(&format!("starting: {step}"));
            }
        })?;
        if self.common.json {
            json::print(SCHEMA, &OneSite { site: &site })?;
        } else {
            show(&site)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show(site: &SiteView) -> Result<()> {
    let mut tiers = table::new(&["tier", "program", "address", "log", "configuration"], 5);
    for tier in &site.tiers {
        let configuration = tier.configuration.as_ref().map(|path| path.display().to_string());
        tiers.add_row([
            tier.name.clone(),
            tier.program.to_owned(),
            tier.address.clone(),
            tier.log.display().to_string(),
            configuration.unwrap_or_default(),
        ]);
    }
    let mut out = std::io::stdout();
    writeln!(out, "{tiers}\n")?;
    if let Some(curl) = &site.curl {
        writeln!(out, "  {curl}")?;
    }
    writeln!(
        out,
        "  toehold site load {}\n  toehold site down {}",
        site.name, site.name
    )?;
    Ok(())
}

impl LoadArguments {
    fn run(&self) -> Result<ExitCode> {
        if self.span < Duration::from_millis(100) {
            bail!("a load of less than 100 ms says nothing: write --span 10s");
        }
        let options = LoadOptions {
            clients: self.clients,
            span: self.span,
            warm_up: self.warm_up,
        };
        if console::user_attended_stderr() {
            let whole = humantime::format_duration(self.span + self.warm_up);
            toehold_lab::say(&format!("measuring for {whole}"));
        }
        let load = site::load(&self.common.sites()?, &self.name, &options)?;
        if self.common.json {
            json::print(SCHEMA, &load)?;
        } else {
            show_load(&load)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show_load(load: &SiteLoad) -> Result<()> {
    let mut tiers = table::new(
        &[
            "tier",
            "program",
            "cores",
            "in the kernel",
            "in the engine",
            "hits",
            "",
        ],
        2,
    );
    for tier in &load.tiers {
        let share = |part_ns: u64| format!("{:.2}", part_ns as f64 / load.span_ns.max(1) as f64);
        tiers.add_row([
            tier.name.clone(),
            tier.program.to_owned(),
            format!("{:.2}", tier.cores),
            share(tier.system_ns),
            share(tier.engine_ns),
            tier.hit_ratio
                .map_or_else(String::new, |ratio| format!("{:.1} %", 100.0 * ratio)),
            if tier.is_full { "full" } else { "" }.to_owned(),
        ]);
    }
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{:.0} requests/s of {} clients; response {:.0} µs (median), {:.0} µs (99 %)\n\n{tiers}\n",
        load.requests_per_second,
        load.clients,
        load.p50_ns as f64 / 1e3,
        load.p99_ns as f64 / 1e3
    )?;
    let verdict = match load.tiers.iter().find(|tier| tier.is_full) {
        Some(full) => format!("{} is full", full.name),
        None if load.machine_busy < 0.9 => {
            "no tier is full: clients wait for wake-ups or files, or are few".to_owned()
        }
        None => format!(
            "other programs took {:.2} cores: measure again when they are quiet",
            load.other_cores
        ),
    };
    writeln!(
        out,
        "{verdict}; the clients took {:.2} cores; the machine was {:.0} % busy",
        load.client_cores,
        100.0 * load.machine_busy
    )?;
    Ok(())
}

impl Ls {
    fn run(&self) -> Result<ExitCode> {
        let sites = site::list(&self.common.sites()?);
        if self.common.json {
            json::print(SCHEMA, &AllSites { sites: &sites })?;
            return Ok(ExitCode::SUCCESS);
        }
        if sites.is_empty() {
            writeln!(
                std::io::stdout(),
                "no site is up: `toehold site up PLAN` brings one up"
            )?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut listed = table::new(&["site", "state", "stack", "tiers", "plan"], 5);
        for site in &sites {
            let tiers: Vec<_> = site
                .tiers
                .iter()
                .map(|tier| format!("{} ({})", tier.name, tier.program))
                .collect();
            listed.add_row([
                site.name.clone(),
                json::word(&site.state)?,
                json::word(&site.stack)?,
                tiers.join(", "),
                site.plan.display().to_string(),
            ]);
        }
        let mut out = std::io::stdout();
        writeln!(out, "{listed}")?;
        for site in &sites {
            if let Some(failure) = &site.failure {
                writeln!(out, "{}: {failure}", site.name)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Down {
    fn run(&self) -> Result<ExitCode> {
        let sites = self.common.sites()?;
        let all = || site::list(&sites).into_iter().map(|site| site.name).collect();
        let names: Vec<String> = if self.all { all() } else { self.names.clone() };
        let mut status = ExitCode::SUCCESS;
        let mut ended = Vec::new();
        for name in &names {
            match site::down(name, &sites, &own()?) {
                Ok(()) => ended.push(name.as_str()),
                Err(error) => {
                    toehold_lab::say(&format!("toehold: {error}"));
                    status = ExitCode::FAILURE;
                }
            }
        }
        if self.common.json {
            json::print(SCHEMA, &EndedSites { ended: &ended })?;
        }
        Ok(status)
    }
}

/// What `check --json` prints.
#[derive(Debug, Serialize)]
struct CheckedNeeds<'a> {
    is_ready: bool,
    needs: &'a [SiteNeed],
}

/// What `init --json` prints.
#[derive(Debug, Serialize)]
struct PlanText<'a> {
    plan: &'a str,
}

/// What `up --json` prints.
#[derive(Debug, Serialize)]
struct OneSite<'a> {
    site: &'a SiteView,
}

/// What `ls --json` prints.
#[derive(Debug, Serialize)]
struct AllSites<'a> {
    sites: &'a [SiteView],
}

/// What `down --json` prints.
#[derive(Debug, Serialize)]
struct EndedSites<'a> {
    ended: &'a [&'a str],
}
