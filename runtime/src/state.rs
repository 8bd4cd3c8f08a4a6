//! Runtime state: one directory per live sandbox, so that another process can list, end and sweep it.
//!
//! `/run/airlock` for root, `$XDG_RUNTIME_DIR/airlock` for a user. Each sandbox has one file, locked by its
//! monitor for as long as that lives: a file whose lock can be had belongs to a sandbox whose monitor died.

mod process;

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::process::ProcessRecord;
use crate::cgroups::{Cgroup, CgroupFacts, CgroupRecord};
use crate::ids::RangeLock;
use crate::launch::END_TIMEOUT;
use crate::report::{EndReport, Reason, ReportPlace, ReportRecord};
use crate::spec::Spec;

/// Extension of a state file, and of one that is not complete.
const NAMED: &str = "json";
const NEW: &str = "new";
/// Time enough to lock and name a state file after it was made.
const NAMING: Duration = Duration::from_secs(60);

/// What is known of a live sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its name.
    pub id: String,
    /// Name of its policy.
    pub policy: String,
    /// The command, for people.
    pub command: String,
    /// Its monitor.
    pub monitor: ProcessRecord,
    /// Its init, once it exists.
    pub init: Option<ProcessRecord>,
    /// Its control group.
    pub cgroup: Option<CgroupRecord>,
    /// Where an end report goes if the monitor cannot write it.
    pub report: Option<ReportRecord>,
    /// Seconds since the epoch.
    pub started: u64,
}

impl Record {
    /// The process that watches over the sandbox is alive; without it the next sweep removes what is left.
    pub fn is_watched(&self) -> bool {
        // Whether one that cannot be looked at lives is not known, so it may.
        !matches!(self.monitor.open(), Ok(None))
    }
}

/// How a sandbox is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// SIGTERM to the payload, through the monitor.
    Ask,
    /// SIGKILL to init, and with it to everything inside.
    Kill,
}

/// The state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file operation failed.
    #[error("state: {step} {path}: {source}")]
    Io {
        /// What was done.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The directory belongs to somebody else, or others may write to it.
    #[error("state: {path} must belong to you and be writable by nobody else (owner {owner}, mode {mode:o})")]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
    },
    /// A sandbox cannot be named.
    #[error("state: naming a sandbox: getrandom: {0}")]
    Random(io::Error),
    /// The id pool cannot be swept.
    #[error(transparent)]
    Ids(#[from] crate::ids::IdError),
    /// There is no such sandbox.
    #[error("state: no sandbox of this name runs (see `airlock list`)")]
    Unknown,
    /// A sandbox does not go away.
    #[error("state: the sandbox does not end; see `airlock gc`")]
    StillThere,
    /// No directory for an ordinary user's state.
    #[error(
        "state: XDG_RUNTIME_DIR is not set to an absolute path; set it to a private directory (systemd makes /run/user/UID)"
    )]
    NoRuntimeDir,
    /// An ordinary user's state cannot be kept where the variable says.
    #[error(
        "state: creating {path}, below what XDG_RUNTIME_DIR names: {source}; set it to a private directory (systemd makes \
         /run/user/UID)"
    )]
    RuntimeDir {
        /// The directory.
        path: PathBuf,
        /// Why it cannot be made.
        source: io::Error,
    },
}

/// The state directory.
#[derive(Clone, Debug)]
pub struct Sandboxes {
    root: PathBuf,
}

/// One sandbox's state, locked.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    file: File,
    record: Record,
    /// Length of the record in the file.
    written: usize,
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Sandboxes whose remains were removed.
    pub removed: Vec<String>,
    /// Sandboxes of which something is left, and why.
    pub left: Vec<(String, String)>,
    /// Sandboxes whose monitor lives.
    pub live: usize,
}

/// The step that makes the directory.
const CREATING: &str = "creating";

