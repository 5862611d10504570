"""Results of the calls on TCP sockets. The output is the same on a node and over the kernel."""

import array
import ctypes
import errno
import fcntl
import os
import random
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from said import said, show

HOST = "127.0.0.1"
SOON = 0.05
signal.signal(signal.SIGPIPE, signal.SIG_IGN)


listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((HOST, 0))
listener.listen(5)
port = listener.getsockname()[1]


def pair():
    client = socket.socket()
    client.connect((HOST, port))
    return client, listener.accept()[0]


def soon():
    """Waits until everything sent has arrived."""
    time.sleep(SOON)


def bytes_and_modes():
    c, s = pair()
    show("names", c.getpeername() == s.getsockname(), s.getpeername() == c.getsockname())
    show("bytes", c.send(b"hello"), s.recv(3), s.recv(10))
    show("peek", c.send(b"abc"), s.recv(2, socket.MSG_PEEK), s.recv(10))
    s.setblocking(False)
    show("nothing there", said(s.recv, 1), said(c.recv, 1, socket.MSG_DONTWAIT))
    modes = [bool(fcntl.fcntl(one, fcntl.F_GETFL) & os.O_NONBLOCK) for one in (c, s)]
    show("modes", modes)
    c.send(b"12345")
    soon()
    count = array.array("i", [0])
    fcntl.ioctl(s, 0x541B, count)
    show("FIONREAD", count[0], s.recv(100))
    s.setblocking(True)
    later = threading.Timer(SOON, c.send, [b"345"])
    c.send(b"12")
    later.start()
    show("all", s.recv(5, socket.MSG_WAITALL))
    show("parts", c.sendmsg([b"ab", b"cd"]), s.recvmsg(3)[0], s.recv(9))
    c.send(b"vwxyz")
    soon()
    parts = [bytearray(2), bytearray(3)]
    show("into parts", s.recvmsg_into(parts)[0], parts)
    c.send(b"ab")
    c.send(b"!", socket.MSG_OOB)
    c.send(b"cd")
    soon()
    fcntl.ioctl(s, 0x541B, count)
    show("before the urgent byte", count[0])
    many = [b"x"] * 1025
    show("too many parts", said(c.sendmsg, many), said(s.recvmsg_into, [bytearray(1) for _ in many]))
    show("urgent", s.recv(1, socket.MSG_OOB), s.recv(10), s.recv(10))


def ends():
    c, s = pair()
    watched = select.poll()
    watched.register(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    c.send(b"1")
    soon()
    show("readable", watched.poll(1000)[0][1], s.recv(9))
    c.shutdown(socket.SHUT_WR)
    soon()
    show("half closed", watched.poll(1000)[0][1], s.recv(10))
    show("other half", s.send(b"back"), c.recv(10))
    s.close()
    soon()
    show("closed", c.recv(5), said(c.send, b"x"))
    c, s = pair()
    s.send(b"unread")
    soon()
    c.close()
    soon()
    show("reset", [said(s.recv, 10), said(s.recv, 10), said(s.send, b"x")])
    c, s = pair()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()
    soon()
    show("aborted", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


def options():
    c, s = pair()
    names = [socket.SO_TYPE, socket.SO_DOMAIN, socket.SO_PROTOCOL, socket.SO_ACCEPTCONN, socket.SO_ERROR]
    show("options", [c.getsockopt(socket.SOL_SOCKET, name) for name in names])
    show("listens", listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    at_once = c.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    show("acknowledges at once", at_once, c.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))
    before = c.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    show("no delay", before, c.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)
    info = c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    show("info", len(info), info[0])
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 100_000))
    began = time.monotonic()
    show("time limit", said(c.recv, 1), time.monotonic() - began >= 0.1)
    show("no such option", said(c.getsockopt, socket.IPPROTO_TCP, 9999))


