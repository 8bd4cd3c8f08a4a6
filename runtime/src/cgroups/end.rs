//! Freezing and killing all processes of a sandbox.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Pid, Signal, kill_process};

use super::error::CgroupError;
use super::facts::{Controller, Version};
use super::group::Cgroup;
use super::tree::Tree;

/// Longest pause between two looks at a v1 directory, which has no events to wait for.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

impl Cgroup {
    /// Kills every process in the cgroup, frozen or not, and waits until it is empty.
    ///
    /// `cgroup.kill` (Linux 5.14) does it in one write on v2 and hybrid hosts. On pure v1 the processes are
    /// frozen, so that none can fork away, signalled, and thawed, until none is left. Processes that outlive
    /// `timeout` are named in the error (crun#868: state D, common with GPU drivers).
    pub fn kill(&self, timeout: Duration) -> Result<(), CgroupError> {
        let freezer = self.v1(Controller::Freezer);
        let (tree, killed) = match (self.v2(), freezer.or(self.trees.first())) {
            (Some(tree), _) => (tree, kill_v2(tree, timeout)),
            (None, Some(tree)) => (tree, kill_v1(tree, freezer, timeout)),
            (None, None) => {
                return Err(CgroupError::NoDirectory { name: self.name.clone(), step: "kill" });
            }
        };
        // Another process, such as a clean-up after us, may have removed it meanwhile.
        if killed.is_err() && tree.is_gone() { Ok(()) } else { killed }
    }

    /// Stops every process in the cgroup and waits until all are stopped; on failure thaws again.
    pub fn freeze(&self, timeout: Duration) -> Result<(), CgroupError> {
        let deadline = Instant::now() + timeout;
        let tree = self.freezer("freeze")?;
        let frozen = match tree.version {
            Version::V2 => {
                tree.write("cgroup.freeze", "1")?;
                wait_for_event(tree, "frozen 1", deadline)?
            }
            Version::V1 => loop {
                // Writing again retries processes that could not freeze the first time (freezer-subsystem.rst).
                tree.write("freezer.state", "FROZEN")?;
                if tree.read("freezer.state")?.trim() == "FROZEN" {
                    break true;
                }
                if Instant::now() >= deadline {
                    break false;
                }
                std::thread::sleep(Duration::from_millis(1));
            },
        };
        if frozen {
            return Ok(());
        }
        self.thaw()?;
        Err(CgroupError::NotFrozen { path: tree.path.clone(), waited: timeout })
    }

    /// Lets the processes run on.
    pub fn thaw(&self) -> Result<(), CgroupError> {
        let tree = self.freezer("thaw")?;
        match tree.version {
            Version::V2 => tree.write("cgroup.freeze", "0"),
            Version::V1 => tree.write("freezer.state", "THAWED"),
        }
    }

    /// Every process in the cgroup and below it, as this process's PID namespace numbers them.
    pub fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        self.v2().or(self.trees.first()).map_or_else(|| Ok(Vec::new()), Tree::pids)
    }

    fn freezer(&self, step: &'static str) -> Result<&Tree, CgroupError> {
        self.v2()
            .or_else(|| self.v1(Controller::Freezer))
            .ok_or_else(|| CgroupError::NoDirectory { name: self.name.clone(), step })
    }
}

fn kill_v2(tree: &Tree, timeout: Duration) -> Result<(), CgroupError> {
    let deadline = Instant::now() + timeout;
    // Frozen processes die too: v2 lets a fatal signal through.
    tree.write("cgroup.kill", "1")?;
    if wait_for_event(tree, "populated 0", deadline)? {
        return Ok(());
    }
    Err(CgroupError::StillAlive { path: tree.path.clone(), pids: tree.pids()?, waited: timeout })
}

fn kill_v1(tree: &Tree, freezer: Option<&Tree>, timeout: Duration) -> Result<(), CgroupError> {
    let deadline = Instant::now() + timeout;
    let freeze = |state| freezer.map_or(Ok(()), |freezer| freezer.write("freezer.state", state));
    let mut pause = Duration::from_micros(100);
    loop {
        freeze("FROZEN")?;
        let listed = tree.pids();
        for pid in listed.iter().flatten().filter_map(|&pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            // ESRCH: it ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        // v1 delivers SIGKILL to a frozen process only once it is thawed.
        freeze("THAWED")?;
        let pids = listed?;
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(CgroupError::StillAlive { path: tree.path.clone(), pids, waited: timeout });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits until a line of `cgroup.events` is there; false at the deadline.
fn wait_for_event(tree: &Tree, line: &str, deadline: Instant) -> Result<bool, CgroupError> {
    const FILE: &str = "cgroup.events";
    let fail = |errno| CgroupError::io("watch", tree.path.join(FILE), errno);
    let events = openat(tree.dir(), FILE, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
        .map_err(fail)?;
    loop {
        let mut buffer = [0; 256];
        // A read from the start takes the state and arms the next notification.
        let length = rustix::io::pread(&events, &mut buffer, 0).map_err(fail)?;
        if buffer[..length].split(|&b| b == b'\n').any(|found| found == line.as_bytes()) {
            return Ok(true);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let mut fds = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::PRI)];
        let left = Timespec::try_from(left).map_err(|_| fail(rustix::io::Errno::INVAL))?;
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(fail(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_without_directories_says_that_it_cannot_kill() {
        let group = Cgroup {
            name: "none".into(),
            trees: vec![],
            skipped: Default::default(),
            best_effort: Default::default(),
            lowered: vec![],
        };
        assert!(matches!(group.kill(Duration::ZERO), Err(CgroupError::NoDirectory { step: "kill", .. })));
        assert!(matches!(group.freeze(Duration::ZERO), Err(CgroupError::NoDirectory { step: "freeze", .. })));
        assert!(group.remove(Duration::ZERO).is_ok());
    }
}
