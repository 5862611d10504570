//! Reasons for which bytes are not a valid packet.

/// The result of every parser in this crate.
pub type Result<T> = core::result::Result<T, WireError>;

/// Reason for which bytes are not a valid packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than the format's fixed header, or than its header claims.
    #[error("shorter than its header")]
    Truncated,
    /// A length field contradicts another one, the format, or the bytes at
    /// hand.
    #[error("a length field is wrong")]
    BadLength,
    /// The IP version is not the expected one.
    #[error("wrong IP version")]
    BadVersion,
    /// The checksum does not match.
    #[error("wrong checksum")]
    BadChecksum,
    /// The list of options cannot be walked.
    #[error("malformed options")]
    BadOption,
    /// A field holds a value that the format forbids.
    #[error("a field has a forbidden value")]
    BadField,
    /// A variant of the format that this crate does not read.
    #[error("unsupported variant")]
    Unsupported,
}
