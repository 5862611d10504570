//! The floor: the speed of memory alone, without any protocol.
//!
//! - Ping-pong of up to 64 bytes: the message is one cache line, whose first word is its sequence
//!   number. Its reader spins on that word.
//! - All else: one side copies pieces into a shared ring, and the other copies them out. Each
//!   publishes its position in a line of its own, and spins on the other's.
//!
//! It bounds the time of a single message. A stream of small messages can be faster than here,
//! where each is published separately.
//!
//! There are no real connections, so [`Workload::Connect`] is not supported. No side sleeps, so
//! [`Workload::WakeUp`] is not supported either.

use std::fs::File;
use std::hint::spin_loop;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use toehold_shm::{CELL_WORDS, Cells};

use super::{Connection, Context, Role, Testbed, TestbedError};
use crate::workload::Workload;

/// Bytes of a message that is one cache line.
const LINE: usize = CELL_WORDS * 8;
/// Bytes of each direction's ring: more than a core's private cache holds. Copies into and out of
/// the ring then meet in the shared cache. With a ring that stays in the private caches, every line
/// is fetched from the other core. In a test that took three times as long for 64 KiB.
const RING: usize = 2 << 20;
/// Most bytes published at once: one piece is copied out while the next is copied in.
const PIECE: usize = 16 << 10;
/// Cells: the client's arrival, then those of each direction.
const ARRIVED: usize = 0;
const CELLS: usize = 5;
/// The position that marks the end of the data.
const END: u64 = u64::MAX;

/// Two processes and a shared memory.
#[derive(Debug)]
pub(super) struct Floor;

impl Testbed for Floor {
    const NAME: &'static str = "floor";
    const ABOUT: &'static str = "bare shared memory: one cache line, memcpy through a ring";
    type Listener = (Cells, bool);
    type Connection = FloorConnection;

    fn supports(workload: &Workload) -> bool {
        !workload.is_about_nodes()
            && !workload.is_of_programs()
            && !workload.is_of_several()
            && !matches!(
                workload,
                Workload::Connect | Workload::WakeUp | Workload::Churn { .. }
            )
    }

    fn enter(_: &Context) -> Result<Self, TestbedError> {
        Ok(Self)
    }

    fn listen(&mut self, workload: &Workload) -> io::Result<((Cells, bool), String)> {
        let cells = Cells::create("toehold-floor", CELLS, 2 * RING).map_err(io::Error::other)?;
        let address = format!("/proc/{}/fd/{}", std::process::id(), cells.fd().as_raw_fd());
        Ok(((cells, is_line(workload)), address))
    }

    fn accept(&mut self, (cells, line): &mut (Cells, bool)) -> io::Result<FloorConnection> {
        while cells.cell(ARRIVED).words[0].load(Acquire) == 0 {
            spin_loop();
        }
        let fd = cells.fd().try_clone_to_owned()?;
        let cells = Cells::open(fd, CELLS).map_err(io::Error::other)?;
        Ok(FloorConnection::new(cells, *line, Role::Server))
    }

    fn connect(&mut self, address: &str, workload: &Workload) -> io::Result<FloorConnection> {
        let file = File::options().read(true).write(true).open(address)?;
        let cells = Cells::open(file.into(), CELLS).map_err(io::Error::other)?;
        cells.cell(ARRIVED).words[0].store(1, Release);
        Ok(FloorConnection::new(cells, is_line(workload), Role::Client))
    }
}

fn is_line(workload: &Workload) -> bool {
    matches!(workload, Workload::PingPong { size } if size.bytes() <= LINE)
}

/// One side of the memory.
#[derive(Debug)]
pub(super) struct FloorConnection {
    cells: Cells,
    line: bool,
    outgoing: Direction,
    incoming: Direction,
}

/// The place of one direction, and its progress as this side knows it.
#[derive(Debug)]
struct Direction {
    /// The line of a message; in a ring, the writer's position.
    written: usize,
    /// The reader's position.
    read: usize,
    /// Where the ring begins.
    ring: usize,
    /// This side's own position.
    position: u64,
    /// The peer's position, when last read.
    seen: u64,
}

