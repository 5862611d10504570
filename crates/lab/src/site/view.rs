//! A site as people and programs see it.

use std::path::PathBuf;

use serde::Serialize;

use super::deployment::SiteStack;
use super::record::{SiteRecord, SiteState};

/// One tier of a site.
#[derive(Debug, Clone, Serialize)]
pub struct TierView {
    /// Its name.
    pub name: String,
    /// Its program, as plans name it.
    pub program: &'static str,
    /// The address and port of its server.
    pub address: String,
    /// What its server writes.
    pub log: PathBuf,
    /// The configuration of its server, if that is in a file.
    pub configuration: Option<PathBuf>,
}

/// A site.
#[derive(Debug, Clone, Serialize)]
pub struct SiteView {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: SiteState,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// What carries its connections.
    pub stack: SiteStack,
    /// Its plan.
    pub plan: PathBuf,
    /// When it was started, in seconds since 1970.
    pub started: u64,
    /// The process that holds it.
    pub runner: u32,
    /// A line for a shell that fetches a file as the clients do, once the site is up.
    pub curl: Option<String>,
    /// Its tiers, the first of which answers clients.
    pub tiers: Vec<TierView>,
}

impl SiteView {
    pub(super) fn of(record: &SiteRecord) -> Self {
        let tiers = record.tiers.iter().map(|tier| TierView {
            name: tier.name.clone(),
            program: tier.program.name(),
            address: format!("{}:{}", tier.door.address, tier.port),
            log: tier.log.clone(),
            configuration: tier.configuration.clone(),
        });
        let tiers: Vec<_> = tiers.collect();
        let is_up = record.state == SiteState::Up;
        let ends = record.door.as_ref().zip(tiers.first()).filter(|_| is_up);
        let curl = ends.map(|(door, first)| {
            let prefix = door.run_prefix().join(" ");
            format!(
                "{prefix} curl -sSo /dev/null -D - http://{}/{}",
                first.address, record.file
            )
        });
        Self {
            name: record.name.clone(),
            state: record.state,
            failure: record.failure.clone(),
            stack: record.stack,
            plan: record.plan.clone(),
            started: record.started,
            runner: record.runner,
            curl,
            tiers,
        }
    }
}
