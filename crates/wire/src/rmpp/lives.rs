//! The pair of lives that a flow belongs to.

/// The incarnations of both ends of a flow, as its sender sees them.
///
/// An endpoint draws its incarnation at random when it begins to live. A restarted
/// endpoint has another one at the same hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lives {
    /// The incarnation of the packet's sender.
    pub sender: u64,
    /// The incarnation that the sender takes for the receiver's.
    pub receiver: u64,
}

impl Lives {
    /// Returns the pair as the other end sees it.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            sender: self.receiver,
            receiver: self.sender,
        }
    }

    /// Returns the value of the header's check field. Both directions of a flow have one
    /// value, so a RESET can answer a packet whose lives are unknown.
    ///
    /// ```
    /// use toehold_wire::rmpp::Lives;
    /// let lives = Lives { sender: 7, receiver: 9 };
    /// assert_eq!(lives.check(), lives.reversed().check());
    /// assert_ne!(lives.check(), Lives { sender: 7, receiver: 10 }.check());
    /// ```
    #[must_use]
    pub const fn check(self) -> u32 {
        let (low, high) = if self.sender < self.receiver {
            (self.sender, self.receiver)
        } else {
            (self.receiver, self.sender)
        };
        let mixed = mix(mix(low).wrapping_add(high));
        (mixed >> 32) as u32 ^ mixed as u32
    }
}

/// Spreads each bit over all bits (the finalizer of MurmurHash3).
const fn mix(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xff51_afd7_ed55_8ccd);
    word ^= word >> 33;
    word = word.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}
