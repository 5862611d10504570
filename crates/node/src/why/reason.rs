//! The reasons, and their words.

use std::fmt::{self, Display};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Makes the reasons and their table from the same rows. A row is a variant with its word, a
/// predicate for people, and what can be done about it.
macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $word:literal, $sentence:literal, $advice:literal;)+) => {
        /// The reason why something is the kernel's and not the node's. Its word never changes.
        ///
        /// ```
        /// use toehold_node::why::Reason;
        ///
        /// assert_eq!(Reason::SetId.word(), "set-id");
        /// assert_eq!(Reason::of_word("set-id"), Some(Reason::SetId));
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Reason { $($(#[doc = $doc])+ #[serde(rename = $word)] $variant,)+ }

        impl Reason {
            /// All reasons, in the order of the documentation.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)+];

            /// The reason's word, for people and programs.
            pub fn word(self) -> &'static str {
                match self { $(Reason::$variant => $word,)+ }
            }

            /// Advice about it: a sentence without its full stop.
            pub fn advice(self) -> &'static str {
                match self { $(Reason::$variant => $advice,)+ }
            }
        }

        impl Display for Reason {
            /// Writes the predicate about the program, the process, the socket or the connection.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Reason::$variant => $sentence,)+ })
            }
        }
    };
}

reasons! {
    /// The program has no dynamic linker.
    Static = "static",
        "is statically linked",
        "link it dynamically";
    /// The program is a dynamically linked Go program.
    Go = "go",
        "is a Go program, which makes its system calls itself and not through libc",
        "give the node a TAP device (`--tap`, `--net own`), by which the kernel's stack reaches the fabric";
    /// The program's C library is musl.
    MuslNoBuild = "musl-no-build",
        "uses the C library musl, for which there is no build of the library",
        "run a build of the program for glibc";
    /// The program has addresses of 32 bits.
    ThirtyTwoBit = "32-bit",
        "is a 32-bit program, into which the library cannot be loaded",
        "run a 64-bit build of the program";
    /// The program begins with other rights than its user has.
    SetId = "set-id",
        "begins with other rights than its user's (set-user-ID, set-group-ID, capabilities), so the dynamic \
         linker ignores LD_PRELOAD",
        "start it as the user that it is to be";
    /// The program was started without the library.
    NoPreload = "no-preload",
        "was started without the library in LD_PRELOAD, or could not load it",
        "keep LD_PRELOAD and the variables TOEHOLD_* in its environment, and the library readable to its user";
    /// The node does not let the process's user in.
    OtherUser = "other-user",
        "runs as a user whom the node does not let in",
        "start the node with --allow-user or --allow-group, or keep the descriptor that TOEHOLD_KEEPER names";
    /// No node of the name runs.
    NoNode = "no-node",
        "finds no node of that name",
        "start the node with `toehold up`, or see `toehold ps`";
    /// The address is none of the fabric's.
    NotFabric = "not-fabric",
        "has an address that is none of the fabric",
        "nothing: the kernel reaches it";
    /// The socket is not one of TCP.
    NotStream = "not-stream",
        "is no TCP socket",
        "give the node a TAP device (`--tap`, `--net own`)";
    /// The socket has an option that the node does not know.
    Option = "option",
        "has an option that the node does not know",
        "see docs/conformance.md for the options of sockets";
    /// The socket was used before in a way that cannot be taken over.
    State = "state",
        "was bound or used before in a way that the node cannot take over",
        "see docs/conformance.md";
    /// The node cannot be found from the process's namespaces.
    OtherNamespace = "other-namespace",
        "cannot find the node from its namespaces or its root directory",
        "mount the fabric's directory there, or keep the descriptor that TOEHOLD_KEEPER names";
    /// A filter of system calls keeps the process from the node.
    Filter = "filter",
        "has a filter of system calls (seccomp) that keeps it from the node",
        "allow socketpair, sendmsg, recvmsg and memfd_create, or attach before the filter is set";
    /// The program submits its calls by io_uring.
    IoUring = "io-uring",
        "submits its calls by io_uring, past libc",
        "turn io_uring off in the program's settings";
    /// The listener is in a process that is not on the node.
    ListenerElsewhere = "listener-elsewhere",
        "has its listener in a process that is not on the node",
        "run that process on the node";
    /// Too few descriptors are left.
    DescriptorLimit = "descriptor-limit",
        "has too low a limit of descriptors",
        "raise it to 256 or more (`ulimit -n 1024`)";
    /// The node has as many processes or connections as it can have.
    NodeFull = "node-full",
        "finds the node full",
        "end some of its processes, or start it with higher bounds (docs/settings.md)";
    /// Data were to be sent with the first segment.
    FastOpen = "fast-open",
        "asks for TCP Fast Open in a way that the node does not know",
        "see docs/conformance.md";
    /// The stream's bytes travel in frames.
    Frames = "frames",
        "has its bytes in frames, since there is no carrier to that host",
        "see `toehold stat` of the uplink";
    /// No host of the fabric answers at the address.
    HostUnreachable = "host-unreachable",
        "has an address of the fabric at which no node answers",
        "see `toehold ps` on the host that has the node";
    /// The node's engine is of another build.
    OtherBuild = "other-build",
        "has a library of another build than the node's engine",
        "start the node again with the same version";
}

