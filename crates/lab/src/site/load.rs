//! Measures a site that is up: clients in a closed loop, and what each tier spends on them.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;

use super::deployment::SiteStack;
use super::error::SiteFailure;
use super::record::{SiteRecord, SiteState, Sites, TierRecord};
use super::runner::ASKED;
use super::servers::ServerProgram;
use super::storage::{disks_used, set_clock};
use crate::programs::web::{self, Asked, Counted, Extent, Order};
use crate::samples::{CpuUse, DiskUse, Side, TierUse};

/// Time without a byte before a site is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// Before each count, so that connections and their set-up are not in it.
const RUN_UP: Duration = Duration::from_millis(200);

/// Share of a core from which one thread is full, and of the machine from which processors are.
const FULL: f64 = 0.9;

/// Share of the machine that other programs may take before they are what fills it.
const OTHERS: f64 = 0.2;

/// How a site is loaded.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// Clients, each with one request at a time; `None` is the plan's number.
    pub clients: Option<u8>,
    /// Duration of the count.
    pub span: Duration,
    /// Duration of requests before it, which fill caches.
    pub warm_up: Duration,
}

/// What a tier did in a load.
#[derive(Debug, Clone, Serialize)]
pub struct TierLoad {
    /// The tier.
    pub name: String,
    /// Its program, as plans name it.
    pub program: &'static str,
    /// Processor time of its programs, in nanoseconds.
    pub user_ns: u64,
    /// Processor time of the kernel for them, in nanoseconds.
    pub system_ns: u64,
    /// Processor time of its node's engine, in nanoseconds.
    pub engine_ns: u64,
    /// All three, as a share of one core.
    pub cores: f64,
    /// Answers from its cache among those that went through it, 0 to 1.
    pub hit_ratio: Option<f64>,
    /// Bytes of files in the page cache that its programs read first.
    pub cached_bytes: u64,
    /// Whether it bounds the site's requests a second.
    pub is_full: bool,
}

/// What a load measured.
#[derive(Debug, Clone, Serialize)]
pub struct SiteLoad {
    /// The site.
    pub name: String,
    /// What carries its connections.
    pub stack: SiteStack,
    /// Number of clients.
    pub clients: u8,
    /// Duration of the count, in nanoseconds.
    pub span_ns: u64,
    /// Answers with the right length; any other answer would have ended the load.
    pub requests: u64,
    /// Bytes of these answers, without heads.
    pub bytes: u64,
    /// Requests a second.
    pub requests_per_second: f64,
    /// Median response time, in nanoseconds.
    pub p50_ns: u64,
    /// Response time that 99 % do not exceed, in nanoseconds.
    pub p99_ns: u64,
    /// The tiers, the first of which answered.
    pub tiers: Vec<TierLoad>,
    /// What the clients took, as a share of one core.
    pub client_cores: f64,
    /// What other programs of the machine took, in cores. Where that is much, the measurement is
    /// about them, too, and no tier is called full.
    pub other_cores: f64,
    /// Share of the whole machine's processor time that was not idle.
    pub machine_busy: f64,
}

/// The counts of a load, before they are summed up.
#[derive(Debug)]
pub(super) struct RawLoad {
    pub(super) record: SiteRecord,
    pub(super) clients: u8,
    pub(super) counted: Counted,
    pub(super) disks: Vec<DiskUse>,
}

/// What is asked of a site before and during a count.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadExtent {
    /// Requests before it, which fill caches.
    pub(super) warm_up: Option<Extent>,
    /// The count.
    pub(super) count: Extent,
    /// Requests before each count, with which connections begin.
    pub(super) run_up: Extent,
}

/// Loads a site.
///
/// # Errors
///
/// If there is no such site, or if it gives a wrong answer or none.
pub fn load(sites: &Sites, name: &str, options: &LoadOptions) -> Result<SiteLoad, SiteFailure> {
    let extent = LoadExtent {
        warm_up: (!options.warm_up.is_zero()).then_some(Extent::Span(options.warm_up)),
        count: Extent::Span(options.span),
        run_up: Extent::Span(RUN_UP),
    };
    load_raw(sites, name, options.clients, &extent).map(|raw| raw.summed())
}

