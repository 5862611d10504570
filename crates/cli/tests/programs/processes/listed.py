"""Connections and listeners of a program in the lists of `/proc`, as it and others read them. The output is the same on a
node and over the kernel."""

import ctypes
import os
import socket
import subprocess
import sys

from said import said, show

STATES = {"01": "connected", "0A": "listens", "06": "time-wait"}


def read(path):
    with open(path) as file:
        return file.read()


def past(path):
    """Reads by the program's own system call."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.syscall(257, -100, path.encode(), 0, 0)
    with open(number) as file:
        return file.read()


def within(path):
    """Reads through a directory's descriptor."""
    folder, name = path.rsplit("/net/", 1)
    number = os.open(folder, os.O_RDONLY)
    opened = os.open("net/" + name, os.O_RDONLY, dir_fd=number)
    os.close(number)
    with open(opened) as file:
        return file.read()


def standard(path):
    """Reads through libc's own streams."""
    return subprocess.run(["cat", path], stdout=subprocess.PIPE, text=True).stdout


def lines(text, port):
    """State, queues and owner of the sockets at a port."""
    inodes = {}
    for number in os.listdir("/proc/self/fd"):
        link = said(os.readlink, f"/proc/self/fd/{number}")
        if link.startswith("socket:["):
            inodes[link[8:-1]] = int(number)
    found = []
    for line in text.splitlines()[1:]:
        words = line.split()
        ports = [int(end.split(":")[1], 16) for end in words[1:3]]
        if port in ports:
            mine = "mine" if words[9] in inodes else "nobody's" if words[9] == "0" else "another's"
            found.append((STATES.get(words[3], words[3]), ports[0] == port, words[4], mine, len(words)))
    return sorted(found)


for family, host, name in ((socket.AF_INET, "127.0.0.1", "tcp"), (socket.AF_INET6, "::1", "tcp6")):
    listener = socket.socket(family)
    listener.bind((host, 0))
    listener.listen(5)
    port = listener.getsockname()[1]
    client = socket.socket(family)
    client.connect(listener.getsockname())
    server, _ = listener.accept()
    server.sendall(b"to be read")
    client.recv(1, socket.MSG_PEEK)
    for path in (f"/proc/net/{name}", f"/proc/self/net/{name}", f"/proc/{os.getpid()}/net/{name}"):
        for how in (read, past, within, standard):
            if how is standard and "self" in path:
                continue
            show(name, how.__name__, lines(how(path), port))
    waiting = socket.create_connection((host, port))
    show("one waits", [line for line in lines(read(f"/proc/net/{name}"), port) if line[0] == "listens"])
    show("head", read(f"/proc/net/{name}").splitlines()[0].split()[:4])
    show("as it is", said(os.stat, f"/proc/net/{name}").st_size)
    for it in (client, server, waiting, listener):
        it.close()
mapped = socket.socket(socket.AF_INET6)
listener = socket.create_server(("127.0.0.1", 0))
mapped.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
port = listener.getsockname()[1]
show("mapped", [line[0] for line in lines(read("/proc/net/tcp6"), port)], len(lines(read("/proc/net/tcp"), port)))
