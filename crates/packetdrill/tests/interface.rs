//! Exchanges of packets and calls through the table that packetdrill gets: what
//! its scripts do, without packetdrill.

use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::net::Ipv4Addr;

use toehold_packetdrill::{Interface, packetdrill_interface_init};
use toehold_wire::tcp::{FastOpen, Flags, Header, Options, Seq, View};
use toehold_wire::{checksum, icmpv4, ipv4, protocol, tcp};

const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
const REMOTE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PORT: u16 = 8080;
const FLAGS: &CStr = c"local=192.168.0.1/16,timestamps=0,sack=0,window_scaling=0";
const TCP_NOTSENT_LOWAT: c_int = 25;

/// A packet of the stack's: sequence numbers count from its initial one.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    flags: Flags,
    seq: u32,
    len: usize,
    ack: u32,
}

/// The stack behind its table, and a peer that begins at sequence number 0.
struct Game {
    table: Interface,
    isn: Option<Seq>,
    /// The stack's port and the peer's.
    ports: (u16, u16),
}

impl Game {
    fn new() -> Self {
        let mut table = MaybeUninit::uninit();
        // SAFETY: `FLAGS` is a C string literal, and `table` a local, which lives until the call
        // returns.
        unsafe { packetdrill_interface_init(FLAGS.as_ptr(), table.as_mut_ptr()) };
        // SAFETY: the call above has filled `table`, or it would have ended the program.
        let table = unsafe { table.assume_init() };
        Self {
            table,
            isn: None,
            ports: (PORT, 2000),
        }
    }

