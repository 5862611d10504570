"""Effects of options, one by one; the first argument names the part. The output is the same on a node and over the kernel."""

import ctypes
import socket
import struct
import sys
import time

from said import said, show

SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF, SO_ATTACH_FILTER, SO_DETACH_FILTER = 51, 52, 26, 27
SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING, SO_MAX_PACING_RATE = 29, 35, 37, 47
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
TX_SOFTWARE, TX_ACK, RX_SOFTWARE, SOFTWARE = 2, 512, 8, 16
TCP_INQ = 36


def three(prepare=lambda listener, client: None):
    """A listener, and both ends of a connection to it."""
    listener, client = socket.socket(), socket.socket()
    prepare(listener, client)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    client.connect(listener.getsockname())
    return listener, client, listener.accept()[0]


def stamps():
    """Stamps of received data: which messages there are, and that the times are recent."""
    _, client, server = three()
    wanted = [(SO_TIMESTAMP, 1), (SO_TIMESTAMPNS, 1), (SO_TIMESTAMPING, RX_SOFTWARE | SOFTWARE)]
    wanted += [(63, 1), (64, 1), (65, RX_SOFTWARE | SOFTWARE), (64, 0), (65, 0)]
    for option, value in wanted:
        show(option, value, said(server.setsockopt, socket.SOL_SOCKET, option, value))
        show(server.getsockopt(socket.SOL_SOCKET, option))
        for room in (1000, 20, 0):
            client.send(b"some")
            data, messages, flags, _ = server.recvmsg(100, room)
            near = [abs(struct.unpack("q", data[:8])[0] - time.time()) < 60 for _, _, data in messages if len(data) > 8]
            show([(level, kind, len(data)) for level, kind, data in messages], near, flags)
    server.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1)
    server.setsockopt(socket.IPPROTO_TCP, TCP_INQ, 1)
    client.send(b"more")
    show([(level, kind, len(data)) for level, kind, data in server.recvmsg(2, 1000)[1]])
    set = lambda listener, client: listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    _, client, server = three(set)
    client.send(b"some")
    show([(level, kind, len(data)) for level, kind, data in server.recvmsg(100, 1000)[1]])


def sent_stamps():
    """Stamps of sent data: they are reported, or refused."""

    def told(one):
        found = 0
        time.sleep(0.1)
        while not isinstance(said(one.recvmsg, 100, 1000, socket.MSG_ERRQUEUE), str):
            found += 1
        return found > 0

    for when in ("before", "after"):
        for flags in (TX_SOFTWARE | SOFTWARE, TX_ACK | SOFTWARE, TX_SOFTWARE | TX_ACK | SOFTWARE | 128 | 2048):
            answers = []
            set = lambda one: answers.append(said(one.setsockopt, socket.SOL_SOCKET, SO_TIMESTAMPING, flags & (128 - 1 | 512)))
            _, client, _ = three(lambda listener, client: set(client) if when == "before" else None)
            if when == "after":
                set(client)
            client.send(b"some")
            show(when, flags, "right" if answers == ["EINVAL"] or answers == [None] and told(client) else answers)
    _, client, _ = three()
    show(said(client.setsockopt, socket.SOL_SOCKET, SO_TIMESTAMPING, SOFTWARE))
    for value in (TX_SOFTWARE, TX_ACK):
        message = (socket.SOL_SOCKET, SO_TIMESTAMPING, struct.pack("I", value))
        sent = said(client.sendmsg, [b"some"], [message])
        show("right" if sent == "EINVAL" or sent == 4 and told(client) else sent)
    message = (socket.SOL_SOCKET, SO_TIMESTAMPING, struct.pack("I", 0))
    show(said(client.sendmsg, [b"some"], [message]))


def choosers():
    """Programs that choose one of several listeners work, or are refused."""
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 1))
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(code))
    alone = socket.socket()
    alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    early = said(alone.setsockopt, socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program)
    listeners = []
    for _ in range(3):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(listeners[0].getsockname() if listeners else ("127.0.0.1", 0))
        listeners.append(one)
    for one in listeners:
        one.listen()
        one.setblocking(False)
    late = said(listeners[0].setsockopt, socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program)
    kept = [socket.create_connection(listeners[0].getsockname()) for _ in range(12)]
    time.sleep(0.1)
    counts = []
    for one in listeners:
        counts.append(0)
        while not isinstance(said(one.accept), str):
            counts[-1] += 1
    obeyed = counts == [0, 12, 0]
    show(sum(counts), early == late and (late == "ENOPROTOOPT" or late is None and obeyed))


