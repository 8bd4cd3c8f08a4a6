//! A process that is killed while it seals leaves a store that the next one can use.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use airlock_grader::seal::{Limits, Store, seal};

/// Where the child finds the directory to work in.
const PLACE: &str = "SEAL_TEST_PLACE";

fn drafts(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.join("store")).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with('.'))
        .collect()
}

fn fill(place: &Path, round: u8) {
    let _ = fs::remove_dir_all(place.join("tree"));
    for directory in 0..20 {
        let directory = place.join(format!("tree/d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        (0..20).for_each(|file| fs::write(directory.join(format!("f{file}")), vec![round; 10_000]).unwrap());
    }
}

/// Not a test of its own: the process that is killed.
#[test]
#[ignore = "run by the test below in a process of its own"]
fn child() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else {
        return;
    };
    let store = Store::open(&place.join("store")).unwrap();
    seal(
        File::open(place.join("tree")).unwrap().as_fd(),
        &store,
        &Limits::default(),
    )
    .unwrap();
}

#[test]
fn a_kill_at_any_moment_leaves_a_store_that_works() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut interrupted = 0;
    for round in 0..12 {
        fill(place, round);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "child"])
            .env(PLACE, place)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while drafts(place).is_empty() && child.try_wait().unwrap().is_none() {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "the child does not start"
            );
        }
        std::thread::sleep(Duration::from_millis(u64::from(round) * 4));
        child.kill().unwrap();
        child.wait().unwrap();
        interrupted += usize::from(!drafts(place).is_empty());

        let store = Store::open(&place.join("store")).unwrap();
        assert_eq!(drafts(place), Vec::<PathBuf>::new(), "round {round}");
        for digest in store.list().unwrap() {
            store.get(digest).unwrap().unwrap().verify().unwrap();
        }
        let sealed = seal(
            File::open(place.join("tree")).unwrap().as_fd(),
            &store,
            &Limits::default(),
        )
        .unwrap();
        sealed.verify().unwrap();
    }
    assert!(interrupted > 0, "no child was killed in the middle");
}
