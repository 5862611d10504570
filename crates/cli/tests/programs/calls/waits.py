"""How calls on TCP sockets wait, and what ends the wait. The output is the same on a node and over the kernel."""

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import threading
import time

from said import said, show

HOST = "127.0.0.1"
ALL, PEEK, AT_ONCE, FORGET = socket.MSG_WAITALL, socket.MSG_PEEK, socket.MSG_DONTWAIT, 0x20
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
signal.signal(signal.SIGALRM, lambda *_: None)
signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))
handled = []


def done(returned):
    """The result of one of libc's functions."""
    return returned if returned >= 0 else errno.errorcode[ctypes.get_errno()]


def pair():
    client = socket.create_connection(listener.getsockname())
    return client, listener.accept()[0]


def soon():
    """Waits until everything sent has arrived, and a thread that was started waits, also on a busy machine."""
    time.sleep(0.2)


def drip(sock, *pieces):
    """Sends pieces, one after the other, while a thread waits for them."""

    def send():
        for piece in pieces:
            time.sleep(0.1)
            sock.send(piece)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def limit(sock, option, span):
    sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(span), round(span % 1 * 1e6)))


def all_of_it():
    c, s = pair()
    thread = drip(s, b"abc", b"def", b"ghi")
    show("all", c.recv(9, ALL))
    thread.join()
    thread = drip(s, b"abc", b"def", b"ghi")
    show("peeked at", c.recv(9, ALL | PEEK), c.recv(20))
    thread.join()
    into = bytearray(6)
    thread = drip(s, b"abc", b"def")
    show("forgotten", c.recv_into(into, 6, FORGET | ALL), bytes(into))
    thread.join()
    first, second = bytearray(2), bytearray(4)
    thread = drip(s, b"abc", b"def")
    show("in parts", c.recvmsg_into([first, second], 0, ALL)[0], bytes(first), bytes(second))
    thread.join()
    s.send(b"abc")
    soon()
    show("at once", c.recv(8, ALL | AT_ONCE), said(c.recv, 8, ALL | AT_ONCE))
    thread = threading.Thread(target=s.sendall, args=(bytes(300_000),))
    thread.start()
    show("much", len(c.recv(300_000, ALL)))
    thread.join()
    s.send(b"abc")
    s.shutdown(socket.SHUT_WR)
    show("the end", c.recv(8, ALL), c.recv(8, ALL))
    c, s = pair()
    limit(c, socket.SO_RCVTIMEO, 0.9)
    thread = drip(s, *[b"a"] * 24)
    got = c.recv(24, ALL)
    # One limit for the whole call: each byte comes long before it has passed.
    show("limited", 1 <= len(got) < 24)
    thread.join()
    show("the rest", len(got) + len(c.recv(24)), said(c.recv, 8, ALL))
    c, s = pair()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.send(b"abc")
    threading.Timer(0.1, s.close).start()
    show("reset", c.recv(8, ALL), said(c.recv, 8, ALL), c.recv(8))


def marks():
    for flags in (ALL, FORGET, FORGET | ALL):
        c, s = pair()
        s.send(b"abc")
        s.send(b"U", socket.MSG_OOB)
        s.send(b"def")
        soon()
        limit(c, socket.SO_RCVTIMEO, 1)
        into = bytearray(6)
        show("before and after", said(c.recv_into, into, 6, flags), said(c.recv_into, into, 3, flags))
    c, s = pair()
    s.sendmsg([b"ab", b"", b"cd", b"U"], [], socket.MSG_OOB)
    soon()
    show("of parts", c.recv(9), c.recv(9, socket.MSG_OOB), said(c.recv, 9, AT_ONCE))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    s.send(b"held")
    s.send(b"!", socket.MSG_OOB)
    soon()
    show("out of the bottle", c.recv(9, AT_ONCE), c.recv(1, socket.MSG_OOB))


def enough():
    """SO_RCVLOWAT."""

    def with_low_water(bytes):
        c, s = pair()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, bytes)
        return c, s

    for bytes in (0, 1, 255, 256, 1000, 30_000):
        c, s = with_low_water(bytes)
        show("set", bytes, c.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))
    c, s = with_low_water(1000)
    poll = select.poll()
    poll.register(c, select.POLLIN)
    s.send(b"x" * 999)
    soon()
    show("not yet", poll.poll(50), select.select([c], [], [], 0.05)[0])
    s.send(b"x")
    show("ready", len(poll.poll(5000)), len(c.recv(10, AT_ONCE)))
    c, s = with_low_water(6)
    thread = drip(s, b"abc", b"def", b"ghi")
    show("waits", c.recv(100), thread.join(), c.recv(3))
    thread = drip(s, b"abc", b"def")
    show("peeks", c.recv(100, PEEK), c.recv(100))
    thread.join()
    s.send(b"ab")
    soon()
    show("at once", c.recv(100, AT_ONCE))
    s.send(b"ab")
    show("no more wanted", c.recv(2))
    limit(c, socket.SO_RCVTIMEO, 0.1)
    s.send(b"ab")
    show("in vain", c.recv(100))
    s.send(b"ab")
    s.close()
    show("the end", c.recv(100), c.recv(100))


