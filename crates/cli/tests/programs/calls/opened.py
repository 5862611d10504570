"""Connections that are opened with data (MSG_FASTOPEN), for MPTCP, or once more. The output is the same on nodes and over
the kernel. Arguments: the server's address, a port with a listener, a port without one, and the prefix of the client's
own addresses."""

import ctypes
import select
import socket
import struct
import sys

from said import said, show

HOST, PORT, NONE, OWN = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
FASTOPEN, FASTOPEN_CONNECT, MPTCP, DONTWAIT = 0x20000000, 30, 262, socket.MSG_DONTWAIT
libc = ctypes.CDLL(None, use_errno=True)
UNSPECIFIED = struct.pack("=H14x", socket.AF_UNSPEC)


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("len", ctypes.c_size_t)]


class Head(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("name_len", ctypes.c_uint),
        ("parts", ctypes.POINTER(Part)),
        ("number", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_len", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class Message(ctypes.Structure):
    _fields_ = [("head", Head), ("len", ctypes.c_uint)]


def inet(host, port):
    return struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), socket.inet_aton(host))


def sendmmsg(s, texts, flags, to=inet(HOST, PORT)):
    messages = (Message * len(texts))()
    for message, text in zip(messages, texts):
        message.head.name, message.head.name_len = to, 16
        message.head.parts, message.head.number = ctypes.pointer(Part(text, len(text))), 1
    done = libc.sendmmsg(s.fileno(), messages, len(texts), flags)
    if done < 0:
        raise OSError(ctypes.get_errno(), "sendmmsg")
    return done, [message.len for message in messages]


def dissolve(s):
    if libc.connect(s.fileno(), UNSPECIFIED, len(UNSPECIFIED)) < 0:
        raise OSError(ctypes.get_errno(), "connect")


def ask(s, text):
    """Whether the server echoes what it receives."""
    s.setblocking(True)
    s.sendall(text)
    heard = b""
    while not heard.endswith(text):
        more = s.recv(100)
        if not more:
            break
        heard += more
    # On a node, the program had sent nothing before.
    return heard == text if OWN != "127." else heard.endswith(text)


def begun(result):
    """Whether a non-blocking call has begun to connect. If the kernel has the server's cookie, it sends data as well."""
    return result == "EINPROGRESS" or (OWN == "127." and result in (1, 4, (1, [1]), (1, [4])))


def writable(s):
    s.setblocking(False)
    return bool(select.select([], [s], [], 10)[1])


def is_own(s):
    """Whether a connection is from one of the client's own addresses, or the socket is unbound."""
    host = s.getsockname()[0]
    return host.startswith(OWN) or host == "0.0.0.0"


def made(kind=0, blocking=True):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, kind)
    s.setblocking(blocking)
    return s


# A blocking call connects, and sends its bytes.
s = made()
show("sendto", said(s.sendto, b"sendto", FASTOPEN, (HOST, PORT)), said(s.recv, 100), is_own(s))
show("again", said(s.sendto, b"x", FASTOPEN, (HOST, PORT)), said(s.send, b"x", FASTOPEN))
s = made()
show("sendmsg", said(s.sendmsg, [b"send", b"msg"], [], FASTOPEN, (HOST, PORT)), said(s.recv, 100))
s = made()
show("sendmmsg", said(sendmmsg, s, [b"first", b"second"], FASTOPEN), said(s.recv, 100))
s = made()
show("no bytes", said(s.sendto, b"", FASTOPEN, (HOST, PORT)), said(ask, s, b"later"))

# A non-blocking one sends nothing, since it has no cookie of that server.
for name, flags, blocking in (("nonblocking", FASTOPEN, False), ("at once", FASTOPEN | DONTWAIT, True)):
    for call in ("sendto", "sendmsg", "sendmmsg"):
        s = made(blocking=blocking)
        result = {
            "sendto": lambda: said(s.sendto, b"lost", flags, (HOST, PORT)),
            "sendmsg": lambda: said(s.sendmsg, [b"lost"], [], flags, (HOST, PORT)),
            "sendmmsg": lambda: said(sendmmsg, s, [b"lost"], flags),
        }[call]()
        show(name, call, begun(result), is_own(s), writable(s), s.getsockopt(1, 4), said(ask, s, b"kept"))

# Conditions that refuse a connection refuse these calls.
for blocking in (True, False):
    for call in ("sendto", "sendmmsg"):
        s = made(blocking=blocking)
        result = said(s.sendto, b"x", FASTOPEN, (HOST, NONE)) if call == "sendto" else said(
            sendmmsg, s, [b"x"], FASTOPEN, inet(HOST, NONE))
        show("refused", blocking, call, result if blocking else begun(result), is_own(s))
        if not blocking:
            show(writable(s), s.getsockopt(1, 4))
        show(said(s.sendto, b"after", FASTOPEN, (HOST, PORT)) if blocking else None)

# Errors of the address or the socket come first.
s = made()
show("no address", said(s.send, b"x", FASTOPEN), said(s.sendto, b"x", (HOST, PORT)))
show("unspecified", libc.sendto(s.fileno(), b"x", 1, FASTOPEN, UNSPECIFIED, 16), ctypes.get_errno())
show("short", libc.sendto(s.fileno(), b"x", 1, FASTOPEN, inet(HOST, PORT), 1), ctypes.get_errno())
l = socket.create_server(("", 0))
show("listener", said(l.sendto, b"x", FASTOPEN, (HOST, PORT)))

# The option that lets `connect` do so.
s = made()
show("option", said(s.setsockopt, 6, FASTOPEN_CONNECT, 1), said(s.connect, (HOST, PORT)), said(ask, s, b"option"))
s = made(blocking=False)
s.setsockopt(6, FASTOPEN_CONNECT, 1)
show("option", said(s.connect, (HOST, PORT)) in (None, "EINPROGRESS"), is_own(s), writable(s), said(ask, s, b"option"))

# A socket for MPTCP continues as TCP.
try:
    s = made(MPTCP)
except OSError as error:
    show("no mptcp")
else:
    show("mptcp", s.getsockopt(1, 38), said(s.connect, (HOST, PORT)), is_own(s), said(ask, s, b"mptcp"))
    show(s.getsockopt(1, 38), s.getsockopt(1, 39))
    s = made(MPTCP, blocking=False)
    show("mptcp", said(s.connect, (HOST, PORT)), is_own(s), writable(s), said(ask, s, b"mptcp"))
    s = made(MPTCP)
    show("mptcp refused", said(s.connect, (HOST, NONE)))
    l = made(MPTCP)
    l.bind((HOST if OWN == "127." else "0.0.0.0", 0))
    l.listen()
    c = socket.create_connection(("127.0.0.1", l.getsockname()[1]))
    a = l.accept()[0]
    show("mptcp listens", l.getsockopt(1, 38), a.getsockopt(1, 38), c.send(b"to it"), a.recv(100))

# A dissolved socket connects once more.
s = made()
s.connect((HOST, PORT))
for round in range(2):
    show("dissolved", said(ask, s, b"before"), said(dissolve, s), said(s.getpeername))
    s.setblocking(round == 0)
    show("again", said(s.connect, (HOST, PORT)), is_own(s), writable(s), said(ask, s, b"after"))
s.setblocking(True)
show("dissolved", said(dissolve, s), said(s.sendto, b"opened", FASTOPEN, (HOST, PORT)), said(s.recv, 100), is_own(s))
