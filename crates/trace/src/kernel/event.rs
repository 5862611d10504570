//! Lines of the kernel's trace as events.
//!
//! The text is hostile in part: the name of any thread stands in it. A name has at most 15 bytes and
//! a column of its own of 16 bytes. In the fields of an event it stands before the numbers that are
//! used. So numbers are taken from the columns behind it, and from the last field of a name.

/// What happened, with the numbers that matching needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelEventKind {
    /// `sys_enter_sendto`.
    SendEntered,
    /// `net_dev_queue`: IP gives a frame to a device.
    Queued {
        /// The buffer's address, as the kernel disguises it.
        skb: u64,
        /// Bytes of the frame with its headers.
        len: u32,
    },
    /// `net_dev_start_xmit`: the device takes the frame.
    TransmitStarted {
        /// The buffer.
        skb: u64,
    },
    /// `netif_rx`: the frame is at the receiving side's queue.
    Looped {
        /// The buffer.
        skb: u64,
    },
    /// `softirq_entry` of the vector `NET_RX`.
    SoftirqEntered,
    /// `netif_receive_skb`: the frame is given to IP.
    Received {
        /// The buffer.
        skb: u64,
    },
    /// `tcp_probe`: TCP has found the connection.
    TcpProbed {
        /// The buffer.
        skb: u64,
        /// Bytes of the segment without headers.
        bytes: u32,
    },
    /// `sk_data_ready` of a TCP socket.
    DataReady,
    /// `sched_waking`: a thread is chosen to be woken.
    Waking {
        /// The thread that is woken.
        thread: u32,
    },
    /// `sched_wakeup`: a thread is runnable.
    Woken {
        /// The thread that is woken.
        thread: u32,
    },
    /// `sched_switch`: a processor goes on with a thread.
    SwitchedTo {
        /// The thread that runs now.
        thread: u32,
    },
    /// `skb_copy_datagram_iovec`: bytes are copied to the program.
    Copied {
        /// The buffer.
        skb: u64,
    },
    /// `sys_exit_recvfrom`.
    ReceiveExited {
        /// What the call returns: a number of bytes, or an error below 0.
        returned: i64,
    },
}

/// An event of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelEvent {
    /// Ticks of the trace's clock. Nanoseconds if that clock counts in time.
    pub ticks: u64,
    /// The processor.
    pub cpu: u16,
    /// The thread that ran there.
    pub thread: u32,
    /// What happened.
    pub kind: KernelEventKind,
}

/// What a line of the trace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceLine {
    /// An event that matching needs.
    Event(KernelEvent),
    /// A heading, an empty line, or an event that is not needed.
    Other,
    /// The kernel dropped events here. The number is 0 if it does not say how many.
    Lost(u64),
    /// Text that is none of these.
    Malformed,
}

/// Bytes of the column with a thread's name.
const NAME_COLUMN: usize = 16;

/// The number of the softirq vector `NET_RX`.
const NET_RX: u32 = 3;

/// The number of TCP in an IP header.
const TCP: u32 = 6;

/// Reads a line of `trace` or `trace_pipe`, without its line feed.
///
/// # Examples
///
/// ```
/// use toehold_trace::kernel::{KernelEventKind, TraceLine, parse_line};
///
/// let line = b"         python3-31155   [000] ..... 91943645842195: sys_recvfrom -> 0x1";
/// let TraceLine::Event(event) = parse_line(line) else { panic!() };
/// assert_eq!((event.thread, event.ticks), (31155, 91_943_645_842_195));
/// assert_eq!(event.kind, KernelEventKind::ReceiveExited { returned: 1 });
/// ```
pub fn parse_line(line: &[u8]) -> TraceLine {
    if line.is_empty() || line[0] == b'#' {
        return TraceLine::Other;
    }
    if let Some(lost) = lost_events(line) {
        return TraceLine::Lost(lost);
    }
    let Some((header, event)) = split_header(line) else {
        return TraceLine::Malformed;
    };
    match parse_event(&event) {
        Some(Needed::Kind(kind)) => TraceLine::Event(KernelEvent { kind, ..header }),
        Some(Needed::No) => TraceLine::Other,
        None => TraceLine::Malformed,
    }
}

