"""Echoes the bytes of each connection until its end. Arguments: address and port."""

import socket
import sys
import threading


def echo(connection):
    with connection:
        try:
            while said := connection.recv(1000):
                connection.sendall(said)
        except OSError:
            pass


listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
