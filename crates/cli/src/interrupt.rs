//! Handles Ctrl-C: the first asks for an orderly end, the second ends the process at once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// The exit status of a command that was interrupted.
pub(crate) const STATUS: u8 = 130;

/// A flag that the first of these signals sets; the second ends the process.
pub(crate) fn flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds the flag unset and only sets it.
        flag::register_conditional_shutdown(signal, i32::from(STATUS), Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("cannot handle signals")?;
    }
    Ok(stop)
}
