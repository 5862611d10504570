//! The program that the kernel runs for every frame that comes to the interface: frames for
//! nodes go to the sockets of this link, all others go on to the kernel.
//!
//! It is so short that it stands here in instructions (RFC 9669): no compiler for BPF, and no
//! object of one, is needed to build or to load it.

/// Descriptors of what it looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Maps {
    /// Keys are the nodes' hardware addresses.
    pub(super) nodes: i32,
    /// A socket for each queue of the interface.
    pub(super) sockets: i32,
}

/// An instruction, as the kernel reads it.
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

/// Registers: a result; arguments of calls; what calls preserve; the end of the stack.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R5: u8 = 5;
const R6: u8 = 6;
const R10: u8 = 10;

/// Widths of loads and stores.
const WORD: u8 = 0x00;
const HALF: u8 = 0x08;

/// `struct xdp_md`
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

/// Functions of the kernel.
const MAP_LOOKUP_ELEM: i32 = 1;
const REDIRECT_MAP: i32 = 51;

/// The frame goes on to the kernel.
const XDP_PASS: i32 = 2;

/// Where an address lies on the stack, filled up to eight bytes.
const KEY: i16 = -8;
/// Bytes of an Ethernet header, and where its EtherType lies.
const HEADER: i32 = 14;
const ETHERTYPE: i16 = 12;
/// EtherTypes of VLAN tags, as they lie in memory.
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

/// The descriptor of a map becomes its address: an instruction of twice the length.
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

/// Jumps to the end, where frames go on to the kernel; the distance is filled in later.
const fn pass_if_above(a: u8, b: u8) -> Instruction {
    instruction(0x2d, a, b, 0, 0)
}

const fn pass_if_above_value(a: u8, value: i32) -> Instruction {
    instruction(0x25, a, 0, 0, value)
}

const fn pass_if_equal(a: u8, value: i32) -> Instruction {
    instruction(0x15, a, 0, 0, value)
}

/// For frames of at most `longest` bytes; longer ones do not fit where frames are put, and
/// reach this side as those for groups do.
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
    // A queue without a socket: on to the kernel as well.
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

/// How the program sees a node's address.
pub(super) fn key(address: [u8; 6]) -> [u8; 8] {
    let mut key = [0; 8];
    key[..6].copy_from_slice(&address);
    key
}
