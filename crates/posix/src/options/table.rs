//! The treatment of each option of the levels that TCP sockets have. This table
//! alone decides.
//!
//! Numbers and names are those of Linux 6.18. `docs/socket-options.md` is
//! generated from this table.

use core::ffi::c_int;

use Fate::{Effect, Foreign, Kept, Kernels, Read, Refused};
use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};

/// Treatment of an option that a program sets on a node's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The option has its usual effect.
    Effect,
    /// The value is checked, kept and reported, but has nothing to change on a
    /// node.
    Kept,
    /// The option can be read but not set.
    Read,
    /// The option does not apply to TCP sockets. The kernel refuses it with its
    /// own error.
    Foreign,
    /// Only the kernel can provide the option. A socket that sets it before
    /// `connect` or `listen` stays with the kernel. A node's socket refuses it with
    /// this error.
    Kernels(c_int),
    /// Every socket that is or may become a node's refuses the option with this
    /// error, like a kernel that lacks it.
    Refused(c_int),
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The level of the option.
    pub level: c_int,
    /// The number of the option.
    pub number: c_int,
    /// The name of the option.
    pub name: &'static str,
    /// The treatment.
    pub fate: Fate,
    /// The reason, if it needs an explanation.
    pub why: &'static str,
    /// The test that shows the effect, beside the one that walks the table.
    pub test: &'static str,
}

/// The test that walks the table.
pub const WALK: &str = "every_option_matches_its_table";

/// Returns the treatment of an option. One that is not in the table is refused:
/// its effect is unknown.
pub fn fate(level: c_int, number: c_int) -> Fate {
    let is_it = |entry: &&Entry| (entry.level, entry.number) == (level, number);
    match TABLE.iter().find(is_it) {
        Some(entry) => entry.fate,
        None => Kernels(libc::ENOPROTOOPT),
    }
}

const fn entry(
    level: c_int,
    number: c_int,
    name: &'static str,
    fate: Fate,
    why: &'static str,
    test: &'static str,
) -> Entry {
    Entry {
        level,
        number,
        name,
        fate,
        why,
        test,
    }
}