    /// A listener at [`PORT`].
    fn listen(&self) -> c_int {
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: PORT.to_be(),
            sin_addr: libc::in_addr { s_addr: 0 },
            sin_zero: [0; 8],
        };
        let len = size_of_val(&address) as u32;
        let user = self.table.userdata;
        // SAFETY: `user` is the table's, and the address lives during the calls.
        unsafe {
            let fd = (self.table.socket)(user, libc::AF_INET, libc::SOCK_STREAM, 0);
            assert!(fd >= 0);
            assert_eq!((self.table.bind)(user, fd, (&raw const address).cast(), len), 0);
            assert_eq!((self.table.listen)(user, fd, 4), 0);
            fd
        }
    }

    fn accept(&self, fd: c_int) -> c_int {
        // SAFETY: the test needs no peer's address, so both pointers are null, as the interface
        // allows.
        unsafe {
            (self.table.accept)(
                self.table.userdata,
                fd,
                core::ptr::null_mut(),
                core::ptr::null_mut(),
            )
        }
    }

    fn send(&self, fd: c_int, len: usize, flags: c_int) -> isize {
        let bytes = vec![7; len];
        // SAFETY: `bytes` has `len` readable bytes and lives until the call returns.
        unsafe { (self.table.send)(self.table.userdata, fd, bytes.as_ptr().cast(), len, flags) }
    }

    /// A socket whose calls do not wait.
    fn socket(&self) -> c_int {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
        // SAFETY: `userdata` is this table's node, which is freed only when the game ends. The rest
        // are numbers.
        let fd = unsafe { (self.table.socket)(self.table.userdata, libc::AF_INET, kind, 0) };
        assert!(fd >= 0);
        fd
    }

    /// Sends to the peer, and connects before; or the error.
    fn send_fast(&self, fd: c_int, len: usize) -> Result<isize, c_int> {
        let bytes = vec![7; len];
        let to = peer();
        // SAFETY: the bytes and the address live during the call, and have these lengths.
        let sent = unsafe {
            (self.table.sendto)(
                self.table.userdata,
                fd,
                bytes.as_ptr().cast(),
                len,
                libc::MSG_FASTOPEN,
                (&raw const to).cast(),
                size_of_val(&to) as u32,
            )
        };
        outcome(sent)
    }

    fn connect(&self, fd: c_int) -> Result<isize, c_int> {
        let to = peer();
        let (address, len) = ((&raw const to).cast(), size_of_val(&to) as u32);
        // SAFETY: `address` points to `to`, a local of `len` bytes, which lives until the call
        // returns.
        outcome(unsafe { (self.table.connect)(self.table.userdata, fd, address, len) } as isize)
    }

    /// The byte of TCP_INFO in which the options are.
    fn options(&self, fd: c_int) -> u8 {
        let mut info = [0_u8; 64];
        let mut len = info.len() as u32;
        // SAFETY: `info` is a local of `len` bytes. Both live until the call returns.
        let got = unsafe {
            (self.table.getsockopt)(
                self.table.userdata,
                fd,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        assert_eq!(got, 0);
        info[5]
    }

    fn close(&self, fd: c_int) {
        // SAFETY: `userdata` is this table's node, which is freed only when the game ends. `fd` is
        // one of its descriptors.
        assert_eq!(unsafe { (self.table.close)(self.table.userdata, fd) }, 0);
    }

    fn read(&self, fd: c_int) -> isize {
        let mut bytes = [0u8; 4096];
        // SAFETY: `bytes` is a local buffer of that length, which lives until the call returns.
        unsafe { (self.table.read)(self.table.userdata, fd, bytes.as_mut_ptr().cast(), bytes.len()) }
    }

    fn set(&self, fd: c_int, option: c_int, value: c_int) -> c_int {
        let place = (&raw const value).cast::<c_void>();
        // SAFETY: `place` points to `value`, a local of four bytes, which lives until the call
        // returns.
        unsafe { (self.table.setsockopt)(self.table.userdata, fd, libc::IPPROTO_TCP, option, place, 4) }
    }

    fn get(&self, fd: c_int, option: c_int) -> c_int {
        let (mut value, mut len) = (0, 4);
        let place = (&raw mut value).cast::<c_void>();
        // SAFETY: `place` points to `value`, a local of `len` bytes. Both live until the call
        // returns.
        let outcome = unsafe {
            (self.table.getsockopt)(
                self.table.userdata,
                fd,
                libc::IPPROTO_TCP,
                option,
                place,
                &raw mut len,
            )
        };
        assert_eq!((outcome, len), (0, 4));
        value
    }

    /// Puts a segment of the peer's in.
    fn inject(&self, flags: Flags, seq: u32, ack: u32, len: usize, options: Options) {
        let header = Header {
            src_port: self.ports.1,
            dst_port: self.ports.0,
            seq: Seq(seq),
            ack: self.isn.map_or(Seq(0), |isn| isn + ack),
            flags,
            window: 60_000,
            urgent: 0,
            options,
        };
        let transport = header.len() + len;
        let mut packet = vec![7; 20 + transport];
        ipv4::Header {
            protocol: protocol::TCP,
            payload_len: transport as u16,
            ..ipv4::Header::new(REMOTE, LOCAL)
        }
        .emit(&mut packet);
        header.emit(&mut packet[20..]);
        let (head, data) = packet[20..].split_at_mut(header.len());
        let pseudo = checksum::pseudo_header(REMOTE.into(), LOCAL.into(), protocol::TCP, transport as u32);
        tcp::set_checksum(head, pseudo, checksum::sum(data));
        // SAFETY: `packet` is a buffer of that length, which lives until the call returns.
        let outcome =
            unsafe { (self.table.netdev_send)(self.table.userdata, packet.as_ptr().cast(), packet.len()) };
        assert_eq!(outcome, 0);
    }

    /// The stack's next packet; time passes until there is one.
    fn next(&mut self) -> Sent {
        let mut packet = [0u8; 65_536];
        let (mut len, mut time_us) = (packet.len(), 0);
        // SAFETY: `packet` is a local of `len` bytes. It, `len` and `time_us` live until the call
        // returns.
        let outcome = unsafe {
            (self.table.netdev_receive)(
                self.table.userdata,
                packet.as_mut_ptr().cast(),
                &raw mut len,
                &raw mut time_us,
            )
        };
        assert_eq!(outcome, 0, "the stack sends nothing more");
        let segment = &packet[20..len];
        let view = View::new(segment, segment.len()).expect("a segment of ours is well-formed");
        if view.flags().contains(Flags::SYN) {
            self.isn = Some(view.seq());
            self.ports = (view.src_port(), view.dst_port());
        }
        Sent {
            flags: view.flags(),
            seq: view.seq().distance(self.isn.expect("a SYN came first")),
            len: segment.len() - view.header_len(),
            ack: view.ack().0,
        }
    }

    fn expect(&mut self, flags: Flags, seq: u32, len: usize, ack: u32) {
        assert_eq!(self.next(), Sent { flags, seq, len, ack });
    }
}

impl Drop for Game {
    fn drop(&mut self) {
        // SAFETY: `userdata` is this table's node. The table is dropped, so that nothing uses it
        // after this.
        unsafe { (self.table.free)(self.table.userdata) };
    }
}

fn peer() -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: 80_u16.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(REMOTE.octets()),
        },
        sin_zero: [0; 8],
    }
}

fn outcome(returned: isize) -> Result<isize, c_int> {
    // SAFETY: the address is that of this thread's `errno`.
    (returned >= 0)
        .then_some(returned)
        .ok_or_else(|| unsafe { *libc::__errno_location() })
}

fn with_mss(fast_open: Option<FastOpen>) -> Options {
    Options {
        mss: Some(1000),
        fast_open,
        ..Options::NONE
    }
}

