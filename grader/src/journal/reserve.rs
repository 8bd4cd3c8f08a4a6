//! Disk space that is kept for the end.

use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, fallocate, fsync, openat, unlinkat};
use rustix::io::Errno;

/// The file that holds it, in the run directory.
const RESERVE: &str = "journal.reserve";

/// Enough for some thousand events.
const BYTES: usize = 1 << 20;

/// A file of allocated blocks that is removed when the disk is full.
#[derive(Debug)]
pub(super) struct Reserve {
    armed: bool,
}

impl Reserve {
    /// Allocates the reserve, or what an earlier one lacks.
    pub(super) fn make(run: &OwnedFd) -> io::Result<Reserve> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(run, RESERVE, flags, Mode::RUSR | Mode::WUSR)?;
        let allocated = match fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64) {
            // NFS before 4.2 and others have no fallocate.
            Err(Errno::OPNOTSUPP) => {
                let mut file = std::fs::File::from(file);
                file.write_all(&vec![0; BYTES]).and_then(|()| file.sync_data())
            }
            result => result.map_err(io::Error::from),
        };
        let mut reserve = Reserve { armed: true };
        match allocated {
            Ok(()) => Ok(reserve),
            Err(error) => {
                // Half of it would only take room from the journal.
                reserve.release(run)?;
                Err(error)
            }
        }
    }

    /// The reserve of a journal whose disk is full already.
    pub(super) fn none() -> Reserve {
        Reserve { armed: false }
    }

    /// Gives the space back to the disk; false if there was none to give.
    pub(super) fn release(&mut self, run: &OwnedFd) -> io::Result<bool> {
        if !std::mem::take(&mut self.armed) {
            return Ok(false);
        }
        match unlinkat(run, RESERVE, AtFlags::empty()) {
            Err(Errno::NOENT) => return Ok(false),
            result => result?,
        }
        // Some file systems free the blocks only when the removal is on the disk.
        fsync(run)?;
        Ok(true)
    }
}