/// All options, by level and number.
#[rustfmt::skip]
pub const TABLE: &[Entry] = &[
    entry(SOL_SOCKET, 1, "SO_DEBUG", Kept, "the stack has no such log", ""),
    entry(SOL_SOCKET, 2, "SO_REUSEADDR", Effect, "", ""),
    entry(SOL_SOCKET, 3, "SO_TYPE", Read, "", ""),
    entry(SOL_SOCKET, 4, "SO_ERROR", Read, "", ""),
    entry(SOL_SOCKET, 5, "SO_DONTROUTE", Kept, "the members of a fabric are one hop away", ""),
    entry(SOL_SOCKET, 6, "SO_BROADCAST", Kept, "of datagrams", ""),
    entry(SOL_SOCKET, 7, "SO_SNDBUF", Effect, "", ""),
    entry(SOL_SOCKET, 8, "SO_RCVBUF", Effect, "", ""),
    entry(SOL_SOCKET, 9, "SO_KEEPALIVE", Effect, "", ""),
    entry(SOL_SOCKET, 10, "SO_OOBINLINE", Effect, "", ""),
    entry(SOL_SOCKET, 11, "SO_NO_CHECK", Kept, "of datagrams", ""),
    entry(SOL_SOCKET, 12, "SO_PRIORITY", Kept, "links have one queue", ""),
    entry(SOL_SOCKET, 13, "SO_LINGER", Effect, "", ""),
    entry(SOL_SOCKET, 14, "SO_BSDCOMPAT", Kept, "of datagrams, long ago", ""),
    entry(SOL_SOCKET, 15, "SO_REUSEPORT", Effect, "", ""),
    entry(SOL_SOCKET, 16, "SO_PASSCRED", Foreign, "of Unix sockets", ""),
    entry(SOL_SOCKET, 17, "SO_PEERCRED", Read, "", ""),
    entry(SOL_SOCKET, 18, "SO_RCVLOWAT", Effect, "", ""),
    entry(SOL_SOCKET, 19, "SO_SNDLOWAT", Read, "", ""),
    entry(SOL_SOCKET, 20, "SO_RCVTIMEO", Effect, "", ""),
    entry(SOL_SOCKET, 21, "SO_SNDTIMEO", Effect, "", ""),
    entry(SOL_SOCKET, 22, "SO_SECURITY_AUTHENTICATION", Foreign, "", ""),
    entry(SOL_SOCKET, 23, "SO_SECURITY_ENCRYPTION_TRANSPORT", Foreign, "", ""),
    entry(SOL_SOCKET, 24, "SO_SECURITY_ENCRYPTION_NETWORK", Foreign, "", ""),
    entry(SOL_SOCKET, 25, "SO_BINDTODEVICE", Kernels(libc::EPERM), "nodes have no devices", ""),
    entry(SOL_SOCKET, 26, "SO_ATTACH_FILTER", Kernels(libc::ENOPROTOOPT), "segments pass no filter", ""),
    entry(SOL_SOCKET, 27, "SO_DETACH_FILTER", Foreign, "there is none", ""),
    entry(SOL_SOCKET, 28, "SO_PEERNAME", Read, "", ""),
    entry(SOL_SOCKET, 29, "SO_TIMESTAMP", Effect, "", "received_data_are_stamped"),
    entry(SOL_SOCKET, 30, "SO_ACCEPTCONN", Read, "", ""),
    entry(SOL_SOCKET, 31, "SO_PEERSEC", Read, "", ""),
    entry(SOL_SOCKET, 32, "SO_SNDBUFFORCE", Effect, "", "forced_buffer_holds_requested_bytes"),
    entry(SOL_SOCKET, 33, "SO_RCVBUFFORCE", Effect, "", "forced_buffer_holds_requested_bytes"),
    entry(SOL_SOCKET, 34, "SO_PASSSEC", Foreign, "of Unix sockets", ""),
    entry(SOL_SOCKET, 35, "SO_TIMESTAMPNS", Effect, "", "received_data_are_stamped"),
    entry(SOL_SOCKET, 36, "SO_MARK", Kept, "nodes have neither rules of routing nor a firewall", ""),
    entry(SOL_SOCKET, 37, "SO_TIMESTAMPING", Effect, "stamps of what is received; flags that ask for stamps of what is sent are refused with EINVAL", "received_data_are_stamped"),
    entry(SOL_SOCKET, 38, "SO_PROTOCOL", Read, "", ""),
    entry(SOL_SOCKET, 39, "SO_DOMAIN", Read, "", ""),
    entry(SOL_SOCKET, 40, "SO_RXQ_OVFL", Kept, "of datagrams", ""),
    entry(SOL_SOCKET, 41, "SO_WIFI_STATUS", Kept, "of wireless links", ""),
    entry(SOL_SOCKET, 42, "SO_PEEK_OFF", Effect, "", ""),
    entry(SOL_SOCKET, 43, "SO_NOFCS", Kept, "of raw frames", ""),
    entry(SOL_SOCKET, 44, "SO_LOCK_FILTER", Effect, "", ""),
    entry(SOL_SOCKET, 45, "SO_SELECT_ERR_QUEUE", Kept, "the error queue stays empty", ""),
    entry(SOL_SOCKET, 46, "SO_BUSY_POLL", Kept, "a hint; nodes have a setting of their own", ""),
    entry(SOL_SOCKET, 47, "SO_MAX_PACING_RATE", Effect, "", "pacing_rate_is_not_exceeded"),
    entry(SOL_SOCKET, 48, "SO_BPF_EXTENSIONS", Read, "", ""),
    entry(SOL_SOCKET, 49, "SO_INCOMING_CPU", Kept, "a hint", ""),
    entry(SOL_SOCKET, 50, "SO_ATTACH_BPF", Kernels(libc::ENOPROTOOPT), "segments pass no filter", ""),
    entry(SOL_SOCKET, 51, "SO_ATTACH_REUSEPORT_CBPF", Refused(libc::ENOPROTOOPT), "the stack chooses by the flow", "bpf_programs_for_listener_choice_are_refused"),
    entry(SOL_SOCKET, 52, "SO_ATTACH_REUSEPORT_EBPF", Refused(libc::ENOPROTOOPT), "the stack chooses by the flow", "bpf_programs_for_listener_choice_are_refused"),
    entry(SOL_SOCKET, 53, "SO_CNX_ADVICE", Kept, "a hint; there is one path", ""),
    entry(SOL_SOCKET, 54, "SCM_TIMESTAMPING_OPT_STATS", Foreign, "a control message", ""),
    entry(SOL_SOCKET, 55, "SO_MEMINFO", Read, "", ""),
    entry(SOL_SOCKET, 56, "SO_INCOMING_NAPI_ID", Read, "", ""),
    entry(SOL_SOCKET, 57, "SO_COOKIE", Read, "", ""),
    entry(SOL_SOCKET, 58, "SCM_TIMESTAMPING_PKTINFO", Foreign, "a control message", ""),
    entry(SOL_SOCKET, 59, "SO_PEERGROUPS", Read, "", ""),
    entry(SOL_SOCKET, 60, "SO_ZEROCOPY", Refused(libc::EOPNOTSUPP), "nodes copy what is sent", ""),
    entry(SOL_SOCKET, 61, "SO_TXTIME", Kept, "of datagrams", ""),
    entry(SOL_SOCKET, 62, "SO_BINDTOIFINDEX", Kernels(libc::EPERM), "nodes have no devices", ""),
    entry(SOL_SOCKET, 63, "SO_TIMESTAMP_NEW", Effect, "", "received_data_are_stamped"),
    entry(SOL_SOCKET, 64, "SO_TIMESTAMPNS_NEW", Effect, "", "received_data_are_stamped"),
    entry(SOL_SOCKET, 65, "SO_TIMESTAMPING_NEW", Effect, "as SO_TIMESTAMPING", "received_data_are_stamped"),
    entry(SOL_SOCKET, 66, "SO_RCVTIMEO_NEW", Effect, "", ""),
    entry(SOL_SOCKET, 67, "SO_SNDTIMEO_NEW", Effect, "", ""),
    entry(SOL_SOCKET, 68, "SO_DETACH_REUSEPORT_BPF", Foreign, "there is none", ""),
    entry(SOL_SOCKET, 69, "SO_PREFER_BUSY_POLL", Kept, "a hint", ""),
    entry(SOL_SOCKET, 70, "SO_BUSY_POLL_BUDGET", Kept, "a hint", ""),
    entry(SOL_SOCKET, 71, "SO_NETNS_COOKIE", Read, "", ""),
    entry(SOL_SOCKET, 72, "SO_BUF_LOCK", Effect, "", ""),
    entry(SOL_SOCKET, 73, "SO_RESERVE_MEM", Kernels(libc::EOPNOTSUPP), "payload memory is the node's", ""),
    entry(SOL_SOCKET, 74, "SO_TXREHASH", Kept, "flows have one path", ""),
    entry(SOL_SOCKET, 75, "SO_RCVMARK", Kept, "of datagrams", ""),
    entry(SOL_SOCKET, 76, "SO_PASSPIDFD", Foreign, "of Unix sockets", ""),
    entry(SOL_SOCKET, 77, "SO_PEERPIDFD", Read, "", ""),
    entry(SOL_SOCKET, 78, "SO_DEVMEM_LINEAR", Foreign, "", ""),
    entry(SOL_SOCKET, 79, "SO_DEVMEM_DMABUF", Foreign, "", ""),
    entry(SOL_SOCKET, 80, "SO_DEVMEM_DONTNEED", Foreign, "no memory of a device is lent", ""),
    entry(SOL_SOCKET, 81, "SCM_TS_OPT_ID", Foreign, "a control message", ""),
    entry(SOL_SOCKET, 82, "SO_RCVPRIORITY", Kept, "of datagrams", ""),
    entry(SOL_SOCKET, 83, "SO_PASSRIGHTS", Foreign, "of Unix sockets", ""),
    entry(SOL_SOCKET, 84, "SO_INQ", Foreign, "of Unix sockets", ""),
    entry(IPPROTO_IP, 1, "IP_TOS", Effect, "", "traffic_classes_of_families_are_separate"),
    entry(IPPROTO_IP, 2, "IP_TTL", Effect, "", "hop_limit_follows_option"),
    entry(IPPROTO_IP, 3, "IP_HDRINCL", Foreign, "of raw sockets", ""),
    entry(IPPROTO_IP, 4, "IP_OPTIONS", Kernels(libc::ENOPROTOOPT), "packets have no options", ""),
    entry(IPPROTO_IP, 5, "IP_ROUTER_ALERT", Foreign, "of raw sockets", ""),
    entry(IPPROTO_IP, 6, "IP_RECVOPTS", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 7, "IP_RETOPTS", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 8, "IP_PKTINFO", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 9, "IP_PKTOPTIONS", Read, "", ""),
    entry(IPPROTO_IP, 10, "IP_MTU_DISCOVER", Kept, "the MTU of a path is always discovered", ""),
    entry(IPPROTO_IP, 11, "IP_RECVERR", Effect, "", "soft_error_is_reported_if_enabled"),
    entry(IPPROTO_IP, 12, "IP_RECVTTL", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 13, "IP_RECVTOS", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 14, "IP_MTU", Read, "", ""),
    entry(IPPROTO_IP, 15, "IP_FREEBIND", Kept, "of the socket before it is connected", ""),
    entry(IPPROTO_IP, 16, "IP_IPSEC_POLICY", Kernels(libc::ENOPROTOOPT), "no policy is enforced", ""),
    entry(IPPROTO_IP, 17, "IP_XFRM_POLICY", Kernels(libc::ENOPROTOOPT), "no policy is enforced", ""),
    entry(IPPROTO_IP, 18, "IP_PASSSEC", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 19, "IP_TRANSPARENT", Kernels(libc::ENOPROTOOPT), "nodes have the addresses that they have", ""),
    entry(IPPROTO_IP, 20, "IP_RECVORIGDSTADDR", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 21, "IP_MINTTL", Effect, "", "hop_limit_follows_option"),
    entry(IPPROTO_IP, 22, "IP_NODEFRAG", Foreign, "of raw sockets", ""),
    entry(IPPROTO_IP, 23, "IP_CHECKSUM", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 24, "IP_BIND_ADDRESS_NO_PORT", Effect, "", ""),
    entry(IPPROTO_IP, 25, "IP_RECVFRAGSIZE", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 26, "IP_RECVERR_RFC4884", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 32, "IP_MULTICAST_IF", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 33, "IP_MULTICAST_TTL", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 34, "IP_MULTICAST_LOOP", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 35, "IP_ADD_MEMBERSHIP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 36, "IP_DROP_MEMBERSHIP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 37, "IP_UNBLOCK_SOURCE", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 38, "IP_BLOCK_SOURCE", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 39, "IP_ADD_SOURCE_MEMBERSHIP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 40, "IP_DROP_SOURCE_MEMBERSHIP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 41, "IP_MSFILTER", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 42, "MCAST_JOIN_GROUP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 43, "MCAST_BLOCK_SOURCE", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 44, "MCAST_UNBLOCK_SOURCE", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 45, "MCAST_LEAVE_GROUP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 46, "MCAST_JOIN_SOURCE_GROUP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 47, "MCAST_LEAVE_SOURCE_GROUP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 48, "MCAST_MSFILTER", Foreign, "of datagrams", ""),
    entry(IPPROTO_IP, 49, "IP_MULTICAST_ALL", Kept, "of datagrams", ""),
    entry(IPPROTO_IP, 50, "IP_UNICAST_IF", Kernels(libc::ENOPROTOOPT), "nodes have no devices", ""),
    entry(IPPROTO_IP, 51, "IP_LOCAL_PORT_RANGE", Effect, "", ""),
    entry(IPPROTO_IP, 52, "IP_PROTOCOL", Read, "the port", ""),
    entry(IPPROTO_IPV6, 1, "IPV6_ADDRFORM", Refused(libc::ENOPROTOOPT), "a socket keeps its family", ""),
    entry(IPPROTO_IPV6, 2, "IPV6_2292PKTINFO", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 3, "IPV6_2292HOPOPTS", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 4, "IPV6_2292DSTOPTS", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 5, "IPV6_2292RTHDR", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 6, "IPV6_2292PKTOPTIONS", Kernels(libc::ENOPROTOOPT), "packets have no extension headers", ""),
    entry(IPPROTO_IPV6, 7, "IPV6_CHECKSUM", Foreign, "of raw sockets", ""),
    entry(IPPROTO_IPV6, 8, "IPV6_2292HOPLIMIT", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 9, "IPV6_NEXTHOP", Foreign, "", ""),
    entry(IPPROTO_IPV6, 10, "IPV6_AUTHHDR", Foreign, "", ""),
    entry(IPPROTO_IPV6, 11, "IPV6_FLOWINFO", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 16, "IPV6_UNICAST_HOPS", Effect, "", "hop_limit_follows_option"),
    entry(IPPROTO_IPV6, 17, "IPV6_MULTICAST_IF", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 18, "IPV6_MULTICAST_HOPS", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 19, "IPV6_MULTICAST_LOOP", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 20, "IPV6_ADD_MEMBERSHIP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IPV6, 21, "IPV6_DROP_MEMBERSHIP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IPV6, 22, "IPV6_ROUTER_ALERT", Foreign, "of raw sockets", ""),
    entry(IPPROTO_IPV6, 23, "IPV6_MTU_DISCOVER", Kept, "the MTU of a path is always discovered", ""),
    entry(IPPROTO_IPV6, 24, "IPV6_MTU", Kept, "of datagrams; reports the MTU of the path", ""),
    entry(IPPROTO_IPV6, 25, "IPV6_RECVERR", Effect, "", "soft_error_is_reported_if_enabled"),
    entry(IPPROTO_IPV6, 26, "IPV6_V6ONLY", Effect, "", ""),
    entry(IPPROTO_IPV6, 27, "IPV6_JOIN_ANYCAST", Foreign, "of datagrams", ""),
    entry(IPPROTO_IPV6, 28, "IPV6_LEAVE_ANYCAST", Foreign, "of datagrams", ""),
    entry(IPPROTO_IPV6, 29, "IPV6_MULTICAST_ALL", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 30, "IPV6_ROUTER_ALERT_ISOLATE", Kept, "of raw sockets", ""),
    entry(IPPROTO_IPV6, 31, "IPV6_RECVERR_RFC4884", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 32, "IPV6_FLOWLABEL_MGR", Kernels(libc::ENOPROTOOPT), "packets have no flow label", ""),
    entry(IPPROTO_IPV6, 33, "IPV6_FLOWINFO_SEND", Kernels(libc::ENOPROTOOPT), "packets have no flow label", ""),
    entry(IPPROTO_IPV6, 34, "IPV6_IPSEC_POLICY", Kernels(libc::ENOPROTOOPT), "no policy is enforced", ""),
    entry(IPPROTO_IPV6, 35, "IPV6_XFRM_POLICY", Kernels(libc::ENOPROTOOPT), "no policy is enforced", ""),
    entry(IPPROTO_IPV6, 36, "IPV6_HDRINCL", Foreign, "of raw sockets", ""),
    entry(IPPROTO_IPV6, 42, "MCAST_JOIN_GROUP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IPV6, 43, "MCAST_BLOCK_SOURCE", Foreign, "of datagrams", ""),
    entry(IPPROTO_IPV6, 44, "MCAST_UNBLOCK_SOURCE", Foreign, "of datagrams", ""),
    entry(IPPROTO_IPV6, 45, "MCAST_LEAVE_GROUP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IPV6, 46, "MCAST_JOIN_SOURCE_GROUP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IPV6, 47, "MCAST_LEAVE_SOURCE_GROUP", Foreign, "of datagrams", ""),
    entry(IPPROTO_IPV6, 48, "MCAST_MSFILTER", Foreign, "of datagrams", ""),
    entry(IPPROTO_IPV6, 49, "IPV6_RECVPKTINFO", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 50, "IPV6_PKTINFO", Kernels(libc::ENOPROTOOPT), "nodes have no devices", ""),
    entry(IPPROTO_IPV6, 51, "IPV6_RECVHOPLIMIT", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 52, "IPV6_HOPLIMIT", Foreign, "a control message", ""),
    entry(IPPROTO_IPV6, 53, "IPV6_RECVHOPOPTS", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 54, "IPV6_HOPOPTS", Kernels(libc::ENOPROTOOPT), "packets have no extension headers", ""),
    entry(IPPROTO_IPV6, 55, "IPV6_RTHDRDSTOPTS", Kernels(libc::ENOPROTOOPT), "packets have no extension headers", ""),
    entry(IPPROTO_IPV6, 56, "IPV6_RECVRTHDR", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 57, "IPV6_RTHDR", Kernels(libc::ENOPROTOOPT), "packets have no extension headers", ""),
    entry(IPPROTO_IPV6, 58, "IPV6_RECVDSTOPTS", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 59, "IPV6_DSTOPTS", Kernels(libc::ENOPROTOOPT), "packets have no extension headers", ""),
    entry(IPPROTO_IPV6, 60, "IPV6_RECVPATHMTU", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 61, "IPV6_PATHMTU", Read, "", ""),
    entry(IPPROTO_IPV6, 62, "IPV6_DONTFRAG", Kept, "segments are never fragmented", ""),
    entry(IPPROTO_IPV6, 63, "IPV6_USE_MIN_MTU", Foreign, "", ""),
    entry(IPPROTO_IPV6, 66, "IPV6_RECVTCLASS", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 67, "IPV6_TCLASS", Effect, "", "traffic_classes_of_families_are_separate"),
    entry(IPPROTO_IPV6, 70, "IPV6_AUTOFLOWLABEL", Kept, "packets have no flow label", ""),
    entry(IPPROTO_IPV6, 72, "IPV6_ADDR_PREFERENCES", Kept, "a node has one address of a kind", ""),
    entry(IPPROTO_IPV6, 73, "IPV6_MINHOPCOUNT", Effect, "", "hop_limit_follows_option"),
    entry(IPPROTO_IPV6, 74, "IPV6_ORIGDSTADDR", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 75, "IPV6_TRANSPARENT", Kernels(libc::ENOPROTOOPT), "nodes have the addresses that they have", ""),
    entry(IPPROTO_IPV6, 76, "IPV6_UNICAST_IF", Kernels(libc::ENOPROTOOPT), "nodes have no devices", ""),
    entry(IPPROTO_IPV6, 77, "IPV6_RECVFRAGSIZE", Kept, "of datagrams", ""),
    entry(IPPROTO_IPV6, 78, "IPV6_FREEBIND", Kept, "of the socket before it is connected", ""),
    entry(IPPROTO_TCP, 1, "TCP_NODELAY", Effect, "", ""),
    entry(IPPROTO_TCP, 2, "TCP_MAXSEG", Effect, "", ""),
    entry(IPPROTO_TCP, 3, "TCP_CORK", Effect, "", ""),
    entry(IPPROTO_TCP, 4, "TCP_KEEPIDLE", Effect, "", ""),
    entry(IPPROTO_TCP, 5, "TCP_KEEPINTVL", Effect, "", ""),
    entry(IPPROTO_TCP, 6, "TCP_KEEPCNT", Effect, "", ""),
    entry(IPPROTO_TCP, 7, "TCP_SYNCNT", Effect, "", "syn_retransmissions_follow_option"),
    entry(IPPROTO_TCP, 8, "TCP_LINGER2", Effect, "", "fin_wait_2_duration_follows_option"),
    entry(IPPROTO_TCP, 9, "TCP_DEFER_ACCEPT", Effect, "", ""),
    entry(IPPROTO_TCP, 10, "TCP_WINDOW_CLAMP", Effect, "", "advertised_window_is_within_clamp"),
    entry(IPPROTO_TCP, 11, "TCP_INFO", Read, "", "tcp_info_has_all_fields_of_kernel"),
    entry(IPPROTO_TCP, 12, "TCP_QUICKACK", Effect, "", ""),
    entry(IPPROTO_TCP, 13, "TCP_CONGESTION", Effect, "CUBIC and Reno; of another one nothing but its name", ""),
    entry(IPPROTO_TCP, 14, "TCP_MD5SIG", Kernels(libc::ENOPROTOOPT), "segments are not signed", ""),
    entry(IPPROTO_TCP, 16, "TCP_THIN_LINEAR_TIMEOUTS", Effect, "", "timeouts_are_within_bounds_of_option"),
    entry(IPPROTO_TCP, 17, "TCP_THIN_DUPACK", Kept, "Linux takes no notice of it, either", ""),
    entry(IPPROTO_TCP, 18, "TCP_USER_TIMEOUT", Effect, "", ""),
    entry(IPPROTO_TCP, 19, "TCP_REPAIR", Kernels(libc::ENOPROTOOPT), "connections are not moved", ""),
    entry(IPPROTO_TCP, 20, "TCP_REPAIR_QUEUE", Foreign, "connections are not moved", ""),
    entry(IPPROTO_TCP, 21, "TCP_QUEUE_SEQ", Foreign, "connections are not moved", ""),
    entry(IPPROTO_TCP, 22, "TCP_REPAIR_OPTIONS", Foreign, "connections are not moved", ""),
    entry(IPPROTO_TCP, 23, "TCP_FASTOPEN", Effect, "", ""),
    entry(IPPROTO_TCP, 24, "TCP_TIMESTAMP", Foreign, "connections are not moved", ""),
    entry(IPPROTO_TCP, 25, "TCP_NOTSENT_LOWAT", Effect, "", ""),
    entry(IPPROTO_TCP, 26, "TCP_CC_INFO", Read, "", ""),
    entry(IPPROTO_TCP, 27, "TCP_SAVE_SYN", Kernels(libc::ENOPROTOOPT), "no SYN is kept", ""),
    entry(IPPROTO_TCP, 28, "TCP_SAVED_SYN", Read, "", ""),
    entry(IPPROTO_TCP, 29, "TCP_REPAIR_WINDOW", Foreign, "connections are not moved", ""),
    entry(IPPROTO_TCP, 30, "TCP_FASTOPEN_CONNECT", Effect, "", "first_bytes_with_known_cookie_travel_with_syn"),
    entry(IPPROTO_TCP, 31, "TCP_ULP", Kernels(libc::ENOENT), "a node has none of the kernel's protocols above TCP", ""),
    entry(IPPROTO_TCP, 32, "TCP_MD5SIG_EXT", Kernels(libc::ENOPROTOOPT), "segments are not signed", ""),
    entry(IPPROTO_TCP, 33, "TCP_FASTOPEN_KEY", Kernels(libc::ENOPROTOOPT), "cookies are made with the node's key", ""),
    entry(IPPROTO_TCP, 34, "TCP_FASTOPEN_NO_COOKIE", Effect, "", "first_bytes_with_known_cookie_travel_with_syn"),
    entry(IPPROTO_TCP, 35, "TCP_ZEROCOPY_RECEIVE", Read, "refused: no pages are given away", ""),
    entry(IPPROTO_TCP, 36, "TCP_INQ", Effect, "", ""),
    entry(IPPROTO_TCP, 37, "TCP_TX_DELAY", Kernels(libc::ENOPROTOOPT), "links do not delay", ""),
    entry(IPPROTO_TCP, 38, "TCP_AO_ADD_KEY", Kernels(libc::ENOPROTOOPT), "segments are not signed", ""),
    entry(IPPROTO_TCP, 39, "TCP_AO_DEL_KEY", Kernels(libc::ENOPROTOOPT), "segments are not signed", ""),
    entry(IPPROTO_TCP, 40, "TCP_AO_INFO", Kernels(libc::ENOPROTOOPT), "segments are not signed", ""),
    entry(IPPROTO_TCP, 41, "TCP_AO_GET_KEYS", Read, "", ""),
    entry(IPPROTO_TCP, 42, "TCP_AO_REPAIR", Kernels(libc::ENOPROTOOPT), "segments are not signed", ""),
    entry(IPPROTO_TCP, 43, "TCP_IS_MPTCP", Read, "", ""),
    entry(IPPROTO_TCP, 44, "TCP_RTO_MAX_MS", Effect, "", "timeouts_are_within_bounds_of_option"),
    entry(IPPROTO_TCP, 45, "TCP_RTO_MIN_US", Effect, "", "timeouts_are_within_bounds_of_option"),
    entry(IPPROTO_TCP, 46, "TCP_DELACK_MAX_US", Effect, "", "timeouts_are_within_bounds_of_option"),
];

/// Returns the page of the documentation that the table generates.
pub fn page() -> String {
    let mut page = String::from(HEAD);
    for (level, title) in LEVELS {
        page +=
            &format!("\n## {title}\n\n| option | number | on a node | test |\n| --- | --- | --- | --- |\n");
        for entry in TABLE.iter().filter(|entry| entry.level == level) {
            page += &row(entry);
        }
    }
    page
}

const LEVELS: [(c_int, &str); 4] = [
    (SOL_SOCKET, "SOL_SOCKET"),
    (IPPROTO_IP, "IPPROTO_IP"),
    (IPPROTO_IPV6, "IPPROTO_IPV6"),
    (IPPROTO_TCP, "IPPROTO_TCP"),
];

const HEAD: &str = "# Socket options

This page is generated from the table in `crates/posix/src/options/table.rs`, which the library uses. A test compares the
two. Before `connect` or `listen` a socket is the kernel's, which checks and keeps its options. The node's socket then
takes them over. This page tells what happens to an option then, and to one that a program sets on a connection.

| word | meaning |
| --- | --- |
| effect | The option has its usual effect. |
| kept | The kernel checks the option, and its value is reported as set. It has nothing to change on a node. |
| read | The option can be read but not set. |
| foreign | The option does not apply to TCP sockets. The kernel refuses it with its own error. |
| kernel's | A socket that sets the option before `connect` or `listen` stays with the kernel. A connection or a listener of the node refuses it with the error. |
| refused | Every socket that is or may become the node's refuses the option with the error. |

The kernel refuses an unlisted option with `ENOPROTOOPT`. `every_option_matches_its_table` tests each option. Where
another test shows the effect, the table names it.
";

fn row(entry: &Entry) -> String {
    let fate = match entry.fate {
        Effect => "effect".to_owned(),
        Kept => "kept".to_owned(),
        Read => "read".to_owned(),
        Foreign => "foreign".to_owned(),
        Kernels(errno) => format!("kernel's, `{}`", name_of(errno)),
        Refused(errno) => format!("refused, `{}`", name_of(errno)),
    };
    let why = match entry.why {
        "" => String::new(),
        why => format!(": {why}"),
    };
    let test = match entry.test {
        "" => String::new(),
        test => format!("`{test}`"),
    };
    format!("| `{}` | {} | {fate}{why} | {test} |\n", entry.name, entry.number)
}

fn name_of(errno: c_int) -> &'static str {
    match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        _ => "ENOPROTOOPT",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// With `TOEHOLD_WRITE_DOCS` in the environment the test writes the page.
    #[test]
    fn page_of_options_matches_table() {
        let path = root().join("docs/socket-options.md");
        if std::env::var_os("TOEHOLD_WRITE_DOCS").is_some() {
            fs::write(&path, page()).unwrap();
        }
        assert_eq!(fs::read_to_string(path).unwrap(), page());
    }

    #[test]
    fn options_of_table_are_unique() {
        let mut seen = HashSet::new();
        for entry in TABLE {
            assert!(seen.insert((entry.level, entry.number)), "{}", entry.name);
        }
        assert!(TABLE.is_sorted_by_key(|entry| (
            LEVELS.iter().position(|level| level.0 == entry.level),
            entry.number
        )));
    }

    #[test]
    fn tests_of_table_exist() {
        let mut sources = String::new();
        let mut folders = vec![
            root().join("crates/cli/tests"),
            root().join("crates/stack"),
            root().join("crates/sim/tests"),
        ];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    sources += &fs::read_to_string(path).unwrap();
                }
            }
        }
        let tests = TABLE
            .iter()
            .map(|entry| entry.test)
            .filter(|test| !test.is_empty());
        for test in tests.chain([WALK]) {
            assert!(sources.contains(&format!("fn {test}(")), "{test}");
        }
    }
}
