//! The knowledge of other uplinks.

use std::collections::BTreeMap;
use std::time::Instant;

use toehold_link::mq::NodeName;

use super::PERIOD;
use super::page::Page;
use crate::fabric::{Beyond, Identity};

/// An uplink that said nothing for so many periods is gone.
const PATIENCE: u32 = 4;
/// Most uplinks that are known at once. Pages of further uplinks are ignored.
pub(super) const MAX_UPLINKS: usize = 256;
/// Members of a fabric.
pub(super) const MAX_MEMBERS: usize = 1024;

/// Other uplinks, by fabric and name.
#[derive(Debug, Default)]
pub(super) struct Known {
    uplinks: BTreeMap<(u64, NodeName), Uplink>,
}

#[derive(Debug)]
struct Uplink {
    heard: Instant,
    host: String,
    members: Vec<Identity>,
    /// The members of pages whose successors have not come yet, and the page that is due.
    coming: Vec<Identity>,
    due: u32,
}

impl Known {
    /// Takes a page. True if it is from an uplink that was not known.
    pub(super) fn take(&mut self, page: Page, now: Instant) -> bool {
        let key = (page.fabric, page.uplink);
        let is_new = !self.uplinks.contains_key(&key);
        if is_new && self.uplinks.len() == MAX_UPLINKS {
            return false;
        }
        let uplink = self.uplinks.entry(key).or_insert_with(|| Uplink {
            heard: now,
            host: String::new(),
            members: Vec::new(),
            coming: Vec::new(),
            due: 0,
        });
        uplink.heard = now;
        uplink.host = page.host;
        if page.number == 0 {
            uplink.coming.clear();
        } else if page.number != uplink.due {
            // One is missing: all of them will be repeated.
            return is_new;
        }
        uplink.due = page.number.saturating_add(1);
        let room = MAX_MEMBERS.saturating_sub(uplink.coming.len());
        uplink.coming.extend(page.members.into_iter().take(room));
        if uplink.due == page.pages {
            uplink.members = std::mem::take(&mut uplink.coming);
        }
        is_new
    }

    /// Members of pages whose successors have not come yet.
    #[cfg(any(fuzzing, test))]
    pub(super) fn coming(&self) -> usize {
        self.uplinks.values().map(|uplink| uplink.coming.len()).sum()
    }

    /// Forgets uplinks that say nothing any more.
    pub(super) fn expire(&mut self, now: Instant) {
        let patience = PERIOD * PATIENCE;
        self.uplinks
            .retain(|_, uplink| now.saturating_duration_since(uplink.heard) < patience);
    }

    pub(super) fn list(&self) -> Vec<Beyond> {
        let all = self.uplinks.iter();
        all.map(|((fabric, name), uplink)| Beyond {
            host: uplink.host.clone(),
            uplink: *name,
            fabric: *fabric,
            members: uplink.members.clone(),
        })
        .collect()
    }
}