def options_without_effect():
    c, s = pair()
    linger2, clamp, defer = socket.TCP_LINGER2, socket.TCP_WINDOW_CLAMP, socket.TCP_DEFER_ACCEPT
    show("by default", [one.getsockopt(socket.IPPROTO_TCP, linger2) for one in (c, s)])
    for name, value in ((linger2, 59), (linger2, -3), (linger2, 0), (clamp, 0), (clamp, 70000), (defer, 3)):
        set_so = said(c.setsockopt, socket.IPPROTO_TCP, name, value)
        show("set", name, value, set_so, value == 0 or c.getsockopt(socket.IPPROTO_TCP, name))
    for name in (socket.IP_TTL, socket.IP_MULTICAST_TTL, socket.IP_MULTICAST_LOOP, 10, 9999):
        show("of IP", name, said(c.getsockopt, socket.IPPROTO_IP, name))
    show("path MTU", said(c.setsockopt, socket.IPPROTO_IP, 10, 1), said(c.setsockopt, socket.IPPROTO_IP, 10, 77))
    show("and then", c.getsockopt(socket.IPPROTO_IP, 10))
    lingers = [(0, 0), (1, 5), (0, 9), (1, -3)]
    for pair_of in lingers:
        set_so = said(c.setsockopt, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", *pair_of))
        got = struct.unpack("ii", c.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
        show("linger", set_so, got[0], got[1] if pair_of[1] >= 0 else "long")
    for name in (socket.SO_BROADCAST, socket.SO_DONTROUTE, socket.SO_PRIORITY, socket.SO_MARK):
        before = c.getsockopt(socket.SOL_SOCKET, name)
        c.setsockopt(socket.SOL_SOCKET, name, 1)
        show("of all sockets", name, before, [one.getsockopt(socket.SOL_SOCKET, name) for one in (c, s)])
    join, leave = 42, 45
    group = struct.pack("I4xHH4s120x", 0, socket.AF_INET, 0, socket.inet_aton("224.0.0.9"))
    joined = said(listener.setsockopt, socket.IPPROTO_IP, join, group)
    left = said(pair()[1].setsockopt, socket.IPPROTO_IP, leave, group)
    show("not of the group", joined, left)
    for name in (socket.SO_RCVTIMEO, 21):
        times = [struct.pack("qq", *time) for time in ((1, -1), (1, 1_000_000), (-1, 0), (0, 0))]
        show("times", [said(c.setsockopt, socket.SOL_SOCKET, name, time) for time in times])
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    show("no end of room", said(c.setsockopt, socket.SOL_SOCKET, socket.SO_SNDBUF, -1))
    for name in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        for room in (0, 1, 3000, 21_000, 100_000):
            s.setsockopt(socket.SOL_SOCKET, name, room)
            show("room", s.getsockopt(socket.SOL_SOCKET, name))


def name(sock, call, room, length):
    address = ctypes.create_string_buffer(28)
    number = ctypes.c_int(length)
    done = call(sock.fileno(), address if room else None, ctypes.byref(number))
    return done if done == 0 else errno.errorcode[ctypes.get_errno()], number.value


def names():
    libc = ctypes.CDLL(None, use_errno=True)
    c, s = pair()
    for call in (libc.getsockname, libc.getpeername):
        show("names", [name(c, call, True, length) for length in (-1, 0, 3, 16, 28)], name(c, call, False, 16))
    address = ctypes.create_string_buffer(28)
    header = struct.pack("Qi4xQQQQi4x", ctypes.addressof(address), -1, 0, 0, 0, 0, 0)
    show("bad name", [(call(c.fileno(), header, 0), ctypes.get_errno()) for call in (libc.recvmsg, libc.sendmsg)])
    limit = struct.pack("qq", 0, 2_000_000_000)
    show("bad time", libc.recvmmsg(c.fileno(), ctypes.create_string_buffer(64), 1, 0, limit), ctypes.get_errno())


def nobody():
    """A port without a listener."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        return free.getsockname()[1]


def starting_anew():
    nowhere = b"\0" * 16
    libc = ctypes.CDLL(None, use_errno=True)
    c, s = pair()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    watched = select.epoll()
    watched.register(c, select.EPOLLIN)
    show("dissolved", libc.connect(c.fileno(), nowhere, 16), said(c.getpeername), said(s.recv, 1))
    # The kernel keeps ECONNRESET as the socket's error, see docs/conformance.md.
    show("hung up", [bits & select.EPOLLHUP for _, bits in watched.poll(5)])
    c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    show("once more", said(c.connect, (HOST, port)), c.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
    s = listener.accept()[0]
    show("both ways", s.send(b"anew"), [bits for _, bits in watched.poll(5)], c.recv(10), c.send(b"x"), s.recv(5))
    again = socket.socket()
    again.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    again.bind((HOST, nobody()))
    name = again.getsockname()
    show("refused", said(again.connect, (HOST, nobody())))
    show("kept", again.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    outside = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    show("then to one that listens", said(again.connect, (HOST, port)), again.getsockname() == name)
    listener.accept()
    show("no protocol", said(outside.setsockopt, socket.IPPROTO_TCP, socket.TCP_LINGER2, 3))


def listening_no_more():
    nowhere = b"\0" * 16
    libc = ctypes.CDLL(None, use_errno=True)
    for end in (lambda one: one.shutdown(socket.SHUT_RD), lambda one: libc.connect(one.fileno(), nowhere, 16)):
        one = socket.socket()
        one.bind((HOST, 0))
        one.listen(5)
        there = one.getsockname()
        waiting = socket.create_connection(there)
        watched = select.epoll()
        watched.register(one, select.EPOLLIN)
        end(one)
        show("ended", said(one.accept), said(waiting.recv, 1), said(socket.socket().connect, there))
        show("ready", [bits & ~select.EPOLLOUT for _, bits in watched.poll(5)])
        one.listen(5)
        # After a failed `connect` the socket is bound to no port, and can listen at any.
        late = socket.create_connection(one.getsockname())
        show("listens again", [bits for _, bits in watched.poll(5)], one.accept()[0].send(b"late"), late.recv(9))
    one.shutdown(socket.SHUT_WR)
    show("goes on", said(socket.socket().connect, one.getsockname()), one.accept()[1][0])


def opening():
    unconnected = socket.socket()
    calls = [(unconnected.recv, 1), (unconnected.send, b"a"), (unconnected.getpeername,), (unconnected.shutdown, 2)]
    show("not connected", [said(*call) for call in calls])
    show("taken", said(socket.socket().bind, (HOST, port)))
    free = socket.socket()
    free.bind((HOST, 0))
    nobody = free.getsockname()[1]
    free.close()
    again = socket.socket()
    show("refused", said(again.connect, (HOST, nobody)))
    show("and then", said(again.connect, (HOST, port)), said(again.connect, (HOST, port)))
    listener.accept()
    slow = socket.socket()
    slow.setblocking(False)
    watched = select.epoll()
    watched.register(slow, select.EPOLLOUT | select.EPOLLIN)
    show("begun", said(slow.connect, (HOST, port)))
    show("writable", len(select.select([], [slow], [], 5)[1]), slow.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    show("watched before", [bits for _, bits in watched.poll(5)])
    listener.accept()[0].send(b"1")
    soon()
    show("and then", [bits for _, bits in watched.poll(5)])


def copies():
    c, s = pair()
    copy = c.dup()
    copy.send(b"copy")
    c.close()
    show("closed one", s.recv(10), copy.send(b"more"), s.recv(10))
    copy.close()
    show("closed both", s.recv(10))
    c, s = pair()
    child = os.fork()
    if child == 0:
        s.send(b"child")
        os._exit(0)
    os.waitpid(child, 0)
    show("forked", c.recv(10), s.send(b"parent"), c.recv(10))
    s.close()
    show("closed by the last", c.recv(5))
    c, s = pair()
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        number = socket.recv_fds(there, 10, 1)[1][0]
        socket.socket(fileno=number).send(b"passed")
        os._exit(0)
    socket.send_fds(here, [b"x"], [c.fileno()])
    os.waitpid(child, 0)
    show("passed on", s.recv(10))
    program = "import socket; socket.socket(fileno=%d).send(b'run')" % c.fileno()
    subprocess.run([sys.executable, "-c", program], pass_fds=[c.fileno()], check=True)
    show("inherited", s.recv(10))
    subprocess.run(["sh", "-c", "echo shell"], stdout=c, check=True)
    show("standard output", s.recv(20))


def signals():
    def receive():
        buffer = ctypes.create_string_buffer(10)
        count = libc.recv(c.fileno(), buffer, 10, 0)
        return count if count >= 0 else errno.errorcode[ctypes.get_errno()]

    libc = ctypes.CDLL(None, use_errno=True)
    c, s = pair()
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    show("ended", receive())
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    threading.Timer(0.3, s.send, [b"late"]).start()
    show("went on", receive())


def polls():
    c, s = pair()
    epoll = select.epoll()
    epoll.register(c, select.EPOLLIN | select.EPOLLET)
    s.send(b"1")
    soon()
    show("edge", len(epoll.poll(5)), len(epoll.poll(SOON)))
    s.send(b"2")
    show("another", len(epoll.poll(5)), c.recv(10))
    reader, writer = os.pipe()
    epoll.register(reader, select.EPOLLIN)
    threading.Timer(SOON, os.write, [writer, b"z"]).start()
    show("the kernel's", [number == reader for number, _ in epoll.poll(5)])
    os.read(reader, 1)
    epoll.unregister(c)
    show("unregistered", said(epoll.unregister, c))
    epoll.register(c, select.EPOLLIN | select.EPOLLONESHOT)
    show("registered", said(epoll.register, c, select.EPOLLIN))
    s.send(b"q")
    show("once", len(epoll.poll(5)), len(epoll.poll(SOON)))
    show("select", [len(ready) for ready in select.select([c, reader], [c], [c], 5)])


def copies_watched():
    """One instance watches two numbers of one connection, and of one listener."""
    c, s = pair()
    copy, epoll = c.dup(), select.epoll()
    names = {c.fileno(): "first", copy.fileno(): "copy"}

    def told():
        return sorted((names[number], events) for number, events in epoll.poll(SOON))

    epoll.register(c, select.EPOLLIN)
    show("both", said(epoll.register, copy, select.EPOLLOUT), told())
    show("twice", said(epoll.register, copy, select.EPOLLIN))
    s.send(b"1")
    soon()
    show("data", told())
    epoll.modify(copy, select.EPOLLIN | select.EPOLLONESHOT)
    show("changed", told(), told())
    epoll.modify(copy, select.EPOLLIN)
    epoll.unregister(c)
    show("one is left", told(), said(epoll.unregister, c))
    epoll.register(c, select.EPOLLIN | select.EPOLLOUT)
    c.close()
    show("closed one", told())
    copy.close()
    show("closed both", told())
    other = listener.dup()
    names = {listener.fileno(): "first", other.fileno(): "copy"}
    for one in (listener, other):
        epoll.register(one, select.EPOLLIN)
    client = socket.create_connection((HOST, port))
    soon()
    show("listener", told())
    other.close()
    listener.accept()
    show("accepted", told(), said(epoll.unregister, listener))


def much():
    c, s = pair()
    sent = os.urandom(3_000_000)
    with tempfile.TemporaryFile() as file:
        file.write(sent)
        file.flush()
        sender = threading.Thread(target=lambda: (s.sendfile(file, 10), s.sendall(sent), s.close()))
        sender.start()
        got = b""
        while more := c.recv(65536):
            got += more
        sender.join()
    show("a file, and as many bytes", got == sent[10:] + sent)


def files():
    """Parts of files, anywhere in a file, cached by the kernel or not."""
    numbers = random.Random(11)
    sent = numbers.randbytes(2_000_000)
    for where, blocking in ((None, True), (None, False), ("/dev/shm", True), ("/dev/shm", False)):
        c, s = pair()
        s.setblocking(blocking)
        with tempfile.TemporaryFile(dir=where) as file:
            file.write(sent)
            file.flush()
            os.fsync(file.fileno())
            expected = []

            def send():
                at, rest = 0, 0
                for part in range(60):
                    if part % 7 == 0:
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    at, rest = numbers.randrange(len(sent)), numbers.choice((1, 900, 20_000, 70_000, 1_000_000))
                    rest = min(rest, len(sent) - at)
                    expected.append(sent[at:at + rest])
                    while rest > 0:
                        try:
                            done = os.sendfile(s.fileno(), file.fileno(), at, rest)
                        except BlockingIOError:
                            select.select([], [s], [], 10)
                            continue
                        assert 0 < done <= rest, done
                        at, rest = at + done, rest - done
                # Nothing follows the end of the file. A call with an offset does not move the descriptor.
                assert os.sendfile(s.fileno(), file.fileno(), len(sent) - 70_000, 200_000) > 0
                assert os.sendfile(s.fileno(), file.fileno(), len(sent), 200_000) == 0
                assert file.tell() == len(sent)
                s.close()

            sender = threading.Thread(target=send)
            sender.start()
            got = b"".join(iter(lambda: c.recv(100_000), b""))
            sender.join()
        whole = b"".join(expected)
        rest = got[len(whole):]
        show("parts of a file", got.startswith(whole), len(rest) > 0 and sent[-70_000:].startswith(rest))


def ports():
    """Many connections at once to one server, from ports of the kernel's choice, as Tcl makes them."""
    c = socket.socket()
    c.bind((HOST, 0))
    named = c.getsockname()
    c.connect((HOST, port))
    show("the port that was told", c.getsockname() == named, listener.accept()[1] == named)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    kept, failed = [], 0
    for _ in range(900):
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        c.bind((HOST, 0))
        failed += said(c.connect, (HOST, port)) is not None
        kept += [c, listener.accept()[0]]
    show("failed", failed)


def nested():
    """A handler that its own signal interrupts, while a thread waits for a connection's bytes."""
    c, s = pair()
    libc, depth = ctypes.CDLL(None), []
    for flags, mask in ((0x40000000, bytes(128)), (0x40000000, b"\xff" * 128), (0, bytes(128))):
        def handle(number):
            depth.append(0)
            if len(depth) < 5:
                libc.raise_(number)
            depth.append(1)

        libc.raise_ = getattr(libc, "raise")
        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(handle)
        action = struct.pack(ACTION, ctypes.cast(handler, ctypes.c_void_p).value, mask, flags, 0)
        libc.sigaction(signal.SIGUSR2, action, None)
        timer = threading.Timer(SOON, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR2))
        timer.start()
        libc.poll(struct.pack("@ihh", s.fileno(), select.POLLIN, 0), 1, 2000)
        timer.join()
        show("nested", depth)
        depth.clear()


# A `struct sigaction` of x86-64 and aarch64.
ACTION = "@Q128sI4xQ"


def pipes():
    """Transfers between connections and pipes with little room."""
    for flags in (os.SPLICE_F_NONBLOCK, 0):
        c, s = pair()
        sent = os.urandom(60_000)
        c.sendall(sent)
        soon()
        r, w = os.pipe()
        os.write(w, bytes(50_000))
        show("some", 0 < os.splice(s.fileno(), w, 1 << 20, flags=flags) < 60_000)
        os.set_blocking(r, False)
        s.setblocking(False)
        got = b""
        while len(got) < 110_000:
            try:
                got += os.read(r, 100_000)
            except BlockingIOError:
                pass
            try:
                os.splice(s.fileno(), w, 7_000, flags=os.SPLICE_F_NONBLOCK)
            except BlockingIOError:
                pass
        show("all", got[50_000:] == sent)
        os.set_blocking(r, True)
        s.setblocking(True)
        reader = threading.Thread(target=lambda: (soon(), os.write(w, b"!")))
        reader.start()
        show("into a connection", os.splice(r, s.fileno(), 10), c.recv(10))
        reader.join()


def waited_for():
    """A thread that waits beside another one needs a descriptor; it had been the program's lowest number."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)

    def serve(listener):
        served, _ = listener.accept()
        served.recv(10)
        served.close()

    for turn in range(3):
        threads = [threading.Thread(target=serve, args=(listener,)) for listener in listeners]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        for listener in listeners:
            with socket.create_connection(listener.getsockname()) as asks:
                asks.send(b"x")
                asks.recv(1)
        for thread in threads:
            thread.join()
        free = os.open("/dev/null", os.O_RDONLY)
        print("lowest", free == lowest)
        os.close(free)


def handled_once():
    """A one-shot handler, while a thread waits for a connection's bytes."""
    for flags in (0x80000000, 0x80000000 | 0x40000000, 0x80000000 | 0x40000000 | 4, 0):
        child = os.fork()
        if child == 0:
            c, s = pair()
            libc = ctypes.CDLL(None)
            times = []
            kind = ctypes.CFUNCTYPE(None, ctypes.c_int)
            handler = kind(lambda number: times.append(number))
            action = struct.pack(ACTION, ctypes.cast(handler, ctypes.c_void_p).value, bytes(128), flags, 0)
            libc.sigaction(signal.SIGUSR1, action, None)
            former = ctypes.create_string_buffer(len(action))

            def told():
                libc.sigaction(signal.SIGUSR1, None, former)
                now = struct.unpack(ACTION, former.raw[:len(action)])
                return now[0] != 0, now[2] & 0xf8000004 == flags

            before = told()
            waits = select.poll()
            waits.register(s, select.POLLIN)
            timer = threading.Timer(SOON, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1))
            timer.start()
            libc.poll(struct.pack("@ihh", s.fileno(), select.POLLIN, 0), 1, 2000)
            show("once", before, len(times), told()[0])
            timer.join()
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
            show("again", len(times))
            os._exit(0)
        show("end", os.waitpid(child, 0)[1])


