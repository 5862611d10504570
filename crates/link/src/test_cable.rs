//! A veth pair in a test's own namespace, with a link at either end.

use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::interface::{Interface, Namespace};
use crate::test_frames::whole;
use crate::{Link, Offload};

pub(crate) const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub(crate) const NODE: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The pair. Its interfaces are `near` and `far`, with four queues each, and
/// up.
pub(crate) struct Cable(pub(crate) Namespace);

impl Cable {
    pub(crate) fn new() -> Cable {
        let cable = Cable(Namespace::create().expect("a network namespace"));
        let queues = "numrxqueues 4 numtxqueues 4";
        cable.ip(&format!(
            "link add near {queues} type veth peer name far {queues}"
        ));
        for end in ["near", "far"] {
            cable.interface(end).set_up(true).unwrap();
        }
        cable
    }

    pub(crate) fn ip(&self, line: &str) -> String {
        let done = self.0.run(|| Command::new("ip").args(line.split(' ')).output());
        let done = done.unwrap().expect("ip");
        assert!(done.status.success(), "{line}");
        String::from_utf8(done.stdout).unwrap()
    }

    pub(crate) fn interface(&self, name: &str) -> Interface {
        Interface::open(&self.0, name).unwrap()
    }
}

/// Returns the next frame of the experimental EtherType or of TCP over IPv4. The
/// kernel's own frames, as when an interface goes up, are skipped.
pub(crate) fn next(link: &mut impl Link) -> (Vec<u8>, Offload) {
    let patience = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    loop {
        let mut found = None;
        link.receive(0, 1, &mut |frame| {
            let frame = (whole(frame), frame.offload);
            if matches!(frame.0[12..14], [0x88, 0xb5] | [8, 0]) {
                assert!(found.is_none(), "more than was asked for");
                found = Some(frame);
            }
        });
        if let Some(found) = found {
            return found;
        }
        let descriptor = link.descriptor().expect("the link has a descriptor");
        let came = poll(
            &mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)],
            Some(&patience),
        );
        assert_eq!(came, Ok(1), "no frame comes");
    }
}
