//! Nodes that several processes share, and what becomes of them when processes die.

mod support;

mod sharing;
