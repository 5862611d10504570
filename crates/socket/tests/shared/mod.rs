//! What tests of sockets in one process and in several have in common.

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

/// In which placement the tests are run that do not say so themselves.
pub(crate) const PLACEMENT: &str = "TOEHOLD_TEST_PLACEMENT";

/// Runs tests of this program once more, under the engine: all whose names have one of
/// these words in them, or all there are.
pub(crate) fn again_under_the_engine(tests: &[&str]) {
    if std::env::var_os(PLACEMENT).is_some() {
        // This is that.
        return;
    }
    let program = std::env::current_exe().unwrap();
    let ended = Command::new(program)
        .args(tests)
        .env(PLACEMENT, "engine")
        .output();
    let ended = ended.unwrap();
    assert!(
        ended.status.success(),
        "{}{}",
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr)
    );
}

/// Fails instead of hanging.
pub(crate) fn within<T: Send + 'static>(seconds: u64, test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let thread = std::thread::spawn(move || done.send(test()));
    match result.recv_timeout(Duration::from_secs(seconds)) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it sent nothing"))
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("no end after {seconds} s"),
    }
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}
