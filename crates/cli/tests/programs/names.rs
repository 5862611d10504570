//! Names of nodes in programs that resolve names by themselves.

use rustix::process::Signal;

use crate::{Place, alike};

/// Asks c-ares for a host, as gRPC does, and fetches from there.
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

/// Reads the file of hosts once it has read how names are resolved.
const READS: &str = "
import sys
assert sys.argv[1] not in open('/etc/hosts').read().split()
open('/etc/resolv.conf').close()
lines = [line.split() for line in open('/etc/hosts')]
print([sys.argv[2], sys.argv[1]] in lines or sys.argv[1] == 'nobody')
";

/// They found nobody.
#[test]
#[ignore = "needs python3, libcares.so.2"]
fn who_resolves_names_by_itself_finds_nodes() {
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
fn others_have_the_file_of_hosts_as_it_is() {
    alike(0, |place: &Place| {
        let name = if place.nodes.is_some() { "server" } else { "nobody" };
        let read = place.says(&["python3", "-c", READS, name, place.address()]);
        (read, place.gets(&["sed", "s/a/b/", "/etc/hosts"]))
    });
}