def rooms():
    """Lengths that are always invalid."""
    libc = ctypes.CDLL(None, use_errno=True)
    c, s = pair()
    c.send(b"12345678")
    soon()
    name, wrong = ctypes.create_string_buffer(64), struct.pack("i", -1)

    def why(call, *arguments):
        ctypes.set_errno(0)
        call(*arguments)
        return errno.errorcode.get(ctypes.get_errno())

    show("received", why(libc.recvfrom, s.fileno(), ctypes.create_string_buffer(4), 4, 0, name, wrong))
    show("names", why(libc.getsockname, s.fileno(), name, wrong), why(libc.getpeername, s.fileno(), name, wrong))
    other = socket.socket()
    other.connect((HOST, port))
    show("accepted", why(libc.accept, listener.fileno(), name, wrong))


def acknowledging():
    """A client that connects and aborts at once, while its acknowledgement waits for data, was never there."""
    fresh = socket.create_server((HOST, 0))
    fresh.settimeout(0.3)
    def comes(quick):
        c = socket.socket()
        c.setblocking(False)
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, quick)
        c.connect_ex(fresh.getsockname())
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
        try:
            return said(fresh.accept()[0].recv, 1)
        except TimeoutError:
            return None
    show("at once", comes(1))
    # If the abort comes after the acknowledgement's delay, try again.
    show("late", next((None for _ in range(20) if comes(0) is None), "it always came"))
    c = socket.socket()
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    c.connect(fresh.getsockname())
    show("sent", c.send(b"data"), fresh.accept()[0].recv(10))