/// Loads a site, and returns what was counted.
///
/// # Errors
///
/// If there is no such site, or if it gives a wrong answer or none.
pub(super) fn load_raw(
    sites: &Sites,
    name: &str,
    clients: Option<u8>,
    extent: &LoadExtent,
) -> Result<RawLoad, SiteFailure> {
    let record = sites.record_of(name)?;
    let clients = clients.unwrap_or(record.clients);
    check(&record, clients)?;
    let directory = sites.directory_of(name);
    let path = directory.join(ASKED);
    let failed = |error| SiteFailure::File(path.clone(), error);
    let text = fs::read(&path).map_err(failed)?;
    let asked: Asked = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
    let doors = || {
        record
            .door
            .iter()
            .chain(record.tiers.iter().map(|tier| &tier.door))
    };
    let mut order = Order {
        clients,
        asked,
        warm_up: extent.run_up,
        span: extent.warm_up.unwrap_or(extent.run_up),
        patience: PATIENCE,
        engines: Vec::new(),
        first: 0,
        groups: doors().flat_map(|door| door.groups()).collect(),
    };
    // Servers have more memory of their own with clients than without, and must not be killed for it.
    bound_memory(&record, |tier, _| tier.door.group.unbound_memory())?;
    set_clock(&record.disks, false)?;
    if extent.warm_up.is_some() {
        order.first = count(&record, &directory, &order)?.next;
    }
    bound_memory(&record, |tier, memory| tier.door.group.leave_for_files(memory))?;
    let killed = || {
        record
            .tiers
            .iter()
            .map(|tier| tier.door.group.killed())
            .collect::<Vec<_>>()
    };
    let killed_before = killed();
    set_clock(&record.disks, true)?;
    order.span = extent.count;
    let counted = count(&record, &directory, &order);
    let pairs = killed_before.into_iter().zip(killed());
    if let Some(tier) = pairs
        .zip(&record.tiers)
        .find_map(|((was, is), tier)| (is > was).then_some(tier))
    {
        return Err(SiteFailure::Server(format!(
            "the kernel killed a process of {} for want of memory: write a larger `memory`, or a longer --warm-up",
            tier.name
        )));
    }
    let disks = disks_used(&record.disks)?;
    Ok(RawLoad {
        counted: counted?,
        disks,
        record,
        clients,
    })
}

impl RawLoad {
    /// Processor time of each room's groups, the clients' first.
    fn uses(&self) -> Vec<&[CpuUse]> {
        let doors = self.record.door.iter();
        let doors = doors.chain(self.record.tiers.iter().map(|tier| &tier.door));
        let uses = doors.scan(0, |at, door| {
            let groups = self.counted.groups.get(*at..*at + door.groups().len());
            *at += door.groups().len();
            groups
        });
        uses.collect()
    }

    /// The figures for people.
    fn summed(&self) -> SiteLoad {
        summed(&self.record, self.clients, &self.counted, &self.uses())
    }

    /// The counts of the clients' side and of the tiers' side.
    pub(super) fn sides(self) -> (Side, Side) {
        let names = std::iter::once("clients").chain(self.record.tiers.iter().map(|tier| &*tier.name));
        let held = |number: usize| match number.checked_sub(1) {
            Some(tier) => self.record.tiers[tier].door.group.memory().files,
            None => 0,
        };
        let tiers = names.zip(self.uses()).enumerate().map(|(number, (name, uses))| {
            let own = uses.first().copied().unwrap_or_default();
            TierUse {
                name: name.to_owned(),
                user_ns: own.user_ns,
                system_ns: own.system_ns,
                engine_ns: uses.iter().skip(1).map(CpuUse::total_ns).sum(),
                cached_bytes: held(number),
            }
        });
        let tiers = tiers.collect();
        let answered = self.counted.hits + self.counted.misses;
        let hits = (answered > 0).then(|| self.counted.hits as f64 / answered as f64);
        let server = Side {
            tiers,
            disks: self.disks,
            span_ns: self.counted.client.span_ns,
            messages: self.counted.client.messages,
            bytes: self.counted.client.bytes,
            ..Side::of_values([("hits", hits)])
        };
        (self.counted.client, server)
    }
}

