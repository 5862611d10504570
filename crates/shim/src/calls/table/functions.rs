//! Functions of libc without a system call of their own.

use super::WALK;

/// Functions, why they are stood in for, and tests.
pub(in crate::calls) const OTHER_FUNCTIONS: &[(&str, &str, &str)] = &[
    (
        "getifaddrs freeifaddrs",
        "The addresses of the node are those of an interface `toe0`, for servers that listen at the address of each interface. The kernel lists interfaces by ioctl(2) and netlink(7) without it.",
        "interfaces_have_addresses_of_node",
    ),
    (
        "aio_read aio_read64 aio_write aio_write64 lio_listio lio_listio64",
        "Threads of libc read and write by calls of its own: the connection is handed over.",
        "connections_are_used_by_asynchronous_io",
    ),
    (
        "dprintf __dprintf_chk vdprintf __vdprintf_chk fdopen _IO_fdopen fclose _IO_fclose",
        "Streams of libc read and write by calls of its own: one that is a connection's goes by the library.",
        "c_programs_read_and_write_streams_of_connections",
    ),
    (
        "getaddrinfo gethostbyname gethostbyname2 gethostbyname_r gethostbyname2_r",
        "Nodes are found by name. What libc asks name servers itself, it asks by sockets of its own, which are the kernel's.",
        "resolved_host_has_requested_name",
    ),
    (
        "posix_spawn_file_actions_init posix_spawn_file_actions_destroy posix_spawn_file_actions_adddup2",
        "What a child is to have as which number is known before it begins.",
        "started_programs_write_to_connection",
    ),
    (
        "pthread_create pthread_cancel",
        "A thread has its calls dispatched, and is not cancelled in the middle of the stack.",
        "threads_are_cancelled_in_blocking_calls calls_of_older_threads_are_dispatched",
    ),
    (
        "dlopen",
        "A library that is bound to libc first (RTLD_DEEPBIND) would have libc's functions.",
        "libraries_bound_to_libc_first_have_connections",
    ),
    ("syscall", "Calls by number are those of the table above.", WALK),
];
