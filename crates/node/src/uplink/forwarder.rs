//! A thread that forwards, and the questions to it.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use toehold_link::bridge::Bridge;
use toehold_shm::Doorbell;

use super::ends::{End, Report};

/// How long the thread may take to report.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread that drives a bridge.
#[derive(Debug)]
pub(super) struct Forwarder {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state that the thread that forwards and the one that asks share.
#[derive(Debug)]
struct Shared {
    /// Gets the other thread's attention.
    bell: Arc<Doorbell>,
    stopping: AtomicBool,
    reported: Mutex<Reported>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Reported {
    report: Report,
    /// Times it was asked for, and up to which of them it was answered.
    asked: u64,
    answered: u64,
}

impl Shared {
    /// A panic elsewhere leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Reported> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the thread for a report. Returns the last one if the thread does not answer.
    fn ask(&self) -> Report {
        let mut reported = self.lock();
        reported.asked += 1;
        let number = reported.asked;
        self.bell.ring();
        let waited = self
            .answered
            .wait_timeout_while(reported, PATIENCE, |reported| reported.answered < number);
        let (reported, _) = waited.unwrap_or_else(PoisonError::into_inner);
        reported.report.clone()
    }

    fn answer(&self, report: impl FnOnce() -> Report) {
        let mut reported = self.lock();
        if reported.answered != reported.asked {
            reported.report = report();
            reported.answered = reported.asked;
            self.answered.notify_all();
        }
    }
}

impl Forwarder {
    /// Starts it. The bell gets its attention.
    pub(super) fn start<A: End, B: End>(
        bridge: Box<Bridge<A, B>>,
        bell: Arc<Doorbell>,
    ) -> io::Result<Forwarder> {
        let shared = Arc::new(Shared {
            bell,
            stopping: AtomicBool::new(false),
            reported: Mutex::default(),
            answered: Condvar::new(),
        });
        let thread = std::thread::Builder::new().name("toehold-forward".into());
        let driven = Arc::clone(&shared);
        let thread = thread.spawn(move || forward(*bridge, &driven))?;
        Ok(Forwarder {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Asks the forwarder for its present report.
    pub(super) fn ask(&self) -> Report {
        self.shared.ask()
    }

    /// Ends it.
    pub(super) fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.bell.ring();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // If it panicked, that was told.
            let _ = thread.join();
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop();
    }
}

fn forward<A: End, B: End>(mut bridge: Bridge<A, B>, shared: &Shared) {
    loop {
        bridge.drive(shared.bell.as_fd());
        // What is asked after this rings again.
        shared.bell.clear();
        shared.answer(|| Report::of(&bridge));
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
    }
}
