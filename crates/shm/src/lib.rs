//! Regions, slabs, rings and doorbells in shared memory.