#[test]
fn a_conversation_with_options_of_its_own() {
    let mut game = Game::new();
    let listener = game.listen();
    game.inject(Flags::SYN, 0, 0, 0, with_mss(None));
    game.expect(Flags::SYN | Flags::ACK, 0, 0, 1);
    game.inject(Flags::ACK, 1, 1, 0, Options::NONE);
    let fd = game.accept(listener);
    assert_eq!(game.get(fd, TCP_NOTSENT_LOWAT), 0);
    assert_eq!(game.set(fd, TCP_NOTSENT_LOWAT, 4000), 0);
    assert_eq!(game.get(fd, TCP_NOTSENT_LOWAT), 4000);
    // What the peer sends is read, and acknowledged.
    game.inject(Flags::ACK | Flags::PSH, 1, 1, 100, Options::NONE);
    game.expect(Flags::ACK, 1, 0, 101);
    assert_eq!(game.read(fd), 100);
    // A record's end separates what waits (MSG_EOR).
    let pushed = Flags::ACK | Flags::PSH;
    assert_eq!(game.send(fd, 100, 0), 100);
    game.expect(pushed, 1, 100, 101);
    assert_eq!(game.send(fd, 300, libc::MSG_EOR), 300);
    assert_eq!(game.send(fd, 200, 0), 200);
    game.expect(pushed, 101, 300, 101);
    game.inject(Flags::ACK, 101, 401, 0, Options::NONE);
    game.expect(pushed, 401, 200, 101);
    game.inject(Flags::ACK, 101, 601, 0, Options::NONE);
    // SAFETY: `userdata` is this table's node, which is freed only when the game ends. `fd` is one
    // of its descriptors.
    assert_eq!(unsafe { (game.table.close)(game.table.userdata, fd) }, 0);
    game.expect(Flags::ACK | Flags::FIN, 601, 0, 101);
}

#[test]
fn a_cookie_opens_a_connection_at_once() {
    let mut game = Game::new();
    let listener = game.listen();
    // The cookie that packetdrill's scripts name for these addresses.
    let cookie = 0x3021_b9d8_8901_7eeb_u64.to_be_bytes();
    game.inject(Flags::SYN, 0, 0, 10, with_mss(FastOpen::new(&cookie, false)));
    game.expect(Flags::SYN | Flags::ACK, 0, 0, 11);
    let fd = game.accept(listener);
    assert_eq!(game.read(fd), 10);
    assert_eq!(game.send(fd, 50, 0), 50);
    game.expect(Flags::ACK | Flags::PSH, 1, 50, 11);
}

/// TCPI_OPT_SYN_DATA, which libc does not name everywhere.
const SYN_DATA: u8 = 32;

/// Has the peer's cookie known.
fn learn_cookie(game: &mut Game) {
    let fd = game.socket();
    assert_eq!(game.send_fast(fd, 10), Err(libc::EINPROGRESS));
    game.expect(Flags::SYN, 0, 0, 0);
    assert_eq!(game.send_fast(fd, 10), Err(libc::EALREADY));
    game.inject(
        Flags::SYN | Flags::ACK,
        0,
        1,
        0,
        with_mss(FastOpen::new(&[1; 8], false)),
    );
    game.expect(Flags::ACK, 1, 0, 1);
    // The program has not been told so yet.
    assert_eq!(game.send_fast(fd, 10), Ok(10));
    game.expect(Flags::ACK | Flags::PSH, 1, 10, 1);
    assert_eq!(game.send_fast(fd, 10), Err(libc::EISCONN));
    assert_eq!(game.options(fd) & SYN_DATA, 0);
    game.inject(Flags::ACK | Flags::RST, 1, 11, 0, Options::NONE);
    game.close(fd);
}

#[test]
fn bytes_leave_with_the_syn_once_the_cookie_is_known() {
    let mut game = Game::new();
    learn_cookie(&mut game);
    let fd = game.socket();
    assert_eq!(game.send_fast(fd, 5000), Ok(960));
    game.expect(Flags::SYN, 0, 960, 0);
    assert_eq!(outcome(game.send(fd, 10, 0)), Err(libc::EAGAIN));
    game.inject(Flags::SYN | Flags::ACK, 0, 961, 0, with_mss(None));
    game.expect(Flags::ACK, 961, 0, 1);
    assert_eq!(game.options(fd) & SYN_DATA, SYN_DATA);
    assert_eq!(game.send(fd, 10, 0), 10);
    game.expect(Flags::ACK | Flags::PSH, 961, 10, 1);
}

