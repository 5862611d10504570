//! Exchanges of packets and calls through the table that packetdrill gets: what
//! its scripts do, without packetdrill.

use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::net::Ipv4Addr;

use toehold_packetdrill::{Interface, packetdrill_interface_init};
use toehold_wire::tcp::{FastOpen, Flags, Header, Options, Seq, View};
use toehold_wire::{checksum, ipv4, protocol, tcp};

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
}

impl Game {
    fn new() -> Self {
        let mut table = MaybeUninit::uninit();
        // SAFETY: the flags are a C string, and the table is writable.
        unsafe { packetdrill_interface_init(FLAGS.as_ptr(), table.as_mut_ptr()) };
        // SAFETY: it was filled just now, or the program would have ended.
        let table = unsafe { table.assume_init() };
        Self { table, isn: None }
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
        // SAFETY: null stands for an address nobody wants to know.
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
        // SAFETY: so many bytes are readable.
        unsafe { (self.table.send)(self.table.userdata, fd, bytes.as_ptr().cast(), len, flags) }
    }

    fn read(&self, fd: c_int) -> isize {
        let mut bytes = [0u8; 4096];
        // SAFETY: so many bytes are writable.
        unsafe { (self.table.read)(self.table.userdata, fd, bytes.as_mut_ptr().cast(), bytes.len()) }
    }

    fn set(&self, fd: c_int, option: c_int, value: c_int) -> c_int {
        let place = (&raw const value).cast::<c_void>();
        // SAFETY: the value lives during the call and has four bytes.
        unsafe { (self.table.setsockopt)(self.table.userdata, fd, libc::IPPROTO_TCP, option, place, 4) }
    }

    fn get(&self, fd: c_int, option: c_int) -> c_int {
        let (mut value, mut len) = (0, 4);
        let place = (&raw mut value).cast::<c_void>();
        // SAFETY: value and length live during the call and are writable.
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
            src_port: 2000,
            dst_port: PORT,
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
        // SAFETY: the packet is readable for its length.
        let outcome =
            unsafe { (self.table.netdev_send)(self.table.userdata, packet.as_ptr().cast(), packet.len()) };
        assert_eq!(outcome, 0);
    }

    /// The stack's next packet; time passes until there is one.
    fn next(&mut self) -> Sent {
        let mut packet = [0u8; 65_536];
        let (mut len, mut time_us) = (packet.len(), 0);
        // SAFETY: the buffer is writable for the length passed, as are the others.
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
        // SAFETY: nothing uses the table after this.
        unsafe { (self.table.free)(self.table.userdata) };
    }
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
    // SAFETY: the descriptor is the program's.
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
