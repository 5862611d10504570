//! Passes segments close to the expected ones to a connection, between calls of the
//! program and passing time. The link is full now and then, or for ever. No state
//! panics. No timer is lost or fires without end. In the end no memory is in use.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;
use std::time::Duration;
use toehold_fuzz::{Choices, LOCAL, REMOTE, Sink, check_counters, config, deliver, pass, settle, stack};
use toehold_stack::{
    ConnectionId, Instant, ListenerId, ReceiveFlags, SendFlags, Shutdown, SocketOption, Stack,
};
use toehold_wire::tcp::{Flags, MIN_HEADER_LEN, Seq, View};
use toehold_wire::{ipv4, protocol};

const LOCAL_PORT: u16 = 80;
const REMOTE_PORT: u16 = 4000;
/// Longest time until output that waits for the link is tried again.
const RETRY: Duration = Duration::from_millis(1);
/// Most bytes of a segment's data.
const MOST_DATA: u16 = 3000;

fuzz_target!(|input: &[u8]| {
    let mut run = Run::new(input);
    while !run.choices.is_over() {
        run.step();
    }
    run.end();
});

struct Run<'a> {
    choices: Choices<'a>,
    stack: Stack,
    sink: Sink,
    now: Instant,
    listener: Option<ListenerId>,
    connection: Option<ConnectionId>,
    /// The stack's last segment: its sequence number, the one behind it, and
    /// its acknowledgement.
    theirs: (Seq, Seq, Seq),
    local_port: u16,
    /// Whether the link stays full for hours at the end.
    stays_full: bool,
}

impl<'a> Run<'a> {
    fn new(input: &'a [u8]) -> Self {
        let mut choices = Choices::new(input);
        let kind = choices.byte();
        let mut config = config(false);
        config.tcp.timestamps = kind & 2 == 0;
        config.tcp.sack = kind & 4 == 0;
        config.tcp.ecn = kind & 8 != 0;
        let mut run = Self {
            choices,
            stack: stack(&config),
            sink: Sink::default(),
            now: Instant(1 << 40),
            listener: None,
            connection: None,
            theirs: (Seq(0), Seq(0), Seq(0)),
            local_port: LOCAL_PORT,
            stays_full: kind & 16 != 0,
        };
        let settings = run.stack.default_settings();
        let (local, remote) = (
            SocketAddr::from((LOCAL, LOCAL_PORT)),
            SocketAddr::from((REMOTE, REMOTE_PORT)),
        );
        if kind & 1 == 0 {
            run.listener = run.stack.listen(run.now, local, 2, &settings).ok();
        } else {
            run.connection = run.stack.connect(run.now, Some(local), remote, &settings).ok();
        }
        run.settle();
        run
    }

    fn step(&mut self) {
        let choice = self.choices.byte();
        match choice % 16 {
            0..=7 => self.segment(),
            8 => self.program_sends(),
            9 => self.program_receives(),
            10 => self.program_shuts(),
            11 => self.set_option(),
            12 => {
                let span = Duration::from_millis(u64::from(self.choices.short()));
                pass(&mut self.stack, &mut self.now, span, &mut self.sink);
            }
            13 => self.sink.room = self.sink.room.is_none().then_some(0),
            14 => self.sink.room = Some(self.choices.byte() % 4),
            _ => self.accept(),
        }
        self.settle();
    }

    fn settle(&mut self) {
        self.sink.count = 0;
        settle(&mut self.stack, self.now, &mut self.sink);
        if self.sink.count == 0 {
            return;
        }
        let packet = &self.sink.last;
        let Some(segment) = packet.get(ipv4::HEADER_LEN..) else {
            return;
        };
        if let Ok(view) = View::new(segment, segment.len()) {
            let data = (segment.len() - view.header_len()) as u32;
            let flags = u32::from(view.flags().intersects(Flags::SYN))
                + u32::from(view.flags().intersects(Flags::FIN));
            self.theirs = (view.seq(), view.seq() + data + flags, view.ack());
            self.local_port = view.src_port();
        }
    }

    /// Builds a segment with numbers near the connection's.
    fn segment(&mut self) {
        let (first, next, expected) = self.theirs;
        let flags = Flags(u16::from(self.choices.byte()) | u16::from(self.choices.byte() & 1) << 8);
        let seq = expected + near(self.choices.byte());
        let ack = if flags.0 & 0x100 == 0 { next } else { first } + near(self.choices.byte());
        let window = self.choices.short();
        let urgent = self.choices.byte();
        let shape = self.choices.byte();
        let options = self.choices.bytes(usize::from(shape % 11) * 4).to_vec();
        let data = if shape & 0x80 == 0 {
            0
        } else {
            self.choices.short() % MOST_DATA
        };

        let header_len = MIN_HEADER_LEN + options.len().next_multiple_of(4);
        let mut segment = vec![0; header_len + usize::from(data)];
        segment[0..2].copy_from_slice(&REMOTE_PORT.to_be_bytes());
        segment[2..4].copy_from_slice(&self.local_port.to_be_bytes());
        segment[4..8].copy_from_slice(&seq.0.to_be_bytes());
        segment[8..12].copy_from_slice(&ack.0.to_be_bytes());
        let offset_and_flags = ((header_len as u16 / 4) << 12) | (flags.0 & 0x1ff);
        segment[12..14].copy_from_slice(&offset_and_flags.to_be_bytes());
        segment[14..16].copy_from_slice(&window.to_be_bytes());
        segment[18..20].copy_from_slice(&u16::from(urgent).to_be_bytes());
        segment[20..20 + options.len()].copy_from_slice(&options);

        let mut header = ipv4::Header::new(REMOTE, LOCAL);
        header.protocol = protocol::TCP;
        header.payload_len = segment.len() as u16;
        header.tos = shape & 3;
        let mut packet = vec![0; ipv4::HEADER_LEN];
        header.emit(&mut packet);
        packet.extend_from_slice(&segment);
        deliver(&mut self.stack, self.now, &packet, true);
    }

