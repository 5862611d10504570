//! Settings of a direct connection, and facts about it.

use std::io;
use std::net::Shutdown;

use rustix::io::Errno;
use toehold_shm::direct::{Noted, StreamState};
use toehold_stack::{
    CongestionState, Details, EarlyData, Info, Instant, Readiness, Settings, SocketError, SocketOption, State,
};

use super::open::window;
use super::{DirectCall, DirectConnection, look};
use crate::error::from_socket;

/// Bytes of a segment that the kernel's loopback carries, and of its packets. No segment is sent.
const SEGMENT: u16 = 65_483;
const PACKET: u16 = u16::MAX;

/// Segments of a congestion window that nothing has reduced (RFC 6928).
const WINDOW_SEGMENTS: u32 = 10;

impl DirectConnection {
    /// Shuts one or both directions.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.node.contain(|| {
            let call = self.enter()?;
            if self.state(&call) == State::Closed {
                return Err(Errno::NOTCONN.into());
            }
            let end = &call.end;
            if matches!(how, Shutdown::Read | Shutdown::Both) {
                end.note(Noted::ReadShut);
            }
            if matches!(how, Shutdown::Write | Shutdown::Both) {
                end.shut_write(call.thread).map_err(|_| Errno::AGAIN)?;
            }
            if end.has_noted(Noted::ReadShut) && end.is_write_shut() {
                end.limit_peer();
            }
            end.rouse();
            Ok(())
        })
    }

    /// Resets the connection, and ends all calls that wait for it.
    pub(crate) fn disconnect(&self) -> io::Result<()> {
        self.node.contain(|| {
            let call = self.enter()?;
            let end = &call.end;
            end.reset(call.thread).map_err(|_| Errno::AGAIN)?;
            if end.note(Noted::ResetSeen) {
                end.set_error(Errno::CONNRESET.raw_os_error() as u32);
            }
            end.rouse();
            Ok(())
        })
    }

    /// The state that a TCP connection would have.
    fn state(&self, call: &DirectCall<'_>) -> State {
        let is_write_shut = call.end.is_write_shut();
        match (call.end.look().peer, is_write_shut) {
            _ if call.is_closed() => State::Closed,
            (StreamState::Open, false) => State::Established,
            (StreamState::Open, true) => State::FinWait2,
            (_, false) => State::CloseWait,
            (_, true) => State::Closed,
        }
    }

    /// Sets an option.
    pub(crate) fn set_option(&self, option: SocketOption) -> io::Result<()> {
        self.node.contain(|| {
            let call = self.enter()?;
            let changed = self
                .description
                .change_settings(|settings| settings.apply(option));
            changed.map_err(from_socket)?;
            match option {
                SocketOption::ReceiveBuffer(_) | SocketOption::ForcedReceiveBuffer(_) => {
                    let settings = self.description.settings();
                    call.end.set_window(call.thread, window(&settings));
                }
                SocketOption::ReceiveLowWater(_) => {
                    let low = self.description.settings().receive_low_water();
                    self.description.set_low_water(low);
                    call.end.rouse();
                }
                SocketOption::UserTimeout(span) => {
                    let ms = u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
                    call.end.set_user_timeout(ms);
                }
                SocketOption::UrgentInline(_) => call.end.rouse(),
                _ => {}
            }
            Ok(())
        })
    }

    /// Sets all of these options, or none.
    pub(crate) fn set_options(&self, options: &[SocketOption]) -> io::Result<()> {
        let apply = |settings: &mut Settings| -> Result<(), SocketError> {
            options.iter().try_for_each(|option| settings.apply(*option))
        };
        self.description.change_settings(apply).map_err(from_socket)
    }

    /// The present settings.
    pub(crate) fn settings(&self) -> io::Result<Settings> {
        self.node.contain(|| {
            self.enter()?;
            Ok(self.description.settings())
        })
    }

    /// Bytes that can be received before the urgent one (FIONREAD).
    pub(crate) fn readable_bytes(&self) -> io::Result<usize> {
        self.node.contain(|| {
            let call = self.enter()?;
            let present = look(&call, self);
            // At the mark, the kernel says 0.
            let is_at_mark = present.readable < present.unread && self.at_mark()?;
            Ok(if is_at_mark { 0 } else { present.readable as usize })
        })
    }

    /// Bytes that the peer has not received (SIOCOUTQ): published bytes count as acknowledged.
    pub(crate) fn unacknowledged_bytes(&self) -> io::Result<usize> {
        self.node.contain(|| {
            self.enter()?;
            Ok(0)
        })
    }

    /// Bytes that can be sent without waiting.
    pub(crate) fn send_room(&self) -> io::Result<usize> {
        self.node.contain(|| {
            let call = self.enter()?;
            let bound = self.description.settings().send_buffer() as usize;
            Ok(bound.min(call.end.look().room as usize))
        })
    }

    /// Takes the pending error (SO_ERROR).
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.node.contain(|| {
            let call = self.enter()?;
            Ok(call.take_error().map(io::Error::from))
        })
    }

    /// Returns the connection's readiness.
    pub(crate) fn readiness(&self) -> io::Result<Readiness> {
        self.node.contain(|| {
            let call = self.enter()?;
            Ok(look(&call, self).readiness(self.description.low_water().into()))
        })
    }

    /// Facts about the connection (TCP_INFO).
    pub(crate) fn info(&self) -> io::Result<Info> {
        self.node.contain(|| {
            let call = self.enter()?;
            Ok(self.info_of(&call))
        })
    }

    fn info_of(&self, call: &DirectCall<'_>) -> Info {
        let end = &call.end;
        let found = end.look();
        Info {
            state: self.state(call),
            rtt_ns: 0,
            rtt_variation_ns: 0,
            min_rtt_ns: 0,
            rto_ns: 0,
            congestion_window: WINDOW_SEGMENTS * u32::from(SEGMENT),
            slow_start_threshold: u32::MAX,
            segment_size: SEGMENT,
            path_mtu: PACKET,
            send_window: u32::try_from(found.room).unwrap_or(u32::MAX),
            unacknowledged: 0,
            unsent: 0,
            unread: u32::try_from(found.readable).unwrap_or(u32::MAX),
            retransmits: 0,
            bytes_acked: end.sent(),
            bytes_received: end.received() + found.readable,
            timestamps: true,
            sack: true,
            window_scaling: true,
            ecn: false,
            timers: [None; 4],
        }
    }

    /// All facts that TCP_INFO has a place for. Facts that only segments have are 0.
    pub(crate) fn details(&self) -> io::Result<Details> {
        self.node.contain(|| {
            let call = self.enter()?;
            let info = self.info_of(&call);
            let settings = self.description.settings();
            let now = Instant(toehold_shm::monotonic_ns());
            Ok(Details {
                info,
                congestion: CongestionState::Open,
                backoff: 0,
                probes: 0,
                send_scale: 0,
                receive_scale: 0,
                receive_segment_size: SEGMENT,
                advertised_segment_size: SEGMENT,
                ack_delay_ns: 0,
                sacked: 0,
                lost: 0,
                retransmitted: 0,
                last_sent: now,
                last_received: now,
                last_data_received: (info.bytes_received > 0).then_some(now),
                receive_limit: settings.receive_buffer(),
                receive_space: settings.receive_buffer(),
                receive_window: settings.receive_buffer(),
                reordering: 3,
                max_pacing_rate: settings.max_pacing_rate(),
                timestamp: (now.0 / 1_000_000) as u32,
                segments_sent: 0,
                segments_received: 0,
                data_segments_sent: 0,
                data_segments_received: 0,
                bytes_sent: info.bytes_acked,
                bytes_retransmitted: 0,
                delivered: 0,
                delivered_marked: 0,
                received_marked: 0,
                delivery_rate: 0,
                is_app_limited: true,
                busy_ns: [0; 3],
                duplicate_reports: 0,
                reorderings: 0,
                out_of_order: 0,
                timeouts: 0,
                timeout_recoveries: 0,
                timeout_ns: 0,
                early_data: EarlyData::default(),
                now,
            })
        })
    }
}
