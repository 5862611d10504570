//! Programs at their limits: few descriptors, little memory, signals, threads and processes
//! that end in the middle of things. Each says what it sees, on a node and over the kernel.

mod refused;
mod requests;

use crate::{Place, alike};

/// A program of `source`, told to do one thing, which it does with so many connections at least.
fn says_the_same(source: &str, case: &str, connections: u64) {
    alike(0, |place| {
        let program = compile(place, "cc", source);
        let said = place.says(&[&program, case]);
        assert!(said.ends_with("over 0\n"), "{said}");
        place.connections_of_client(connections);
        said
    });
}

pub(crate) fn compile(place: &Place, compiler: &str, source: &str) -> String {
    place.file("ends.h", include_str!("ends.h"));
    place.compile(compiler, "program", source)
}

const INTERRUPTED: &str = include_str!("interrupted.c");

#[test]
#[ignore = "needs cc"]
fn transfers_go_on_after_a_signal_every_100_us() {
    says_the_same(INTERRUPTED, "restart", 3);
}

#[test]
#[ignore = "needs cc"]
fn calls_are_ended_by_a_signal_every_100_us() {
    says_the_same(INTERRUPTED, "end", 3);
}

/// The call that was left by the jump held the connection for ever: nobody saw its end.
#[test]
#[ignore = "needs cc"]
fn handlers_jump_out_of_calls_that_wait() {
    says_the_same(INTERRUPTED, "jump", 2);
}

#[test]
#[ignore = "needs cc"]
fn handlers_send_and_receive_on_small_stacks_of_their_own() {
    says_the_same(INTERRUPTED, "talk", 1);
}

const CANCELLED: &str = include_str!("cancelled.c");

/// A thread that slept on a connection was not woken up, and nobody could wait for its end.
#[test]
#[ignore = "needs cc"]
fn threads_are_cancelled_in_calls_that_wait() {
    says_the_same(CANCELLED, "cancel", 100);
}

#[test]
#[ignore = "needs cc"]
fn a_thread_that_is_not_to_be_cancelled_yet_gets_its_bytes() {
    says_the_same(CANCELLED, "protect", 1);
}

#[test]
#[ignore = "needs cc"]
fn threads_with_the_smallest_stacks_have_connections() {
    says_the_same(CANCELLED, "stack", 3);
}

/// Attaching to the node took more than there was, and the program crashed.
#[test]
#[ignore = "needs cc"]
fn a_thread_with_the_smallest_stack_has_the_first_connection() {
    says_the_same(CANCELLED, "begin", 1);
}

const DESCRIPTORS: &str = include_str!("descriptors.c");

/// The connection was taken from the listener first, and lost when there was no number for it.
#[test]
#[ignore = "needs cc"]
fn a_connection_waits_while_there_is_no_descriptor_for_it() {
    says_the_same(DESCRIPTORS, "few", 1);
}

/// Whoever accepted waited for a connection that there was no descriptor for.
#[test]
#[ignore = "needs cc"]
fn calls_that_need_a_descriptor_say_that_there_is_none() {
    says_the_same(DESCRIPTORS, "none", 1);
}

#[test]
#[ignore = "needs cc, strace"]
fn calls_that_need_a_file_say_that_the_system_has_none() {
    says_the_same(DESCRIPTORS, "full", 2);
}

/// Too few for a node: the kernel has the connections.
#[test]
#[ignore = "needs cc"]
fn programs_begin_with_sixteen_descriptors() {
    // All are the program's: the library leaves it to the kernel. It once took the last of them.
    says_the_same(DESCRIPTORS, "begins", 0);
}

#[test]
#[ignore = "needs cc"]
fn programs_begin_with_two_hundred_descriptors() {
    says_the_same(DESCRIPTORS, "enough", 3);
}

#[test]
#[ignore = "needs cc"]
fn connections_have_the_highest_numbers() {
    says_the_same(DESCRIPTORS, "many", 1);
}

#[test]
#[ignore = "needs cc"]
fn programs_close_all_descriptors() {
    says_the_same(DESCRIPTORS, "closed", 9);
}

#[test]
#[ignore = "needs cc"]
fn a_child_closes_all_but_one_end() {
    says_the_same(DESCRIPTORS, "half", 1);
}

#[test]
#[ignore = "needs cc"]
fn connections_are_made_with_no_more_memory() {
    says_the_same(DESCRIPTORS, "memory", 20);
}

