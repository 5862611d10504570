"""Connections whose first bytes travel with the SYN (TCP Fast Open). Arguments: `serve`, the address of the server, a
port that takes such bytes, one that does not, and one that takes them without a cookie; or `ask`, these, and a port
without a listener."""

import os
import select
import socket
import sys
import threading

from said import said, show

FASTOPEN, TCP_FASTOPEN, CONNECT, NO_COOKIE, SYN_DATA, CHILD = 0x20000000, 23, 30, 34, 32, 128
PART, HOST, (TAKES, PLAIN, FREE) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:6])


def options(s):
    return s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)[5]


def why_not(s):
    """The kernel's counters of data that did not arrive with the SYN."""
    return s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)[7] >> 1 & 3


def echo(connection):
    with connection:
        early = options(connection) & (SYN_DATA | CHILD)
        connection.sendall(b"1" if early == SYN_DATA | CHILD else b"0")
        while text := connection.recv(1000):
            connection.sendall(text)


def serve(port, set_up):
    listener = socket.create_server((HOST, port))
    for name, value in set_up:
        listener.setsockopt(socket.IPPROTO_TCP, name, value)
    while True:
        threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()


if PART == "serve":
    threading.Thread(target=serve, args=(PLAIN, []), daemon=True).start()
    free = [(TCP_FASTOPEN, 16), (NO_COOKIE, 1)]
    threading.Thread(target=serve, args=(FREE, free), daemon=True).start()
    serve(TAKES, [(TCP_FASTOPEN, 16)])


def heard(s, text):
    """Whether the server got bytes early, whether it got all of them, and what this side knows of it."""
    s.setblocking(True)
    back = b""
    while len(back) <= len(text):
        back += s.recv(1000)
    return back[:1] == b"1", back[1:] == text, options(s) & SYN_DATA != 0, why_not(s)


def made(blocking=True, **set_up):
    s = socket.socket()
    s.setblocking(blocking)
    for name in set_up:
        s.setsockopt(socket.IPPROTO_TCP, globals()[name], 1)
    return s


TEXT = bytes(range(250)) * 4
s = made()
show("first", said(s.sendto, TEXT, FASTOPEN, (HOST, TAKES)), heard(s, TEXT))
s = made()
show("next", said(s.sendto, TEXT, FASTOPEN, (HOST, TAKES)), heard(s, TEXT))
show("again", said(s.sendto, TEXT, FASTOPEN, (HOST, TAKES)))
s = made(blocking=False)
sent = s.sendto(TEXT * 200, FASTOPEN, (HOST, TAKES))
show("no wait", 0 < sent, heard(s, (TEXT * 200)[:sent]))
s = made()
show("parts", said(s.sendmsg, [TEXT[:1], b"", TEXT[1:]], [], FASTOPEN, (HOST, TAKES)), heard(s, TEXT))
s = made()
show("long", said(s.sendto, TEXT * 200, FASTOPEN, (HOST, TAKES)), heard(s, TEXT * 200))
s = made()
show("plain", said(s.sendto, TEXT, FASTOPEN, (HOST, PLAIN)), heard(s, TEXT))
s = made()
show("refused", said(s.sendto, TEXT, FASTOPEN, (HOST, int(sys.argv[6]))))

# With this option `connect` leaves the SYN to the first bytes.
s = made(CONNECT=1)
show("connected", said(s.connect, (HOST, TAKES)), said(s.getpeername), said(s.connect, (HOST, TAKES)))
show(select.select([], [s], [], 0)[1] == [s], s.getsockopt(socket.IPPROTO_TCP, CONNECT))
show("written", said(s.send, TEXT), heard(s, TEXT), said(s.getpeername) == (HOST, TAKES))
s = made(blocking=False, CONNECT=1)
show("no wait", said(s.connect, (HOST, TAKES)), said(s.recv, 1), said(s.send, TEXT), heard(s, TEXT))
s = made(CONNECT=1)
s.connect((HOST, TAKES))
child = os.fork()
if child == 0:
    s.sendall(TEXT)
    os._exit(0)
os.waitpid(child, 0)
show("of a child", heard(s, TEXT))
s = made(CONNECT=1)
s.connect((HOST, TAKES))
s.close()
s = made(CONNECT=1)
show("refused", said(s.connect, (HOST, int(sys.argv[6]))), said(s.send, TEXT))

# Nor does it take a cookie if both sides say so.
s = made(NO_COOKIE=1)
show("without", said(s.sendto, TEXT, FASTOPEN, (HOST, FREE)), heard(s, TEXT))
show(said(s.setsockopt, socket.IPPROTO_TCP, NO_COOKIE, 1), said(made().setsockopt, 6, NO_COOKIE, 2))
