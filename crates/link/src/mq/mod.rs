//! Message queues between processes.