const MODES: &str = include_str!("modes.c");

/// A program that makes some system calls itself, as those of Rust's rustix do, waited for ever.
#[test]
#[ignore = "needs cc"]
fn a_listener_does_not_wait_as_told_past_libc() {
    says_the_same(MODES, "past", 1);
}

/// A listener that waits became one that does not, for whoever inherited it.
#[test]
#[ignore = "needs cc"]
fn a_listener_that_is_inherited_waits() {
    says_the_same(MODES, "inherited", 2);
}

/// The shell had a listener of the node's beside it, which it changed for the program, and which
/// got connections that nobody took.
#[test]
#[ignore = "needs cc"]
fn a_listener_that_a_shell_inherits_is_the_programs() {
    says_the_same(MODES, "shell", 22);
}

const MARKS: &str = include_str!("marks.c");

/// What stands for a connection had the options, the owner, the flags and the user that the program had
/// set of the one before.
#[test]
#[ignore = "needs root, cc"]
fn later_connections_have_nothing_of_former_ones() {
    says_the_same(MARKS, "later", 105);
}

/// Those of the newer kind were taken, and calls waited for ever.
#[test]
#[ignore = "needs cc"]
fn time_is_limited_by_options_of_both_kinds() {
    says_the_same(MARKS, "timeouts", 2);
}

/// A socket that was bound to no device was the kernel's, and connections knew of no interfaces.
#[test]
#[ignore = "needs cc"]
fn sockets_that_ask_for_interfaces_are_the_nodes() {
    says_the_same(MARKS, "devices", 4);
}

/// A socket of IPv4 was connected to an address of IPv6.
#[test]
#[ignore = "needs cc"]
fn addresses_are_of_the_sockets_family() {
    says_the_same(MARKS, "addresses", 2);
}

/// It was over for ever: it had a peer's end to be read, and did not listen.
#[test]
#[ignore = "needs cc"]
fn a_socket_that_was_refused_is_as_new() {
    says_the_same(MARKS, "refused", 2);
}

/// They waited for ever.
#[test]
#[ignore = "needs cc"]
fn calls_are_ended_by_a_thread_that_dissolves_the_connection() {
    says_the_same(MARKS, "dissolved", 2);
}

/// Calls with several buffers read past the mark, and those that do not wait never did.
#[test]
#[ignore = "needs cc"]
fn urgent_data_end_what_is_read_before_them() {
    says_the_same(MARKS, "urgent", 4);
}

#[test]
#[ignore = "needs cc"]
fn who_peeks_goes_on_behind_what_was_peeked_at() {
    says_the_same(MARKS, "peeked", 1);
}

/// All had the names that one of them had asked for.
#[test]
#[ignore = "needs cc"]
fn events_have_the_names_that_each_asks_for() {
    says_the_same(MARKS, "events", 8);
}

/// nmap took the name for an address, and scanned nobody.
#[test]
#[ignore = "needs cc"]
fn names_of_nodes_are_no_numbers() {
    alike(0, |place| {
        let program = compile(place, "cc", MARKS);
        let name = if place.nodes.is_some() {
            "server"
        } else {
            "localhost"
        };
        place.says(&[&program, "names", name])
    });
}

const PROCESSES: &str = include_str!("processes.c");

#[test]
#[ignore = "needs cc"]
fn daemons_serve_when_their_parents_are_gone() {
    says_the_same(PROCESSES, "daemon", 4);
}

#[test]
#[ignore = "needs cc"]
fn children_by_vfork_write_to_the_connection() {
    says_the_same(PROCESSES, "shared", 1);
}

/// The parent closed the connection for the child, too.
#[test]
#[ignore = "needs cc"]
fn children_by_system_calls_have_connections() {
    says_the_same(PROCESSES, "number", 2);
}

/// The child could not attach, and its connection was dead.
#[test]
#[ignore = "needs cc"]
fn children_with_little_memory_have_connections() {
    says_the_same(PROCESSES, "memory", 2);
}

#[test]
#[ignore = "needs cc"]
fn functions_are_looked_up() {
    // What comes from libc's own handle is libc's.
    says_the_same(PROCESSES, "lookup", 2);
}

/// The child was ended by a signal: it was outside of the library while that attached anew.
#[test]
#[ignore = "needs cc"]
fn the_first_call_of_a_child_shuts_the_connection() {
    says_the_same(PROCESSES, "shut", 3);
}

const USERS: &str = include_str!("users.c");

