//! The rows, in the order in which people read them: a file for each family of calls.

mod descriptors;
mod functions;
mod processes;
mod socketless;
mod sockets;
mod transfer;
mod waiting;

pub(super) use self::functions::OTHER_FUNCTIONS;
pub(super) use self::socketless::OTHERS;
use super::{Call, Way};

/// The program that makes every call on a connection.
const WALK: &str = "every_call_on_connection_matches_kernel";

const fn call(
    number: u16,
    name: &'static str,
    functions: &'static str,
    way: Way,
    why: &'static str,
    test: &'static str,
) -> Call {
    Call {
        number,
        name,
        functions,
        way,
        why,
        test,
    }
}

/// All calls that take, make or wait for a socket, or that can move its bytes.
pub(super) fn calls() -> impl Iterator<Item = &'static Call> {
    [
        sockets::SOCKETS,
        transfer::TRANSFERS,
        waiting::WAITS,
        descriptors::DESCRIPTORS,
        processes::PROCESSES,
    ]
    .into_iter()
    .flatten()
}
