//! Many launches of one launcher, and what is there before and after; `airlock`'s example `soak` does thousands.

use std::fs;
use std::path::{Path, PathBuf};

use airlock_runtime::launcher::Launcher;
use airlock_runtime::state::Sandboxes;

use crate::child::until;
use crate::fixture::{Fixture, children_of, open_descriptors, resident_kib};

const LAUNCHES: usize = 200;
/// Launches before the first count: what is made once is made by then.
const WARM: usize = 20;
/// By as much the launcher's memory may move.
const NOISE_KIB: u64 = 1024;

#[derive(Debug, PartialEq, Eq)]
struct Count {
    descriptors: [usize; 2],
    processes: usize,
    cgroups: usize,
    mounts: usize,
}

impl Count {
    fn now(fixture: &Fixture, launcher: i32) -> Count {
        let own = std::process::id().cast_signed();
        Count {
            descriptors: [launcher, own].map(|pid| open_descriptors(pid).len()),
            processes: children_of(launcher).len(),
            cgroups: fixture.cgroups().iter().map(|folder| directories(folder)).sum(),
            mounts: fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
        }
    }
}

/// A directory and those below it; 0 if there is none.
fn directories(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    1 + below.map(|entry| directories(&entry.path())).sum::<usize>()
}

pub(crate) fn many_launches_leave_nothing(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    let spec = fixture.spec(&["exit", "0"]);
    let launch = |_| {
        let running = launcher.launch(&spec, fixture.request()).unwrap();
        let id = running.id().to_owned();
        let report = running.wait().unwrap();
        assert_eq!((report.exit_code, report.left_behind), (Some(0), None));
        id
    };
    (0..WARM).for_each(|number| drop(launch(number)));
    until("the last one is gone", || children_of(launcher.pid()).is_empty());
    let before = (Count::now(fixture, launcher.pid()), resident_kib(launcher.pid()));
    let names: Vec<String> = (0..LAUNCHES).map(launch).collect();
    // The launcher answers before it has let go of the last order.
    until("all is as it was", || Count::now(fixture, launcher.pid()) == before.0);
    let resident = resident_kib(launcher.pid());
    assert!(resident <= before.1 + NOISE_KIB, "{} KiB, then {resident}", before.1);
    let sandboxes = Sandboxes::open().unwrap();
    let state: Vec<PathBuf> =
        names.iter().map(|name| sandboxes.root().join("sandboxes").join(name)).collect();
    let left: Vec<_> = state.iter().filter(|file| file.with_extension("json").exists()).collect();
    assert!(left.is_empty(), "{left:?}");
    let held = fs::read_dir(sandboxes.id_pool()).into_iter().flatten().flatten();
    let held: Vec<String> = held.filter_map(|lock| fs::read_to_string(lock.path()).ok()).collect();
    assert!(!names.iter().any(|name| held.contains(name)), "{held:?}");
}