/// `CPU:0 [LOST 12 EVENTS]`, or `[LOST EVENTS]` without a number.
fn lost_events(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?.strip_prefix("CPU:")?;
    let (_, text) = text.split_once(" [LOST ")?;
    let count = text.strip_suffix("EVENTS]")?.trim();
    if count.is_empty() {
        Some(0)
    } else {
        count.parse().ok()
    }
}

/// The columns before the event, and the event's text. The kind is a placeholder.
fn split_header(line: &[u8]) -> Option<(KernelEvent, String)> {
    let rest = line.get(NAME_COLUMN..)?.strip_prefix(b"-")?;
    let rest = String::from_utf8_lossy(rest);
    let (thread, rest) = rest.split_once(' ')?;
    let rest = rest.trim_start().strip_prefix('[')?;
    let (cpu, rest) = rest.split_once("] ")?;
    let (_flags, rest) = rest.trim_start().split_once(' ')?;
    let (ticks, event) = rest.trim_start().split_once(": ")?;
    let header = KernelEvent {
        ticks: parse_ticks(ticks)?,
        cpu: cpu.parse().ok()?,
        thread: thread.parse().ok()?,
        kind: KernelEventKind::DataReady,
    };
    Some((header, event.to_owned()))
}

/// Ticks of a counter, or seconds with six digits behind the point as nanoseconds.
pub(super) fn parse_ticks(text: &str) -> Option<u64> {
    let Some((seconds, fraction)) = text.split_once('.') else {
        return text.parse().ok();
    };
    if fraction.len() != 6 {
        return None;
    }
    let micros: u64 = fraction.parse().ok()?;
    let seconds: u64 = seconds.parse().ok()?;
    seconds
        .checked_mul(1_000_000)?
        .checked_add(micros)?
        .checked_mul(1000)
}

enum Needed {
    Kind(KernelEventKind),
    No,
}

fn parse_event(event: &str) -> Option<Needed> {
    use KernelEventKind as Kind;
    if let Some(returned) = event.strip_prefix("sys_recvfrom -> ") {
        let returned = parse_hex(returned)? as i64;
        return Some(Needed::Kind(Kind::ReceiveExited { returned }));
    }
    if event.starts_with("sys_sendto(") {
        return Some(Needed::Kind(Kind::SendEntered));
    }
    if event.starts_with("sys_") {
        return Some(Needed::No);
    }
    let (name, fields) = event.split_once(": ")?;
    let number = |key: &str| field(fields, key)?.parse::<u32>().ok();
    let skb = || parse_hex(field(fields, "skbaddr")?);
    let kind = match name {
        "net_dev_queue" => Kind::Queued {
            skb: skb()?,
            len: number("len")?,
        },
        "net_dev_start_xmit" => Kind::TransmitStarted { skb: skb()? },
        "netif_rx" => Kind::Looped { skb: skb()? },
        "softirq_entry" if number("vec")? == NET_RX => Kind::SoftirqEntered,
        "netif_receive_skb" => Kind::Received { skb: skb()? },
        "tcp_probe" => Kind::TcpProbed {
            skb: skb()?,
            bytes: number("data_len")?,
        },
        "sk_data_ready" if number("protocol")? == TCP => Kind::DataReady,
        "sched_waking" => Kind::Waking {
            thread: number("pid")?,
        },
        "sched_wakeup" => Kind::Woken {
            thread: number("pid")?,
        },
        "sched_switch" => Kind::SwitchedTo {
            thread: number("next_pid")?,
        },
        "skb_copy_datagram_iovec" => Kind::Copied { skb: skb()? },
        _ => return Some(Needed::No),
    };
    Some(Needed::Kind(kind))
}

/// The value of the last field of a name. A thread's name before it may look like that field.
fn field<'a>(fields: &'a str, key: &str) -> Option<&'a str> {
    let is_field = |at: usize| {
        let begins = at == 0 || fields.as_bytes()[at - 1] == b' ';
        begins && fields.as_bytes().get(at + key.len()) == Some(&b'=')
    };
    let (at, _) = fields.rmatch_indices(key).find(|(at, _)| is_field(*at))?;
    fields[at + key.len() + 1..].split(' ').next()
}

fn parse_hex(text: &str) -> Option<u64> {
    let digits = text.trim_end();
    u64::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), 16).ok()
}

#[cfg(test)]
mod tests;