def nothing():
    """Calls with a length of zero."""
    c, s = pair()
    show("read", os.read(c.fileno(), 0), os.readv(c.fileno(), [bytearray()]))
    room = ctypes.create_string_buffer(9)

    def receive(flags):
        return done(libc.recv(c.fileno(), room, 0, flags))

    show("at once", receive(AT_ONCE), receive(socket.MSG_OOB))
    limit(c, socket.SO_RCVTIMEO, 0.1)
    show("in vain", receive(0))
    limit(c, socket.SO_RCVTIMEO, 0)
    thread = drip(s, b"abc")
    began = time.monotonic()
    show("waits", receive(0), time.monotonic() - began > 0.05, receive(PEEK), c.recv(10), thread.join())
    show("nowhere", drip(s, b"abcdef").join(), done(libc.recv(c.fileno(), None, 4, FORGET)), c.recv(9))
    show("sent", s.send(b""), os.write(s.fileno(), b""))
    s.shutdown(socket.SHUT_WR)
    show("shut", said(s.send, b""), said(os.write, s.fileno(), b""), said(os.writev, s.fileno(), [b""]))


def interrupted():
    """A pending signal that a call's own mask admits."""
    c, s = pair()
    fds = struct.pack("ihh", c.fileno(), select.POLLIN, 0)
    time_left, none = struct.pack("ll", 2, 0), bytes(128)
    sets = (ctypes.c_ulong * 16)()
    epoll = select.epoll()
    epoll.register(c, select.EPOLLIN)
    event = ctypes.create_string_buffer(12)

    def selects():
        sets[c.fileno() // 64] = 1 << c.fileno() % 64
        return libc.pselect(c.fileno() + 1, sets, None, None, time_left, none)

    calls = {
        "ppoll": lambda: libc.ppoll(ctypes.create_string_buffer(fds, 8), 1, time_left, none),
        "pselect": selects,
        "epoll_pwait": lambda: libc.epoll_pwait(epoll.fileno(), event, 1, 2000, none),
    }
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    for ready in (False, True):
        if ready:
            s.send(b"x")
            soon()
        for name, call in calls.items():
            # To this thread: one that has just been joined may still be there, and would take it.
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
            handled.clear()
            returned = done(call())
            pending = signal.SIGUSR1 in signal.sigpending()
            show(name, ready, returned, len(handled), pending)
            if pending:
                signal.sigwait([signal.SIGUSR1])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    for restarts in (False, True):
        signal.siginterrupt(signal.SIGALRM, not restarts)
        c, s = pair()
        s.send(b"abc")
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        into = ctypes.create_string_buffer(6)
        show("all", restarts, done(libc.recv(c.fileno(), into, 6, ALL)))


def accepting():
    own = socket.create_server((HOST, 0))
    limit(own, socket.SO_RCVTIMEO, 0.1)
    show("limited", said(own.accept))
    client = socket.create_connection(own.getsockname())
    show("in time", len(said(own.accept)), client.close())
    signal.siginterrupt(signal.SIGALRM, False)
    limit(own, socket.SO_RCVTIMEO, 2)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    show("limited, and interrupted", done(libc.accept(own.fileno(), None, None)))


def connecting_again():
    closed = socket.socket()
    closed.bind((HOST, 0))
    refusing = closed.getsockname()
    closed.close()
    client = socket.socket()
    client.setblocking(False)
    show("refused", said(client.connect, refusing))
    soon()
    show("told", said(client.connect, listener.getsockname()), said(client.connect, listener.getsockname()))
    soon()
    show("connected", said(client.connect, listener.getsockname()), said(client.connect, listener.getsockname()))
    listener.accept()
    client = socket.socket()
    show("shut", said(client.shutdown, socket.SHUT_RDWR), client.connect(listener.getsockname()))
    show("for good", said(client.send, b"x"), client.recv(1))
    listener.accept()


def shut():
    """A socket that has shut both directions takes no more bytes."""
    c, s = pair()
    s.shutdown(socket.SHUT_RDWR)
    soon()
    show("sent", c.recv(1), c.send(b"x"))
    soon()
    show("reset", said(s.recv, 1), said(c.send, b"x"))


def spliced():
    c, s = pair()
    reader, writer = os.pipe()
    place = ctypes.c_longlong(0)
    file = os.open(__file__, os.O_RDONLY)
    for name, arguments in {
        "connections": (c, None, s, None, 10, 0),
        "a file": (file, None, c, None, 10, 0),
        "a place in it": (reader, None, c, ctypes.byref(place), 10, 0),
        "a place in the pipe": (reader, ctypes.byref(place), c, None, 10, 0),
        "a place to read": (c, ctypes.byref(place), writer, None, 10, 0),
        "nothing": (c, None, writer, None, 0, 0),
        "unknown flags": (c, None, writer, None, 10, 64),
    }.items():
        numbers = [value.fileno() if isinstance(value, socket.socket) else value for value in arguments]
        numbers[4] = ctypes.c_size_t(numbers[4])
        show(name, done(libc.splice(*numbers)))
    show("sent", done(libc.sendfile(c.fileno(), s.fileno(), None, ctypes.c_size_t(10))))
    show("from a place", done(libc.sendfile(c.fileno(), s.fileno(), ctypes.byref(place), ctypes.c_size_t(10))))


def one_of_several():
    """The events that EPOLLEXCLUSIVE combines with."""
    c, s = pair()
    epoll, exclusive = select.epoll(), select.EPOLLIN | select.EPOLLEXCLUSIVE
    show("changed", said(epoll.modify, c, exclusive))
    for other in (select.EPOLLRDHUP, select.EPOLLPRI, select.EPOLLONESHOT, select.EPOLLET):
        show("with", other, said(epoll.register, s, exclusive | other))
    show("later", said(epoll.modify, s, exclusive), said(epoll.modify, s, select.EPOLLIN))
    show("neither", said(epoll.unregister, s), said(epoll.register, s, select.EPOLLIN), said(epoll.modify, s, exclusive))


def deferred():
    """A listener that waits for the data of its connections (TCP_DEFER_ACCEPT)."""
    with socket.create_server((HOST, 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 4)
        show("seconds", listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT))
        listener.settimeout(0.2)
        client = socket.create_connection(listener.getsockname())
        show("nothing yet", said(listener.accept))
        client.send(b"it")
        show("then", listener.accept()[0].recv(9))
        socket.create_connection(listener.getsockname()).close()
        show("ended", listener.accept()[0].recv(9))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        began = time.monotonic()
        silent = socket.create_connection(listener.getsockname())
        listener.settimeout(20)
        silent_too = listener.accept()[0]
        show("at last", silent_too.getpeername() == silent.getsockname(), time.monotonic() - began > 0.5)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 0)
        listener.settimeout(0.2)
        client = socket.create_connection(listener.getsockname())
        show("at once", said(listener.accept)[1] == client.getsockname())


