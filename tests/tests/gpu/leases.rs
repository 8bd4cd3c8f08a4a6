//! A GPU is given on when everything that ran on it is gone, whoever of those who held it was killed.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use airlock_tests::{Graded, Site, skip, within};
use nix::sys::signal::Signal;

use crate::run;

/// A process with these words, in whatever sandbox.
fn process(words: &str) -> Option<i32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let named = |path: &PathBuf| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").trim_end() == words
    };
    let found = processes.map(|entry| entry.path()).find(named)?;
    found.file_name()?.to_str()?.parse().ok()
}

/// For a second after its supervisor's death a sandbox is asked to end; the GPU was free in it.
#[test]
fn the_gpu_of_a_killed_supervisor_is_its_sandboxes_until_that_is_gone() {
    let (mut site, gpus) = (root!(), host!("mixed"));
    site.leaves_something();
    let task = Graded::of("digits-direct").edit(
        "task.toml",
        "[[airlock.phase]]\nname = \"explore\"\n",
        "[[airlock.phase]]\nname = \"explore\"\ngpus = 3\n",
    );
    let marker = format!("sleep 4242.{}", std::process::id());
    let deaf = format!("trap '' TERM; echo begun; while :; do {marker}; done");
    let live = task.shell(&deaf).where_root_did(gpus.script()).start();
    live.until(|run| run.printed("explore").contains("begun") && process(&marker).is_some());
    live.live().signal(Signal::SIGKILL);
    let (mut refused, mut both) = (0, false);
    let got = within(Duration::from_secs(30), || {
        let next = run(&site, &gpus, "3").end(["true"]);
        both |= next.code == 0 && process(&marker).is_some();
        refused += u32::from(next.code != 0);
        next.code == 0
    });
    assert!(got && !both, "the next had the GPUs while the last one's processes lived");
    assert!(refused > 0, "nobody was there to be waited for");
    drop(live);
}

/// A process that the kernel cannot end yet, as one that hangs in a driver, when all who held the GPU are dead, init
/// among them, whose descriptors are closed before the rest of its namespace is gone.
#[test]
fn a_process_that_does_not_die_keeps_its_gpu() {
    let (mut site, gpus) = (root!(), host!("mixed"));
    site.leaves_something();
    let Some(cell) = Cell::new() else { skip!("only a freezer of cgroup v1 holds what is killed") };
    let marker = format!("sleep 4343.{}", std::process::id());
    let holder = run(&site, &gpus, "3").start(["sh", "-c", &format!("exec {marker}")]);
    assert!(within(Duration::from_secs(20), || process(&marker).is_some()));
    let payload = process(&marker).expect("it has begun");
    cell.take(payload);
    holder.signal(Signal::SIGKILL);
    holder.end();
    // Init is past its descriptors when it is known to be exiting.
    std::thread::sleep(Duration::from_millis(200));
    assert!(fs::metadata(format!("/proc/{payload}")).is_ok());
    let next = || run(&site, &gpus, "3").end(["true"]);
    next().refused(&["is held by sandbox ", ", which is ending; wait until it is given back"]);
    cell.release();
    assert!(within(Duration::from_secs(10), || next().code == 0));
}

/// A freezer of this test's own.
struct Cell(PathBuf);

impl Cell {
    fn new() -> Option<Cell> {
        let place = PathBuf::from(format!("/sys/fs/cgroup/freezer/airlock-test-{}-gpu", std::process::id()));
        fs::create_dir(&place).ok().map(|()| Cell(place))
    }

    fn take(&self, pid: i32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
        fs::write(self.0.join("freezer.state"), "FROZEN").unwrap();
        let state = || fs::read_to_string(self.0.join("freezer.state")).unwrap_or_default();
        assert!(within(Duration::from_secs(5), || state().trim() == "FROZEN"));
    }

    fn release(&self) {
        fs::write(self.0.join("freezer.state"), "THAWED").unwrap();
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        within(Duration::from_secs(5), || fs::remove_dir(&self.0).is_ok());
    }
}
