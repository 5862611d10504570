//! The library's handling of each system call of x86-64, and of each function of libc that it
//! stands in for.
//!
//! The table is data for tests: docs/socket-calls.md is made from it. A test fails for a call of the kernel
//! that is in neither of its lists.

mod table;

use self::table::{OTHER_FUNCTIONS, OTHERS, calls};

/// The handling of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The node does it where it concerns a connection of the node's.
    Carried,
    /// The kernel does it, after or before the library has done its part.
    Accompanied,
    /// The connection is carried to the kernel: the engine moves its bytes from then on.
    HandedOver,
    /// The kernel does it, as if there were no library.
    Kernels,
    /// The program gets an error.
    Refused,
}

impl Way {
    fn words(self) -> &'static str {
        match self {
            Way::Carried => "carried",
            Way::Accompanied => "the kernel's, accompanied",
            Way::HandedOver => "handed over",
            Way::Kernels => "the kernel's",
            Way::Refused => "refused",
        }
    }
}

/// A system call that takes, makes or waits for a socket, or that can move bytes of one.
struct Call {
    number: u16,
    name: &'static str,
    /// The functions of libc that make it, and that are stood in for.
    functions: &'static str,
    way: Way,
    /// How far the call is handled, or for which reason it is not.
    why: &'static str,
    /// Tests in crates/cli/tests/programs.
    test: &'static str,
}

fn quoted(names: &str) -> String {
    let quoted: Vec<String> = names.split_whitespace().map(|name| format!("`{name}`")).collect();
    quoted.join(" ")
}

/// The document.
fn document() -> String {
    let mut text = String::from(INTRODUCTION);
    for call in calls() {
        let Call {
            number,
            name,
            functions,
            way,
            why,
            test,
        } = call;
        let (functions, test, way) = (quoted(functions), quoted(test), way.words());
        text += &format!("| `{name}` | {number} | {functions} | {way} | {why} | {test} |\n");
    }
    text += FUNCTIONS;
    for (functions, what, test) in OTHER_FUNCTIONS {
        text += &format!("| {} | {what} | {} |\n", quoted(functions), quoted(test));
    }
    text += REST;
    for (what, calls) in OTHERS {
        let names: Vec<&str> = calls.iter().map(|&(_, name)| name).collect();
        text += &format!("- {what}: {}.\n", names.join(", "));
    }
    text
}

const INTRODUCTION: &str = "\
# Calls on sockets

What `libtoehold.so` does with each system call of Linux on x86-64 that takes, makes or waits for a socket, or that can
move bytes of one, and with the functions of libc that make it. This file is made from the table in
`crates/shim/src/calls/table/`; a test fails if the two differ, or if the kernel has a call that is in neither list.

| word | meaning |
| --- | --- |
| carried | The node does it where a connection or listener of the node's is concerned. |
| the kernel's, accompanied | The kernel does it; the library does its part before or after. |
| handed over | The engine carries the connection's bytes from then on, and the kernel does the call. |
| the kernel's | The library is not asked. The reason says why nothing leaves the fabric by it. |
| refused | The program gets an error that it knows from other systems. |

Sockets that the kernel has are counted by reason (`toehold run --stats`): `not_stream`, `not_fabric`, `no_node`,
`option`, `state`, `io_uring`. A program makes a call by libc's function, by `syscall(2)`, or by an instruction of its own
that is dispatched (ARCHITECTURE.md); what is said here holds for each way, unless a row says otherwise.

| call | number | functions | what | why, and how far | tests |
| --- | --- | --- | --- | --- | --- |
";

const FUNCTIONS: &str = "
## Functions of libc without a system call of their own

| functions | why they are stood in for | tests |
| --- | --- | --- |
";

const REST: &str = "
## Calls that have no socket

These take no descriptor of a socket, or do nothing to its bytes; the library leaves them alone.

";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The numbers that Linux 6.17 has: the first calls, and those that all architectures share.
    fn numbers() -> impl Iterator<Item = u16> {
        (0..=334).chain(424..=469)
    }

    fn named() -> BTreeMap<u16, &'static str> {
        let others = OTHERS.iter().flat_map(|(_, calls)| calls.iter().copied());
        let rows = calls().map(|call| (call.number, call.name)).chain(others);
        let mut named = BTreeMap::new();
        for (number, name) in rows {
            assert_eq!(named.insert(number, name), None, "{number} is there twice");
        }
        named
    }

    #[test]
    fn every_number_of_the_kernels_is_in_one_list() {
        let named = named();
        assert!(named.keys().copied().eq(numbers()), "{:?}", named.keys());
    }

    #[test]
    fn numbers_have_the_names_of_the_kernels_header() {
        let headers = [
            "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
            "/usr/include/asm/unistd_64.h",
        ];
        let header = headers.iter().find_map(|path| std::fs::read_to_string(path).ok());
        let named = named();
        for line in header.unwrap_or_default().lines() {
            let Some((name, number)) = line
                .strip_prefix("#define __NR_")
                .and_then(|line| line.split_once(' '))
            else {
                continue;
            };
            let number = number.trim().parse().unwrap();
            // A header may be of a newer kernel than the list.
            if let Some(known) = named.get(&number) {
                assert_eq!(*known, name, "{number}");
            }
        }
    }

    #[test]
    fn every_row_has_a_reason_or_a_function_and_a_test() {
        for call in calls() {
            assert!(!call.test.is_empty(), "{}", call.name);
            let is_said = !call.why.is_empty() || (call.way == Way::Carried && !call.functions.is_empty());
            assert!(is_said, "{}", call.name);
        }
    }

    #[test]
    fn every_test_that_is_named_is_there() {
        fn sources(folder: &std::path::Path, text: &mut String) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    sources(&path, text);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    *text += &std::fs::read_to_string(path).unwrap();
                }
            }
        }
        let mut text = String::new();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/programs");
        sources(folder.as_ref(), &mut text);
        let named = calls()
            .map(|call| call.test)
            .chain(OTHER_FUNCTIONS.iter().map(|row| row.2));
        for test in named.flat_map(str::split_whitespace) {
            let is_there = text.contains(&format!("fn {test}(")) || text.contains(&format!("{test},"));
            assert!(is_there, "{test}");
        }
    }

    #[test]
    fn document_is_made_from_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/socket-calls.md");
        let (written, made) = (std::fs::read_to_string(path).unwrap_or_default(), document());
        if std::env::var_os("TOEHOLD_WRITE_DOCUMENTS").is_some() {
            std::fs::write(path, &made).unwrap();
        } else {
            assert!(
                written == made,
                "write docs/socket-calls.md anew with TOEHOLD_WRITE_DOCUMENTS=1"
            );
        }
    }
}
