//! Which machine the servers are on.

use std::net::Ipv4Addr;

use toehold_lab::far::Far;

/// The other machine, if there is one.
#[derive(Debug, clap::Args)]
pub(super) struct OtherMachine {
    /// Measure between this machine and HOST, which `ssh` reaches and which has the same build of Toehold:
    /// the servers there, the clients here. A plan that names no candidate between machines is measured with
    /// all of them instead of its own
    #[arg(long, value_name = "HOST")]
    host: Option<String>,

    /// The command that reaches it, with its options
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "host")]
    ssh: String,

    /// The `toehold` command there
    #[arg(long, value_name = "PATH", default_value = "toehold", requires = "host")]
    far_toehold: String,

    /// The address there of the network that is measured [default: the one that `ssh` came to]
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
