//! The system call `bpf`, as far as this link needs it: two maps, a program, and
//! its attachment.

use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::program::{self, Instruction, Maps};
use crate::virtio_net::last_error;

/// Commands.
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_DELETE_ELEM: libc::c_long = 3;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;

const HASH: u32 = 1;
const XSKMAP: u32 = 17;
const PROGRAM_OF_XDP: u32 = 6;
const ATTACHED_AS_XDP: u32 = 37;

/// Most nodes in the map.
pub(super) const MAX_NODES: u32 = 512;

/// The place where the kernel runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attachment {
    /// In the interface's driver, before the kernel allocates anything for a frame.
    Driver,
    /// In the kernel, on frames in its own form.
    Generic,
}

/// Parameters of a command: a prefix of `union bpf_attr`.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct Element {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct Load {
    kind: u32,
    instructions: u32,
    first: u64,
    license: u64,
}

#[repr(C)]
struct Attach {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// The attached program and its maps, which steer frames to sockets. It stays
/// attached as long as this value or the process lives.
#[derive(Debug)]
pub(super) struct Redirection {
    nodes: OwnedFd,
    sockets: OwnedFd,
    program: OwnedFd,
    attached: Option<OwnedFd>,
}

impl Redirection {
    /// Loads the program for frames of at most `longest` bytes of up to `queues`
    /// queues. Attaches nothing.
    pub(super) fn new(longest: u32, queues: u32) -> Result<Redirection, Errno> {
        let nodes = create_map(HASH, 8, MAX_NODES)?;
        let sockets = create_map(XSKMAP, 4, queues)?;
        let maps = Maps {
            nodes: nodes.as_raw_fd(),
            sockets: sockets.as_raw_fd(),
        };
        let program = load(&program::program(maps, longest))?;
        Ok(Redirection {
            nodes,
            sockets,
            program,
            attached: None,
        })
    }

    /// Attaches the program to an interface in the namespace of the calling thread.
    pub(super) fn attach(&mut self, interface: u32, to: Attachment) -> Result<(), Errno> {
        self.attached = None;
        let parameters = Attach {
            program: self.program.as_raw_fd() as u32,
            interface,
            kind: ATTACHED_AS_XDP,
            flags: match to {
                Attachment::Generic => 1 << 1,
                Attachment::Driver => 1 << 2,
            },
        };
        // SAFETY: `parameters` is a local of the command's form. It consists of plain numbers, and
        // lives until the call returns. The command creates a descriptor.
        self.attached = Some(unsafe { make(LINK_CREATE, &parameters) }?);
        Ok(())
    }

    /// Steers the frames of a queue to this socket.
    pub(super) fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let (key, value) = (queue.to_ne_bytes(), socket.as_raw_fd().to_ne_bytes());
        change(MAP_UPDATE_ELEM, self.sockets.as_fd(), &key, Some(&value))
    }

    /// Starts or stops to steer frames for this node.
    pub(super) fn set_node(&self, node: [u8; 6], serve: bool) -> Result<(), Errno> {
        let (command, value) = match serve {
            true => (MAP_UPDATE_ELEM, Some(&[0; 4])),
            false => (MAP_DELETE_ELEM, None),
        };
        change(command, self.nodes.as_fd(), &program::key(node), value)
    }
}

fn create_map(kind: u32, key_size: u32, max_entries: u32) -> Result<OwnedFd, Errno> {
    let parameters = MapCreate {
        kind,
        key_size,
        value_size: 4,
        max_entries,
    };
    // SAFETY: `parameters` is a local of the command's form. It consists of plain numbers, and
    // lives until the call returns. The command creates a descriptor.
    unsafe { make(MAP_CREATE, &parameters) }
}

fn load(program: &[Instruction]) -> Result<OwnedFd, Errno> {
    let parameters = Load {
        kind: PROGRAM_OF_XDP,
        instructions: program.len() as u32,
        first: program.as_ptr().addr() as u64,
        license: c"Dual MIT/GPL".as_ptr().addr() as u64,
    };
    // SAFETY: `parameters` points to `program` with its length and to a terminated text.
    // Both outlive the call, and the kernel only reads them.
    unsafe { make(PROG_LOAD, &parameters) }
}

fn change(
    command: libc::c_long,
    map: BorrowedFd<'_>,
    key: &[u8],
    value: Option<&[u8; 4]>,
) -> Result<(), Errno> {
    let parameters = Element {
        map: map.as_raw_fd() as u32,
        unused: 0,
        key: key.as_ptr().addr() as u64,
        // The kernel refuses a value where none is expected.
        value: value.map_or(0, |value| value.as_ptr().addr() as u64),
        flags: 0,
    };
    // SAFETY: the kernel reads a key and a value of the lengths that the map was
    // created with. The callers' arrays have these lengths and outlive the call.
    unsafe { bpf(command, &parameters) }.map(drop)
}

/// # Safety
///
/// `parameters` fulfils the contract of [`bpf`], and the command creates a descriptor.
unsafe fn make<T>(command: libc::c_long, parameters: &T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller fulfils the contract of `bpf`. The kernel has just created
    // the descriptor, so nothing else owns it.
    unsafe { Ok(OwnedFd::from_raw_fd(bpf(command, parameters)?)) }
}

/// # Safety
///
/// `parameters` has the command's form. Its pointers are valid for the command during
/// the call.
unsafe fn bpf<T>(command: libc::c_long, parameters: &T) -> Result<libc::c_int, Errno> {
    // SAFETY: the caller guarantees that `parameters` has the command's form and valid
    // pointers for this call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(parameters),
            size_of::<T>(),
        )
    };
    match done {
        0.. => Ok(done as libc::c_int),
        _ => Err(last_error()),
    }
}
