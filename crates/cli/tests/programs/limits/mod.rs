//! Programs at their limits: few descriptors, little memory, signals, and threads and processes
//! that end during a call. The output must be the same on a node and over the kernel.

mod refused;
mod requests;

use crate::{Place, alike, alike_directly};

/// Runs one case of the program `source`, which makes at least `connections` connections.
fn says_the_same(source: &str, case: &str, connections: u64) {
    alike(0, |place| {
        let program = compile(place, "cc", source);
        let said = place.says(&[&program, case]);
        assert!(said.ends_with("over 0\n"), "{said}");
        place.connections_of_client(connections);
        said
    });
}

/// Runs one case of the program `source` on nodes with direct connections. It makes at least
/// `connections` of them.
fn says_the_same_directly(source: &str, case: &str, connections: u64) {
    alike_directly(connections, |place| {
        let program = compile(place, "cc", source);
        let said = place.says(&[&program, case]);
        assert!(said.ends_with("over 0\n"), "{said}");
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
fn transfers_continue_under_signal_every_100_us() {
    says_the_same(INTERRUPTED, "restart", 3);
}

#[test]
#[ignore = "needs cc"]
fn calls_are_interrupted_by_signal_every_100_us() {
    says_the_same(INTERRUPTED, "end", 3);
}

/// Regression: the call that the jump left held the connection forever, so that its end was never
/// seen.
#[test]
#[ignore = "needs cc"]
fn handlers_jump_out_of_blocking_calls() {
    says_the_same(INTERRUPTED, "jump", 2);
}

#[test]
#[ignore = "needs cc"]
fn handlers_send_and_receive_on_small_stacks_of_their_own() {
    says_the_same(INTERRUPTED, "talk", 1);
}

const CANCELLED: &str = include_str!("cancelled.c");

/// Regression: a thread that slept on a connection did not wake, so that joining it never returned.
#[test]
#[ignore = "needs cc"]
fn threads_are_cancelled_in_blocking_calls() {
    says_the_same(CANCELLED, "cancel", 100);
}

#[test]
#[ignore = "needs cc"]
fn thread_with_cancellation_disabled_gets_its_bytes() {
    says_the_same(CANCELLED, "protect", 1);
}

#[test]
#[ignore = "needs cc"]
fn threads_with_smallest_stacks_have_connections() {
    says_the_same(CANCELLED, "stack", 3);
}

/// Regression: attaching to the node overflowed the stack.
#[test]
#[ignore = "needs cc"]
fn thread_with_smallest_stack_has_first_connection() {
    says_the_same(CANCELLED, "begin", 1);
}

const DESCRIPTORS: &str = include_str!("descriptors.c");

/// Regression: the connection was accepted first, and lost when no descriptor was free.
#[test]
#[ignore = "needs cc"]
fn connection_waits_while_no_fd_is_free() {
    says_the_same(DESCRIPTORS, "few", 1);
}

/// Regression: accept waited for a connection without a free descriptor.
#[test]
#[ignore = "needs cc"]
fn calls_without_free_fd_return_emfile() {
    says_the_same(DESCRIPTORS, "none", 1);
}

#[test]
#[ignore = "needs cc, strace"]
fn calls_without_free_file_return_enfile() {
    says_the_same(DESCRIPTORS, "full", 2);
}

/// Too few descriptors for a node: the kernel has the connections.
#[test]
#[ignore = "needs cc"]
fn programs_with_sixteen_fds_begin() {
    // All belong to the program: the library leaves connections to the kernel. It once took the
    // last descriptor.
    says_the_same(DESCRIPTORS, "begins", 0);
}

#[test]
#[ignore = "needs cc"]
fn programs_with_two_hundred_fds_begin() {
    says_the_same(DESCRIPTORS, "enough", 3);
}

#[test]
#[ignore = "needs cc"]
fn connections_have_highest_fds() {
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

/// Regression: a program that makes some system calls itself, as Rust's rustix does, waited for
/// ever.
#[test]
#[ignore = "needs cc"]
fn listener_made_nonblocking_past_libc_does_not_wait() {
    says_the_same(MODES, "past", 1);
}

/// Regression: a blocking listener became non-blocking for the process that inherited it.
#[test]
#[ignore = "needs cc"]
fn inherited_listener_waits() {
    says_the_same(MODES, "inherited", 2);
}

/// Regression: the shell held a listener of the node, which it changed for the program, and whose
/// connections were never accepted.
#[test]
#[ignore = "needs cc"]
fn listener_inherited_through_shell_belongs_to_program() {
    says_the_same(MODES, "shell", 22);
}

const MARKS: &str = include_str!("marks.c");

/// Regression: the descriptor of a connection kept the options, the owner, the flags and the user
/// that the program had set on the previous one.
#[test]
#[ignore = "needs root, cc"]
fn later_connections_do_not_inherit_state_of_former_ones() {
    says_the_same(MARKS, "later", 105);
}

/// Regression: options of the newer kind were accepted, and calls waited forever.
#[test]
#[ignore = "needs cc"]
fn timeouts_of_both_option_kinds_take_effect() {
    says_the_same(MARKS, "timeouts", 2);
}

/// Regression: a socket bound to no device went to the kernel, and connections knew no interfaces.
#[test]
#[ignore = "needs cc"]
fn sockets_with_interface_queries_belong_to_node() {
    says_the_same(MARKS, "devices", 4);
}

/// Regression: a socket of IPv4 was connected to an address of IPv6.
#[test]
#[ignore = "needs cc"]
fn address_of_other_family_is_refused() {
    says_the_same(MARKS, "addresses", 2);
}

/// Regression: the socket was unusable: it reported the end of a stream, and could not listen.
#[test]
#[ignore = "needs cc"]
fn socket_after_refusal_is_usable_again() {
    says_the_same(MARKS, "refused", 2);
}

/// Regression: they waited forever.
#[test]
#[ignore = "needs cc"]
fn calls_end_when_thread_dissolves_connection() {
    says_the_same(MARKS, "dissolved", 2);
}

/// Regression: calls with several buffers read past the mark, and non-blocking calls never did.
#[test]
#[ignore = "needs cc"]
fn urgent_data_end_read_before_them() {
    says_the_same(MARKS, "urgent", 4);
}

#[test]
#[ignore = "needs cc"]
fn peek_with_offset_continues_behind_peeked_bytes() {
    says_the_same(MARKS, "peeked", 1);
}

/// Regression: all had the event data of one registration.
#[test]
#[ignore = "needs cc"]
fn events_have_data_of_their_registration() {
    says_the_same(MARKS, "events", 8);
}

/// Regression: nmap took the name for an address, and scanned no host.
#[test]
#[ignore = "needs cc"]
fn names_of_nodes_are_not_addresses() {
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
fn daemons_serve_after_end_of_parent() {
    says_the_same(PROCESSES, "daemon", 4);
}

#[test]
#[ignore = "needs cc"]
fn children_by_vfork_write_to_the_connection() {
    says_the_same(PROCESSES, "shared", 1);
}

/// Regression: the parent closed the connection for the child too.
#[test]
#[ignore = "needs cc"]
fn children_by_system_calls_have_connections() {
    says_the_same(PROCESSES, "number", 2);
}

/// Regression: the child could not attach, and its connection was dead.
#[test]
#[ignore = "needs cc"]
fn children_with_little_memory_have_connections() {
    says_the_same(PROCESSES, "memory", 2);
}

#[test]
#[ignore = "needs cc"]
fn functions_are_looked_up() {
    // libc's own handle returns libc's functions.
    says_the_same(PROCESSES, "lookup", 2);
}

/// Regression: a signal ended the child, which was outside of the library while it attached again.
#[test]
#[ignore = "needs cc"]
fn shutdown_as_first_call_of_child_works() {
    says_the_same(PROCESSES, "shut", 3);
}

const USERS: &str = include_str!("users.c");

/// Regression: the node did not admit the children, so that inherited connections failed.
#[test]
#[ignore = "needs root, cc"]
fn children_after_setuid_have_connections() {
    says_the_same(USERS, "user", 5);
}

#[test]
#[ignore = "needs root, cc"]
fn children_after_chroot_have_connections() {
    says_the_same(USERS, "root", 5);
}

#[test]
#[ignore = "needs root, cc"]
fn threads_of_other_user_fork_during_calls() {
    says_the_same(USERS, "threads", 24);
}

/// A program of another user cannot use the node, but keeps inherited connections.
#[test]
#[ignore = "needs root, cc"]
fn programs_of_other_user_have_inherited_connections() {
    says_the_same(USERS, "programs", 4);
}

/// Regression: the child crashed, and then the fabric's directory was left open.
#[test]
#[ignore = "needs root, cc"]
fn sandbox_like_chromium_has_connections() {
    says_the_same(USERS, "sandbox", 3);
}

/// Regression: data read never arrived, and written data were lost without an error.
#[test]
#[ignore = "needs cc"]
fn connections_are_used_by_asynchronous_io() {
    says_the_same(include_str!("asynchronous.c"), "", 3);
}

/// Regression: a connection that waited at the listener when the kernel got it was lost.
#[test]
#[ignore = "needs cc"]
fn direct_connections_are_used_by_asynchronous_io() {
    says_the_same_directly(include_str!("asynchronous.c"), "", 1);
}

const NESTED: &str = include_str!("nested.c");

/// Regression: nothing rang threads that waited with an instance around that of the connection.
#[test]
#[ignore = "needs cc"]
fn waiting_threads_see_first_direct_connection_of_epoll() {
    says_the_same_directly(NESTED, "meanwhile", 4);
}

/// Regression: the connection was accepted before there was an fd for it, and reset.
#[test]
#[ignore = "needs cc"]
fn direct_connection_waits_while_no_fd_is_free() {
    says_the_same_directly(DESCRIPTORS, "few", 1);
}

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

/// Regression: they waited for the kernel only.
#[test]
#[ignore = "needs cc"]
fn waiting_threads_see_first_connection_of_epoll() {
    says_the_same(NESTED, "meanwhile", 8);
}

/// Regression: of connections and a pipe with the same event data, only the pipe was reported.
#[test]
#[ignore = "needs cc"]
fn all_registrations_with_same_data_are_reported() {
    says_the_same(NESTED, "of one name", 4);
}

#[test]
#[ignore = "needs cc"]
fn cancelled_thread_leaves_epoll_wait() {
    says_the_same(NESTED, "cancelled", 1);
}

#[test]
#[ignore = "needs cc"]
fn a_child_inherits_epoll_in_epoll() {
    says_the_same(NESTED, "inherited", 1);
}

const WRONG: &str = include_str!("wrong.c");

/// Regression: programs were killed by a signal.
#[test]
#[ignore = "needs cc"]
fn addresses_outside_of_memory_return_efault() {
    says_the_same(WRONG, "addresses", 3);
}

/// Regression: programs were killed by a signal for memory in other use, or unmapped.
#[test]
#[ignore = "needs cc"]
fn addresses_of_unusable_memory_return_efault() {
    says_the_same(WRONG, "mapped", 3);
}

#[test]
#[ignore = "needs cc"]
fn connections_are_passed_in_several_messages_at_once() {
    says_the_same(WRONG, "passed", 2);
}

/// Regression: some killed the program, others closed descriptors that should stay.
#[test]
#[ignore = "needs cc"]
fn refused_calls_change_nothing() {
    says_the_same(include_str!("numbers.c"), "", 5);
}

const MOVED: &str = include_str!("moved.c");

/// Regression: the last bytes were delayed for more of the file, which had ended.
#[test]
#[ignore = "needs cc"]
fn end_of_file_is_sent_at_once() {
    says_the_same(MOVED, "files", 10);
}

/// Regression: bytes taken from the pipe were lost with the connection.
#[test]
#[ignore = "needs cc"]
fn unsent_bytes_stay_in_pipe() {
    says_the_same(MOVED, "pipes", 1);
}

/// Regression: a signal killed the program.
#[test]
#[ignore = "needs cc"]
fn streams_on_connections_are_opened_again() {
    says_the_same(MOVED, "streams", 5);
}

/// Regression: they bypassed the library.
#[test]
#[ignore = "needs cc"]
fn alias_names_of_functions_are_replaced() {
    says_the_same(MOVED, "names", 1);
}
