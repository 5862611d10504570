"""The differences to the kernel that docs/conformance.md lists, one line each."""
import ctypes, errno, mmap, os, select, socket, struct

libc = ctypes.CDLL(None, use_errno=True)


def says(name, act):
    try:
        print(name + ":", act(), flush=True)
    except OSError as error:
        print(name + ":", errno.errorcode[error.errno], flush=True)


def pair():
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server = listener.accept()[0]
    listener.close()
    return client, server


def buffer(option, value):
    client, _ = pair()
    client.setsockopt(socket.SOL_SOCKET, option, value)
    return client.getsockopt(socket.SOL_SOCKET, option) // 2 <= 16 << 20


def address_form():
    client = socket.socket(socket.AF_INET6)
    listener = socket.create_server(("127.0.0.1", 0))
    client.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
    client.setsockopt(socket.IPPROTO_IPV6, 1, socket.AF_INET)
    return "taken"


def bind_after_reset():
    client, server = pair()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()
    try:
        client.recv(1)
    except OSError:
        pass
    client.bind(("127.0.0.1", 0))
    return "bound"


def told_at_once():
    instance = select.epoll()
    pairs = [pair() for _ in range(600)]
    for client, server in pairs:
        server.sendall(b"x")
        instance.register(client, select.EPOLLIN)
    return len(instance.poll(5, 1000))


def zero_copy():
    client, _ = pair()
    client.setsockopt(socket.SOL_SOCKET, 60, 1)
    return "taken"


def stamps():
    client, _ = pair()
    # SOF_TIMESTAMPING_TX_SOFTWARE.
    client.setsockopt(socket.SOL_SOCKET, 37, 2)
    return "taken"


def congestion():
    client, _ = pair()
    names = open("/proc/sys/net/ipv4/tcp_available_congestion_control").read().split()
    for name in names:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(name.encode())
    return "taken"


def descriptor_of_node():
    try:
        os.fstat(100)
        return "open"
    except OSError:
        return "closed"


def child_shuts_listener():
    listener = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if not child:
        listener.shutdown(socket.SHUT_RDWR)
        os._exit(0)
    os.waitpid(child, 0)
    client = socket.create_connection(listener.getsockname(), 5)
    return "connected"


def maps():
    client, _ = pair()
    mmap.mmap(client.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ)
    return "mapped"


def in_another_namespace():
    listener = socket.create_server(("127.0.0.1", 0))
    # CLONE_NEWNET.
    if libc.unshare(0x40000000):
        return "not allowed"
    socket.create_connection(listener.getsockname(), 5)
    return "connected"


def environment():
    read, write = os.pipe()
    child = os.posix_spawn("/usr/bin/env", ["env"], {"A": "b"}, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)])
    os.close(write)
    lines = os.fdopen(read).read().split()
    os.waitpid(child, 0)
    return " ".join(sorted(line.split("=")[0] for line in lines))


for name, act in [
    ("send buffer of 16 MiB at most", lambda: buffer(socket.SO_SNDBUF, 1 << 30)),
    ("receive buffer of 16 MiB at most", lambda: buffer(socket.SO_RCVBUF, 1 << 30)),
    ("IPV6_ADDRFORM", address_form),
    ("bind after a reset", bind_after_reset),
    ("told at once", told_at_once),
    ("SO_ZEROCOPY", zero_copy),
    ("stamps of what is sent", stamps),
    ("every congestion control", congestion),
    ("descriptor 100", descriptor_of_node),
    ("a child shuts a listener", child_shuts_listener),
    ("mmap", maps),
    ("environment of a child", environment),
    ("another network namespace", in_another_namespace),
]:
    says(name, act)