def closed():
    """A descriptor that is closed during a call is not open when the call continues."""

    def polls(number, reader):
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        poll.register(number, select.POLLIN)
        return [(found == number, events) for found, events in poll.poll(10000)]

    def selects(number, reader):
        # The connection could be written to at once.
        ready = select.select([reader, number], [], [number], 10)
        return [[found == number for found in which] for which in ready]

    for call in (polls, selects):
        for number in (socket.create_server((HOST, 0)).detach(), None):
            near, far = pair()
            number = number or near.detach()
            reader, writer = os.pipe()
            waits = threading.Thread(target=lambda: show(call.__name__, said(call, number, reader)))
            waits.start()
            soon()
            # At once, since a thread that is woken in between gets the first event.
            os.close(number)
            os.write(writer, b"x")
            waits.join()
            show("not open", said(call, number, reader))
            os.close(reader)
            os.close(writer)
    near, far = pair()
    instance = select.epoll()
    instance.register(near, select.EPOLLIN)
    reader, writer = os.pipe()
    instance.register(reader, select.EPOLLIN)
    for sends, takes in (
        (lambda: far.send(b"x"), lambda: near.recv(1)),
        (lambda: os.write(writer, b"x"), lambda: os.read(reader, 1)),
    ):
        copy = os.dup(instance.fileno())
        waits = threading.Thread(target=lambda: show("goes on", len(instance.poll(10))))
        waits.start()
        soon()
        os.close(instance.fileno())
        sends()
        waits.join()
        takes()
        os.dup2(copy, instance.fileno())
        os.close(copy)
    os.close(reader)
    os.close(writer)
    far.send(b"x")
    soon()
    reader, writer = os.pipe()
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(reader, select.POLLIN)
    waits = threading.Thread(target=lambda: show("replaced", [found == reader for found, _ in poll.poll(500)]))
    waits.start()
    soon()
    os.dup2(near.fileno(), reader)
    waits.join()
    os.close(reader)
    os.close(writer)


def in_turn():
    """A caller that takes one event at a time gets the events of all, whichever is always ready."""
    reader, writer = os.pipe()
    os.write(writer, b"x")
    for ready in range(1, 3):
        pairs = [pair() for _ in range(ready)]
        for _, far in pairs:
            far.send(b"x")
        soon()
        numbers = [near.fileno() for near, _ in pairs] + [reader]
        with select.epoll() as instance:
            for number in numbers:
                instance.register(number, select.EPOLLIN)
            found = {instance.poll(10, 1)[0][0] for _ in range(50)}
            show("one at a time", [number in found for number in numbers])
            found = {number for _ in range(50) for number, _ in instance.poll(10, ready)}
            show("some at a time", [number in found for number in numbers])
    os.close(reader)
    os.close(writer)


listener = socket.create_server((HOST, 0))
for part in (
    all_of_it,
    marks,
    enough,
    nothing,
    interrupted,
    accepting,
    connecting_again,
    shut,
    spliced,
    one_of_several,
    deferred,
    closed,
    in_turn,
):
    show(part.__name__)
    part()
