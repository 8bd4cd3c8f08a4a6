//! What must lie where no sandbox of a run looks: the task, the run, and what the operator supplies.
//!
//! A policy with root kind `host` shows `/usr` and `/opt`. A task that is installed there shows its answers to whoever
//! researches, without any mount of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Supplied;
use super::directory::at;
use super::error::RunError;
use crate::task::{Phase, Task, Visibility};

/// Checks that no policy shows what only a mount of the task may show, and that task and run are not within one another.
pub(super) fn check(task: &Task, run: &Path, supplied: &BTreeMap<String, Supplied>) -> Result<(), RunError> {
    if overlap(&task.dir, run) {
        let (task, run) = (task.dir.display(), run.display());
        return Err(RunError::Options(format!(
            "the run {run} and the task {task} lie within one another; take another directory for the run"
        )));
    }
    let open = |name: &str| task.assets.get(name).is_some_and(|asset| asset.visibility == Visibility::Open);
    let assets = supplied.iter().filter(|(name, _)| !open(name));
    let assets = assets.map(|(name, supplied)| (format!("the asset `{name}`"), supplied.path.as_path()));
    let places = [("the task".to_owned(), task.dir.as_path()), ("the run".to_owned(), run)];
    unseen(task, &places.into_iter().chain(assets).collect::<Vec<_>>())
}

/// Checks that a task lies where no policy of its own shows it; `task run` would refuse it.
pub fn check_place(task: &Task) -> Result<(), RunError> {
    let dir = fs::canonicalize(&task.dir).map_err(at("finding the task", &task.dir))?;
    unseen(task, &[("the task".to_owned(), &dir)])
}

fn unseen(task: &Task, hidden: &[(String, &Path)]) -> Result<(), RunError> {
    for phase in phases(task) {
        for shown in phase.policy.shows() {
            let real = fs::canonicalize(shown).unwrap_or_else(|_| PathBuf::from(shown));
            if let Some((what, path)) = hidden.iter().find(|(_, path)| overlap(path, &real)) {
                return Err(RunError::Options(format!(
                    "{what} {} would be seen in the phase `{}`, whose policy shows {}; move it elsewhere",
                    path.display(),
                    phase.name.word(),
                    shown.display()
                )));
            }
        }
    }
    Ok(())
}

fn phases(task: &Task) -> impl Iterator<Item = &Phase> {
    let checkpoints = task.checkpoints.iter().filter_map(|checkpoints| checkpoints.validation.as_ref());
    task.phases.values().chain(checkpoints)
}

fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(dir: &str, run: &str, supplied: &[(&str, &str)]) -> Option<String> {
        let soup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks/digits-soup");
        let mut task = Task::load(&soup).unwrap();
        task.dir = dir.into();
        let digest = crate::Digest::of(b"");
        let supply =
            |(name, path): &(&str, &str)| ((*name).to_owned(), Supplied { path: path.into(), digest });
        let supplied = supplied.iter().map(supply).collect();
        check(&task, Path::new(run), &supplied).err().map(|error| error.to_string())
    }

    #[test]
    fn a_task_among_the_hosts_programs_is_told() {
        let soup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks/digits-soup");
        let mut task = Task::load(&soup).unwrap();
        check_place(&task).unwrap();
        task.dir = "/usr/bin".into();
        let told = check_place(&task).unwrap_err().to_string();
        assert!(told.contains("the task /usr/bin would be seen in the phase `explore`"), "{told}");
    }

    #[test]
    fn nothing_of_a_run_lies_where_its_sandboxes_look() {
        assert_eq!(refusal("/home/ann/soup", "/home/ann/run", &[("test-rows", "/home/ann/rows")]), None);
        for (dir, run, rows) in [
            ("/opt/tasks/soup", "/home/ann/run", "/home/ann/rows"),
            ("/home/ann/soup", "/usr/share/run", "/home/ann/rows"),
            ("/home/ann/soup", "/home/ann/run", "/opt/rows"),
            ("/", "/home/ann/run", "/home/ann/rows"),
        ] {
            let told = refusal(dir, run, &[("test-rows", rows)]).unwrap();
            assert!(
                told.contains("would be seen in the phase `") || told.contains("within one another"),
                "{told}"
            );
        }
        for run in ["/home/ann/soup/run", "/home/ann"] {
            let told = refusal("/home/ann/soup", run, &[]).unwrap();
            assert!(told.contains("lie within one another"), "{told}");
        }
    }
}
