//! The program that the kernel runs for every frame of the interface. It steers
//! frames for nodes to this link's sockets, and passes all others to the kernel.
//!
//! The program is so short that it is written in instructions (RFC 9669). Building
//! and loading it needs no BPF compiler and no object file.

/// Descriptors of the program's maps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Maps {
    /// Map with the nodes' hardware addresses as keys.
    pub(super) nodes: i32,
    /// Map with a socket for each queue of the interface.
    pub(super) sockets: i32,
}

/// An instruction in the kernel's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}
const _: () = assert!(size_of::<Instruction>() == 8);

// Registers: a result; arguments of calls; preserved by calls; the end of the
// stack.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R5: u8 = 5;
const R6: u8 = 6;
const R10: u8 = 10;

// Widths of loads and stores.
const WORD: u8 = 0x00;
const HALF: u8 = 0x08;

// Fields of `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

// Functions of the kernel.
const MAP_LOOKUP_ELEM: i32 = 1;
const REDIRECT_MAP: i32 = 51;

/// Return value that passes the frame to the kernel.
const XDP_PASS: i32 = 2;

/// Offset of an address on the stack, padded to eight bytes.
const KEY: i16 = -8;
/// Length of an Ethernet header, and the offset of its EtherType.
const HEADER: i32 = 14;
const ETHERTYPE: i16 = 12;
/// EtherTypes of VLAN tags in network byte order.
const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction {
        code,
        registers: from << 4 | to,
        offset,
        immediate,
    }
}

/// `to = *(from + offset)`
const fn load(width: u8, to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x61 | width, to, from, offset, 0)
}

/// `*(to + offset) = from`
const fn store(width: u8, to: u8, offset: i16, from: u8) -> Instruction {
    instruction(0x63 | width, to, from, offset, 0)
}

const fn copy(to: u8, from: u8) -> Instruction {
    instruction(0xbf, to, from, 0, 0)
}

const fn set(to: u8, value: i32) -> Instruction {
    instruction(0xb7, to, 0, 0, value)
}

const fn add(to: u8, value: i32) -> Instruction {
    instruction(0x07, to, 0, 0, value)
}

const fn subtract(to: u8, from: u8) -> Instruction {
    instruction(0x1f, to, from, 0, 0)
}

/// Loads a map's address from its descriptor: an instruction of double length.
const fn map(to: u8, descriptor: i32) -> [Instruction; 2] {
    const OF_DESCRIPTOR: u8 = 1;
    [
        instruction(0x18, to, OF_DESCRIPTOR, 0, descriptor),
        instruction(0, 0, 0, 0, 0),
    ]
}

const fn call(function: i32) -> Instruction {
    instruction(0x85, 0, 0, 0, function)
}

const EXIT: Instruction = instruction(0x95, 0, 0, 0, 0);

/// Jumps to the end, where frames pass to the kernel. The distance is filled in
/// later.
const fn pass_if_above(a: u8, b: u8) -> Instruction {
    instruction(0x2d, a, b, 0, 0)
}

const fn pass_if_above_value(a: u8, value: i32) -> Instruction {
    instruction(0x25, a, 0, 0, value)
}

const fn pass_if_equal(a: u8, value: i32) -> Instruction {
    instruction(0x15, a, 0, 0, value)
}

/// Returns the program for frames of at most `longest` bytes. Longer ones do not
/// fit a buffer, and reach the packet socket.
pub(super) fn program(maps: Maps, longest: u32) -> Vec<Instruction> {
    let mut program = vec![
        copy(R6, R1),
        load(WORD, R2, R6, DATA),
        load(WORD, R3, R6, DATA_END),
        copy(R4, R2),
        add(R4, HEADER),
        pass_if_above(R4, R3),
        copy(R4, R3),
        subtract(R4, R2),
        pass_if_above_value(R4, longest as i32),
        load(HALF, R5, R2, ETHERTYPE),
    ];
    program.extend(TAGS.map(|tag| pass_if_equal(R5, i32::from(u16::from_ne_bytes(tag)))));
    program.extend([
        load(WORD, R5, R2, 0),
        store(WORD, R10, KEY, R5),
        load(HALF, R5, R2, 4),
        store(WORD, R10, KEY + 4, R5),
    ]);
    program.extend(map(R1, maps.nodes));
    program.extend([
        copy(R2, R10),
        add(R2, i32::from(KEY)),
        call(MAP_LOOKUP_ELEM),
        pass_if_equal(R0, 0),
        load(WORD, R2, R6, RX_QUEUE_INDEX),
    ]);
    program.extend(map(R1, maps.sockets));
    // The frame of a queue without a socket passes to the kernel.
    program.extend([set(R3, XDP_PASS), call(REDIRECT_MAP), EXIT]);
    let end = program.len();
    for (at, jump) in program.iter_mut().enumerate() {
        if matches!(jump.code, 0x15 | 0x25 | 0x2d) {
            jump.offset = (end - at - 1) as i16;
        }
    }
    program.extend([set(R0, XDP_PASS), EXIT]);
    program
}

/// Returns a node's address as the program's key.
pub(super) fn key(address: [u8; 6]) -> [u8; 8] {
    let mut key = [0; 8];
    key[..6].copy_from_slice(&address);
    key
}
