//! What a lock file says: who holds the device, and whose processes may still use it.
//!
//! The first line is for people, the second says how the device is held, and each further line names the init of a
//! sandbox that runs on it. A lock goes when its last holder dies; what a killed holder's sandbox ran may then still be
//! dying. An init that is killed closes its descriptors before the kernel ends the rest of its PID namespace (in Linux's
//! `do_exit`, `exit_files` comes before `zap_pid_ns_processes`), so the lock alone would come too early.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_UNLCK, F_WRLCK, SEEK_SET, c_int, c_short, flock};

use super::lease::Mode;
use crate::state::ProcessRecord;

/// More than the words, and the inits of a thousand sandboxes that share a device.
const LONGEST: usize = 1 << 16;
const EXCLUSIVE: &str = "exclusive";
const SHARED: &str = "shared";

/// What a lock file says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// What the last holder said of itself.
    pub(super) words: String,
    mode: Mode,
    sandboxes: Vec<ProcessRecord>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            Mode::Exclusive => f.write_str(&self.words),
            // Whoever took it last may have given it back since.
            Mode::Shared => write!(f, "sandboxes that share it (the last to begin: {})", self.words),
        }
    }
}

impl Holder {
    pub(super) fn read(file: &File) -> io::Result<Holder> {
        let mut text = vec![0; LONGEST];
        let length = file.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        let mut lines = text.lines();
        // Another supervisor wrote it, or is about to.
        let words = lines.next().filter(|line| !line.is_empty()).unwrap_or("another run").to_owned();
        let mode = if lines.next() == Some(SHARED) { Mode::Shared } else { Mode::Exclusive };
        Ok(Holder { words, mode, sandboxes: lines.filter_map(init).collect() })
    }

    /// Inits of sandboxes that are not wholly gone.
    pub(super) fn living(&self) -> Vec<ProcessRecord> {
        self.sandboxes.iter().copied().filter(ProcessRecord::lives).collect()
    }

    /// Whether what is left of these sandboxes keeps others out who want the device so.
    pub(super) fn excludes(&self, living: &[ProcessRecord], mode: Mode) -> bool {
        !living.is_empty() && (self.mode == Mode::Exclusive || mode == Mode::Exclusive)
    }
}

/// Says who holds the device, and how. Sandboxes of others that share it stay in the file.
pub(super) fn write(file: &File, words: &str, mode: Mode) -> io::Result<()> {
    let _alone = Alone::with(file)?;
    let living = Holder::read(file)?.living();
    let mode = match mode {
        Mode::Exclusive => EXCLUSIVE,
        Mode::Shared => SHARED,
    };
    let others: String = living.iter().map(line).collect();
    let text = format!("{words}\n{mode}\n{others}");
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

/// Adds the init of a sandbox, before anything runs in it, to the lock files of its devices.
pub(crate) fn add_sandbox(files: &[impl AsFd], init: ProcessRecord) -> io::Result<()> {
    for file in files {
        let _alone = Alone::with(file)?;
        let end = rustix::fs::fstat(file)?.st_size;
        rustix::io::pwrite(file, line(&init).as_bytes(), u64::try_from(end).unwrap_or(0))?;
    }
    Ok(())
}

/// Keeps others that share the device from writing to its file at the same time: a lock of the open file description
/// (fcntl(2)), which is nothing to the lock that is the lease.
struct Alone<'a>(BorrowedFd<'a>);

impl<'a> Alone<'a> {
    fn with(file: &'a impl AsFd) -> io::Result<Alone<'a>> {
        let alone = Alone(file.as_fd());
        loop {
            match alone.set(F_WRLCK) {
                Err(Errno::EINTR) => {}
                locked => return Ok(locked.map(|()| alone)?),
            }
        }
    }

    /// Of the whole file.
    fn set(&self, kind: c_int) -> nix::Result<()> {
        let short = |value: c_int| c_short::try_from(value).map_err(|_| Errno::EINVAL);
        let (l_type, l_whence) = (short(kind)?, short(SEEK_SET)?);
        let lock = flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
        fcntl(self.0, FcntlArg::F_OFD_SETLKW(&lock)).map(drop)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // What cannot be unlocked is unlocked with the last descriptor of it.
        let _ = self.set(F_UNLCK);
    }
}

fn line(init: &ProcessRecord) -> String {
    format!("{} {}\n", init.pid, init.started)
}

fn init(line: &str) -> Option<ProcessRecord> {
    let (pid, started) = line.split_once(' ')?;
    Some(ProcessRecord { pid: pid.parse().ok()?, started: started.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn a_sandbox_keeps_others_out_until_it_is_gone() {
        let file = tempfile::tempfile().unwrap();
        write(&file, "one", Mode::Exclusive).unwrap();
        assert_eq!(Holder::read(&file).unwrap().living(), []);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let init = ProcessRecord::of(i32::try_from(child.id()).unwrap()).unwrap();
        add_sandbox(&[&file], init).unwrap();
        let holder = Holder::read(&file).unwrap();
        assert_eq!((holder.words.as_str(), holder.living()), ("one", vec![init]));
        assert!(holder.excludes(&holder.living(), Mode::Exclusive));
        assert!(holder.excludes(&holder.living(), Mode::Shared));
        // One that shares it says so of itself, and leaves the others' in.
        write(&file, "two", Mode::Shared).unwrap();
        let holder = Holder::read(&file).unwrap();
        assert_eq!((holder.words.as_str(), holder.living()), ("two", vec![init]));
        assert!(holder.excludes(&holder.living(), Mode::Exclusive));
        assert!(!holder.excludes(&holder.living(), Mode::Shared));
        child.kill().unwrap();
        // Ended and not waited for is gone: the kernel has taken the whole namespace away.
        while init.lives() {}
        assert_eq!(holder.living(), []);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        let another = ProcessRecord { started: init.started + 1, ..init };
        assert!(!another.lives());
    }

    #[test]
    fn sharers_that_write_at_once_lose_nobody() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write(file.as_file(), "first", Mode::Shared).unwrap();
        let mut children: Vec<_> = (0..8).map(|_| Command::new("sleep").arg("60").spawn().unwrap()).collect();
        let inits = children.iter().map(|child| ProcessRecord::of(child.id().cast_signed()).unwrap());
        let mut inits: Vec<ProcessRecord> = inits.collect();
        // Each with an open file description of its own, as supervisors have.
        thread::scope(|scope| {
            for init in &inits {
                let own = || File::options().read(true).write(true).open(file.path()).unwrap();
                scope.spawn(move || {
                    let own = own();
                    write(&own, "sharer", Mode::Shared).unwrap();
                    add_sandbox(&[&own], *init).unwrap();
                });
            }
        });
        let mut living = Holder::read(file.as_file()).unwrap().living();
        living.sort_by_key(|init| init.pid);
        inits.sort_by_key(|init| init.pid);
        assert_eq!(living, inits);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn what_is_no_record_is_passed_over() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Holder::read(&file).unwrap().words, "another run");
        file.write_all_at(b"one\nexclusive\nx y\n1\n-\n", 0).unwrap();
        assert_eq!(Holder::read(&file).unwrap().living(), []);
    }
}