impl Sandboxes {
    /// Opens the caller's state directory, making it if need be.
    pub fn open() -> Result<Sandboxes, StateError> {
        if rustix::process::geteuid().is_root() {
            return Sandboxes::at(PathBuf::from("/run/airlock"));
        }
        Sandboxes::below(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
    }

    /// An ordinary user's.
    fn below(base: Option<PathBuf>) -> Result<Sandboxes, StateError> {
        let base = base.filter(|path| path.is_absolute()).ok_or(StateError::NoRuntimeDir)?;
        Sandboxes::at(base.join("airlock")).map_err(|error| match error {
            StateError::Io { step: CREATING, path, source } => StateError::RuntimeDir { path, source },
            other => other,
        })
    }

    /// Opens a state directory at `root`.
    pub fn at(root: PathBuf) -> Result<Sandboxes, StateError> {
        for directory in [root.clone(), root.join("sandboxes")] {
            match DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => result.map_err(at(CREATING, &directory))?,
            }
        }
        let metadata = fs::symlink_metadata(&root).map_err(at("checking", &root))?;
        let own = rustix::process::geteuid().as_raw();
        if !metadata.is_dir() || metadata.uid() != own || metadata.mode() & 0o022 != 0 {
            return Err(StateError::Unsafe {
                path: root,
                owner: metadata.uid(),
                mode: metadata.mode() & 0o7777,
            });
        }
        Ok(Sandboxes { root })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Directory of the id pool's lock files.
    pub fn id_pool(&self) -> PathBuf {
        self.root.join("ids")
    }

    /// A name that no sandbox has.
    pub fn new_id() -> Result<String, StateError> {
        let mut bytes = [0_u8; 6];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| StateError::Random(errno.into()))?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    /// Makes and locks the state of a new sandbox.
    pub fn create(&self, id: &str, spec: &Spec, report: Option<ReportRecord>) -> Result<State, StateError> {
        // Locked and written before it has the name by which a sweep finds it.
        let path = self.path(id);
        let new = path.with_extension(NEW);
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&new);
        let file = file.map_err(at("creating", &new))?;
        // Of one that is not named nobody would know.
        let unnamed = Unnamed(Some(&new));
        file.lock().map_err(at("locking", &new))?;
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let command = spec.oci.process().as_ref().and_then(|process| process.args().as_ref());
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let record = Record {
            id: id.into(),
            policy: spec.airlock.policy.clone(),
            command: command.map(|args| args.join(" ")).unwrap_or_default(),
            monitor: ProcessRecord::of(pid).map_err(at("recording in", &new))?,
            init: None,
            cgroup: None,
            report,
            started: started.map_or(0, |since| since.as_secs()),
        };
        let mut state = State { path, file, record, written: 0 };
        state.write()?;
        fs::rename(&new, &state.path).map_err(at("naming", &state.path))?;
        unnamed.keep();
        Ok(state)
    }

    /// Records of all sandboxes, live or not.
    pub fn list(&self) -> Result<Vec<Record>, StateError> {
        let mut records = Vec::new();
        for id in self.ids()? {
            // One that ends meanwhile is not an error.
            if let Ok(text) = fs::read(self.path(&id))
                && let Ok(record) = serde_json::from_slice(&text)
            {
                records.push(record);
            }
        }
        records.sort_by(|a: &Record, b: &Record| (a.started, &a.id).cmp(&(b.started, &b.id)));
        Ok(records)
    }

    /// Ends a sandbox; after a kill, waits until it is gone.
    pub fn end(&self, id: &str, ending: Ending) -> Result<(), StateError> {
        let record = self.list()?.into_iter().find(|record| record.id == id).ok_or(StateError::Unknown)?;
        if ending == Ending::Ask {
            record.monitor.signal(rustix::process::Signal::TERM);
            return Ok(());
        }
        // It writes the report when everything else is gone, its record included.
        let writer = record.report.as_ref().and_then(|_| record.monitor.open().ok().flatten());
        if let Some(init) = record.init {
            init.signal(rustix::process::Signal::KILL);
        }
        let deadline = std::time::Instant::now() + END_TIMEOUT;
        while self.path(id).exists() && self.sweep_one(id, END_TIMEOUT) != Ok(true) {
            if std::time::Instant::now() > deadline {
                return Err(StateError::StillThere);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let Some(writer) = writer else { return Ok(()) };
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        // The sandbox is gone, whatever its monitor still waits for.
        let _ = process::ended(&writer, left);
        Ok(())
    }

    /// Removes what is left of sandboxes whose monitor died; waits up to `patience` for each that is dying.
    pub fn sweep(&self, patience: Duration) -> Result<Swept, StateError> {
        let mut swept = Swept::default();
        self.sweep_unnamed()?;
        for id in self.ids()? {
            match self.sweep_one(&id, patience) {
                Ok(true) => swept.removed.push(id),
                Ok(false) => swept.live += 1,
                Err(why) => swept.left.push((id, why)),
            }
        }
        RangeLock::sweep_pool(&self.id_pool(), |id| id.is_empty() || self.sweep_by_id(id, patience))?;
        Ok(swept)
    }

    /// Sweeps one sandbox; true when nothing of it is left.
    pub(crate) fn sweep_by_id(&self, id: &str, patience: Duration) -> bool {
        let plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        plain && self.sweep_one(id, patience) == Ok(true)
    }

    /// True: removed; false: its monitor lives.
    fn sweep_one(&self, id: &str, patience: Duration) -> Result<bool, String> {
        let path = self.path(id);
        match File::options().read(true).write(true).open(&path) {
            Ok(file) => sweep_file(file, &path, patience),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Removes files whose monitor died before it had made anything else.
    fn sweep_unnamed(&self) -> Result<(), StateError> {
        for id in self.files(NEW)? {
            let path = self.path(&id).with_extension(NEW);
            let abandoned = |file: File| {
                let age = file.metadata().and_then(|metadata| metadata.modified()).map(|time| time.elapsed());
                matches!(age, Ok(Ok(age)) if age > NAMING) && file.try_lock().is_ok()
            };
            if File::open(&path).is_ok_and(abandoned) {
                // Its monitor may have named it in between: then there is nothing of this name any more.
                let _ = fs::remove_file(&path);
            }
        }
        Ok(())
    }

    fn ids(&self) -> Result<Vec<String>, StateError> {
        self.files(NAMED)
    }

    /// Names of the files with this extension, without it.
    fn files(&self, extension: &str) -> Result<Vec<String>, StateError> {
        let directory = self.root.join("sandboxes");
        let entries = fs::read_dir(&directory).map_err(at("reading", &directory))?;
        let name = |entry: io::Result<fs::DirEntry>| {
            let path = entry.ok()?.path();
            let named = path.extension()? == extension;
            named.then(|| path.file_stem()?.to_str().map(String::from)).flatten()
        };
        Ok(entries.filter_map(name).collect())
    }

    fn path(&self, id: &str) -> PathBuf {
        self.root.join("sandboxes").join(id).with_extension(NAMED)
    }
}

/// Removes a state file that did not get its name.
struct Unnamed<'a>(Option<&'a Path>);

impl Unnamed<'_> {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        // A sweep removes what this cannot.
        let _ = self.0.map(fs::remove_file);
    }
}

impl State {
    /// Writes down the control group; called before it is made, and again when it is.
    pub(crate) fn record_cgroup(&mut self, cgroup: CgroupRecord) -> Result<(), StateError> {
        let before = self.record.cgroup.replace(cgroup);
        if before == self.record.cgroup { Ok(()) } else { self.write() }
    }

