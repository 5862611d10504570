//! What the stack counts: every frame it drops, with the reason, and the
//! events a person who looks for trouble asks about.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! counters {
    ($(#[$attribute:meta])+ $type:ident { $($(#[doc = $doc:literal])+ $name:ident,)+ }) => {
        $(#[$attribute])+
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub struct $type { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl $type {
            /// What each counts, in the order of declaration.
            pub const DOCS: &[&str] = &[$(concat!($($doc),+).trim_ascii(),)+];

            /// Every counter with its name, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            /// Adds what another stack has counted.
            pub fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)+
            }
        }
    };
}

counters! {
    /// Counters of one stack, since its creation. They only grow.
    Counters {
        /// Frames received from the link.
        frames_received,
        /// Frames given to the link.
        frames_sent,
        /// Dropped: shorter than its headers say, or header fields contradict one another.
        drop_malformed,
        /// Dropped: for another hardware address.
        drop_other_host,
        /// Dropped: an EtherType nobody here handles.
        drop_ethertype,
        /// Dropped: an IP packet for an address this stack does not have.
        drop_not_local,
        /// Dropped: of a connection that is another shard's.
        drop_other_shard,
        /// Dropped: a source address that cannot be one (multicast, broadcast, own).
        drop_bad_source,
        /// Dropped: a transport or IP header checksum that does not fit.
        drop_checksum,
        /// Dropped: an IP protocol nobody here handles.
        drop_protocol,
        /// Dropped: a fragment that could not be kept or put together.
        drop_fragment,
        /// Dropped: IPv6 extension headers beyond the bound, or a bad one.
        drop_extension_header,
        /// Dropped: an ARP or neighbour discovery message that breaks a rule.
        drop_neighbor,
        /// Dropped: a frame that waited for a hardware address in vain or beyond the bound.
        drop_unresolved,
        /// Dropped: an ICMP message that is malformed, quotes nothing of ours, or exceeds the rate.
        drop_icmp,
        /// ICMP errors sent.
        icmp_errors_sent,
        /// Echo requests answered.
        icmp_echo_replies,
        /// Questions that every shard of the node hears, left to the first one to answer.
        left_to_first_shard,
        /// ICMP errors withheld by the rate limit (RFC 4443 §2.4).
        icmp_errors_limited,
        /// Answers and errors of the IP layer dropped because their queue was full.
        drop_queue_full,
        /// Neighbours forgotten to make room for others.
        neighbor_evictions,
        /// Neighbours that could not be asked for because the table was full.
        neighbor_table_full,
        /// Frames the link would not take.
        link_full,
        /// Frames handed to the node's kernel, super-frames counted once.
        to_kernel_frames,
        /// Bytes of these.
        to_kernel_bytes,
        /// Dropped: a frame for the kernel, whose interface is down.
        drop_to_kernel_down,
        /// Dropped: a frame for the kernel, whose interface was deleted.
        drop_to_kernel_gone,
        /// Dropped: a frame for the kernel, which had no memory for it.
        drop_to_kernel_full,
        /// Dropped: a frame for the kernel, which refused it, or which is none of a kind it takes.
        drop_to_kernel_refused,
        /// Frames of the node's kernel given to the link, super-frames counted once.
        from_kernel_frames,
        /// Bytes of these.
        from_kernel_bytes,
        /// Dropped: a frame of the kernel for a hardware address that is not on the link.
        drop_from_kernel_unreachable,
        /// Dropped: a frame of the kernel for a node that leaves no room for it for long.
        drop_from_kernel_full,
        /// Dropped: a frame of the kernel with impossible lengths or offloads.
        drop_from_kernel_malformed,
        /// TCP segments received that passed the checks of the layers below.
        tcp_segments_received,
        /// TCP segments sent, retransmissions included.
        tcp_segments_sent,
        /// Segments to a port nobody listens on.
        tcp_no_connection,
        /// Resets sent.
        tcp_resets_sent,
        /// Resets received and obeyed.
        tcp_resets_received,
        /// Segments dropped as outside the receive window (RFC 9293 §3.10.7.4).
        tcp_out_of_window,
        /// Segments dropped by PAWS (RFC 7323 §5).
        tcp_paws_drops,
        /// Challenge acknowledgements sent (RFC 5961).
        tcp_challenge_acks,
        /// Challenge acknowledgements withheld by the rate limit (RFC 5961 §10).
        tcp_challenge_acks_limited,
        /// Segments out of place and without data that got no answer: their connection had answered
        /// many in that second.
        tcp_strays_limited,
        /// Segments dropped for an acknowledgement number that cannot be (RFC 5961 §5).
        tcp_bad_acks,
        /// Segments dropped: fewer hops left than their program asks for (IP_MINTTL, IPV6_MINHOPCOUNT).
        tcp_too_few_hops,
        /// Payload bytes that had already been received.
        tcp_duplicate_bytes,
        /// Segments received ahead of a gap and kept.
        tcp_out_of_order,
        /// Segments received ahead of a gap and dropped for want of memory or beyond the bound.
        tcp_out_of_order_drops,
        /// Segments retransmitted for any reason.
        tcp_retransmits,
        /// Retransmission timeouts.
        tcp_timeouts,
        /// Tail loss probes sent (RFC 8985 §7).
        tcp_tail_loss_probes,
        /// Fast recoveries entered.
        tcp_recoveries,
        /// Loss episodes found to be spurious and undone.
        tcp_spurious_recoveries,
        /// Zero-window probes sent.
        tcp_window_probes,
        /// Keepalive probes sent.
        tcp_keepalive_probes,
        /// Connections ended for want of answers.
        tcp_aborted_on_timeout,
        /// Connections opened by this side.
        tcp_active_opens,
        /// Connections opened by a peer.
        tcp_passive_opens,
        /// SYNs that found the backlog full and were dropped.
        tcp_listen_overflows,
        /// Connections opened by a SYN with a valid Fast Open cookie.
        tcp_fast_opens,
        /// Such SYNs beyond the limit of pending connections.
        tcp_fast_open_overflows,
        /// SYN-ACKs that brought a Fast Open cookie.
        tcp_fast_open_cookies_sent,
        /// SYNs whose data the peer took (Fast Open).
        tcp_fast_open_data_taken,
        /// SYNs whose data the peer did not take, or that were lost with them.
        tcp_fast_open_data_refused,
        /// Destinations to which SYNs carry no data for a while, since such seemed to vanish.
        tcp_fast_open_pauses,
        /// SYN cookies sent.
        tcp_syn_cookies_sent,
        /// Connections made from a returned cookie.
        tcp_syn_cookies_accepted,
        /// Acknowledgements that were no valid cookie.
        tcp_syn_cookies_failed,
        /// Connections that ended in TIME-WAIT records.
        tcp_time_wait,
        /// TIME-WAIT records dropped early because their table was full.
        tcp_time_wait_overflows,
        /// TIME-WAIT records reused by a new SYN.
        tcp_time_wait_reused,
        /// Segments that carried an ECN congestion mark.
        tcp_ce_received,
        /// Congestion window reductions caused by ECN.
        tcp_ecn_reductions,
        /// Data or connections refused because context memory was out.
        context_memory_out,
        /// Data refused or dropped because payload memory was out.
        payload_memory_out,
    }
}

counters! {
    /// What a demultiplexer has done that counts it: numbers that do not depend on the machine.
    DemuxCounters {
        /// Four-tuples looked up among the connections.
        demux_lookups,
        /// Protocol control blocks whose four-tuple was compared with one looked up, those in caches included.
        demux_examined,
        /// Look-ups that a one-entry cache answered.
        demux_cache_hits,
        /// Cache lines read for look-ups: of caches, chains and buckets, and one of each block examined.
        demux_lines,
    }
}

/// What it has cost to find connections and due timers, in entries looked at:
/// numbers that do not depend on the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Four-tuples looked up among the connections; with [`Config::demux_counters`] only.
    ///
    /// [`Config::demux_counters`]: crate::Config::demux_counters
    pub lookups: u64,
    /// Entries whose tuple was compared for that; with the same only.
    pub tuples_examined: u64,
    /// Entries of the timing wheel looked at.
    pub timers_examined: u64,
}
