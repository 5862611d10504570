"""Which ports may be bound while connections have them, and the results of calls on a dissolved socket. The output is the
same on a node and over the kernel."""

import ctypes
import errno
import select
import socket
import struct

from said import said, show

libc = ctypes.CDLL(None, use_errno=True)
REUSE = (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def made(reuses, family=socket.AF_INET):
    s = socket.socket(family)
    if reuses:
        s.setsockopt(*REUSE)
    return s


def listening(reuses, backlog=8):
    s = made(reuses)
    s.bind(("127.0.0.1", 0))
    s.listen(backlog)
    return s


def pair(listener, reuses=False):
    client = made(reuses)
    client.connect(listener.getsockname())
    return client, listener.accept()[0]


def binds(what, port, reuses=False):
    """Results of binding to a port, at addresses that may have it and others."""
    results = []
    for host, family, only in (
        ("127.0.0.1", socket.AF_INET, 0),
        ("0.0.0.0", socket.AF_INET, 0),
        ("127.0.0.2", socket.AF_INET, 0),
        ("::", socket.AF_INET6, 0),
        ("::", socket.AF_INET6, 1),
        ("::ffff:127.0.0.1", socket.AF_INET6, 0),
    ):
        with made(reuses, family) as s:
            if family == socket.AF_INET6:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
            results.append(said(s.bind, (host, port)))
    show(what, reuses, *results)


listener = listening(False)
client, server = pair(listener)
port, own = listener.getsockname()[1], client.getsockname()[1]
for reuses in (False, True):
    binds("port of a client", own, reuses)
    binds("port of a listener", port, reuses)
listener.close()
for reuses in (False, True):
    binds("port of a shut listener", port, reuses)
client.close()
show(server.recv(9))
server.close()
binds("port in TIME-WAIT", own)

listener = listening(True)
client, server = pair(listener, True)
port, own = listener.getsockname()[1], client.getsockname()[1]
show(said(listener.shutdown, socket.SHUT_RDWR), said(listener.accept))
for reuses in (False, True):
    binds("port of a client that shares it", own, reuses)
listener.close()
for reuses in (False, True):
    binds("port that others may have", port, reuses)
    binds("port of a client that shares it", own, reuses)
again = made(True)
show("bound again", said(again.bind, ("127.0.0.1", port)), said(again.listen, 1))
again.close()
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
client.close()
show(said(server.recv, 9))
binds("port of a reset connection", own)
server.close()
binds("port of nobody", own)
twice = made(True)
twice.bind(("127.0.0.1", 0))
show("bound twice", said(twice.bind, ("127.0.0.1", port)))


def dissolve(s):
    done = libc.connect(s.fileno(), struct.pack("=H14x", socket.AF_UNSPEC), 16)
    return errno.errorcode[ctypes.get_errno()] if done < 0 else done


def error(s):
    """The pending error, and the state after it."""
    names = [errno.errorcode.get(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) for _ in range(2)]
    return names


def events(s):
    poll = select.poll()
    poll.register(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    told = poll.poll(0)
    with select.epoll() as epoll:
        epoll.register(s, select.EPOLLIN | select.EPOLLOUT)
        return told and told[0][1], epoll.poll(0) and epoll.poll(0)[0][1]


listener = listening(True)
for family in (socket.AF_INET, socket.AF_INET6):
    for what in ("error", "recv", "send", "connect", "nothing sent"):
        client = made(False, family)
        mapped = "::ffff:127.0.0.1" if family == socket.AF_INET6 else "127.0.0.1"
        client.connect((mapped, listener.getsockname()[1]))
        server = listener.accept()[0]
        show("dissolved", what, dissolve(client), events(client), said(server.recv, 9))
        if what == "recv":
            show(said(client.recv, 9), said(client.recv, 9))
        elif what == "send":
            show(said(client.send, b"x", socket.MSG_NOSIGNAL), said(client.send, b"x", socket.MSG_NOSIGNAL))
        elif what == "connect":
            show(said(client.connect, (mapped, listener.getsockname()[1])), error(client))
            show(client.send(b"bytes"), listener.accept()[0].recv(9))
        show(error(client))

client, server = pair(listener)
server.close()
show("ended", client.recv(9), dissolve(client), error(client))
client, server = pair(listener)
client.shutdown(socket.SHUT_WR)
server.recv(9)
server.close()
show("ended by both", client.recv(9), dissolve(client), error(client))
show("never connected", dissolve(made(False)), error(made(False)))
listener.close()


def attempt():
    """A connection that is being set up, since its listener is full."""
    full = listening(True, 0)
    clients = []
    for _ in range(8):
        client = made(False)
        client.setblocking(False)
        client.connect_ex(full.getsockname())
        if not select.select([], [client], [], 0.1)[1]:
            return full, clients, client
        clients.append(client)
    raise SystemExit("the listener is never full")


for how in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR, None):
    full, clients, client = attempt()
    show("attempt", said(client.shutdown, how) if how is not None else dissolve(client), events(client), error(client))
    show(said(client.getpeername), events(client))
    for each in clients:
        each.close()
    show(said(client.connect, full.getsockname()), dissolve(client), error(client))
    full.close()

# A listener reports no event.
for how in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR, None):
    listener = listening(True)
    done = said(listener.shutdown, how) if how is not None else dissolve(listener)
    show("listener", done, events(listener), error(listener), said(listener.listen))
    listener.close()
