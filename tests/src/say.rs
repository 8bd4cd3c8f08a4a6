//! What tests say beside pass and fail: that this machine cannot run one, what one has measured, or what a user is
//! told.

use std::io::Write;

/// Whether the tests run as root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Says that the running test is skipped, and why. Use [`skip!`](crate::skip).
pub fn record_skip(reason: &str) {
    let thread = std::thread::current();
    say(&format!("skipped: {}: {reason}", thread.name().unwrap_or("a test")));
}

/// Says what the running test has measured.
pub fn record_measure(what: &str) {
    say(&format!("measured: {what}"));
}

/// Says in which words a host's lack was refused or lowered.
pub fn record_refusal(lack: &str, message: &str) {
    let message: Vec<&str> = message.split_whitespace().collect();
    say(&format!("refused: {lack}: {}", message.join(" ")));
}

/// Test runners hide what a passing test prints, so the line also goes to the log that `tests/run` shows.
fn say(line: &str) {
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("AIRLOCK_TESTS_LOG") {
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(&path).expect("the log");
        log.write_all(format!("{line}\n").as_bytes()).expect("the log");
    }
}

/// Ends the running test as skipped: `skip!("no {} here", what)`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::record_skip(&format!($($reason)*));
        return;
    }};
}
