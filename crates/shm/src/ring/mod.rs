//! Byte rings between two nodes.
