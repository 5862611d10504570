"""Connections and listeners whose last process closes them or ends. The output is the same on a node and over the
kernel."""

import ctypes
import os
import signal
import socket
import struct
import time

from said import said, show

HOST = "127.0.0.1"
TIMES = 20
libc = ctypes.CDLL(None, use_errno=True)


def often(name, scene, *arguments):
    """Reads until the end."""
    show(name, *arguments, sorted({str(scene(*arguments)) for _ in range(TIMES)}))


def listening():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, 0))
    listener.listen(8)
    return listener


def reached(address):
    with socket.socket() as client:
        client.settimeout(10)
        return said(client.connect, address)


WAITS = {
    "wait": lambda child: os.wait(),
    "waitpid": lambda child: os.waitpid(child, 0),
    "without status": lambda child: libc.waitpid(child, None, 0),
    "wait3": lambda child: os.wait3(0),
    "wait4": lambda child: os.wait4(child, 0),
    "waitid": lambda child: os.waitid(os.P_PID, child, os.WEXITED),
    "without information": lambda child: libc.syscall(waitid, 1, child, None, 4, None),
    "only to know": lambda child: (os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT), os.waitpid(child, 0))[0],
    "until it is there": lambda child: poll_for(child),
}
waitid = {"x86_64": 247, "aarch64": 95}[os.uname().machine]


def poll_for(child):
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0)


def of_another(end, wait, unread):
    """Results of calls on a connection whose other end belonged to an ended process."""
    listener = listening()
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        other = socket.create_connection(listener.getsockname())
        other.send(b"x")
        os.read(told, 1)
        if end == "becomes another":
            os.execv("/bin/true", ["true"])
        os._exit(0)
    one = listener.accept()[0]
    listener.close()
    one.recv(1)
    if unread:
        one.send(b"unread")
    one.setblocking(False)
    match end:
        case "killed":
            os.kill(child, signal.SIGKILL)
        case "told":
            os.kill(child, signal.SIGTERM)
        case _:
            os.write(tell, b".")
    WAITS[wait](child)
    os.close(told)
    os.close(tell)
    return said(one.recv, 9)


def of_a_listener_elsewhere():
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        listener = listening()
        os.write(tell, str(listener.getsockname()[1]).encode())
        listener.settimeout(0.002)
        said(listener.accept)
        os._exit(0)
    at = HOST, int(os.read(told, 9))
    os.waitpid(child, 0)
    os.close(told)
    os.close(tell)
    return reached(at)


def left_to_a_child():
    """Only a child still has this connection; it has never used the connection, and ends."""
    listener = listening()
    one = socket.create_connection(listener.getsockname())
    other = listener.accept()[0]
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        os.read(told, 1)
        os._exit(0)
    other.close()
    one.setblocking(False)
    first = said(one.recv, 1)
    os.write(tell, b".")
    os.waitpid(child, 0)
    os.close(told)
    os.close(tell)
    return first, said(one.recv, 1)


def closed_after_a_fork(how, unread):
    listener = listening()
    one = socket.create_connection(listener.getsockname())
    other = listener.accept()[0]
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    one.setblocking(False)
    if unread:
        one.send(b"unread")
    match how:
        case "close":
            other.close()
        case "linger":
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
            other.close()
        case "reset":
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            other.close()
        case "last copy":
            copy = other.dup()
            other.close()
            copy.close()
        case "range":
            os.closerange(other.fileno(), other.fileno() + 1)
            other.detach()
        case "over":
            os.dup2(listener.fileno(), other.fileno())
    return said(one.recv, 1)


def closed_listener_after_a_fork(again):
    listener = listening()
    at = listener.getsockname()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    listener.close()
    if not again:
        return reached(at)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return said(listener.bind, at), said(listener.listen), reached(at)


for end in ("exits", "killed", "told", "becomes another"):
    for unread in (False, True):
        often("of another", of_another, end, "waitpid", unread)
for wait in WAITS:
    often("of another", of_another, "killed", wait, False)
often("of another's listener", of_a_listener_elsewhere)
often("left to a child", left_to_a_child)
for how in ("close", "linger", "reset", "last copy", "range", "over"):
    for unread in (False, True):
        often("closed after a fork", closed_after_a_fork, how, unread)
for again in (False, True):
    often("closed listener", closed_listener_after_a_fork, again)