    /// Writes down init.
    pub(crate) fn record_pid(&mut self, pid: i32) -> Result<(), StateError> {
        self.record.init = Some(ProcessRecord::of(pid).map_err(at("recording init in", &self.path))?);
        self.write()
    }

    /// Removes the state.
    pub(crate) fn remove(self) -> Result<(), StateError> {
        fs::remove_file(&self.path).map_err(at("removing", &self.path))
    }

    /// Writes the record over the one before it, padded to at least its length: never truncated, so that ext4 has
    /// no reason to flush it on close (mount option auto_da_alloc, ext4(5)).
    fn write(&mut self) -> Result<(), StateError> {
        let mut text = serde_json::to_vec(&self.record).map_err(|error| StateError::Io {
            step: "encoding",
            path: self.path.clone(),
            source: error.into(),
        })?;
        text.resize(text.len().max(self.written), b' ');
        self.written = text.len();
        self.file.write_all_at(&text, 0).map_err(at("writing", &self.path))
    }
}

/// As [`Sandboxes::sweep_one`], of a state file that was opened by this name.
fn sweep_file(mut file: File, path: &Path, patience: Duration) -> Result<bool, String> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error.to_string()),
    }
    // Its monitor may have removed it between the open and the lock: then all is as it should be.
    let named = fs::symlink_metadata(path).ok().map(|named| (named.dev(), named.ino()));
    let held = file.metadata().map_err(|error| error.to_string())?;
    if named != Some((held.dev(), held.ino())) {
        return Ok(true);
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| error.to_string())?;
    match serde_json::from_str::<Record>(&text) {
        Ok(record) => {
            if let Some(init) = record.init {
                init.end(patience)?;
            }
            if let Some(cgroup) = &record.cgroup {
                remove_cgroup(cgroup, patience)?;
            }
            write_lost_report(&record);
        }
        // Nothing is made before the record has its name.
        Err(_) if path.extension().is_some_and(|extension| extension == NEW) => {}
        // Without it nobody would find what is left of the sandbox.
        Err(error) => return Err(format!("its record {} cannot be read: {error}", path.display())),
    }
    fs::remove_file(path).map_err(|error| error.to_string())?;
    Ok(true)
}

fn remove_cgroup(record: &CgroupRecord, patience: Duration) -> Result<(), String> {
    let facts = CgroupFacts::read().map_err(|error| error.to_string())?;
    let group = Cgroup::open(record, &facts).map_err(|error| error.to_string())?;
    let removed =
        group.remove(Duration::ZERO).or_else(|_| group.kill(patience).and_then(|()| group.remove(patience)));
    removed.map_err(|error| error.to_string())?;
    facts.remove_leaves(Some(record));
    Ok(())
}

