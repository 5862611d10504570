"""Errors of calls with wrong arguments. The output is the same on a node and over the kernel."""

import ctypes
import errno
import os
import socket
import struct
import time

from said import said, show

libc = ctypes.CDLL(None, use_errno=True)
SYS_epoll_pwait, SYS_epoll_pwait2, SYS_ppoll, SYS_pselect6 = 281, 441, 271, 270
OUTSIDE = ctypes.c_void_p((1 << 64) - 4096)


def call(function, *arguments):
    done = getattr(libc, function)(*arguments)
    return errno.errorcode[ctypes.get_errno()] if done == -1 else done


def three():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    return listener, client, listener.accept()[0]


def epoll():
    _, client, server = three()
    one = call("epoll_create1", 0)
    room, event = ctypes.create_string_buffer(1200), ctypes.create_string_buffer(struct.pack("=Iq", 1, 7))
    show(call("epoll_create", 0), call("epoll_create", -1), call("epoll_create1", 1))
    number, file = server.fileno(), os.open("/etc/passwd", os.O_RDONLY)
    for operation in (1, 2, 3, 9, 0, -1):
        for epfd in (one, number, 999, -1):
            for fd in (number, one, file, 999):
                for what in (event, None):
                    show("control", operation, epfd == one, fd == number, bool(what), call("epoll_ctl", epfd, operation, fd, what))
    for flags in (1 << 28 | 1, 1 << 28 | 0x2000, 1 << 28 | 1 << 30, 1 << 29 | 1, 0):
        what = ctypes.create_string_buffer(struct.pack("=Iq", flags & 0xFFFFFFFF, 7))
        show("flags", [call("epoll_ctl", one, operation, number, what) for operation in (1, 2, 2, 3)])
    call("epoll_ctl", one, 1, number, event)
    for most in (0, -1, 1, 178956970, 178956971, 1 << 28, (1 << 31) - 1):
        show("most", most, call("epoll_wait", one, room, most, 0), call("epoll_pwait", one, room, most, 0, None))
    for epfd in (number, 999, -1, file):
        show("instance", call("epoll_wait", epfd, room, 1, 0), call("epoll_wait", epfd, room, 0, 0))
    for where in (None, ctypes.c_void_p(8), OUTSIDE):
        show("nothing to tell", call("epoll_wait", one, where, 10, 0))
    sets = bytes(128)
    for size in (8, 7, 16, 0):
        show("size", call("syscall", SYS_epoll_pwait, one, room, 10, 0, sets, size), call("syscall", SYS_epoll_pwait, one, room, 10, 0, None, size))
        show("size", call("syscall", SYS_epoll_pwait2, one, room, 10, bytes(16), sets, size))
        polled = ctypes.create_string_buffer(struct.pack("ihh", number, 1, 0))
        show("size", call("syscall", SYS_ppoll, polled, 1, bytes(16), sets, size))
        pair = struct.pack("QQ", ctypes.addressof(ctypes.c_char.from_buffer(bytearray(sets))), size)
        read = ctypes.create_string_buffer(128)
        show("size", call("syscall", SYS_pselect6, 8, read, None, None, bytes(16), pair))
    for seconds, nanos in ((0, 1_000_000_000), (-1, 0), (0, -1)):
        show("time", call("epoll_pwait2", one, room, 10, struct.pack("qq", seconds, nanos), None))
    client.send(b"some")
    time.sleep(0.2)
    for where in (None, ctypes.c_void_p(8), OUTSIDE, room):
        show("something to tell", call("epoll_wait", one, where, 10, 0))


