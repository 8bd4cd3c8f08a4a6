//! A caller whose own limits are too low for a launch.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use airlock_tests::{Ended, Site, record_measure, skip};

use crate::stage::Stage;

/// Launches with a limit of the caller's own.
fn limited(stage: &Stage, resource: libc::__rlimit_resource_t, most: u64) -> Ended {
    let set = move |command: &mut Command| {
        let set = move || {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: the limit outlives the call.
            match unsafe { libc::setrlimit(resource, &raw const limit) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(set) };
    };
    stage.end(stage.run().with(set))
}

/// All of these limits are refused in these words, or suffice; some of both, and nothing is left.
fn walk(stage: &Stage, what: &str, resource: libc::__rlimit_resource_t, limits: &[u64], words: &[&str]) {
    let (mut refused, mut ran) = (0, 0);
    for most in limits {
        let ended = limited(stage, resource, *most);
        if ended.code == 0 {
            assert!(stage.ran(&ended), "{what} {most}: {ended}");
            ran += 1;
        } else {
            assert!(words.iter().any(|word| ended.stderr.contains(word)), "{what} {most}: {ended}");
            ended.refused(&["airlock: ", ": "]);
            refused += 1;
        }
        assert_eq!(stage.left(), "", "{what} {most}");
    }
    assert!(refused > 0 && ran > 0, "{what}: {refused} refused, {ran} ran");
    record_measure(&format!("limits as {}: {what}: {refused} refused, {ran} ran, nothing left", stage.leg()));
}

#[test]
fn too_few_descriptors_are_told() {
    let stage = Stage::new(|_| String::new());
    let limits: Vec<u64> = (3..64).step_by(3).chain([1024]).collect();
    walk(&stage, "open files", libc::RLIMIT_NOFILE, &limits, &["Too many open files"]);
}

/// Root's processes are not counted for it.
#[test]
fn too_few_processes_are_told() {
    if !airlock_tests::is_root() {
        skip!("needs root, to become a user who has no other process");
    }
    let stage = Stage::with(Site::user());
    let words = ["Resource temporarily unavailable", "init ended before it had done this"];
    walk(&stage, "processes", libc::RLIMIT_NPROC, &[0, 1, 2, 3, 64], &words);
}

/// The kernel kills who writes beyond it (SIGXFSZ), unless that signal is blocked.
#[test]
fn too_small_files_are_told() {
    let stage = Stage::new(|_| String::new());
    walk(&stage, "size of files", libc::RLIMIT_FSIZE, &[0, 100, 300, 1000, 1 << 20], &["File too large"]);
}
