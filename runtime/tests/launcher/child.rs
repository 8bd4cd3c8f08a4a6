//! What tests without a harness need: each in a process of its own, and patience. The grader's tests share it.

use std::time::{Duration, Instant};

/// Nothing that is waited for takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Runs `test` in a forked child, so that each starts with one thread; true: it passed.
pub(crate) fn in_child(test: impl FnOnce()) -> bool {
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let mut status = 0;
    // SAFETY: `status` is a live integer.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status == 0
}

pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
