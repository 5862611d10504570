//! What an endpoint has counted.

/// Counters of an endpoint since its creation. They only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageCounters {
    /// Packets received.
    pub packets_received: u64,
    /// Packets given to the link.
    pub packets_sent: u64,
    /// Packets sent again.
    pub packets_repeated: u64,
    /// Messages that arrived whole, or as an offer.
    pub messages_received: u64,
    /// Messages that arrived whole, or as an offer, and found no posted receive.
    pub messages_unexpected: u64,
    /// Sends that were taken from the program.
    pub sends: u64,
    /// Times that a send began to wait for a grant.
    pub sends_starved: u64,
    /// Sends refused because the table is full.
    pub refused_sends: u64,
    /// Receives refused because the table is full.
    pub refused_receives: u64,
    /// Injected messages refused because payload memory is full.
    pub refused_injects: u64,
    /// Flows that began.
    pub flows_opened: u64,
    /// Flows refused because the table is full.
    pub refused_flows: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Flows that ended because the peer was silent.
    pub flows_silent: u64,
    /// RESET packets that ended a flow.
    pub resets_received: u64,
    /// Dropped: bytes that are no packet, or a checksum that is wrong or missing.
    pub drop_malformed: u64,
    /// Dropped: a packet of another life, or of no known flow.
    pub drop_unknown_life: u64,
    /// Dropped: a packet that was taken before.
    pub drop_repeated: u64,
    /// Dropped: a packet too far behind a gap, or one without room to keep it.
    pub drop_early: u64,
    /// Dropped: a range or token that was not asked for or announced.
    pub drop_unasked: u64,
    /// Dropped: an acknowledgement of packets that were not sent.
    pub drop_bad_ack: u64,
    /// Flows ended because the peer broke the protocol.
    pub offences: u64,
}
