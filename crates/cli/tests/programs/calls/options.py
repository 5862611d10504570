"""Values of options that the node implements in its own way, or not at all. The output is the same on a node and over the
kernel."""

import fcntl
import socket
import struct

from said import said, show

IP_MTU, IPV6_MTU = 14, 24
IP_LOCAL_PORT_RANGE = 51
SO_PEERPIDFD, SO_PASSPIDFD, SO_PEERGROUPS = 77, 76, 59
TCP_NOTSENT_LOWAT = 25
kept = []


def three(host="127.0.0.1", prepare=lambda listener, client: None):
    """A listener, and both ends of a connection to it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener, client = socket.socket(family), socket.socket(family)
    prepare(listener, client)
    listener.bind((host, 0))
    listener.listen()
    client.connect(listener.getsockname())
    return listener, client, listener.accept()[0]


def congestion():
    def name(one):
        return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 64)

    def take(one, value):
        return said(one.setsockopt, socket.IPPROTO_TCP, socket.TCP_CONGESTION, value)

    with open("/proc/sys/net/ipv4/tcp_available_congestion_control") as file:
        names = [name.encode() for name in file.read().split()]
    show(*map(name, three()))
    for value in [*names, b"reno\0rest", b"none such", b""]:
        _, client, server = three()
        show(value, take(client, value), name(client), name(server))
        show(*map(name, three(prepare=lambda listener, client: take(listener, value))))
        show(*map(name, three(prepare=lambda listener, client: take(client, value))))


def of_listeners():
    """What an accepted connection inherits from its listener, and what it does not."""
    for option, value in (
        (socket.SO_REUSEPORT, 0),
        (socket.SO_REUSEPORT, 1),
        (socket.SO_PRIORITY, 5),
        (socket.SO_KEEPALIVE, 1),
    ):
        all = three(prepare=lambda listener, client: value and listener.setsockopt(socket.SOL_SOCKET, option, value))
        show(option, value, *(one.getsockopt(socket.SOL_SOCKET, option) for one in all))
    set_service = lambda listener, client: listener.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 16)
    show(*(one.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) for one in three(prepare=set_service)))


def of_queues():
    """Options of a listener: that it listens, how many connections wait, and how many may."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=7)
    for _ in range(4):
        told = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        show(told[0], *struct.unpack_from("II", told, 24))
        kept.append(socket.create_connection(listener.getsockname()))
        kept.append(listener.accept() if len(kept) == 3 else None)
    show(len(listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 3)))


def of_paths():
    for host, level, option in (("127.0.0.1", socket.IPPROTO_IP, IP_MTU), ("::1", socket.IPPROTO_IPV6, IPV6_MTU)):
        listener, client, server = three(host)
        show("mtu", said(listener.getsockopt, level, option), *(one.getsockopt(level, option) > 1000 for one in (client, server)))


def of_ipv6():
    for host in ("127.0.0.1", "::1"):
        _, client, server = three(host)
        for one in (client, server):
            for option in (socket.IPV6_V6ONLY, socket.IPV6_TCLASS):
                for value in (b"\1", struct.pack("i", 1)):
                    show(host, option, len(value), said(one.setsockopt, socket.IPPROTO_IPV6, option, value))
            show(said(one.getsockopt, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
    only = lambda listener, client: [
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1) for one in (listener, client)
    ]
    bind = lambda listener, client: client.bind(("::1", 0))
    for prepare in (only, bind):
        show(*(one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) for one in three("::1", prepare)))


def of_other_sockets():
    _, client, server = three()
    for one in (client, server):
        for option in (socket.SO_PASSCRED, socket.SO_PASSSEC, SO_PASSPIDFD, SO_PEERGROUPS, SO_PEERPIDFD):
            show(option, said(one.getsockopt, socket.SOL_SOCKET, option), said(one.setsockopt, socket.SOL_SOCKET, option, 1))


def too_short():
    _, client, _ = three()
    of_tcp = ["NODELAY", "CORK", "KEEPIDLE", "KEEPINTVL", "KEEPCNT", "USER_TIMEOUT", "QUICKACK", "MAXSEG", "LINGER2"]
    options = [(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}")) for name in of_tcp]
    options += [(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT)]
    of_all = ["RCVBUF", "SNDBUF", "RCVLOWAT", "KEEPALIVE", "OOBINLINE", "REUSEADDR", "REUSEPORT", "LINGER", "RCVTIMEO"]
    options += [(socket.SOL_SOCKET, getattr(socket, f"SO_{name}")) for name in of_all]
    options += [(socket.IPPROTO_IP, option) for option in (socket.IP_TOS, socket.IP_TTL)]
    for level, option in options:
        show(level, option, *(said(client.setsockopt, level, option, bytes(len)) for len in (0, 1, 3)))


def times():
    _, client, _ = three()
    for request in (0x8906, 0x8907):
        show("time", said(fcntl.ioctl, client, request, bytes(16)))


def two_free_ports(host):
    """Ports next to each other, from the range of the kernel's automatic choice."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in range(47310, 60000, 2):
        with socket.socket(family) as first, socket.socket(family) as last:
            if said(first.bind, (host, port)) is said(last.bind, (host, port + 1)) is None:
                return port, port + 1


def of_ports():
    """The local ports of connections if the program confines them, and the error when none is left."""
    for host in ("127.0.0.1", "::1"):
        first, last = two_free_ports(host)
        listener, client, _ = three(host)
        ports = []
        kept = []
        for _ in range(3):
            one = socket.socket(listener.family)
            show(said(one.setsockopt, socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("HH", first, last)))
            show(said(one.connect, listener.getsockname()))
            show(one.getsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE) == struct.unpack("i", struct.pack("HH", first, last))[0])
            kept.append(one)
            ports.append(one.getsockname()[1])
        show(sorted(port - first for port in ports[:2]))
        twice = [socket.socket(listener.family) for _ in range(2)]
        for one in twice:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            show(said(one.bind, twice[0].getsockname() if one is twice[1] else (host, 0)))
            show(said(one.connect, listener.getsockname()))


for part in (of_ports, congestion, of_listeners, of_queues, of_paths, of_ipv6, of_other_sockets, too_short, times):
    show(part.__name__)
    part()
