//! What a lock file says: who holds the device, and whose processes may still use it.
//!
//! The first line is for people, the second says how the device is held, and each further line names the init of a
//! sandbox that runs on it. A lock goes when its last holder dies; what a killed holder's sandbox ran may then still be
//! dying. An init that is killed closes its descriptors before the kernel ends the rest of its PID namespace (in Linux's
//! `do_exit`, `exit_files` comes before `zap_pid_ns_processes`), so the lock alone would come too early.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::lease::Mode;
use crate::state::ProcessRecord;

/// More than the words, and the inits of seven slices' sandboxes.
const LONGEST: usize = 4096;
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

impl Holder {
    pub(super) fn read(file: &File) -> io::Result<Holder> {
        let mut text = [0; LONGEST];
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

/// Says who holds the device, and how; `living` are sandboxes of others that share it.
pub(super) fn write(file: &File, words: &str, mode: Mode, living: &[ProcessRecord]) -> io::Result<()> {
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
        let end = rustix::fs::fstat(file)?.st_size;
        rustix::io::pwrite(file, line(&init).as_bytes(), u64::try_from(end).unwrap_or(0))?;
    }
    Ok(())
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

    use super::*;

    #[test]
    fn a_sandbox_keeps_others_out_until_it_is_gone() {
        let file = tempfile::tempfile().unwrap();
        write(&file, "one", Mode::Exclusive, &[]).unwrap();
        assert_eq!(Holder::read(&file).unwrap().living(), []);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let init = ProcessRecord::of(i32::try_from(child.id()).unwrap()).unwrap();
        add_sandbox(&[&file], init).unwrap();
        let holder = Holder::read(&file).unwrap();
        assert_eq!((holder.words.as_str(), holder.living()), ("one", vec![init]));
        assert!(holder.excludes(&holder.living(), Mode::Exclusive));
        assert!(holder.excludes(&holder.living(), Mode::Shared));
        // One that shares it says so of itself, and leaves the others' in.
        write(&file, "two", Mode::Shared, &holder.living()).unwrap();
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
    fn what_is_no_record_is_passed_over() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Holder::read(&file).unwrap().words, "another run");
        file.write_all_at(b"one\nexclusive\nx y\n1\n-\n", 0).unwrap();
        assert_eq!(Holder::read(&file).unwrap().living(), []);
    }
}