/// Changes the bound of each tier that has one.
fn bound_memory(
    record: &SiteRecord,
    change: impl Fn(&TierRecord, u64) -> io::Result<()>,
) -> Result<(), SiteFailure> {
    for tier in &record.tiers {
        if let Some(memory) = tier.memory {
            let changed = change(tier, memory);
            changed.map_err(|error| {
                SiteFailure::Server(format!("cannot bound the memory of {} here: {error}", tier.name))
            })?;
        }
    }
    Ok(())
}

fn check(record: &SiteRecord, clients: u8) -> Result<(), SiteFailure> {
    let name = &record.name;
    if clients == 0 || clients > record.clients {
        return Err(SiteFailure::Server(format!(
            "{name} is made for 1 to {} clients: write `clients` into its plan, and bring it up again",
            record.clients
        )));
    }
    match record.state {
        SiteState::Up => Ok(()),
        SiteState::Starting => Err(SiteFailure::Server(format!("{name} is still starting"))),
        SiteState::Failed => {
            let reason = record.failure.as_deref().unwrap_or("a server ended");
            Err(SiteFailure::Server(format!("{name} failed: {reason}")))
        }
        SiteState::Dead => Err(SiteFailure::Server(format!(
            "the process that held {name} is gone: `toehold site down {name}` removes what is left"
        ))),
    }
}

/// Runs the clients of an order in their room.
fn count(record: &SiteRecord, directory: &Path, order: &Order) -> Result<Counted, SiteFailure> {
    let path = directory.join(format!("order-{}.json", std::process::id()));
    let failed = |error| SiteFailure::File(path.clone(), error);
    let text = serde_json::to_vec(order).map_err(|error| failed(error.into()))?;
    fs::write(&path, text).map_err(failed)?;
    let counted = count_ordered(record, &path);
    // The site's end removes it, too.
    let _ = fs::remove_file(&path);
    counted
}

