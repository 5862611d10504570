//! TCP/IP as a passive state machine in shared memory.
#![forbid(unsafe_code)]
