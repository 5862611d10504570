//! Names of nodes in programs with their own name resolution.

use rustix::process::Signal;

use crate::{Place, alike};

/// Resolves a host with c-ares, as gRPC does, and fetches from it.
const FETCHES: &str = "
import ctypes, socket, sys, urllib.request
class Host(ctypes.Structure):
    _fields_ = [('name', ctypes.c_char_p), ('aliases', ctypes.c_void_p), ('family', ctypes.c_int),
                ('length', ctypes.c_int), ('addresses', ctypes.POINTER(ctypes.POINTER(ctypes.c_ubyte)))]
ares = ctypes.CDLL('libcares.so.2')
ares.ares_init.argtypes = [ctypes.c_void_p]
channel, found = ctypes.c_void_p(), []
assert ares.ares_init(ctypes.byref(channel)) == 0
@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.POINTER(Host))
def tell(_, status, timeouts, host):
    assert status == 0, status
    found.append(socket.inet_ntop(host[0].family, bytes(host[0].addresses[0][:host[0].length])))
ask = ares.ares_gethostbyname
ask.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
ask(channel, sys.argv[1].encode(), socket.AF_INET, tell, None)
print(found == [sys.argv[2]], urllib.request.urlopen(f'http://{found[0]}:{sys.argv[3]}/file').read())
";

/// Reads the hosts file after it has read the resolver configuration.
const READS: &str = "
import sys
assert sys.argv[1] not in open('/etc/hosts').read().split()
open('/etc/resolv.conf').close()
lines = [line.split() for line in open('/etc/hosts')]
print([sys.argv[2], sys.argv[1]] in lines or sys.argv[1] == 'nobody')
";

/// The answers of libc's functions for a host; the first ones use static memory.
const ASKED: &str = "
import ctypes, errno, socket, sys
class Host(ctypes.Structure):
    _fields_ = [('name', ctypes.c_char_p), ('aliases', ctypes.POINTER(ctypes.c_char_p)), ('family', ctypes.c_int),
                ('length', ctypes.c_int), ('addresses', ctypes.POINTER(ctypes.POINTER(ctypes.c_ubyte)))]
libc = ctypes.CDLL(None)
name, address = sys.argv[1].encode(), sys.argv[2]
def right(host, family):
    numbers = bytes(host.addresses[0][:host.length])
    return host.name == name and host.family == family and socket.inet_ntop(family, numbers) == address
for call in libc.gethostbyname, libc.gethostbyname2:
    call.restype = ctypes.POINTER(Host)
print(right(libc.gethostbyname(name)[0], socket.AF_INET))
print(right(libc.gethostbyname2(name, socket.AF_INET)[0], socket.AF_INET))
for call, family in (libc.gethostbyname_r, ()), (libc.gethostbyname2_r, (socket.AF_INET,)):
    for room in 0, 5, 1000:
        entry, found, error = Host(), ctypes.POINTER(Host)(), ctypes.c_int()
        buffer = ctypes.create_string_buffer(b'.' * (room + 8), room + 8)
        done = call(name, *family, ctypes.byref(entry), buffer, ctypes.c_size_t(room), ctypes.byref(found), ctypes.byref(error))
        print(errno.errorcode.get(done), bool(found) and right(entry, socket.AF_INET), buffer.raw[room:] == b'.' * 8)
print(socket.gethostbyname_ex(sys.argv[1])[0] == sys.argv[1], socket.getaddrinfo(sys.argv[1], None, socket.AF_INET, flags=socket.AI_CANONNAME)[0][3] == sys.argv[1])
";

#[test]
#[ignore = "needs python3"]
fn resolved_host_has_requested_name() {
    alike(0, |place: &Place| {
        let name = if place.nodes.is_some() {
            "server"
        } else {
            "localhost"
        };
        place.says(&["python3", "-c", ASKED, name, place.address()])
    });
}

/// Regression: they found no host.
#[test]
#[ignore = "needs python3, libcares.so.2"]
fn program_with_own_resolver_finds_nodes() {
    alike(1, |place: &Place| {
        place.file("www/file", "served");
        let port = place.port.to_string();
        let server = place.serve(&["python3", "-m", "http.server", "-d", "www", &port]);
        let name = if place.nodes.is_some() {
            "server"
        } else {
            "localhost"
        };
        let fetched = place.says(&["python3", "-c", FETCHES, name, place.address(), &port]);
        (fetched, server.end(Signal::TERM))
    });
}

#[test]
#[ignore = "needs python3"]
fn program_without_resolver_reads_unchanged_hosts_file() {
    alike(0, |place: &Place| {
        let name = if place.nodes.is_some() { "server" } else { "nobody" };
        let read = place.says(&["python3", "-c", READS, name, place.address()]);
        (read, place.gets(&["sed", "s/a/b/", "/etc/hosts"]))
    });
}
