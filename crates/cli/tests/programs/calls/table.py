"""Walks the table of socket options, whose page is the argument. It sets and reads each, with right and wrong values and
lengths, on sockets in each state. The output is the same on a node and over the kernel, except for the options that the
table lists as refused on a node."""

import re
import socket
import struct
import sys

from said import said, show

LEVELS = {"SOL_SOCKET": 1, "IPPROTO_IP": 0, "IPPROTO_IPV6": 41, "IPPROTO_TCP": 6}
# The node sets these values itself, or they change from one moment to the next: only the length has to match.
VAGUE = """SO_SNDBUF SO_RCVBUF SO_SNDBUFFORCE SO_RCVBUFFORCE SO_INCOMING_CPU SO_INCOMING_NAPI_ID SO_COOKIE SO_MEMINFO
SO_PEERNAME SO_NETNS_COOKIE IP_MTU IPV6_MTU IPV6_PATHMTU TCP_MAXSEG TCP_WINDOW_CLAMP TCP_INFO TCP_CC_INFO TCP_TIMESTAMP
SO_BPF_EXTENSIONS SO_RCVLOWAT IP_PROTOCOL IP_MULTICAST_TTL IPV6_MULTICAST_HOPS IPV6_MULTICAST_IF""".split()
# These describe the connection, and not a value that was set.
ODD = "TCP_CC_INFO TCP_ZEROCOPY_RECEIVE TCP_REPAIR_WINDOW IPV6_ADDRFORM IP_PKTOPTIONS IPV6_2292PKTOPTIONS SO_PEERPIDFD".split()
NODE = sys.argv[2] == "node"
INTEGERS = [0, 1, 2, 3, 5, 60, 127, 128, 255, 256, 1000, 40000, -1, -2]
LENGTHS = [0, 1, 2, 3, 8, 12, 16, 32]


def table(page):
    level = None
    with open(page) as file:
        for line in file:
            if line.startswith("## "):
                level = LEVELS[line[3:].strip()]
            elif found := re.match(r"\| `(\w+)` \| (\d+) \| ([\w']+)(?:, `(\w+)`)?", line):
                name, number, fate, refusal = found.groups()
                yield level, int(number), name, fate, refusal


def values():
    for value in INTEGERS:
        yield struct.pack("i", value)
    for length in LENGTHS:
        yield bytes(length)
        yield bytes([1]) * length


def connection(listener):
    one = socket.socket(listener.family)
    one.connect(listener.getsockname())
    return one


class Sockets:
    """One socket in each state."""

    def __init__(self, host):
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listening = socket.create_server((host, 0), family=self.family)
        self.connected = connection(self.listening)
        self.accepted = self.listening.accept()[0]
        self.new = socket.socket(self.family)

    def all(self):
        for state in ("new", "listening", "connected", "accepted"):
            yield state, getattr(self, state)

    def close(self):
        for _, one in self.all():
            one.close()


def asked(one, level, number, name):
    """The value, and its length for the given room."""
    if name in ODD:
        return ()
    whole = said(one.getsockopt, level, number, 512)
    if isinstance(whole, str):
        return (whole,)
    lengths = [len(said(one.getsockopt, level, number, room)) for room in (1, 3, 4, 8, 64)]
    return (None if name in VAGUE else whole.hex(), len(whole), lengths)


def walk(host):
    for level, number, name, fate, refusal in table(sys.argv[1]):
        if name == "SO_TIMESTAMPING" or name == "SO_TIMESTAMPING_NEW":
            taken = [struct.pack("I", flags) for flags in (0, 8, 16, 24, 4, 64, 1 << 30)]
        elif name in ("SO_DEVMEM_DONTNEED", "TCP_CONGESTION", "SO_ATTACH_FILTER", "SO_ATTACH_BPF"):
            taken = [b"", b"\1"]
        else:
            taken = values()
        sockets = Sockets(host)
        for state, one in sockets.all():
            show(host, name, state, *asked(one, level, number, name))
        for value in taken:
            for state, one in sockets.all():
                done = said(one.setsockopt, level, number, value)
                told = asked(one, level, number, name)
                if fate == "refused":
                    # A node supports the value 0 only.
                    assert NODE is False or done == refusal or name == "SO_ZEROCOPY", (name, state, value, done)
                    continue
                if fate == "kernel's":
                    # The option has no effect on a node. Before the socket connects or listens, the kernel's result may be any.
                    is_set = any(value[:1] if name == "SO_BINDTODEVICE" else value) and len(value) >= 4
                    assert NODE is False or state == "new" or done or not is_set, (name, state, value)
                    continue
                show(host, name, state, value.hex(), done, told)
        sockets.close()


def inherited(host):
    """What a connection inherits from its listener."""
    for level, number, name, fate, refusal in table(sys.argv[1]):
        if fate not in ("effect", "kept") or name in ODD + ["TCP_CONGESTION", "TCP_DEFER_ACCEPT"]:
            continue
        for value in (8, 16, 24) if "STAMPING" in name else (1, 3, 60):
            listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            done = said(listener.setsockopt, level, number, value)
            listener.bind((host, 0))
            listener.listen()
            with connection(listener) as client, listener.accept()[0] as server:
                show(host, name, value, done, asked(server, level, number, name))
            listener.close()


for host in ("127.0.0.1", "::1"):
    walk(host)
    inherited(host)
