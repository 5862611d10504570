//! What the IP layer leaves to the kernel's stack, if the node has one beside this one.
//!
//! The two have the same addresses, so the kernel is given all that this stack does not
//! know how to handle, and decides for itself what becomes of it: UDP, echo requests,
//! groups, addresses of the interface that this stack knows nothing of. Questions for
//! hardware addresses and their answers are for both: each has neighbours of its own. Both
//! answer, alike, so that this stack's connections do not end when the interface goes down.
//!
//! TCP for this stack's addresses is not decided here: see `tcp/input`.

use super::ethernet::dropped;
use super::{Ingress, Ip};
use crate::counters::Counters;

impl Ip {
    /// What is not for this stack: the kernel's, if there is one; otherwise a drop, counted
    /// under `reason`. Of the shards, one hands it on: that of its flow, or the first one.
    #[cold]
    pub(super) fn elsewhere<'a>(
        &self,
        counters: &mut Counters,
        reason: fn(&mut Counters) -> &mut u64,
    ) -> Ingress<'a> {
        match (self.beside_kernel, self.answers) {
            (true, true) => Ingress::Kernel,
            (true, false) => dropped(&mut counters.drop_other_shard),
            (false, _) => dropped(reason(counters)),
        }
    }

    /// What this stack has taken in, and the kernel wants to know as well.
    #[cold]
    pub(super) fn for_both<'a>(&self, taken: Ingress<'a>) -> Ingress<'a> {
        match taken {
            Ingress::Done if self.beside_kernel && self.speaks => Ingress::Kernel,
            taken => taken,
        }
    }
}
