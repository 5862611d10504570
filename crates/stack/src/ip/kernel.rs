//! Frames that the IP layer leaves to the kernel's stack, if the node has one beside this one.
//!
//! Both stacks have the same addresses. The kernel receives all frames that this stack does not
//! handle, and decides what becomes of them. Such are UDP, echo requests, groups, and addresses of
//! the interface that this stack does not know. Requests for hardware addresses and their answers
//! go to both: each stack has a neighbour cache of its own. Both answer alike, so that this stack's
//! connections survive when the interface goes down.
//!
//! TCP for this stack's addresses is decided elsewhere: see `tcp/input`.

use super::ethernet::dropped;
use super::{Ingress, Ip};
use crate::counters::Counters;

impl Ip {
    /// Handles a frame that is not for this stack: hands it to the kernel, or drops it and counts
    /// `reason`. Only one shard hands it on: that of its flow, or the first one.
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

    /// Marks a frame that this stack has handled and the kernel also needs.
    #[cold]
    pub(super) fn for_both<'a>(&self, taken: Ingress<'a>) -> Ingress<'a> {
        match taken {
            Ingress::Done if self.beside_kernel && self.speaks => Ingress::Kernel,
            taken => taken,
        }
    }
}
