//! Reading whole messages, and the end of a connection.

use std::io::{self, Read};

/// Fills `buffer`; returns `false` if the other side has ended before its first byte.
pub(super) fn read_whole(connection: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match connection.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Waits until the other side has ended without further data.
pub(super) fn read_end(connection: &mut impl Read) -> io::Result<()> {
    if read_whole(connection, &mut [0])? {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the other side sent more than was agreed",
        ));
    }
    Ok(())
}
