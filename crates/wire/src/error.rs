//! Why bytes are not the packet they claim to be.

/// What every parser here returns.
pub type Result<T> = core::result::Result<T, WireError>;

/// Why bytes are not the packet they claim to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than the format's fixed header, or than its header claims.
    #[error("shorter than its header")]
    Truncated,
    /// A length field contradicts another one, the format, or the bytes there are.
    #[error("a length field is wrong")]
    BadLength,
    /// Not the IP version it was taken for.
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
    /// A variant of the format that is not used here.
    #[error("unsupported variant")]
    Unsupported,
}