#[test]
fn connect_with_known_cookie_leaves_the_syn_to_the_first_bytes() {
    let mut game = Game::new();
    learn_cookie(&mut game);
    let fd = game.socket();
    assert_eq!(game.set(fd, libc::TCP_FASTOPEN_CONNECT, 2), -1);
    assert_eq!(game.set(fd, libc::TCP_FASTOPEN_CONNECT, 1), 0);
    assert_eq!(game.connect(fd), Ok(0));
    assert_eq!(game.connect(fd), Err(libc::EISCONN));
    assert_eq!(outcome(game.read(fd)), Err(libc::EAGAIN));
    assert_eq!(game.send(fd, 100, 0), 100);
    game.expect(Flags::SYN, 0, 100, 0);
    game.inject(Flags::SYN | Flags::ACK, 0, 1, 0, with_mss(None));
    game.expect(Flags::ACK | Flags::PSH, 1, 100, 1);
    assert_eq!(game.options(fd) & SYN_DATA, 0);
}

/// The beginning of a packet, where it was to go, and the control message behind its head.
type Told = (Vec<u8>, Vec<u8>, Vec<u8>);

impl Game {
    /// Puts an ICMP error of a router in, about the stack's SYN.
    fn inject_unreachable(&self, router: Ipv4Addr) {
        let mut original = [0; 28];
        ipv4::Header {
            protocol: protocol::TCP,
            payload_len: 24,
            ..ipv4::Header::new(LOCAL, REMOTE)
        }
        .emit(&mut original);
        let seq = self.isn.expect("a SYN came first").0;
        original[20..22].copy_from_slice(&self.ports.0.to_be_bytes());
        original[22..24].copy_from_slice(&self.ports.1.to_be_bytes());
        original[24..].copy_from_slice(&seq.to_be_bytes());
        let message = icmpv4::Message::DestinationUnreachable {
            code: icmpv4::unreachable::HOST,
            mtu: 0,
            original: &original,
        };
        let mut packet = [0; 20 + 8 + 28];
        let len = message.emit(&mut packet[20..]);
        icmpv4::set_checksum(&mut packet[20..20 + len], 0);
        ipv4::Header {
            protocol: protocol::ICMPV4,
            payload_len: len as u16,
            ..ipv4::Header::new(router, LOCAL)
        }
        .emit(&mut packet);
        // SAFETY: `packet` is a buffer of that length, which lives until the call returns.
        let outcome =
            unsafe { (self.table.netdev_send)(self.table.userdata, packet.as_ptr().cast(), packet.len()) };
        assert_eq!(outcome, 0);
    }

    /// What the error queue tells.
    fn error_queue(&self, fd: c_int) -> Result<Told, c_int> {
        let (mut quoted, mut name, mut control) = ([0_u8; 100], [0_u8; 28], [0_usize; 16]);
        let mut part = libc::iovec {
            iov_base: quoted.as_mut_ptr().cast(),
            iov_len: quoted.len(),
        };
        // SAFETY: all zeroes is a `msghdr`: null pointers and lengths of 0.
        let mut message = unsafe { core::mem::zeroed::<libc::msghdr>() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        (message.msg_name, message.msg_namelen) = (name.as_mut_ptr().cast(), name.len() as u32);
        (message.msg_control, message.msg_controllen) =
            (control.as_mut_ptr().cast(), size_of_val(&control) as _);
        // SAFETY: `message` and the buffers that it refers to are locals, which live until the call
        // returns.
        let received =
            unsafe { (self.table.recvmsg)(self.table.userdata, fd, &raw mut message, libc::MSG_ERRQUEUE) };
        let received = outcome(received)? as usize;
        assert_eq!(message.msg_flags, libc::MSG_ERRQUEUE);
        let told: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let head = size_of::<libc::cmsghdr>();
        Ok((
            quoted[..received].to_vec(),
            name[..message.msg_namelen as usize].to_vec(),
            told[head..message.msg_controllen as usize].to_vec(),
        ))
    }
}

#[test]
fn error_queue_tells_once_who_ended_the_attempt() {
    let mut game = Game::new();
    let fd = game.socket();
    assert_eq!(game.connect(fd), Err(libc::EINPROGRESS));
    game.expect(Flags::SYN, 0, 0, 0);
    assert_eq!(game.error_queue(fd), Err(libc::EAGAIN));
    game.inject_unreachable(Ipv4Addr::new(192, 168, 0, 9));
    let (quoted, name, told) = game.error_queue(fd).unwrap();
    assert_eq!(quoted[..2], game.ports.0.to_be_bytes());
    assert_eq!(name[2..8], [0, 80, 192, 0, 2, 1]);
    assert_eq!(told[..4], libc::EHOSTUNREACH.to_ne_bytes());
    assert_eq!(told[4..8], [2, 3, 1, 0]);
    assert_eq!(told[20..24], [192, 168, 0, 9]);
    assert_eq!(game.error_queue(fd), Err(libc::EAGAIN));
    assert_eq!(
        outcome(game.send(fd, 1, libc::MSG_NOSIGNAL)),
        Err(libc::EHOSTUNREACH)
    );
}
