//! Toehold behind packetdrill's interface for user-space stacks.
