//! Polls on nodes with direct connections.

use std::io::{Read, Write};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use toehold_socket::{Events, Interest, Poll, TcpListener, TcpStream, Token};

use crate::support::{World, within};

const LISTENER: Token = Token(1);
const CONNECTION: Token = Token(2);

/// Regression: a thread that looked, and had not gone to sleep yet, did not hear of a connection over
/// TCP that another thread registered. The thread slept without driving the stack. Servers that pass
/// idle connections to one waiting thread hung, such as Apache's event model.
#[test]
fn thread_about_to_wait_hears_of_connection_over_tcp() {
    const ROUNDS: usize = 2000;
    within(60, || {
        let world = World::half_direct(["server", "client"]);
        let (server, client) = (world.attach("server"), world.attach("client"));
        let listener = TcpListener::bind(&server, (world.address(0), 0)).unwrap();
        let poll = Poll::new(&server).unwrap();
        poll.registry()
            .register(&listener, LISTENER, Interest::READABLE)
            .unwrap();
        let mut stream = TcpStream::connect(&client, listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        let (peer, waiting) = (&peer, &poll);
        thread::scope(|scope| {
            let (tell, told) = channel();
            scope.spawn(move || {
                let mut events = Events::with_capacity(4);
                for _ in 0..ROUNDS {
                    waiting.wait(&mut events, None, &[]).unwrap();
                    assert!(events.iter().all(|event| event.token() == CONNECTION));
                    waiting.registry().deregister(peer).unwrap();
                    tell.send(()).unwrap();
                }
            });
            for round in 0..ROUNDS {
                stream.write_all(b"?").unwrap();
                // Now and then the thread is asleep by then.
                if round % 100 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                let registry = poll.registry();
                registry.register(peer, CONNECTION, Interest::READABLE).unwrap();
                told.recv().unwrap();
                let mut received = [0];
                (&*peer).read_exact(&mut received).unwrap();
            }
        });
    });
}
