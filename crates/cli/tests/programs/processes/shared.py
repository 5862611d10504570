"""State that processes with the same socket share, by fork, by `exec`, and by a message. The output is the same on a node
and over the kernel."""

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
import time

from said import said, show

HOST, HOST6 = "127.0.0.1", "::1"
SOL, TCP, IP, IPV6 = socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_IP, socket.IPPROTO_IPV6
PEEK_OFF, INQ, COOKIE = 42, 36, 57
# Options that only the socket stores, and options that change the effect of calls.
OPTIONS = {
    "priority": (SOL, socket.SO_PRIORITY, 4),
    "mark of timestamps": (SOL, 29, 1),
    "busy poll": (SOL, 46, 0),
    "select error queue": (SOL, 45, 1),
    "inq": (TCP, INQ, 1),
    "keepalive": (SOL, socket.SO_KEEPALIVE, 1),
    "low water": (SOL, socket.SO_RCVLOWAT, 3),
    "synchronisations": (TCP, socket.TCP_SYNCNT, 4),
    "linger": (TCP, socket.TCP_LINGER2, 7),
    "thin": (TCP, 16, 1),
    "quick": (TCP, socket.TCP_QUICKACK, 0),
    "service": (IP, socket.IP_TOS, 0x10),
    "hops": (IP, socket.IP_TTL, 33),
    "least hops": (IP, 21, 2),
    "discovery": (IP, 10, 0),
    "errors": (IP, 11, 1),
}


def listening(family=socket.AF_INET, host=HOST):
    listener = socket.socket(family)
    listener.bind((host, 0))
    listener.listen(8)
    return listener


def pair(family=socket.AF_INET, host=HOST):
    with listening(family, host) as listener:
        client = socket.create_connection(listener.getsockname()[:2])
        server, _ = listener.accept()
        return client, server


def forked(act):
    """Runs it in a child."""
    child = os.fork()
    if not child:
        try:
            act()
        except BaseException as error:
            show("child", error)
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(child, 0)


def sent(act, it):
    """Runs it in a child that has received the socket in a message."""
    mine, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        it.close()
        _, numbers, _, _ = socket.recv_fds(theirs, 1, 1)
        theirs.send(b"+")
        act(socket.socket(fileno=numbers[0]))
        sys.stdout.flush()
        os._exit(0)
    socket.send_fds(mine, [b"."], [it.fileno()])
    os.waitpid(child, 0)


def executed(script, it):
    """Runs a script in another program, in which the socket is `it`."""
    os.set_inheritable(it.fileno(), True)
    begin = f"import os, socket, struct, fcntl; it = socket.socket(fileno={it.fileno()}); "
    told = subprocess.run([sys.executable, "-c", begin + script], close_fds=False, stdout=subprocess.PIPE, text=True)
    os.set_inheritable(it.fileno(), False)
    return told.stdout.strip()


def flags(it):
    return fcntl.fcntl(it, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_ASYNC)


def modes():
    client, server = pair()
    client.setblocking(True)
    forked(lambda: os.set_blocking(client.fileno(), False))
    show("made by a child", flags(client), said(os.read, client.fileno(), 1))
    forked(lambda: fcntl.ioctl(client, 0x5421, struct.pack("i", 0)))
    show("unmade by a child", flags(client))
    sent(lambda it: os.set_blocking(it.fileno(), False), client)
    show("made by who was sent it", flags(client), said(client.recv, 1))
    show("seen by another program", executed("print(os.get_blocking(it.fileno()))", client))
    executed("os.set_blocking(it.fileno(), True)", client)
    show("unmade by another program", flags(client))
    copy = os.dup(server.fileno())
    os.set_blocking(copy, False)
    show("made by a copy", flags(server), said(os.read, server.fileno(), 1))
    child = os.fork()
    if not child:
        # A waiting call continues with its old mode; the next call does not.
        os._exit(0)
    os.waitpid(child, 0)
    os.close(copy)


def signals():
    """The owner of a connection, which gets its signals."""
    client, server = pair()
    came = []
    signal.signal(signal.SIGIO, lambda number, frame: came.append(number))
    own = os.getpid()
    forked(lambda: fcntl.fcntl(client, fcntl.F_SETOWN, own))
    show("owned by what a child said", fcntl.fcntl(client, fcntl.F_GETOWN) == own)
    show("and another program", executed(f"print(fcntl.fcntl(it, {fcntl.F_GETOWN}) == {own})", client))
    forked(lambda: fcntl.fcntl(client, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK))
    show("flags", flags(client) == os.O_ASYNC | os.O_NONBLOCK)
    server.sendall(b"signal")
    until = time.monotonic() + 10
    while not came and time.monotonic() < until:
        time.sleep(0.01)
    show("signalled", came[:1], client.recv(6))
    forked(lambda: fcntl.fcntl(client, fcntl.F_SETFL, 0))
    show("flags", flags(client))
    server.sendall(b"later")
    show("waits again", client.recv(5))
    signal.signal(signal.SIGIO, signal.SIG_DFL)


def spans():
    client, server = pair()
    span = struct.pack("ll", 0, 50000)
    forked(lambda: client.setsockopt(SOL, socket.SO_RCVTIMEO, span))
    show("span", client.getsockopt(SOL, socket.SO_RCVTIMEO, 16) == span, said(client.recv, 1))
    show("in another program", executed(f"print(it.getsockopt(1, {socket.SO_RCVTIMEO}, 16) == {span!r})", client))
    executed(f"it.setsockopt(1, {socket.SO_SNDTIMEO}, {span!r})", client)
    show("of sending", client.getsockopt(SOL, socket.SO_SNDTIMEO, 16) == span)


