//! A deterministic network of stacks under virtual time.
