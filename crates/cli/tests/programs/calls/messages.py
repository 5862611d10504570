"""Results of calls with messages, their parts, and addresses. The output is the same on a node and over the kernel."""

import ctypes
import errno
import socket
import struct

libc = ctypes.CDLL(None, use_errno=True)
MSG_CMSG_CLOEXEC = 0x40000000


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Message(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p),
        ("name_len", ctypes.c_uint),
        ("parts", ctypes.POINTER(Part)),
        ("number", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_len", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class Counted(ctypes.Structure):
    _fields_ = [("message", Message), ("len", ctypes.c_uint)]


def show(*values):
    print(*values, flush=True)


def call(name, *arguments):
    """The result of a function of libc, or the name of its error."""
    done = getattr(libc, name)(*arguments)
    return errno.errorcode[ctypes.get_errno()] if done == -1 else done


listener = socket.create_server(("127.0.0.1", 0))


def pair():
    client = socket.create_connection(listener.getsockname())
    return client, listener.accept()[0]


room = ctypes.create_string_buffer(b"abcdefgh")
address = listener.getsockname()
inet = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(address[1]), socket.inet_aton(address[0]))


def message(len=3, **fields):
    one = Message(parts=ctypes.pointer(Part(ctypes.addressof(room), len)), number=1)
    for name, value in fields.items():
        setattr(one, name, value)
    return one


def controls():
    c, s = pair()
    head = lambda len, level, kind, data: struct.pack("nii", len, level, kind) + data
    for control in (
        head(20, socket.SOL_SOCKET, 99, bytes(8)),
        head(20, socket.SOL_IP, 99, bytes(8)),
        head(8, socket.SOL_IP, 1, bytes(8)),
        head(99, socket.SOL_IP, 1, bytes(8)),
        head(20, socket.SOL_IP, 1, bytes(8)) + head(3, socket.SOL_IP, 1, bytes(8)),
        head(20, socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("ii", 1, 0)),
        head(20, socket.SOL_SOCKET, 61, bytes(8)),
        b"short",
    ):
        area = ctypes.create_string_buffer(control, len(control))
        one = message(control=ctypes.addressof(area), control_len=len(control))
        show("control", call("sendmsg", c.fileno(), ctypes.byref(one), 0))
    show("nowhere", call("sendmsg", c.fileno(), ctypes.byref(message(control=1, control_len=24)), 0))
    s.setblocking(False)
    show(s.recv(99))


def received():
    c, s = pair()
    c.send(b"12345678")
    for flags in (0, MSG_CMSG_CLOEXEC):
        name = ctypes.create_string_buffer(32)
        for at in (None, ctypes.addressof(name)):
            one = message(2, name=at, name_len=16, flags=77)
            show("received", call("recvmsg", s.fileno(), ctypes.byref(one), flags), one.flags == flags, one.name_len)


def several_at_the_end():
    c, s = pair()
    c.send(b"12345")
    c.close()
    several = (Counted * 4)(*(Counted(message(3), 77) for _ in range(4)))
    show("several", call("recvmmsg", s.fileno(), several, 4, 0, None), [one.len for one in several])
    show("several", call("recvmmsg", s.fileno(), several, 4, 0, None), [one.len for one in several])


def lengths():
    c, s = pair()
    c.send(b"12345678")
    for len in (-1, -(2**63)):
        parts = (Part * 2)(Part(ctypes.addressof(room), 2), Part(ctypes.addressof(room), len))
        for name, one in (("writev", c), ("readv", s)):
            show(name, call(name, one.fileno(), parts, 2))


def addresses():
    c, s = pair()
    sendto = lambda at, len: call("sendto", c.fileno(), room, ctypes.c_size_t(1), 0, at, len)
    show("sent", sendto(None, 0), sendto(inet, 16), sendto(inet, 1), sendto(inet, 0))
    show("not sent", sendto(ctypes.c_void_p(1), 3), sendto(inet, 129), sendto(inet, -1))
    for at, len in ((1, 3), (1, 0), (ctypes.addressof(room), 200)):
        one = message(name=at, name_len=len)
        if len != 200:
            show("message", call("sendmsg", c.fileno(), ctypes.byref(one), 0))
    for one in (c, listener):
        for at, len in ((inet, 16), (inet, 5), (inet, 2), (inet, 1), (None, 0), (ctypes.c_void_p(1), 3), (b"\xff\0" + inet, 16), (inet + bytes(200), 200)):
            show("connect", len, call("connect", one.fileno(), at, len))


for part in (controls, received, several_at_the_end, lengths, addresses):
    show(part.__name__)
    part()