/// The children were not let in at the node: what they had inherited failed.
#[test]
#[ignore = "needs root, cc"]
fn children_of_a_process_that_gave_its_user_up_have_connections() {
    says_the_same(USERS, "user", 5);
}

#[test]
#[ignore = "needs root, cc"]
fn children_of_a_process_that_gave_its_root_up_have_connections() {
    says_the_same(USERS, "root", 5);
}

#[test]
#[ignore = "needs root, cc"]
fn threads_of_another_user_have_children_in_the_middle_of_calls() {
    says_the_same(USERS, "threads", 24);
}

/// A program of another user cannot use the node, and has its connections all the same.
#[test]
#[ignore = "needs root, cc"]
fn programs_that_another_user_starts_have_the_connections_that_they_inherit() {
    says_the_same(USERS, "programs", 4);
}

/// The child was ended by a fault, and then the fabric's directory was found to be open.
#[test]
#[ignore = "needs root, cc"]
fn a_sandbox_that_begins_as_chromiums_does_has_connections() {
    says_the_same(USERS, "sandbox", 3);
}

/// What was read never came, and what was written was lost, which nobody was told.
#[test]
#[ignore = "needs cc"]
fn connections_are_read_and_written_beside_the_program() {
    says_the_same(include_str!("asynchronous.c"), "", 3);
}

const NESTED: &str = include_str!("nested.c");

#[test]
#[ignore = "needs cc"]
fn epoll_in_epoll_tells_of_levels() {
    says_the_same(NESTED, "levels", 1);
}

#[test]
#[ignore = "needs cc"]
fn epoll_in_epoll_tells_of_edges() {
    says_the_same(NESTED, "edges", 1);
}

#[test]
#[ignore = "needs cc"]
fn epoll_in_epoll_has_the_kernels_bounds() {
    says_the_same(NESTED, "refused", 1);
}

/// They went on waiting for the kernel alone.
#[test]
#[ignore = "needs cc"]
fn threads_that_wait_are_told_of_the_first_connection_of_an_epoll() {
    says_the_same(NESTED, "meanwhile", 8);
}

/// Of connections that the program knew by what it knew a pipe by, only the pipe was told of.
#[test]
#[ignore = "needs cc"]
fn all_that_an_epoll_knows_by_one_name_are_told_of() {
    says_the_same(NESTED, "of one name", 4);
}

#[test]
#[ignore = "needs cc"]
fn a_cancelled_thread_waits_for_no_epoll_any_more() {
    says_the_same(NESTED, "cancelled", 1);
}

#[test]
#[ignore = "needs cc"]
fn a_child_inherits_epoll_in_epoll() {
    says_the_same(NESTED, "inherited", 1);
}

const WRONG: &str = include_str!("wrong.c");

/// Programs were ended by a signal.
#[test]
#[ignore = "needs cc"]
fn addresses_outside_of_all_memory_are_errors() {
    says_the_same(WRONG, "addresses", 3);
}

/// The same of memory that is there for something else, or not any more.
#[test]
#[ignore = "needs cc"]
fn addresses_of_memory_that_cannot_be_used_are_errors() {
    says_the_same(WRONG, "mapped", 3);
}

#[test]
#[ignore = "needs cc"]
fn connections_are_passed_in_several_messages_at_once() {
    says_the_same(WRONG, "passed", 2);
}

/// Some ended the program by a signal, others closed what was to stay.
#[test]
#[ignore = "needs cc"]
fn what_the_kernel_refuses_changes_nothing() {
    says_the_same(include_str!("numbers.c"), "", 5);
}

const MOVED: &str = include_str!("moved.c");

/// The last bytes were held back for more of the file, which there was not.
#[test]
#[ignore = "needs cc"]
fn the_end_of_a_file_is_sent_at_once() {
    says_the_same(MOVED, "files", 10);
}

/// What was taken out of the pipe was lost with the connection.
#[test]
#[ignore = "needs cc"]
fn bytes_that_cannot_be_sent_stay_in_their_pipe() {
    says_the_same(MOVED, "pipes", 1);
}

/// The program was ended by a signal.
#[test]
#[ignore = "needs cc"]
fn streams_on_connections_are_opened_again() {
    says_the_same(MOVED, "streams", 5);
}

/// They went past the library.
#[test]
#[ignore = "needs cc"]
fn functions_have_other_names() {
    says_the_same(MOVED, "names", 1);
}