def filters():
    """Programs that filter received data."""
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFFFFFF))
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(code))
    _, _, server = three()
    show(said(server.setsockopt, socket.SOL_SOCKET, SO_DETACH_FILTER, 0))
    show(said(server.setsockopt, socket.SOL_SOCKET, SO_ATTACH_FILTER, program) in (None, "ENOPROTOOPT"))
    server.setsockopt(socket.SOL_SOCKET, 44, 1)
    show(said(server.setsockopt, socket.SOL_SOCKET, SO_ATTACH_FILTER, program))
    show(said(server.setsockopt, socket.SOL_SOCKET, SO_DETACH_FILTER, 0))
    show(said(server.setsockopt, socket.SOL_SOCKET, 44, 0))


def pace():
    """A lowered bound is kept, and a removed one has no effect."""
    _, client, server = three()
    for form, rate in (("I", 1_000_000), ("Q", 1_000_000)):
        client.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack(form, rate))
        show([client.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, len)[:4] for len in (4, 8)])
        told = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 120)
        show(struct.unpack_from("Q", told, 112)[0])
        began, left = time.monotonic(), 700_000
        client.setblocking(False)
        while left:
            sent = said(client.send, bytes(min(left, 65536)))
            left -= sent if isinstance(sent, int) else 0
            said(server.recv, 1 << 20, socket.MSG_DONTWAIT)
        while struct.unpack("I", __import__("fcntl").ioctl(client, 0x5411, bytes(4)))[0]:
            said(server.recv, 1 << 20, socket.MSG_DONTWAIT)
        client.setblocking(True)
        show("as slow as that" if time.monotonic() - began > 0.25 else "faster")
    for all in (b"\xff" * 4, b"\xff" * 8):
        client.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, all)
        show(client.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 8))


def forced():
    """Buffers beyond the system's bound for ordinary users."""
    for prepare in (0, 1):
        set = lambda one: [
            said(one.setsockopt, socket.SOL_SOCKET, option, 40 << 20) for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE)
        ]
        listener, client, server = three(lambda listener, client: prepare and (set(listener), set(client)))
        if not prepare:
            show(set(client), set(server))
        for one in (client, server):
            show([one.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)])


def info():
    """Fields of TCP_INFO that the kernel fills after traffic in both directions."""
    _, client, server = three()
    for one, other in ((client, server), (server, client)):
        for _ in range(20):
            one.sendall(bytes(50_000))
            left = 50_000
            while left:
                left -= len(other.recv(left))
    time.sleep(0.05)
    fields = dict(
        options=(5, "B"), wscale=(6, "B"), rto=(8, "I"), ato=(12, "I"), snd_mss=(16, "I"), rcv_mss=(20, "I"),
        last_data_sent=(44, "I"), last_data_recv=(52, "I"), last_ack_recv=(56, "I"), pmtu=(60, "I"),
        rcv_ssthresh=(64, "I"), rtt=(68, "I"), snd_ssthresh=(76, "I"), snd_cwnd=(80, "I"),
        advmss=(84, "I"), reordering=(88, "I"), rcv_space=(96, "I"), pacing_rate=(104, "Q"), max_pacing_rate=(112, "Q"),
        bytes_acked=(120, "Q"), bytes_received=(128, "Q"), segs_out=(136, "I"), segs_in=(140, "I"), min_rtt=(148, "I"),
        data_segs_in=(152, "I"), data_segs_out=(156, "I"), delivery_rate=(160, "Q"),
        delivered=(192, "I"), bytes_sent=(200, "Q"), snd_wnd=(228, "I"), rcv_wnd=(232, "I"),
    )
    for one in (client, server):
        told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 512)
        show(len(told), [len(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, room)) for room in (1, 8, 104, 232, 248)])
        value = {name: struct.unpack_from(form, told, at)[0] for name, (at, form) in fields.items()}
        show([name for name in fields if not value[name]])
        show(value["bytes_sent"], value["bytes_received"], value["bytes_acked"] // 1000)
        show(value["segs_out"] >= value["data_segs_out"] > 10, value["segs_in"] >= value["data_segs_in"] > 10)
        show(value["data_segs_out"] * value["snd_mss"] >= 1_000_000, value["max_pacing_rate"] == (1 << 64) - 1)
        show(all(40 <= value[name] < 10_000 for name in ("last_data_sent", "last_data_recv", "last_ack_recv")))


globals()[sys.argv[1]]()
