//! What thousands of launches leave behind: memory, descriptors, processes, control groups, mounts, kernel memory, state.
//!
//! `cargo run --release -p airlock --example soak [LAUNCHES [AIRLOCK]]`. The first half of the table is of one launcher
//! process that starts all of them, the second of one `airlock run` each; `AIRLOCK` is the command, if it is not in the
//! build directory. Run it as root. It fails if anything has grown that is counted one by one: descriptors, processes,
//! mounts and control groups of its own, the groups below a parent that nobody else has, and the files of the runtime
//! state. What the whole machine has of control groups and kernel memory is shown beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use airlock_policy::{HostTree, Overrides, Policy, ResolveInput, resolve};
use airlock_runtime::host::is_root;
use airlock_runtime::launcher::{Launcher, Request};
use anyhow::{Context, Result, ensure};

/// Launches before the first count: what is made once is made by then.
const WARM: u64 = 50;

const POLICY: &str =
    "version = 1\nname = \"soak\"\nextends = \"base\"\nbest_effort = [\"limits\", \"devices\"]\n";

fn main() -> Result<()> {
    let launcher = Launcher::start()?;
    let mut words = std::env::args().skip(1);
    let launches = words.next().map_or(Ok(10_000), |word| word.parse())?;
    let airlock = words.next().map_or_else(beside, |path| Ok(PathBuf::from(path)))?;
    let folder = std::env::temp_dir().join(format!("airlock-soak-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let result = soak(&launcher, launches, &airlock, &folder);
    fs::remove_dir_all(&folder)?;
    result
}

/// The command in the build directory: examples lie one below it.
fn beside() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.ancestors().nth(2).context("a build directory")?.join("airlock"))
}

/// Where the control groups go; a user's go below the user's own.
fn parent() -> Option<PathBuf> {
    is_root().then(|| PathBuf::from(format!("/airlock-soak-{}", std::process::id())))
}

fn soak(launcher: &Launcher, launches: u64, airlock: &Path, folder: &Path) -> Result<()> {
    let file = folder.join("policy.toml");
    fs::write(&file, POLICY)?;
    let policy = Policy::load(&file.to_string_lossy(), &Overrides::default(), Path::new("/"))?;
    let host = HostTree::read().with_sources(&policy);
    let spec =
        resolve(&policy, &ResolveInput { args: vec!["true".into()], host, ..ResolveInput::default() })?;
    let by_launcher = || -> Result<()> {
        let request = Request { cgroup_parent: parent(), ..Request::default() };
        let report = launcher.launch(&spec, request)?.wait()?;
        ensure!(report.exit_code == Some(0) && report.left_behind.is_none(), "{report:#?}");
        Ok(())
    };
    let by_command = || -> Result<()> {
        let mut command = Command::new(airlock);
        command.args(["run", "--policy"]).arg(&file);
        command.args(parent().map(|parent| format!("--cgroup-parent={}", parent.display())));
        command.args(["--", "true"]).stdin(Stdio::null());
        let output = command.output().with_context(|| airlock.display().to_string())?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    let pid = launcher.pid();
    let grown = measure("launches by one launcher", launches, pid, by_launcher)?
        | measure("runs of the command", launches, pid, by_command)?;
    ensure!(!grown, "something has grown");
    Ok(())
}

/// Counts, launches, counts again; true if anything that is counted one by one has grown.
fn measure(what: &str, launches: u64, launcher: i32, launch: impl Fn() -> Result<()>) -> Result<bool> {
    (0..WARM).try_for_each(|_| launch())?;
    let before = Count::now(launcher)?;
    let started = Instant::now();
    (0..launches).try_for_each(|_| launch())?;
    let each = started.elapsed().as_secs_f64() * 1e3 / launches as f64;
    // The kernel takes namespaces and control groups apart when it has time.
    let mut after = Count::now(launcher)?;
    for _ in 0..100 {
        if !after.has_grown_since(&before) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        after = Count::now(launcher)?;
    }
    println!("{launches} {what}, {each:.1} ms each      before      after");
    let lines = before.exact.iter().zip(&after.exact).chain(before.rough.iter().zip(&after.rough));
    for ((name, before), (_, after)) in lines {
        println!("  {name:40} {before:10} {after:10}");
    }
    Ok(after.has_grown_since(&before))
}

/// What there is at a moment.
struct Count {
    /// What must not grow.
    exact: Vec<(&'static str, u64)>,
    /// What moves by itself.
    rough: Vec<(&'static str, u64)>,
}

impl Count {
    fn has_grown_since(&self, before: &Count) -> bool {
        self.exact.iter().zip(&before.exact).any(|((_, now), (_, before))| now > before)
    }

    fn now(launcher: i32) -> Result<Count> {
        let own = std::process::id().cast_signed();
        let memory = fs::read_to_string("/proc/meminfo")?;
        let status = fs::read_to_string(format!("/proc/{launcher}/status"))?;
        let state = if is_root() {
            PathBuf::from("/run/airlock")
        } else {
            PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").context("XDG_RUNTIME_DIR")?).join("airlock")
        };
        Ok(Count {
            exact: vec![
                ("descriptors of the launcher", entries(&format!("/proc/{launcher}/fd"))?),
                ("descriptors of its supervisor", entries(&format!("/proc/{own}/fd"))?),
                ("processes of both", children(launcher)? + children(own)?),
                ("control groups below their parent", own_control_groups()?),
                ("mounts", fs::read_to_string("/proc/self/mountinfo")?.lines().count().try_into()?),
                ("files of the runtime state", files_below(&state)?),
            ],
            rough: vec![
                ("control groups of the machine", control_groups()?),
                ("resident memory of the launcher, KiB", field(&status, "VmRSS:")?),
                ("slab, KiB", field(&memory, "Slab:")?),
                ("slab that cannot be reclaimed, KiB", field(&memory, "SUnreclaim:")?),
            ],
        })
    }
}

fn entries(folder: &str) -> Result<u64> {
    Ok(fs::read_dir(folder)?.count().try_into()?)
}

/// Children of a process, zombies included.
fn children(pid: i32) -> Result<u64> {
    let pids = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(pids.split_whitespace().count().try_into()?)
}

/// Directories below the parent, in all hierarchies.
fn own_control_groups() -> Result<u64> {
    let Some(parent) = parent() else { return Ok(0) };
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    // Field 5 is the mount point; the type follows a hyphen (proc_pid_mountinfo(5)).
    let hierarchies = mounts.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup").then(|| place.split(' ').nth(4)).flatten()
    });
    let folders = hierarchies.map(|place| Path::new(place).join(parent.strip_prefix("/").unwrap_or(&parent)));
    folders.filter(|folder| folder.exists()).map(|folder| Ok(1 + directories_below(&folder)?)).sum()
}

fn directories_below(folder: &Path) -> Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { 1 + directories_below(&entry.path())? } else { 0 };
    }
    Ok(count)
}

/// The sum of all hierarchies' (cgroups(7)); dying ones are counted until the kernel has let go of them.
fn control_groups() -> Result<u64> {
    let text = fs::read_to_string("/proc/cgroups")?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines.filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok()).sum())
}

fn files_below(folder: &Path) -> Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { files_below(&entry.path())? } else { 1 };
    }
    Ok(count)
}

fn field(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).context(name.to_owned())?;
    Ok(line.split_whitespace().next().context(name.to_owned())?.parse()?)
}