fn write_lost_report(record: &Record) {
    let Some(place) = &record.report else { return };
    let mut report = EndReport::without_run(&record.id, Reason::SupervisorLost, "the monitor was killed");
    report.policy.clone_from(&record.policy);
    let written = ReportPlace::reopen(place).and_then(|place| {
        // The monitor may have got as far as writing it.
        if place.is_taken() { Ok(()) } else { place.write(&report) }
    });
    if let Err(error) = written {
        tracing::info!("report {}: {error}", place.path.display());
    }
}

fn at(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_path_buf();
    move |source| StateError::Io { step, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The user sees which variable is wrong, not only a path that it never wrote.
    #[test]
    fn a_runtime_directory_that_is_not_there_is_named_by_its_variable() {
        for (base, words) in [
            (None, "XDG_RUNTIME_DIR is not set"),
            (Some("relative"), "XDG_RUNTIME_DIR is not set to an absolute path"),
            (
                Some("/nonexistent"),
                "creating /nonexistent/airlock, below what XDG_RUNTIME_DIR names: No such file",
            ),
        ] {
            let error = Sandboxes::below(base.map(PathBuf::from)).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let directory = tempfile::tempdir().unwrap();
        Sandboxes::below(Some(directory.path().to_owned())).unwrap();
    }

    fn spec() -> Spec {
        Spec { oci: oci_spec::runtime::Spec::default(), airlock: crate::spec::Extension::default() }
    }

    #[test]
    fn a_state_whose_monitor_lives_is_not_swept() {
        let directory = tempfile::tempdir().unwrap();
        let sandboxes = Sandboxes::at(directory.path().join("airlock")).unwrap();
        let state = sandboxes.create("live", &spec(), None).unwrap();
        let swept = sandboxes.sweep(END_TIMEOUT).unwrap();
        assert_eq!((swept.live, swept.removed.len()), (1, 0));
        drop(state);
        assert_eq!(sandboxes.sweep(END_TIMEOUT).unwrap().removed, ["live"]);
        assert!(sandboxes.list().unwrap().is_empty());
    }

    /// Opened, then removed by its monitor, and the name taken by another: neither is this sweep's.
    #[test]
    fn a_state_that_is_gone_is_not_swept_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let sandboxes = Sandboxes::at(directory.path().join("airlock")).unwrap();
        let first = sandboxes.create("name", &spec(), None).unwrap();
        let opened = File::options().read(true).write(true).open(&first.path).unwrap();
        first.remove().unwrap();
        let second = sandboxes.create("name", &spec(), None).unwrap();
        assert_eq!(sweep_file(opened, &second.path, END_TIMEOUT), Ok(true));
        assert!(second.path.exists());
    }

    #[test]
    fn a_state_that_was_never_named_is_swept_when_its_monitor_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let sandboxes = Sandboxes::at(directory.path().join("airlock")).unwrap();
        let path = directory.path().join("airlock/sandboxes/x.new");
        let swept = || {
            sandboxes.sweep(END_TIMEOUT).unwrap();
            !path.exists()
        };
        let held = File::create(&path).unwrap();
        assert!(!swept(), "it may be about to be locked");
        held.set_modified(std::time::SystemTime::now() - 2 * NAMING).unwrap();
        held.lock().unwrap();
        assert!(!swept(), "its monitor lives");
        drop(held);
        assert!(swept());
    }

    /// Removed, nobody would find the cgroups and the init that it may have named.
    #[test]
    fn a_record_that_cannot_be_read_is_kept_and_told() {
        let directory = tempfile::tempdir().unwrap();
        let sandboxes = Sandboxes::at(directory.path().join("airlock")).unwrap();
        let path = directory.path().join("airlock/sandboxes/x.json");
        fs::write(&path, "{\"id\":\"x\",\"pol").unwrap();
        let swept = sandboxes.sweep(END_TIMEOUT).unwrap();
        assert!(path.exists());
        assert!(
            swept.removed.is_empty() && format!("{swept:?}").contains("x.json cannot be read"),
            "{swept:?}"
        );
    }

    #[test]
    fn a_lost_sandbox_gets_its_report() {
        let directory = tempfile::tempdir().unwrap();
        let sandboxes = Sandboxes::at(directory.path().join("airlock")).unwrap();
        let report = directory.path().join("report.json");
        let place = ReportPlace::open(&report).unwrap();
        drop(sandboxes.create("lost", &spec(), Some(place.record().clone())).unwrap());
        sandboxes.sweep(END_TIMEOUT).unwrap();
        let text = fs::read_to_string(report).unwrap();
        assert!(text.contains("supervisor-lost"), "{text}");
    }

    #[test]
    fn a_state_directory_that_others_can_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("airlock");
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(Sandboxes::at(root), Err(StateError::Unsafe { .. })));
    }
}
