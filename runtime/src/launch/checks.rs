//! What must be so before anything is made.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::LaunchError;
use crate::host::HostFacts;
use crate::plan::PlanError;
use crate::spec::{Spec, Writable};

/// Descriptors for the payload get numbers from 3 to this one.
const LAST_NUMBER: i32 = 1023;

pub(crate) fn threads() -> Result<(), LaunchError> {
    let tasks = fs::metadata("/proc/self/task")
        .map_err(|source| LaunchError::File { path: "/proc/self/task".into(), source })?;
    // As of every directory, the links are its name, its `.`, and the `..` of those in it: one for each thread.
    match tasks.nlink().saturating_sub(2) {
        1 => Ok(()),
        threads => Err(LaunchError::Threads(usize::try_from(threads).unwrap_or(usize::MAX))),
    }
}

/// A set-id copy would act for its owner on the caller's word (CVE-2020-5291).
pub(super) fn set_id() -> Result<(), LaunchError> {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    if getuid() == geteuid() && getgid() == getegid() { Ok(()) } else { Err(LaunchError::SetId) }
}

/// A directory as standard stream is a way out of the root (CVE-2024-21626), a socket carries descriptors,
/// a block device is a disk, and a terminal's modes and input are the caller's unless the sandbox gets one of its
/// own.
pub(super) fn stdio(own_terminal: bool) -> Result<(), LaunchError> {
    for (stream, fd) in [
        ("stdin", rustix::stdio::stdin()),
        ("stdout", rustix::stdio::stdout()),
        ("stderr", rustix::stdio::stderr()),
    ] {
        let stat = match rustix::fs::fstat(fd) {
            Ok(stat) => stat,
            Err(Errno::BADF) => continue,
            Err(error) => return Err(LaunchError::Call { what: stream, source: error.into() }),
        };
        let (kind, remedy) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                ("directory, which leads out of the sandbox", "redirect it to a file or /dev/null")
            }
            FileType::Socket => (
                "socket, which can carry descriptors into the sandbox",
                "put a pipe in between: `airlock run ... < /dev/null | cat`",
            ),
            FileType::BlockDevice => ("block device", "redirect it to a file or /dev/null"),
            FileType::CharacterDevice if !own_terminal && rustix::termios::isatty(fd) => (
                "terminal, whose modes and input the sandbox would share",
                "leave out --no-tty, or redirect it: `airlock run ... < /dev/null 2>&1 | cat`",
            ),
            _ => continue,
        };
        return Err(LaunchError::Stdio { stream, kind, remedy });
    }
    Ok(())
}

/// Numbers that the payload's descriptors can have.
pub(super) fn pass(pass: &[(OwnedFd, i32)]) -> Result<(), LaunchError> {
    let mut taken = BTreeSet::new();
    let wrong = pass.iter().map(|(_, number)| *number);
    match wrong.into_iter().find(|number| !(3..=LAST_NUMBER).contains(number) || !taken.insert(*number)) {
        Some(number) => Err(LaunchError::Number(number)),
        None => Ok(()),
    }
}

/// A sandbox that could write to Airlock's own state could have other processes killed by it.
pub(super) fn own_state(spec: &Spec, facts: &HostFacts, state: &Path) -> Result<(), LaunchError> {
    for mount in spec.oci.mounts().iter().flatten() {
        let source = mount.source().as_ref().and_then(|path| facts.sources.get(path));
        if source
            .is_some_and(|source| state.starts_with(&source.resolved) || source.resolved.starts_with(state))
        {
            return Err(LaunchError::Plan(PlanError::Source {
                clause: format!("mount {}", mount.destination().display()),
                path: mount.source().clone().unwrap_or_default(),
                why: format!("holds Airlock's own state in {}, or lies in it", state.display()),
            }));
        }
    }
    Ok(())
}

/// Two overlays must not share an upper directory (overlayfs.rst): the lock is held while the sandbox lives.
pub(super) fn kept_directory(spec: &Spec) -> Result<Option<File>, LaunchError> {
    let Writable::Dir { path } = &spec.airlock.writable else { return Ok(None) };
    let error = |source| LaunchError::File { path: path.clone(), source };
    let directory = File::open(path).map_err(error)?;
    directory.try_lock().map_err(|found| match found {
        TryLockError::WouldBlock => error(io::Error::other("another sandbox keeps its writes there")),
        TryLockError::Error(source) => error(source),
    })?;
    Ok(Some(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_have_numbers_of_their_own_beyond_the_streams() {
        let wanted = |numbers: &[i32]| {
            let null = || OwnedFd::from(File::open("/dev/null").unwrap());
            let given: Vec<_> = numbers.iter().map(|number| (null(), *number)).collect();
            pass(&given).map_err(|error| error.to_string())
        };
        for (numbers, wrong) in
            [(&[2][..], 2), (&[-1], -1), (&[3, 1024], 1024), (&[i32::MAX], i32::MAX), (&[5, 6, 5], 5)]
        {
            assert!(wanted(numbers).unwrap_err().contains(&format!(" {wrong} ")), "{numbers:?}");
        }
        assert_eq!(wanted(&[3, 1023, 5]), Ok(()));
    }
}
