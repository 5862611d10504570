//! Two programs of two nodes: one gives back what the other one sends.
//!
//! ```text
//! toehold up a b
//! cargo run --example echo -- serve a &
//! cargo run --example echo -- ask b 10.77.0.1 10000
//! ```

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use toehold_socket::{Fabric, Node, TcpListener, TcpStream};

/// Where the echo service is, by custom.
const PORT: u16 = 7;

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(5);

const USAGE: &str = "usage: echo serve NODE           until the node ends
       echo ask NODE ADDRESS ROUNDS";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["serve", node] => serve(node),
        ["ask", node, address, rounds] => match (address.parse(), rounds.parse()) {
            (Ok(address), Ok(rounds)) => ask(node, address, rounds),
            _ => Err(USAGE.into()),
        },
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// The node of that name in the fabric that `TOEHOLD_FABRIC` names.
fn attach(name: &str) -> Result<Node, Box<dyn std::error::Error>> {
    let fabric = std::env::var("TOEHOLD_FABRIC").unwrap_or_else(|_| "default".into());
    Ok(Node::attach(&Fabric::existing(&fabric)?, name)?)
}

fn serve(node: &str) -> Outcome {
    let node = attach(node)?;
    let listener = TcpListener::bind(&node, (Ipv4Addr::UNSPECIFIED, PORT))?;
    println!("{} listens on port {PORT}", node.name());
    loop {
        let (stream, peer) = listener.accept()?;
        std::thread::spawn(move || {
            if let Err(error) = answer(stream) {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            len => stream.write_all(&bytes[..len])?,
        }
    }
}

/// Connects to a server that may be about to start.
fn connect(node: &Node, address: IpAddr) -> io::Result<TcpStream> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(node, (address, PORT)) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && began.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            connected => return connected,
        }
    }
}

fn ask(node: &str, address: IpAddr, rounds: usize) -> Outcome {
    let node = attach(node)?;
    let mut stream = connect(&node, address)?;
    stream.set_nodelay(true)?;
    let mut round_trips = Vec::with_capacity(rounds);
    for round in 0..rounds as u64 {
        let began = Instant::now();
        stream.write_all(&round.to_le_bytes())?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer)?;
        round_trips.push(began.elapsed());
        if u64::from_le_bytes(answer) != round {
            return Err(format!("sent {round}, got {answer:?}").into());
        }
    }
    round_trips.sort();
    if let Some(median) = round_trips.get(rounds / 2) {
        println!("{rounds} answers, round trip {median:?} (median)");
    }
    Ok(())
}
