//! Running a program of the driver's: on the host, from a fixed path, without an environment, and not for ever.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::state::ProcessRecord;
use crate::sys;

/// What it says is cut off here, in bytes.
const LONGEST: u64 = 1024;

/// Time for one that was killed to end. What hangs in the driver does not.
const END: Duration = Duration::from_millis(500);

/// Runs it to its end. `started` is told which process it is.
///
/// # Errors
/// It failed, or has not ended after `patience`: how, and the last that it said.
pub(super) fn run(
    program: &Path,
    arguments: &[&str],
    patience: Duration,
    started: impl FnOnce(ProcessRecord) -> io::Result<()>,
) -> Result<(), String> {
    let words = |error: io::Error| error.to_string();
    let memory = memfd_create("words", MemfdFlags::CLOEXEC).map_err(|errno| words(errno.into()))?;
    let mut said = File::from(memory);
    let stream = || said.try_clone().map_err(words);
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(stream()?).stderr(stream()?);
    // The caller's interrupt key is not for it.
    command.process_group(0);
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(|| sys::close_on_exec_from(3)) };
    let mut child = command.spawn().map_err(words)?;
    let id = i32::try_from(child.id()).map_err(|error| error.to_string())?;
    if let Err(error) = ProcessRecord::of(id).and_then(started) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(words(error));
    }
    let end = Instant::now() + patience;
    loop {
        match child.try_wait().map_err(words)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => {
                let mut text = Vec::new();
                let read = said.rewind().and_then(|()| said.take(LONGEST).read_to_end(&mut text));
                read.map_err(words)?;
                let text = String::from_utf8_lossy(&text).split_whitespace().collect::<Vec<_>>().join(" ");
                let text = if text.is_empty() { text } else { format!(": {text}") };
                return Err(format!("ended with {status}{text}"));
            }
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            None => {
                // One that sleeps in the kernel is reaped by init when this process has ended.
                let _ = child.kill();
                let end = Instant::now() + END;
                while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(10));
                }
                return Err(format!("has not ended after {} s", patience.as_secs()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<(), String> {
        run(Path::new("/bin/sh"), &["-c", script], Duration::from_secs(2), |_| Ok(()))
    }

    #[test]
    fn how_it_ended_is_told_with_its_words() {
        shell("exit 0").unwrap();
        assert_eq!(
            shell("echo no; echo ' way' >&2; exit 3").unwrap_err(),
            "ended with exit status: 3: no way"
        );
        assert_eq!(shell("exit 1").unwrap_err(), "ended with exit status: 1");
        assert!(
            run(Path::new("/nowhere"), &[], Duration::ZERO, |_| Ok(())).unwrap_err().contains("os error 2")
        );
        assert_eq!(shell("exec sleep 60").unwrap_err(), "has not ended after 2 s");
    }

    /// The interrupt key of the caller's terminal reaches the caller's process group; its descriptors are its own.
    #[test]
    fn it_is_in_a_process_group_of_its_own_and_inherits_nothing() {
        let inherited = File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&inherited);
        shell(&format!("[ ! -e /proc/$$/fd/{number} ]")).unwrap();
        shell("read -r _ _ _ _ group _ </proc/$$/stat; [ \"$group\" = $$ ]").unwrap();
    }

    #[test]
    fn it_is_told_which_process_it_is_and_may_be_refused() {
        let mut told = None;
        let start = |script: &str, answer: io::Result<()>, told: &mut Option<ProcessRecord>| {
            run(Path::new("/bin/sh"), &["-c", script], Duration::from_secs(2), |process| {
                *told = Some(process);
                answer
            })
        };
        start("exit 0", Ok(()), &mut told).unwrap();
        assert!(!told.unwrap().lives());
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        let begun = Instant::now();
        assert!(start("exec sleep 60", Err(full), &mut told).unwrap_err().contains("os error 28"));
        assert!(begun.elapsed() < Duration::from_secs(30), "it is not waited for, but killed");
        assert!(!told.unwrap().lives(), "what is not known to the lease does not run");
    }

    #[test]
    fn it_has_no_environment() {
        shell("[ -z \"$HOME$CARGO_MANIFEST_DIR\" ] && [ \"$(pwd)\" = / ]").unwrap();
    }
}