impl FloorConnection {
    fn new(cells: Cells, line: bool, role: Role) -> Self {
        let direction = |number: usize| Direction {
            written: 1 + 2 * number,
            read: 2 + 2 * number,
            ring: number * RING,
            position: 0,
            seen: 0,
        };
        let (outgoing, incoming) = match role {
            Role::Server => (direction(0), direction(1)),
            Role::Client => (direction(1), direction(0)),
        };
        Self {
            cells,
            line,
            outgoing,
            incoming,
        }
    }

    /// The last 8 bytes of a message of 64 bytes travel as the sequence number.
    fn write_line(&mut self, bytes: &[u8]) -> usize {
        let direction = &mut self.outgoing;
        let words = &self.cells.cell(direction.written).words;
        for (word, part) in words[1..].iter().zip(bytes.chunks(8)) {
            let mut value = [0; 8];
            value[..part.len()].copy_from_slice(part);
            word.store(u64::from_ne_bytes(value), Relaxed);
        }
        direction.position += 1;
        words[0].store(direction.position, Release);
        bytes.len()
    }

    fn read_line(&mut self, buffer: &mut [u8]) -> usize {
        let direction = &mut self.incoming;
        let words = &self.cells.cell(direction.written).words;
        let next = direction.position + 1;
        loop {
            match words[0].load(Acquire) {
                found if found == next => break,
                END => return 0,
                _ => spin_loop(),
            }
        }
        for (word, part) in words[1..].iter().zip(buffer.chunks_mut(8)) {
            part.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..part.len()]);
        }
        direction.position = next;
        buffer.len()
    }

    fn write_ring(&mut self, bytes: &[u8]) -> usize {
        let direction = &mut self.outgoing;
        let free = |direction: &Direction| RING - (direction.position - direction.seen) as usize;
        while free(direction) == 0 {
            let read = self.cells.cell(direction.read).words[0].load(Acquire);
            if read == direction.seen {
                spin_loop();
            }
            direction.seen = read;
        }
        let n = bytes.len().min(free(direction)).min(PIECE);
        let at = direction.position as usize % RING;
        let first = n.min(RING - at);
        self.cells.copy_in(direction.ring + at, &bytes[..first]);
        self.cells.copy_in(direction.ring, &bytes[first..n]);
        direction.position += n as u64;
        self.cells.cell(direction.written).words[0].store(direction.position, Release);
        n
    }

    fn read_ring(&mut self, buffer: &mut [u8]) -> usize {
        let direction = &mut self.incoming;
        while direction.seen == direction.position {
            let written = self.cells.cell(direction.written).words[0].load(Acquire);
            if written == END {
                return 0;
            }
            if written == direction.seen {
                spin_loop();
            }
            direction.seen = written;
        }
        let n = buffer
            .len()
            .min((direction.seen - direction.position) as usize)
            .min(PIECE);
        let at = direction.position as usize % RING;
        let first = n.min(RING - at);
        self.cells.copy_out(direction.ring + at, &mut buffer[..first]);
        self.cells.copy_out(direction.ring, &mut buffer[first..n]);
        direction.position += n as u64;
        self.cells.cell(direction.read).words[0].store(direction.position, Release);
        n
    }
}

impl Read for FloorConnection {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(if self.line {
            self.read_line(buffer)
        } else {
            self.read_ring(buffer)
        })
    }
}

impl Write for FloorConnection {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(if self.line {
            self.write_line(bytes)
        } else {
            self.write_ring(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection for FloorConnection {
    /// The reader must read earlier data first: it would miss them.
    fn finish(&mut self) -> io::Result<()> {
        let direction = &self.outgoing;
        while !self.line && self.cells.cell(direction.read).words[0].load(Acquire) != direction.position {
            spin_loop();
        }
        self.cells.cell(direction.written).words[0].store(END, Release);
        Ok(())
    }
}
