//! The filter of a packet socket: a classic BPF program, which the kernel runs for
//! every frame of the interface.

use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SKF_AD_OFF,
    SKF_AD_VLAN_TAG_PRESENT, sock_filter,
};

/// Most addresses in a program: the kernel takes 4096 instructions.
pub(super) const MAX_ADDRESSES: usize = 512;
const INSTRUCTIONS_OF_ADDRESS: usize = 5;
const INSTRUCTIONS_OF_REST: usize = 7;
const _: () = assert!(MAX_ADDRESSES * INSTRUCTIONS_OF_ADDRESS + INSTRUCTIONS_OF_REST <= 4096);

/// Return value that takes the whole frame.
const ALL: u32 = u32::MAX;

/// Loads a field at this offset of the frame, or a fact about it.
fn load(size: u32, offset: u32) -> sock_filter {
    instruction(BPF_LD | size | BPF_ABS, 0, 0, offset)
}

/// Compares, and skips this many instructions if so or if not.
fn jump(test: u32, with: u32, if_so: u8, if_not: u8) -> sock_filter {
    instruction(BPF_JMP | test | BPF_K, if_so, if_not, with)
}

/// Ends the program and takes this many bytes of the frame.
fn take(bytes: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, 0, 0, bytes)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

/// Returns a program that takes frames for these addresses, at most
/// [`MAX_ADDRESSES`] of them, and multicast frames. It takes no frames with a VLAN
/// tag.
pub(super) fn program<'a>(addresses: impl Iterator<Item = &'a [u8; 6]>) -> Vec<sock_filter> {
    let vlan = (SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT) as u32;
    let mut program = vec![
        load(BPF_W, vlan),
        jump(BPF_JEQ, 0, 1, 0),
        take(0),
        load(BPF_B, 0),
        jump(BPF_JSET, 1, 0, 1),
        take(ALL),
    ];
    for &[a, b, c, d, e, f] in addresses.take(MAX_ADDRESSES) {
        program.extend([
            load(BPF_W, 0),
            jump(BPF_JEQ, u32::from_be_bytes([a, b, c, d]), 0, 3),
            load(BPF_H, 4),
            jump(BPF_JEQ, u32::from(u16::from_be_bytes([e, f])), 0, 1),
            take(ALL),
        ]);
    }
    program.push(take(0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the program like the kernel, as far as its instructions need.
    fn run(program: &[sock_filter], frame: &[u8], tagged: bool) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let (code, offset) = (u32::from(code), k as usize);
            if code == BPF_RET | BPF_K {
                return k;
            } else if code == BPF_LD | BPF_ABS | BPF_W && k as i32 == SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT {
                value = u32::from(tagged);
            } else if code & !0x18 == BPF_LD | BPF_ABS {
                let len = [(BPF_W, 4), (BPF_H, 2), (BPF_B, 1)]
                    .into_iter()
                    .find_map(|(size, len)| (code & 0x18 == size).then_some(len));
                let bytes = &frame[offset..offset + len.unwrap()];
                value = bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte));
            } else {
                let holds = match code & !BPF_JMP {
                    BPF_JEQ => value == k,
                    BPF_JSET => value & k != 0,
                    other => panic!("unknown instruction: {other:#x}"),
                };
                at += usize::from(if holds { jt } else { jf });
            }
        }
    }

    #[test]
    fn filter_takes_frames_for_nodes_and_multicast_only() {
        let nodes: Vec<[u8; 6]> = (0..MAX_ADDRESSES + 1)
            .map(|number| [2, 0, 0x5e, (number >> 7) as u8, 7, number as u8 & 0x7f])
            .collect();
        let none = program([].iter());
        let all = program(nodes.iter());
        assert!(all.len() <= 4096);
        let frame = |to: &[u8; 6]| [&to[..], &[2, 0, 0, 0, 0, 9, 8, 0]].concat();
        for node in &nodes[..MAX_ADDRESSES] {
            assert_eq!(run(&all, &frame(node), false), ALL);
            assert_eq!(run(&all, &frame(node), true), 0, "a frame with a VLAN tag");
            assert_eq!(run(&none, &frame(node), false), 0);
            for changed in 0..6 {
                let mut other = *node;
                other[changed] ^= 0x80;
                assert_eq!(run(&all, &frame(&other), false), 0, "{other:?}");
            }
        }
        assert_eq!(run(&all, &frame(&nodes[MAX_ADDRESSES]), false), 0, "one too many");
        for group in [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1]] {
            assert_eq!(run(&none, &frame(&group), false), ALL);
            assert_eq!(run(&none, &frame(&group), true), 0);
        }
    }
}
