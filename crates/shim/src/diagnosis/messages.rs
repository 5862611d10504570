//! Questions and answers of `sock_diag(7)`, as bytes: `struct inet_diag_req_v2`, `struct inet_diag_msg`, and
//! the filters that the kernel runs for the asking program (`linux/inet_diag.h`).

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use toehold_node::control::SocketStatus;

use crate::listing;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_DUMP`: for all that match.
const DUMP: u16 = 0x300;
/// `NLM_F_MULTI`: there are more.
const MULTI: u16 = 2;
/// `INET_DIAG_REQ_BYTECODE`.
const FILTER: u16 = 1;

/// Bytes of a message's head, of a question and of an answer behind it.
const HEAD: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;

/// Most bytes of one datagram: programs have room for the kernel's, which are longer.
const DATAGRAM: usize = 8 << 10;

/// Steps of a filter, at most.
const STEPS: usize = 4096;

/// A question for all of TCP's sockets of a family.
#[derive(Debug)]
pub(super) struct Question {
    sequence: u32,
    family: u8,
    /// A bit for each state.
    states: u32,
    filter: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(bytes))
}

impl Question {
    /// Reads a question. Returns `None` if it asks for something else.
    pub(super) fn parse(bytes: &[u8]) -> Option<Question> {
        let len = (word(bytes, 0)? as usize).min(bytes.len());
        let (kind, flags) = (half(bytes, 4)?, half(bytes, 6)?);
        let asked = bytes.get(HEAD..len)?;
        let [family, protocol, ..] = *asked else {
            return None;
        };
        let is_of_tcp = protocol == libc::IPPROTO_TCP as u8
            && [libc::AF_INET, libc::AF_INET6]
                .map(|family| family as u8)
                .contains(&family);
        if kind != BY_FAMILY || flags & DUMP != DUMP || !is_of_tcp || asked.len() < QUESTION {
            return None;
        }
        let mut filter = Vec::new();
        let mut rest = &asked[QUESTION..];
        while let (Some(len), Some(kind)) = (half(rest, 0), half(rest, 2)) {
            let len = usize::from(len);
            let Some(value) = rest.get(4..len) else { break };
            if kind == FILTER {
                filter = value.to_vec();
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        Some(Question {
            sequence: word(bytes, 8)?,
            family,
            states: word(asked, 4)?,
            filter,
        })
    }

    pub(super) fn is_ipv6(&self) -> bool {
        self.family == libc::AF_INET6 as u8
    }

    /// The answers, in datagrams to a socket of that address.
    pub(super) fn answers(&self, sockets: &[SocketStatus], to: u32) -> VecDeque<Vec<u8>> {
        let mut datagrams: VecDeque<Vec<u8>> = VecDeque::new();
        let wanted = sockets.iter().filter(|socket| {
            let state = listing::state(socket.state);
            self.states >> state & 1 != 0 && passes(&self.filter, socket)
        });
        for socket in wanted {
            let answer = self.answer(socket, to);
            match datagrams.back_mut() {
                Some(last) if last.len() + answer.len() <= DATAGRAM => last.extend(answer),
                _ => datagrams.push_back(answer),
            }
        }
        datagrams
    }

    fn answer(&self, socket: &SocketStatus, to: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + ANSWER);
        bytes.extend(((HEAD + ANSWER) as u32).to_ne_bytes());
        bytes.extend(BY_FAMILY.to_ne_bytes());
        bytes.extend(MULTI.to_ne_bytes());
        bytes.extend(self.sequence.to_ne_bytes());
        bytes.extend(to.to_ne_bytes());
        let timer = socket.timers.first();
        let kind = timer.map_or(0, |timer| listing::timer(&timer.kind));
        let retries = timer.map_or(0, |timer| timer.retries);
        bytes.extend([self.family, listing::state(socket.state), kind, retries]);
        let remote = remote_of(socket);
        bytes.extend(socket.local.port().to_be_bytes());
        bytes.extend(remote.port().to_be_bytes());
        for at in [socket.local, remote] {
            bytes.extend(octets(at.ip(), self.is_ipv6()));
        }
        // Its interface, and its cookie.
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend((socket.cookie as u32).to_ne_bytes());
        bytes.extend(((socket.cookie >> 32) as u32).to_ne_bytes());
        let expires = timer.map_or(0, |timer| {
            u32::try_from(timer.expires_in.as_millis()).unwrap_or(u32::MAX)
        });
        let numbers = [
            expires,
            socket.receive_queue,
            socket.send_queue,
            socket.uid.unwrap_or(0),
            socket.inode as u32,
        ];
        bytes.extend(numbers.into_iter().flat_map(u32::to_ne_bytes));
        bytes
    }
}

fn remote_of(socket: &SocketStatus) -> SocketAddr {
    let any = match socket.local {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    socket.remote.unwrap_or(SocketAddr::new(any, 0))
}

/// An address in the sixteen bytes that there are for either family.
fn octets(ip: IpAddr, is_ipv6: bool) -> [u8; 16] {
    match (ip, is_ipv6) {
        (IpAddr::V4(ip), false) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&ip.octets());
            octets
        }
        // Of a listener at any address, both are.
        (IpAddr::V4(ip), true) if ip.is_unspecified() => [0; 16],
        (IpAddr::V4(ip), true) => ip.to_ipv6_mapped().octets(),
        (IpAddr::V6(ip), _) => ip.octets(),
    }
}

/// Whether a filter lets a socket pass, as the kernel's `inet_diag_bc_run`. One that makes no sense, the kernel has
/// refused: it lets everything pass.
fn passes(filter: &[u8], socket: &SocketStatus) -> bool {
    let remote = remote_of(socket);
    let (source, destination) = (socket.local.port(), remote.port());
    let mut rest = filter;
    for _ in 0..STEPS {
        let [code, yes, ..] = *rest else { return true };
        let Some(no) = half(rest, 2) else { return true };
        let other = half(rest, 6).unwrap_or(0);
        let is_so = match code {
            // NOP, JMP, S_GE, S_LE, D_GE, D_LE, AUTO, S_COND, D_COND, S_EQ, D_EQ.
            0 => true,
            1 => false,
            2 => source >= other,
            3 => source <= other,
            4 => destination >= other,
            5 => destination <= other,
            6 => true,
            7 => is_at(socket.local, rest.get(4..).unwrap_or_default()),
            8 => is_at(remote, rest.get(4..).unwrap_or_default()),
            11 => source == other,
            12 => destination == other,
            // A device, a mark, a group: sockets of the node have none.
            _ => false,
        };
        let step = if is_so { usize::from(yes) } else { usize::from(no) };
        if step == 0 {
            return true;
        }
        if step >= rest.len() {
            // Behind the end is what does not pass.
            return step == rest.len();
        }
        rest = &rest[step..];
    }
    false
}

/// Whether an address is as `struct inet_diag_hostcond` says.
fn is_at(at: SocketAddr, condition: &[u8]) -> bool {
    let [family, prefix, ..] = *condition else {
        return true;
    };
    let Some(port) = word(condition, 4).map(u32::cast_signed) else {
        return true;
    };
    if port != -1 && port != i32::from(at.port()) {
        return false;
    }
    let own = match (at.ip(), c_int_of(family)) {
        (IpAddr::V4(ip), libc::AF_INET6) => ip.to_ipv6_mapped().octets().to_vec(),
        (IpAddr::V4(ip), _) => ip.octets().to_vec(),
        (IpAddr::V6(ip), libc::AF_INET) => match ip.to_ipv4_mapped() {
            Some(ip) => ip.octets().to_vec(),
            None => return prefix == 0,
        },
        (IpAddr::V6(ip), _) => ip.octets().to_vec(),
    };
    let wanted = condition.get(8..).unwrap_or_default();
    let bit = |bytes: &[u8], bit: usize| bytes.get(bit / 8).map(|byte| byte >> (7 - bit % 8) & 1);
    (0..usize::from(prefix)).all(|at| bit(&own, at) == bit(wanted, at))
}

fn c_int_of(family: u8) -> i32 {
    family.into()
}

#[cfg(test)]
mod tests {
    use toehold_node::control::SocketState;

    use super::*;

    fn connection() -> SocketStatus {
        SocketStatus {
            state: SocketState::Estab,
            receive_queue: 7,
            remote: Some("10.77.0.2:40000".parse().unwrap()),
            uid: Some(1000),
            inode: 4711,
            cookie: 0x1_0000_0002,
            ..SocketStatus::listener("10.77.0.1:80".parse().unwrap(), 0, 128)
        }
    }

    fn question(filter: &[u8]) -> Vec<u8> {
        let mut asked = vec![libc::AF_INET as u8, libc::IPPROTO_TCP as u8, 0, 0];
        asked.extend((1_u32 << 1).to_ne_bytes());
        asked.resize(QUESTION, 0);
        if !filter.is_empty() {
            asked.extend((filter.len() as u16 + 4).to_ne_bytes());
            asked.extend(FILTER.to_ne_bytes());
            asked.extend(filter);
        }
        let mut bytes = ((HEAD + asked.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(BY_FAMILY.to_ne_bytes());
        bytes.extend((DUMP | 1).to_ne_bytes());
        bytes.extend(99_u32.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(asked);
        bytes
    }

    fn op(code: u8, yes: u8, no: u16) -> [u8; 4] {
        let [low, high] = no.to_ne_bytes();
        [code, yes, low, high]
    }

    #[test]
    fn question_for_tcp_is_answered_with_connections_of_asked_states() {
        let question = Question::parse(&question(&[])).unwrap();
        let listener = SocketStatus::listener("10.77.0.1:80".parse().unwrap(), 0, 128);
        let answers = question.answers(&[connection(), listener], 42);
        let [answer] = answers.iter().collect::<Vec<_>>()[..] else {
            panic!()
        };
        assert_eq!(answer.len(), HEAD + ANSWER);
        assert_eq!([word(answer, 8), word(answer, 12)], [Some(99), Some(42)]);
        assert_eq!(answer[HEAD..HEAD + 2], [libc::AF_INET as u8, 1]);
        assert_eq!(answer[HEAD + 4..HEAD + 12], [0, 80, 0x9c, 0x40, 10, 77, 0, 1]);
        assert_eq!(answer[HEAD + 24..HEAD + 28], [10, 77, 0, 2]);
        assert_eq!(
            [word(answer, HEAD + 44), word(answer, HEAD + 48)],
            [Some(2), Some(1)]
        );
        assert_eq!(
            [
                word(answer, HEAD + 56),
                word(answer, HEAD + 64),
                word(answer, HEAD + 68)
            ],
            [Some(7), Some(1000), Some(4711)]
        );
    }

    #[test]
    fn many_answers_come_in_bounded_datagrams() {
        let question = Question::parse(&question(&[])).unwrap();
        let answers = question.answers(&vec![connection(); 1000], 1);
        assert!(answers.len() > 1 && answers.iter().all(|datagram| datagram.len() <= DATAGRAM));
        assert_eq!(
            answers.iter().map(Vec::len).sum::<usize>(),
            1000 * (HEAD + ANSWER)
        );
    }

    #[test]
    fn filters_let_pass_what_the_kernels_do() {
        let count = |filter: &[u8]| {
            let question = Question::parse(&question(filter)).unwrap();
            question.answers(&[connection()], 1).len()
        };
        let port = |code, port: u16| [op(code, 8, 12), op(0, 0, port)].concat();
        for (code, at, passes) in [
            (11, 80, 1),
            (11, 81, 0),
            (12, 40_000, 1),
            (2, 80, 1),
            (3, 79, 0),
            (5, 40_000, 1),
            (4, 40_001, 0),
        ] {
            assert_eq!(count(&port(code, at)), passes, "{code} {at}");
        }
        let host = |code, octets: [u8; 4], prefix, at: i32| {
            let mut filter = [
                op(code, 16, 20),
                [libc::AF_INET as u8, prefix, 0, 0],
                at.to_ne_bytes(),
            ]
            .concat();
            filter.extend(octets);
            filter
        };
        for (octets, prefix, at, passes) in [
            ([10, 77, 0, 2], 32, -1, 1),
            ([10, 77, 9, 9], 16, 40_000, 1),
            ([10, 77, 0, 3], 32, -1, 0),
            ([10, 77, 0, 2], 32, 1, 0),
        ] {
            assert_eq!(count(&host(8, octets, prefix, at)), passes, "{octets:?}");
        }
        // Nonsense ends.
        assert_eq!(count(&op(0, 0, 0)), 1);
        assert_eq!(count(&[op(0, 4, 4), op(1, 4, 2)].concat()), 1);
        assert_eq!(count(&[op(0, 4, 4), op(1, 4, 8)].concat()), 0);
    }

    #[test]
    fn other_questions_are_the_kernels() {
        let whole = question(&[]);
        for len in 0..whole.len() {
            assert!(Question::parse(&whole[..len]).is_none(), "{len}");
        }
        for (at, byte) in [
            (4, 18),
            (7, 0),
            (HEAD, libc::AF_UNIX as u8),
            (HEAD + 1, libc::IPPROTO_UDP as u8),
        ] {
            let mut other = whole.clone();
            other[at] = byte;
            assert!(Question::parse(&other).is_none(), "{at}");
        }
    }
}