impl Reason {
    /// The reason why the system keeps a process from its node, by its answer to a call of the
    /// library.
    pub(crate) fn of_system(errno: Option<Errno>) -> Reason {
        match errno {
            Some(Errno::MFILE | Errno::NFILE | Errno::INVAL) => Reason::DescriptorLimit,
            Some(Errno::PERM | Errno::NOSYS) => Reason::Filter,
            Some(Errno::ACCESS) => Reason::OtherUser,
            _ => Reason::OtherNamespace,
        }
    }

    /// The reason why the system keeps a process from its node, by the error of a call of the
    /// library.
    pub fn of_error(error: &std::io::Error) -> Reason {
        Reason::of_system(Errno::from_io_error(error))
    }

    /// The reason of a word.
    pub fn of_word(word: &str) -> Option<Reason> {
        Reason::ALL.iter().copied().find(|reason| reason.word() == word)
    }
}

/// The reasons for the documentation's readers: Markdown.
pub fn document() -> String {
    let mut text = String::from("| reason | what is so | what to do |\n| --- | --- | --- |\n");
    for reason in Reason::ALL {
        text.push_str(&format!(
            "| `{}` | {reason} | {} |\n",
            reason.word(),
            reason.advice()
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs of users read these words.
    const WORDS: [&str; 22] = [
        "static",
        "go",
        "musl-no-build",
        "32-bit",
        "set-id",
        "no-preload",
        "other-user",
        "no-node",
        "not-fabric",
        "not-stream",
        "option",
        "state",
        "other-namespace",
        "filter",
        "io-uring",
        "listener-elsewhere",
        "descriptor-limit",
        "node-full",
        "fast-open",
        "frames",
        "host-unreachable",
        "other-build",
    ];

    #[test]
    fn words_of_reasons_never_change() {
        let words: Vec<_> = Reason::ALL.iter().map(|reason| reason.word()).collect();
        assert_eq!(words, WORDS);
        for &reason in Reason::ALL {
            assert_eq!(Reason::of_word(reason.word()), Some(reason));
            let text = serde_json::to_string(&reason).unwrap();
            assert_eq!(text, format!("{:?}", reason.word()));
            assert_eq!(serde_json::from_str::<Reason>(&text).unwrap(), reason);
        }
        assert_eq!(Reason::of_word("none"), None);
    }

    #[test]
    fn reason_of_a_refused_call_is_the_filter_or_the_limit() {
        for (errno, expected) in [
            (Errno::PERM, Reason::Filter),
            (Errno::NOSYS, Reason::Filter),
            (Errno::MFILE, Reason::DescriptorLimit),
            (Errno::ACCESS, Reason::OtherUser),
            (Errno::NOENT, Reason::OtherNamespace),
        ] {
            assert_eq!(Reason::of_error(&errno.into()), expected);
        }
    }

    #[test]
    fn documentation_has_every_reason() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reasons.md");
        let text = std::fs::read_to_string(path).unwrap();
        assert!(
            text.contains(&document()),
            "docs/reasons.md lacks this table:\n{}",
            document()
        );
    }
}
