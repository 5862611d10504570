//! TCP segments (RFC 9293 §3.1).
//!
//! ```
//! use toehold_wire::tcp::{Flags, Header, Options, Seq, Timestamps, View};
//!
//! let header = Header {
//!     src_port: 40000,
//!     dst_port: 80,
//!     seq: Seq(1),
//!     ack: Seq(2),
//!     flags: Flags::ACK | Flags::PSH,
//!     window: 512,
//!     options: Options { timestamps: Some(Timestamps { value: 7, echo: 6 }), ..Options::default() },
//!     ..Header::default()
//! };
//! let mut buffer = [0; 60];
//! let len = header.emit(&mut buffer);
//! let view = View::new(&buffer[..len], len + 100)?;
//! assert_eq!(len, 32);
//! assert_eq!(view.header(), header);
//! # Ok::<(), toehold_wire::WireError>(())
//! ```

mod fast_open;
mod flags;
mod header;
mod options;
mod seq;
#[cfg(test)]
mod tests;
mod view;

pub use fast_open::FastOpen;
pub use flags::Flags;
pub use header::{Header, MAX_HEADER_LEN, MIN_HEADER_LEN, set_checksum};
pub use options::{MAX_WINDOW_SCALE, Options, SackBlocks, Timestamps};
pub use seq::Seq;
pub use view::View;