fn count_ordered(record: &SiteRecord, order: &Path) -> Result<Counted, SiteFailure> {
    let gone = || SiteFailure::Unknown(record.name.clone());
    let (door, first) = (
        record.door.as_ref().ok_or_else(gone)?,
        record.tiers.first().ok_or_else(gone)?,
    );
    let address: SocketAddr = format!("{}:{}", first.door.address, first.port)
        .parse()
        .map_err(|_| gone())?;
    let words = [
        record.toehold.display().to_string(),
        web::NAME.to_owned(),
        order.display().to_string(),
        address.to_string(),
    ];
    let output = door.command(&words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| SiteFailure::Server(format!("cannot start the clients: {error}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(SiteFailure::Server(format!("the load failed: {}", said.trim())));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| SiteFailure::Server(format!("the clients' counts are not readable: {error}")))
}

/// The sums of a count. `uses` has the processor time of each room's groups, the clients' first.
fn summed(record: &SiteRecord, clients: u8, counted: &Counted, uses: &[&[CpuUse]]) -> SiteLoad {
    let side = &counted.client;
    let span = side.span_ns.max(1) as f64;
    let all = |uses: &[CpuUse]| uses.iter().map(CpuUse::total_ns).sum::<u64>() as f64 / span;
    let answered = counted.hits + counted.misses;
    let hit_ratio = (answered > 0).then(|| counted.hits as f64 / answered as f64);
    // The cache nearest to the clients has the last word about hits.
    let cache = record.tiers.iter().position(|tier| tier.has_cache);
    let mut tiers = Vec::new();
    for (number, (tier, uses)) in record.tiers.iter().zip(uses.iter().skip(1)).enumerate() {
        let own = uses.first().copied().unwrap_or_default();
        tiers.push(TierLoad {
            name: tier.name.clone(),
            program: tier.program.name(),
            user_ns: own.user_ns,
            system_ns: own.system_ns,
            engine_ns: uses.iter().skip(1).map(CpuUse::total_ns).sum(),
            cores: all(uses),
            hit_ratio: hit_ratio.filter(|_| cache == Some(number)),
            cached_bytes: tier.door.group.memory().files,
            is_full: false,
        });
    }
    let programs: Vec<_> = record.tiers.iter().map(|tier| tier.program).collect();
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let client_cores = uses.first().map_or(0.0, |uses| all(uses));
    let own_cores = client_cores + tiers.iter().map(|tier| tier.cores).sum::<f64>();
    let other_cores = (counted.busy * cores - own_cores).max(0.0);
    let own_busy = if other_cores > OTHERS * cores {
        0.0
    } else {
        counted.busy
    };
    if let Some(full) = full(&tiers, &programs, span, own_busy) {
        tiers[full].is_full = true;
    }
    let quantile = |share| {
        side.durations
            .as_ref()
            .and_then(|counts| counts.quantile_ns(share))
            .unwrap_or(0)
    };
    SiteLoad {
        name: record.name.clone(),
        stack: record.stack,
        clients,
        span_ns: side.span_ns,
        requests: side.messages,
        bytes: side.bytes,
        requests_per_second: side.messages as f64 / span * 1e9,
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        tiers,
        client_cores,
        other_cores,
        machine_busy: counted.busy,
    }
}

/// The tier that bounds the site: a program of one thread that has no idle time left. If the whole
/// machine has none left, it is the tier that takes most.
fn full(tiers: &[TierLoad], programs: &[ServerProgram], span: f64, busy: f64) -> Option<usize> {
    let is_thread_full = |tier: &TierLoad, program: ServerProgram| {
        let has_one = matches!(
            program,
            ServerProgram::Nginx | ServerProgram::Haproxy | ServerProgram::Squid
        );
        has_one && (tier.user_ns + tier.system_ns) as f64 / span >= FULL
    };
    let mut numbered = tiers.iter().zip(programs).enumerate();
    if let Some((number, _)) = numbered.find(|(_, (tier, program))| is_thread_full(tier, **program)) {
        return Some(number);
    }
    let most = tiers
        .iter()
        .enumerate()
        .max_by(|one, other| one.1.cores.total_cmp(&other.1.cores));
    most.filter(|_| busy >= FULL).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(cores: f64) -> TierLoad {
        TierLoad {
            name: "t".into(),
            program: "x",
            user_ns: (cores * 1e9) as u64,
            system_ns: 0,
            engine_ns: 0,
            cores,
            hit_ratio: None,
            cached_bytes: 0,
            is_full: false,
        }
    }

    #[test]
    fn full_tier_is_a_full_thread_or_the_largest_user_of_a_full_machine() {
        use ServerProgram::{Apache, Nginx, Varnish};
        let of = |cores: [f64; 2], programs: [ServerProgram; 2], busy| {
            full(&cores.map(tier), &programs, 1e9, busy)
        };
        assert_eq!(of([0.6, 0.95], [Varnish, Nginx], 0.8), Some(1));
        assert_eq!(
            of([0.95, 0.6], [Varnish, Apache], 0.8),
            None,
            "Varnish may have another core"
        );
        assert_eq!(of([0.7, 0.6], [Varnish, Apache], 0.97), Some(0));
        assert_eq!(of([0.3, 0.2], [Varnish, Nginx], 0.5), None);
        assert_eq!(full(&[], &[], 1e9, 1.0), None);
    }
}
