//! The machine of the servers.

use std::net::Ipv4Addr;

use toehold_lab::far::Far;

/// The other machine, if there is one.
#[derive(Debug, clap::Args)]
pub(super) struct OtherMachine {
    /// Measure between this machine and HOST, with the servers there and the clients here. `ssh`
    /// must reach HOST, and it must have the same build of Toehold. A plan without candidates for
    /// two machines is measured with all of them instead of its own
    #[arg(long, value_name = "HOST")]
    host: Option<String>,

    /// The command to reach it, with its options
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "host")]
    ssh: String,

    /// The `toehold` command there
    #[arg(long, value_name = "PATH", default_value = "toehold", requires = "host")]
    far_toehold: String,

    /// The address there on the measured network [default: the address that `ssh` uses]
    #[arg(long, value_name = "IPV4", requires = "host")]
    far_address: Option<Ipv4Addr>,
}

impl OtherMachine {
    pub(super) fn far(&self) -> Option<Far> {
        Some(Far {
            host: self.host.clone()?,
            ssh: self.ssh.clone(),
            toehold: self.far_toehold.clone(),
            address: self.far_address,
        })
    }
}
