//! What becomes of signals, whatever the caller of a process has made of them.

use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Takes back what a caller's choice, which a program inherits (execve(2)), would spoil: where SIGCHLD is ignored, the
/// kernel takes children away before it can be asked how they ended (wait(2)); and who writes beyond RLIMIT_FSIZE is
/// killed by SIGXFSZ without a word, where it could be told of an error (setrlimit(2)).
///
/// For the beginning of a program. A sandbox's payload has the default for all signals.
pub fn settle() -> io::Result<()> {
    handle(Signal::SIGCHLD, SigHandler::SigDfl)?;
    handle(Signal::SIGXFSZ, SigHandler::SigIgn)
}

/// Sets what becomes of a signal. `handler` is the default or "ignore".
pub(crate) fn handle(signal: Signal, handler: SigHandler) -> io::Result<()> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: neither the default nor "ignore" runs code of ours.
    unsafe { sigaction(signal, &action) }?;
    Ok(())
}