def peeks():
    client, server = pair()
    if said(client.setsockopt, SOL, PEEK_OFF, 0) is not None:
        # Before Linux 6.10, TCP did not have this option.
        return show("no peeking behind")
    server.sendall(b"abcdef")
    while struct.unpack("i", fcntl.ioctl(client, termios.FIONREAD, b"\0" * 4))[0] < 6:
        pass
    show("peeked", client.recv(2, socket.MSG_PEEK), client.getsockopt(SOL, PEEK_OFF))
    forked(lambda: show("in a child", client.recv(2, socket.MSG_PEEK)))
    show("behind it", client.recv(2, socket.MSG_PEEK), client.getsockopt(SOL, PEEK_OFF))
    show("another program", executed("print(it.getsockopt(1, 42))", client))


def options():
    client, server = pair()
    for name, (level, option, value) in OPTIONS.items():
        forked(lambda: said(client.setsockopt, level, option, value))
        show(name, said(client.getsockopt, level, option))
        show(name, executed(f"print(it.getsockopt({level}, {option}))", client) == str(said(client.getsockopt, level, option)))
        sent(lambda it: show(name, said(it.getsockopt, level, option)), client)


def sockets():
    """A socket that is not a connection yet, and its later states."""
    listener = listening()
    fresh = socket.socket()
    forked(lambda: fresh.setsockopt(SOL, socket.SO_PRIORITY, 3))
    forked(lambda: fresh.setsockopt(IP, socket.IP_TTL, 44))
    fresh.connect(listener.getsockname())
    show("set by a child before", fresh.getsockopt(SOL, socket.SO_PRIORITY), fresh.getsockopt(IP, socket.IP_TTL))
    listener.accept()[0].close()
    forked(lambda: listener.setsockopt(IP, socket.IP_TTL, 55))
    forked(lambda: listener.setsockopt(TCP, socket.TCP_NODELAY, 1))
    other = socket.create_connection(listener.getsockname())
    accepted, _ = listener.accept()
    show("of a listener", accepted.getsockopt(IP, socket.IP_TTL), accepted.getsockopt(TCP, socket.TCP_NODELAY) != 0)
    again = socket.create_connection(listener.getsockname())
    script = f"other, _ = it.accept(); print(other.getsockopt({IP}, {socket.IP_TTL}))"
    show("of one in another program", executed(script, listener))
    for it in (other, accepted, again):
        it.close()
    mapped = socket.socket(socket.AF_INET6)
    mapped.setsockopt(IPV6, socket.IPV6_V6ONLY, 0)
    mapped.connect(("::ffff:" + HOST, listener.getsockname()[1]))
    show("family", executed("print(it.family, len(it.getsockname()), it.getsockopt(1, 39))", mapped))
    connecting = socket.socket()
    connecting.setblocking(False)
    show("begun", said(connecting.connect, listener.getsockname()))
    show("connected already", executed(f"print(it.connect_ex(('{HOST}', {listener.getsockname()[1]})) in (0, 106))", connecting))
    show("connected", said(connecting.connect, listener.getsockname()))


def identities():
    listener = listening()
    kinds = {"cookie": set(), "inode": set(), "link": set(), "info": set()}
    for _ in range(12):
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        for it in (client, server):
            link = os.readlink(f"/proc/self/fd/{it.fileno()}")
            inode = os.fstat(it.fileno()).st_ino
            cookie = it.getsockopt(SOL, COOKIE, 8)
            if link != f"socket:[{inode}]" or os.stat(f"/proc/self/fd/{it.fileno()}").st_ino != inode:
                show("names differ", link, inode)
            forked(lambda: it.getsockopt(SOL, COOKIE, 8) == cookie or show("another cookie"))
            forked(lambda: os.fstat(it.fileno()).st_ino == inode or show("another inode"))
            kinds["cookie"].add(cookie)
            kinds["inode"].add(inode)
            kinds["link"].add(link)
            with open(f"/proc/self/fdinfo/{it.fileno()}") as info:
                kinds["info"].add(next((line for line in info if line.startswith("ino:")), link))
        client.close()
        server.close()
    show({kind: len(names) for kind, names in kinds.items()})
    for seen in (lambda it: os.fstat(it.fileno()).st_ino, lambda it: it.getsockopt(SOL, COOKIE, 8)):
        names = set()
        for _ in range(12):
            client = socket.create_connection(listener.getsockname())
            server, _ = listener.accept()
            names |= {seen(client), seen(server)}
            client.close()
            server.close()
        show("names of connections one after the other", len(names))
    client, server = pair()
    executed(f"print(it.getsockopt(1, {COOKIE}, 8))", client)
    show("by another program", executed(f"print(it.getsockopt(1, {COOKIE}, 8))", client) == str(client.getsockopt(SOL, COOKIE, 8)))
    show("protocol", said(os.getxattr, client.fileno(), "system.sockprotoname"))
    show("protocol", said(os.getxattr, f"/proc/self/fd/{client.fileno()}", "system.sockprotoname"))
    show("other attributes", said(os.getxattr, client.fileno(), "user.x"))
    client, server = pair(socket.AF_INET6, HOST6)
    show("protocol of ipv6", said(os.getxattr, client.fileno(), "system.sockprotoname"))


for part in (modes, signals, spans, peeks, options, sockets, identities):
    show("##", part.__name__)
    part()
