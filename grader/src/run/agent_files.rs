//! The agent's own files: a sealed copy in the run's store, taken when the run is made.
//!
//! Research gets them whole. So they are copied from a directory of their own: none that holds answers of the task, or
//! much else of the operator's.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Supplied;
use super::directory::at;
use super::error::{RunError, tree};
use crate::seal::{Limits, Store, seal};
use crate::task::{Task, Visibility};

/// Most files and directories.
const MOST_ENTRIES: u64 = 50_000;
/// Most bytes.
const MOST_BYTES: u64 = 8 << 30;

/// Copies them into the store, from where research has them.
pub(super) fn take(
    path: &Path,
    task: &Task,
    run: &Path,
    supplied: &BTreeMap<String, Supplied>,
    store: &Store,
) -> Result<Supplied, RunError> {
    let path = fs::canonicalize(path).map_err(at("finding the agent's files", path))?;
    let home = std::env::var_os("HOME").and_then(|home| fs::canonicalize(home).ok());
    check(&path, task, run, supplied, home.as_deref())?;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match rustix::fs::open(&path, flags, Mode::empty()) {
        // Nor is a FIFO waited for.
        Err(Errno::NOTDIR) => {
            return Err(RunError::Options(format!("--agent-files {}: no directory", path.display())));
        }
        directory => directory.map_err(|errno| at("opening", &path)(errno.into()))?,
    };
    let limits = Limits {
        entries: MOST_ENTRIES,
        logical_bytes: MOST_BYTES,
        allocated_bytes: MOST_BYTES,
        file_bytes: MOST_BYTES,
        ..Limits::default()
    };
    let sealed = seal(directory.as_fd(), store, &limits).map_err(tree("copying the agent's files"))?;
    Ok(Supplied { path, digest: sealed.digest() })
}

/// Checks that a directory is the agent's alone.
fn check(
    path: &Path,
    task: &Task,
    run: &Path,
    supplied: &BTreeMap<String, Supplied>,
    home: Option<&Path>,
) -> Result<(), RunError> {
    let refused = |why: String| {
        Err(RunError::Options(format!(
            "--agent-files {}: {why}, and the agent would see it; give it a directory of its own",
            path.display()
        )))
    };
    for (what, place) in [("the task", task.dir.as_path()), ("the home directory", home.unwrap_or(run))] {
        if place.starts_with(path) {
            return refused(format!("it is, or holds, {what} {}", place.display()));
        }
    }
    let hidden = task.assets.iter().filter(|(_, asset)| asset.visibility != Visibility::Open);
    let own = hidden.clone().filter_map(|(_, asset)| Some(task.dir.join(asset.path.as_ref()?)));
    let others = hidden.filter_map(|(name, _)| Some(supplied.get(name)?.path.clone()));
    let places = own.chain(others).chain([task.dir.join("tests"), run.to_owned()]);
    // What is a link in the task lies where that leads.
    let places: Vec<PathBuf> = places.map(|place| fs::canonicalize(&place).unwrap_or(place)).collect();
    match places.iter().find(|place| place.starts_with(path) || path.starts_with(place)) {
        Some(place) => refused(format!("it overlaps {}", place.display())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_brings_lies_apart_from_every_answer() {
        let soup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks/digits-soup");
        let mut task = Task::load(&soup).unwrap();
        task.dir = "/home/ann/soup".into();
        let digest = crate::Digest::of(b"");
        let rows = Supplied { path: "/data/rows".into(), digest };
        let supplied = BTreeMap::from([("test-rows".to_owned(), rows)]);
        let told = |path: &str| {
            let checked =
                check(Path::new(path), &task, Path::new("/runs/1"), &supplied, Some(Path::new("/home/ann")));
            checked.err().map(|error| error.to_string()).unwrap_or_default()
        };
        for path in
            ["/home/ann/soup/solution", "/home/ann/soup/environment", "/home/ann/agent", "/data/rows2"]
        {
            assert_eq!(told(path), "");
        }
        for (path, why) in [
            ("/", "it is, or holds, the task"),
            ("/home/ann/soup", "it is, or holds, the task"),
            ("/home/ann", "it is, or holds, the task"),
            ("/home/ann/soup/tests", "it overlaps /home/ann/soup/tests"),
            ("/home/ann/soup/tests/deep", "it overlaps /home/ann/soup/tests"),
            ("/home/ann/soup/assets", "it overlaps /home/ann/soup/assets/"),
            ("/data", "it overlaps /data/rows"),
            ("/data/rows/part", "it overlaps /data/rows"),
            ("/runs", "it overlaps /runs/1"),
        ] {
            assert!(told(path).contains(why), "{path}: {}", told(path));
        }
        task.dir = "/tasks/soup".into();
        let home = check(Path::new("/home"), &task, Path::new("/r"), &supplied, Some(Path::new("/home/ann")));
        assert!(home.unwrap_err().to_string().contains("the home directory /home/ann"));
    }

    #[test]
    fn answers_that_a_task_links_to_are_answers() {
        let soup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks/digits-soup");
        let mut task = Task::load(&soup).unwrap();
        let place = tempfile::tempdir().unwrap();
        let [answers, other] = ["answers", "other"].map(|name| place.path().join(name));
        task.dir = place.path().join("task");
        for directory in [&answers, &other, &task.dir] {
            fs::create_dir(directory).unwrap();
        }
        std::os::unix::fs::symlink("../answers", task.dir.join("tests")).unwrap();
        let told = |path: &Path| check(path, &task, Path::new("/r"), &BTreeMap::new(), None);
        assert!(told(&answers).unwrap_err().to_string().contains("it overlaps"));
        told(&other).unwrap();
    }

    /// An opened FIFO would be waited for until somebody writes to it.
    #[test]
    fn what_is_no_directory_is_told_at_once() {
        let soup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks/digits-soup");
        let task = Task::load(&soup).unwrap();
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store")).unwrap();
        let fifo = place.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let taken = take(&fifo, &task, Path::new("/r"), &BTreeMap::new(), &store);
        assert!(taken.unwrap_err().to_string().contains("no directory"));
    }
}
