//! Tests that this machine cannot run: said and counted, never passed in silence.

use std::io::Write;

/// Whether the tests run as root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Says that the running test is skipped, and why. Use [`skip!`](crate::skip).
pub fn record_skip(reason: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {reason}\n", thread.name().unwrap_or("a test"));
    eprint!("{line}");
    if let Some(path) = std::env::var_os("AIRLOCK_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .expect("the skip log");
        log.write_all(line.as_bytes()).expect("the skip log");
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
