//! Counters of the stack: every dropped frame by its reason, and the events that help to find a
//! fault.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! counters {
    ($(#[$attribute:meta])+ $type:ident { $($(#[doc = $doc:literal])+ $name:ident,)+ }) => {
        $(#[$attribute])+
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub struct $type { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl $type {
            /// The documentation of each counter, in the order of declaration.
            pub const DOCS: &[&str] = &[$(concat!($($doc),+).trim_ascii(),)+];

            /// Every counter with its name, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            /// Adds the counters of another stack.
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
        /// Dropped: the frame is shorter than its headers say, or its header fields contradict each
        /// other.
        drop_malformed,
        /// Dropped: for another hardware address.
        drop_other_host,
        /// Dropped: an EtherType that this stack does not handle.
        drop_ethertype,
        /// Dropped: an IP packet for an address this stack does not have.
        drop_not_local,
        /// Dropped: the connection belongs to another shard.
        drop_other_shard,
        /// Dropped: an impossible source address (multicast, broadcast, own).
        drop_bad_source,
        /// Dropped: a wrong transport or IP header checksum.
        drop_checksum,
        /// Dropped: an IP protocol that this stack does not handle.
        drop_protocol,
        /// Dropped: a fragment that could not be stored or reassembled.
        drop_fragment,
        /// Dropped: more IPv6 extension headers than the bound, or an invalid one.
        drop_extension_header,
        /// Dropped: an invalid ARP or neighbour discovery message.
        drop_neighbor,
        /// Dropped: no hardware address was found in time, or too many frames waited for one.
        drop_unresolved,
        /// Dropped: an ICMP message that is malformed, quotes no packet of this stack, or exceeds
        /// the rate.
        drop_icmp,
        /// ICMP errors sent.
        icmp_errors_sent,
        /// Echo requests answered.
        icmp_echo_replies,
        /// Requests that every shard of the node receives, left to the first shard to answer.
        left_to_first_shard,
        /// ICMP errors withheld by the rate limit (RFC 4443 §2.4).
        icmp_errors_limited,
        /// Answers and errors of the IP layer dropped because their queue was full.
        drop_queue_full,
        /// Neighbours evicted to make room for others.
        neighbor_evictions,
        /// Neighbours that could not be resolved because the table was full.
        neighbor_table_full,
        /// Frames refused by the link because it was full.
        link_full,
        /// Frames handed to the node's kernel; a super-frame counts once.
        to_kernel_frames,
        /// Bytes of frames handed to the node's kernel.
        to_kernel_bytes,
        /// Dropped: a frame for the kernel, whose interface is down.
        drop_to_kernel_down,
        /// Dropped: a frame for the kernel, whose interface was deleted.
        drop_to_kernel_gone,
        /// Dropped: a frame for the kernel, which had no memory for it.
        drop_to_kernel_full,
        /// Dropped: a frame that the kernel refused, or of a kind that the kernel does not take.
        drop_to_kernel_refused,
        /// Frames from the node's kernel given to the link; a super-frame counts once.
        from_kernel_frames,
        /// Bytes of frames from the node's kernel.
        from_kernel_bytes,
        /// Dropped: a frame of the kernel for a hardware address that is not on the link.
        drop_from_kernel_unreachable,
        /// Dropped: a frame of the kernel for a node whose queue stays full.
        drop_from_kernel_full,
        /// Dropped: a frame of the kernel with impossible lengths or offloads.
        drop_from_kernel_malformed,
        /// TCP segments received that passed the checks of the layers below.
        tcp_segments_received,
        /// TCP segments sent, retransmissions included.
        tcp_segments_sent,
        /// Segments to a port without a listener or connection.
        tcp_no_connection,
        /// Resets sent.
        tcp_resets_sent,
        /// Resets received and accepted.
        tcp_resets_received,
        /// Segments dropped as outside the receive window (RFC 9293 §3.10.7.4).
        tcp_out_of_window,
        /// Segments dropped by PAWS (RFC 7323 §5).
        tcp_paws_drops,
        /// Challenge acknowledgements sent (RFC 5961).
        tcp_challenge_acks,
        /// Challenge acknowledgements withheld by the rate limit (RFC 5961 §10).
        tcp_challenge_acks_limited,
        /// Unexpected segments without data left unanswered: their connection had sent the most
        /// answers allowed in that second.
        tcp_strays_limited,
        /// Segments dropped for an impossible acknowledgement number (RFC 5961 §5).
        tcp_bad_acks,
        /// Segments dropped: fewer hops left than the program's minimum (IP_MINTTL,
        /// IPV6_MINHOPCOUNT).
        tcp_too_few_hops,
        /// Payload bytes that had already been received.
        tcp_duplicate_bytes,
        /// Segments received ahead of a gap and kept.
        tcp_out_of_order,
        /// Segments received ahead of a gap and dropped: no memory, or beyond the bound.
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
        /// Connections ended because the peer did not answer.
        tcp_aborted_on_timeout,
        /// Connections opened by this side.
        tcp_active_opens,
        /// Connections opened by a peer.
        tcp_passive_opens,
        /// SYNs that found the backlog full and were dropped.
        tcp_listen_overflows,
        /// Connections opened by a SYN with a valid Fast Open cookie.
        tcp_fast_opens,
        /// SYNs with a valid Fast Open cookie beyond the limit of pending connections.
        tcp_fast_open_overflows,
        /// SYN-ACKs that carried a Fast Open cookie.
        tcp_fast_open_cookies_sent,
        /// SYNs whose data the peer accepted (Fast Open).
        tcp_fast_open_data_taken,
        /// SYNs whose data the peer did not accept, or that were lost with their data.
        tcp_fast_open_data_refused,
        /// Destinations to which SYNs carry no data for a while, because SYNs with data seemed to
        /// be lost.
        tcp_fast_open_pauses,
        /// SYN cookies sent.
        tcp_syn_cookies_sent,
        /// Connections made from a returned SYN cookie.
        tcp_syn_cookies_accepted,
        /// Acknowledgements that carried no valid SYN cookie.
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
        /// Data or connections refused because context memory ran out.
        context_memory_out,
        /// Data refused or dropped because payload memory ran out.
        payload_memory_out,
    }
}

counters! {
    /// Work of a demultiplexer that counts it. The numbers do not depend on the machine.
    DemuxCounters {
        /// Four-tuples looked up among the connections.
        demux_lookups,
        /// Control blocks whose four-tuple was compared with the one looked up, including those in
        /// caches.
        demux_examined,
        /// Look-ups that a one-entry cache answered.
        demux_cache_hits,
        /// Cache lines read for look-ups: those of caches, chains and buckets, and one of each
        /// control block examined.
        demux_lines,
    }
}

/// Cost of finding connections and due timers, in entries examined. The numbers do not depend on
/// the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Four-tuples looked up among the connections; with [`Config::demux_counters`] only.
    ///
    /// [`Config::demux_counters`]: crate::Config::demux_counters
    pub lookups: u64,
    /// Entries whose four-tuple was compared for look-ups; with [`Config::demux_counters`](crate::Config::demux_counters) only.
    pub tuples_examined: u64,
    /// Entries of the timing wheel examined.
    pub timers_examined: u64,
}