    fn accept(&mut self) {
        if let Some(listener) = self.listener
            && let Ok(id) = self.stack.accept(listener)
            && let Some(earlier) = self.connection.replace(id)
        {
            let _ = self.stack.close(self.now, earlier);
        }
    }

    fn program_sends(&mut self) {
        let Some(id) = self.connection else { return };
        let (len, kind) = (self.choices.short(), self.choices.byte());
        let flags = SendFlags {
            urgent: kind & 1 != 0,
            more: kind & 2 != 0,
            end_of_record: kind & 4 != 0,
        };
        let _ = self.stack.send(id, &vec![kind; usize::from(len)], flags);
    }

    fn program_receives(&mut self) {
        let Some(id) = self.connection else { return };
        let (len, kind) = (self.choices.short(), self.choices.byte());
        let flags = ReceiveFlags {
            urgent: kind & 1 != 0,
            peek: kind & 2 != 0,
        };
        let _ = self.stack.receive(id, &mut vec![0; usize::from(len)], flags);
        let _ = self.stack.info(id);
        let _ = self.stack.readiness(id);
    }

    fn program_shuts(&mut self) {
        let Some(id) = self.connection else { return };
        let _ = match self.choices.byte() % 6 {
            0 => self.stack.shutdown(self.now, id, Shutdown::Read),
            1 => self.stack.shutdown(self.now, id, Shutdown::Write),
            2 => self.stack.shutdown(self.now, id, Shutdown::Both),
            3 => {
                self.connection = None;
                self.stack.close(self.now, id)
            }
            4 => {
                self.connection = None;
                self.stack.abort(id)
            }
            _ => self.stack.take_error(id).map(|_| ()),
        };
    }

    fn set_option(&mut self) {
        let Some(id) = self.connection else { return };
        let (kind, value) = (self.choices.byte(), self.choices.byte());
        let option = match kind % 9 {
            0 => SocketOption::NoDelay(value & 1 != 0),
            1 => SocketOption::Cork(value & 1 != 0),
            2 => SocketOption::QuickAck(value & 1 != 0),
            3 => SocketOption::Keepalive(value & 1 != 0),
            4 => SocketOption::KeepaliveIdle(Duration::from_secs(value.into())),
            5 => SocketOption::UserTimeout(Duration::from_millis(u64::from(value) * 100)),
            6 => SocketOption::ReceiveBuffer(u32::from(value) * 512),
            7 => SocketOption::UrgentInline(value & 1 != 0),
            _ => SocketOption::Linger((value & 1 != 0).then_some(Duration::from_secs(value.into()))),
        };
        let _ = self.stack.set_option(self.now, id, option);
    }

    /// Closes everything and checks after a while that nothing is left. On a link
    /// that stays full, resets may still wait.
    fn end(mut self) {
        if self.stays_full {
            self.end_on_a_full_link();
        }
        self.sink.room = None;
        if let Some(id) = self.connection.take() {
            let _ = self.stack.abort(id);
        }
        if let Some(id) = self.listener.take() {
            self.stack.close_listener(id).expect("the listener is open");
        }
        self.settle();
        pass(
            &mut self.stack,
            &mut self.now,
            Duration::from_secs(7200),
            &mut self.sink,
        );
        // Connections that wait for memory get the last one's.
        self.settle();
        assert!(!self.stack.has_output());
        check_counters(&self.stack, &self.sink);
        assert_eq!(self.stack.connections(), 0);
        assert_eq!(self.stack.payload_blocks_used(), 0);
    }

    /// Closes everything while the link is full, and checks that no state
    /// lasts.
    fn end_on_a_full_link(&mut self) {
        self.sink.room = Some(0);
        if let Some(id) = self.connection.take() {
            let _ = self.stack.close(self.now, id);
        }
        self.settle();
        for _ in 0..120 {
            pass(
                &mut self.stack,
                &mut self.now,
                Duration::from_secs(60),
                &mut self.sink,
            );
        }
        assert!(
            self.stack
                .poll_timeout()
                .is_none_or(|due| due <= self.now + RETRY),
            "the stack waits for the link only"
        );
    }
}

/// Returns a small distance forwards, or rarely a large one or one backwards.
fn near(choice: u8) -> u32 {
    match choice {
        0..=63 => u32::from(choice / 8),
        64..=127 => (u32::from(choice) - 64) * 97,
        128..=191 => (u32::from(choice) - 127).wrapping_neg(),
        192..=223 => (u32::from(choice) - 191) << 11,
        _ => u32::from(choice) << 24,
    }
}