def urgent_alone():
    """A reader that does not ask for an urgent byte does not get it."""
    c, s = pair()
    poll = select.poll()
    poll.register(c, select.POLLIN | select.POLLPRI)
    s.send(b"X", socket.MSG_OOB)
    show("urgent", poll.poll(10_000)[0][1], said(c.recv, 9, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    show("taken", c.recv(1, socket.MSG_OOB | socket.MSG_PEEK), c.recv(1, socket.MSG_OOB), poll.poll(0))
    s.send(b"def")
    show("behind", poll.poll(10_000)[0][1], c.recv(9, socket.MSG_PEEK), c.recv(9), poll.poll(0))


def carried_for_another():
    """A process's first call on a connection for which another process has received signals."""
    for ask in (
        lambda: c.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        lambda: c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        lambda: c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR),
        lambda: c.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE),
    ):
        c, s = pair()
        told, tell = os.pipe()
        child = os.fork()
        if not child:
            os.read(told, 1)
            try:
                ask()
                c.send(b"x")
            finally:
                os._exit(0)
        fcntl.fcntl(c, fcntl.F_SETFL, os.O_ASYNC)
        os.write(tell, b".")
        s.settimeout(10)
        show("asked", said(s.recv, 1), os.waitpid(child, 0)[1])


def link_local():
    """Connections of the kernel, whose addresses name their interface."""
    named = True
    for address, index, _, scope, flags, _ in map(str.split, open("/proc/net/if_inet6")):
        # Whether another host has the address is not known yet, or another host has it.
        if scope != "20" or int(flags, 16) & 0x48:
            continue
        ip, interface = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address)), int(index, 16)
        listens = socket.create_server(("::", 0), family=socket.AF_INET6)
        c = socket.socket(socket.AF_INET6)
        try:
            c.connect((ip, listens.getsockname()[1], 0, interface))
        except OSError:
            # Other tests create and remove interfaces of their own.
            continue
        s, name = listens.accept()
        named &= name == s.getpeername() == c.getsockname() and name[2:] == (0, interface)
    show("link-local", named)


def programs():
    """Names, arguments and environments of programs at invalid addresses."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    nowhere = libc.mmap(None, 4096, 0, 0x22, -1, 0)
    there = (ctypes.c_char_p * 2)(b"true", None)
    of_nowhere = (ctypes.c_void_p * 2)(nowhere, None)
    for path, arguments, environment in (
        (ctypes.c_void_p(nowhere), there, there),
        (b"/bin/true", ctypes.c_void_p(nowhere), there),
        (b"/bin/true", of_nowhere, there),
        (b"/bin/true", there, ctypes.c_void_p(nowhere)),
        (b"/bin/true", there, of_nowhere),
    ):
        libc.execve(path, arguments, environment)
        show("no program", errno.errorcode[ctypes.get_errno()])


for part in (bytes_and_modes, ends, options, options_without_effect, names, starting_anew, listening_no_more, opening, copies, signals, polls, copies_watched, much, files, ports, rooms, pipes, acknowledging, urgent_alone, carried_for_another, handled_once, waited_for, nested, link_local, programs):
    show(part.__name__)
    part()