def bind():
    listener, client, server = three()
    taken = listener.getsockname()
    for one in (listener, client, server):
        show("again", said(one.bind, ("127.0.0.1", 0)), said(one.bind, taken))

    def inet(family, port, host, len=16):
        return struct.pack("=HH4s8x", family, socket.htons(port), socket.inet_aton(host))[:len]

    def inet6(port, host, len=28, scope=0):
        return struct.pack("=HHI16sI", socket.AF_INET6, socket.htons(port), 0, socket.inet_pton(socket.AF_INET6, host), scope)[:len]

    addresses = dict(
        taken=inet(2, taken[1], "127.0.0.1"), anywhere=inet(2, taken[1], "0.0.0.0"), foreign=inet(2, 0, "192.0.2.1"),
        many=inet(2, 0, "224.0.0.1"), all=inet(2, 0, "255.255.255.255"), short=inet(2, 0, "127.0.0.1", 15), none=b"",
        two=inet(2, 0, "127.0.0.1", 2), one=b"\2", unspecified=inet(0, 0, "0.0.0.0"), unspecified_here=inet(0, 0, "127.0.0.1"),
        unix=struct.pack("=H14s", 1, b"/x"), other=inet(99, 0, "127.0.0.1"), long=inet(2, 0, "127.0.0.1") + bytes(200),
        here6=inet6(0, "::1"), any6=inet6(0, "::"), taken6=inet6(taken[1], "::"), mapped=inet6(0, "::ffff:127.0.0.1"),
        mapped_taken=inet6(taken[1], "::ffff:127.0.0.1"), foreign6=inet6(0, "2001:db8::1"), link6=inet6(0, "fe80::1"),
        many6=inet6(0, "ff02::1"), short6=inet6(0, "::1", 23), shorter6=inet6(0, "::1", 24), good=inet(2, 0, "127.0.0.1"),
    )
    for family in (socket.AF_INET, socket.AF_INET6):
        for name, address in addresses.items():
            for reuse in (0, 1):
                one = socket.socket(family)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
                show(family, name, reuse, call("bind", one.fileno(), address, len(address)))
                show(family, name, "then", call("bind", one.fileno(), address, len(address)), said(one.listen))
                one.close()
        one = socket.socket(family)
        for place, length in ((None, 16), (ctypes.c_void_p(8), 16), (OUTSIDE, 16), (None, 0), (addresses["good"], -1), (addresses["good"], 1 << 20)):
            show(family, "bad", call("bind", one.fileno(), place, length))
    show(call("bind", 999, addresses["good"], 16), call("bind", 0, addresses["good"], 16))
    twice = [socket.socket() for _ in range(3)]
    for one in twice:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        show("shared", said(one.bind, twice[0].getsockname() if one is not twice[0] else ("127.0.0.1", 0)))
    show("shared", [said(one.listen) for one in twice])
    if os.getuid() == 0:
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            show("low", said(socket.socket().bind, ("127.0.0.1", 77)), said(socket.socket().bind, ("127.0.0.1", 0)))
            os._exit(0)
        os.waitpid(child, 0)


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Message(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("name_len", ctypes.c_uint), ("parts", ctypes.c_void_p), ("number", ctypes.c_size_t)]
    _fields_ += [("control", ctypes.c_void_p), ("control_len", ctypes.c_size_t), ("flags", ctypes.c_int)]


def discarded():
    """Bytes that MSG_TRUNC discards, whatever the buffers are."""
    _, client, server = three()
    client.send(b"0123456789abcdefghijklmnopqrstuvwxyz")
    time.sleep(0.2)
    flags = socket.MSG_TRUNC
    for parts in ([(None, 3)], [(None, 1), (8, 2)], [(8, 1), (None, 0), ((1 << 64) - 4096, 1)], []):
        array = (Part * len(parts))(*[Part(base, len) for base, len in parts])
        message = Message(parts=ctypes.addressof(array), number=len(parts))
        for how in (flags | socket.MSG_PEEK, flags):
            show(parts, how, call("recvmsg", server.fileno(), ctypes.byref(message), how), message.flags)
    for where in (None, ctypes.c_void_p(8)):
        show(call("recv", server.fileno(), where, 2, flags), call("recvfrom", server.fileno(), where, 2, flags, None, None))
        show(call("recv", server.fileno(), where, 2, flags | socket.MSG_PEEK))
    show(call("recv", server.fileno(), OUTSIDE, 2, flags))
    wrong = (Part * 1)(Part(None, 1 << 63))
    show(call("recvmsg", server.fileno(), ctypes.byref(Message(parts=ctypes.addressof(wrong), number=1)), flags))
    show(server.recv(100))


def huge():
    """More bytes than one call moves: the counts at both ends."""
    libc.mmap.restype = ctypes.c_void_p
    for function in ("write", "send", "writev", "sendmsg"):
        getattr(libc, function).restype = ctypes.c_ssize_t
    size = (1 << 31) + (64 << 20)
    place = libc.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, 0)
    half = (Part * 3)(Part(place, 1 << 30), Part(place, 1 << 30), Part(place, 1 << 20))
    message = Message(parts=ctypes.addressof(half), number=3)
    for function, arguments in (
        ("write", (ctypes.c_void_p(place), ctypes.c_size_t(size))),
        ("sendmsg", (ctypes.byref(message), 0)),
    ):
        listener, client, server = three()
        child = os.fork()
        if child == 0:
            listener.close(), client.close()
            room, came = bytearray(1 << 22), 0
            while len := server.recv_into(room):
                came += len
            show(function, "came", came)
            os._exit(0)
        server.close(), listener.close()
        show(function, "went", call(function, client.fileno(), *arguments))
        client.close()
        os.waitpid(child, 0)


import sys

globals()[sys.argv[1]]()
