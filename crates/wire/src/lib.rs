//! Packet formats: parse, emit, checksum.
