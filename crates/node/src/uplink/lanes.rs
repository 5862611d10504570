//! The queues of an interface that leads straight to others. Each has a *lane* of its own to
//! theirs, with a thread, and a port or a part of the memory. It has nothing in common with the
//! other lanes. The kernel picks the queue of a flow, and answers it over the same one.
//!
//! So all that are on a lane have to have as many of them, which they tell one another.

use std::net::SocketAddr;

use toehold_link::ivshmem::Part;
use toehold_link::steering::MAX_SHARDS;

use super::UdpEnd;
use super::config::InvalidUplink;

/// One of the queues of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane {
    /// The lane's number, counted from 0.
    pub(super) index: u8,
    /// The number of lanes: 1 to 16.
    pub(super) count: u8,
}

impl Lane {
    /// The lane of an end without queues.
    pub(super) const SOLE: Lane = Lane { index: 0, count: 1 };

    /// All lanes of an interface.
    pub(super) fn all(queues: u8) -> Result<impl Iterator<Item = Lane>, InvalidUplink> {
        match (1..=MAX_SHARDS).contains(&queues) {
            true => Ok((0..queues).map(move |index| Lane { index, count: queues })),
            false => Err(InvalidUplink::Queues),
        }
    }

    /// The lane as the fabric of a link over UDP, which ignores peers with another one. A sole lane
    /// has 0.
    pub(super) fn fabric(self) -> u32 {
        u32::from(self.count - 1) << 8 | u32::from(self.index)
    }

    /// The lane that [`Lane::fabric`] made a number of; `None` for any other number.
    pub(super) fn of_fabric(fabric: u32) -> Option<Lane> {
        let (index, count) = (fabric as u8, u8::try_from(fabric >> 8).ok()?.checked_add(1)?);
        (count <= MAX_SHARDS && index < count).then_some(Lane { index, count })
    }

    /// The ports from the first lane's on.
    pub(super) fn hosts(self, end: &UdpEnd) -> Result<UdpEnd, InvalidUplink> {
        let shifted = |socket: SocketAddr| {
            let port = match (socket.port(), self.count) {
                // One that the kernel chooses has none beside it.
                (0, 2..) => None,
                (port, _) => port.checked_add(self.index.into()),
            };
            let port = port.ok_or(InvalidUplink::Ports(socket))?;
            Ok(SocketAddr::new(socket.ip(), port))
        };
        Ok(UdpEnd {
            bind: shifted(end.bind)?,
            peers: end.peers.iter().copied().map(shifted).collect::<Result<_, _>>()?,
            key: end.key,
        })
    }

    /// The lane's part of a segment's memory.
    pub(super) fn part(self) -> Part {
        let Lane { index, count } = self;
        Part { index, count }
    }

    /// The reason why this lane and one of another host do not match.
    pub(super) fn difference(self, other: Option<Lane>) -> String {
        match other {
            Some(other) if other.count != self.count => format!(
                "its interface has {} queues, and this one {}: give both the same --queues",
                other.count, self.count
            ),
            Some(other) => format!(
                "its port is that of queue {}, and this one's of queue {}: name the port of the first one",
                other.index, self.index
            ),
            None => "it is of another fabric".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_told_from_all_others_and_from_none() {
        let all = (1..=MAX_SHARDS).flat_map(|queues| Lane::all(queues).unwrap());
        let mut fabrics: Vec<u32> = all
            .map(|lane| {
                assert_eq!(Lane::of_fabric(lane.fabric()), Some(lane));
                lane.fabric()
            })
            .collect();
        fabrics.dedup();
        assert_eq!((fabrics.len(), fabrics[0]), (136, 0));
        for other in [1, 0x102, 0x1000, 0xff00, 0x1_0000, u32::MAX] {
            assert_eq!(Lane::of_fabric(other), None, "{other:#x}");
        }
        assert!(Lane::all(0).is_err() && Lane::all(17).is_err());
    }

    #[test]
    fn ports_of_lanes_are_in_a_row_or_refused() {
        let end = |bind: &str, peer: &str| UdpEnd {
            bind: bind.parse().unwrap(),
            peers: vec![peer.parse().unwrap()],
            key: None,
        };
        let lane = Lane { index: 2, count: 3 };
        let third = lane.hosts(&end("0.0.0.0:7005", "[::1]:65533")).unwrap();
        assert_eq!(third.bind.to_string(), "0.0.0.0:7007");
        assert_eq!(third.peers[0].to_string(), "[::1]:65535");
        for (bind, peer) in [("0.0.0.0:65534", "10.0.0.1:1"), ("0.0.0.0:0", "10.0.0.1:1")] {
            let refused = lane.hosts(&end(bind, peer)).unwrap_err();
            assert_eq!(refused, InvalidUplink::Ports(bind.parse().unwrap()));
        }
        let sole = Lane::SOLE.hosts(&end("0.0.0.0:0", "10.0.0.1:1")).unwrap();
        assert_eq!(sole.bind.port(), 0);
    }
}
