//! The end report: why and how a sandbox ended, and what confined it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::gpu::GpuReport;
use crate::host::Walk;
use crate::plan::Lowered;
use crate::spec::Spec;

/// Version of the report's form.
pub const REPORT_VERSION: u32 = 1;

/// Why and how a sandbox ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndReport {
    /// Version of this form.
    pub version: u32,
    /// Name of the sandbox.
    pub id: String,
    /// Name of the policy.
    pub policy: String,
    /// `sha256:<hex>` of the policy after everything was merged.
    pub policy_digest: String,
    /// `sha256:<hex>` of the spec.
    pub spec_digest: String,
    /// Why it ended.
    pub reason: Reason,
    /// The command's exit status, if it exited.
    pub exit_code: Option<i32>,
    /// The signal that ended the command.
    pub signal: Option<i32>,
    /// What failed, when nothing ran.
    pub error: Option<String>,
    /// Wall-clock time from release to end, milliseconds.
    pub wall_ms: u64,
    /// CPU time in user mode, milliseconds.
    pub user_ms: Option<u64>,
    /// CPU time in the kernel, milliseconds.
    pub sys_ms: Option<u64>,
    /// Highest memory use in bytes: of the control group, page cache included, or (where there is none) the
    /// largest resident set of one process.
    pub memory_peak: Option<u64>,
    /// Block device traffic in bytes.
    pub io: Option<Io>,
    /// Highest number of tasks at once.
    pub pids_peak: Option<u64>,
    /// Forks refused by the pids limit.
    pub pids_refused: Option<u64>,
    /// Processes killed for want of memory.
    pub oom_kills: Option<u64>,
    /// System calls refused by the filter, where the kernel counts them (no kernel up to 6.18 does).
    pub refused_syscalls: Option<u64>,
    /// What confined it, clause by clause, with the evidence.
    pub enforced: Vec<Evidence>,
    /// Protections that the policy allowed to be lowered, and were.
    pub lowered: Vec<Lowered>,
    /// What could not be taken away afterwards.
    pub left_behind: Option<String>,
    /// GPUs that it had, and how it left them.
    pub gpus: Option<GpuReport>,
}

/// Block device traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Io {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// Why a sandbox ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The command exited by itself.
    Exited,
    /// A signal ended the command.
    Signalled,
    /// The command failed, and the kernel had killed one of its processes for want of memory.
    Oom,
    /// The wall-clock limit was reached.
    WallTimeout,
    /// The command failed after the pids limit had refused it a process.
    PidsLimitHit,
    /// It used more of a GPU than it may.
    GpuLimit,
    /// The sandbox was not built, or the command could not be executed.
    SetupFailed,
    /// The monitor was killed, the supervisor let go of it, or its use of a GPU could not be watched any more, and the
    /// sandbox ended with that.
    SupervisorLost,
}

/// One thing that confined the payload, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The policy clause.
    pub clause: String,
    /// What holds.
    pub what: String,
    /// How it is known.
    pub evidence: EvidenceKind,
}

/// How something is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EvidenceKind {
    /// Read back from the kernel by the monitor.
    KernelRead,
    /// Tried by init before the payload existed, and refused.
    ChildProbe,
    /// The call that sets it succeeded, and the kernel shows it nowhere.
    StepOk,
}

impl EndReport {
    /// Adds how the GPUs were left. A sandbox that was ended for a limit that nobody saw exceeded was ended because its
    /// GPUs could not be watched any more, which is no fault of its own. One that ended by itself before it was ended has
    /// exceeded its limit all the same, or nobody can tell.
    pub fn add_gpus(&mut self, gpus: GpuReport) {
        match (self.reason, &gpus.exceeded) {
            (Reason::GpuLimit, None) => self.unwatched(&gpus),
            (Reason::Exited, None) if gpus.unwatched => self.unwatched(&gpus),
            (Reason::Exited, Some(_)) => self.reason = Reason::GpuLimit,
            _ => {}
        }
        self.gpus = Some(gpus);
    }

    fn unwatched(&mut self, gpus: &GpuReport) {
        self.reason = Reason::SupervisorLost;
        self.error = Some(format!("the watch over its GPUs ended: {}", gpus.left.join("; ")));
    }

    /// The report of a sandbox of which nothing ran, or nothing is known.
    pub fn without_run(id: &str, reason: Reason, error: &str) -> EndReport {
        EndReport {
            version: REPORT_VERSION,
            id: id.into(),
            policy: String::new(),
            policy_digest: String::new(),
            spec_digest: String::new(),
            reason,
            exit_code: None,
            signal: None,
            error: Some(error.into()),
            wall_ms: 0,
            user_ms: None,
            sys_ms: None,
            memory_peak: None,
            io: None,
            pids_peak: None,
            pids_refused: None,
            oom_kills: None,
            refused_syscalls: None,
            enforced: Vec::new(),
            lowered: Vec::new(),
            left_behind: None,
            gpus: None,
        }
    }

    /// The report of a sandbox of `spec` that was not built, or whose command could not be executed.
    pub fn setup_failed(id: &str, spec: &Spec, error: &str) -> EndReport {
        EndReport {
            policy: spec.airlock.policy.clone(),
            policy_digest: spec.airlock.policy_digest.clone(),
            spec_digest: spec.digest().unwrap_or_default(),
            ..EndReport::without_run(id, Reason::SetupFailed, error)
        }
    }

    /// The command's exit status as a shell states it: 128 + n for signal n.
    pub fn exit_status(&self) -> u8 {
        let status = match (self.exit_code, self.signal) {
            (Some(code), _) => code,
            (None, Some(signal)) => 128 + signal,
            (None, None) => 125,
        };
        let status = u8::try_from(status & 0xff).unwrap_or(125);
        // What ended well by its own account did not, if its GPUs say otherwise.
        let bad = matches!(self.reason, Reason::GpuLimit | Reason::SupervisorLost);
        if bad && status == 0 { 125 } else { status }
    }
}

/// Where a report goes: a name in a directory that was opened before anything untrusted ran, so that no link
/// put in its way later leads the report elsewhere.
#[derive(Debug)]
pub struct ReportPlace {
    directory: OwnedFd,
    name: OsString,
    record: ReportRecord,
}

/// A place written down for a later process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportRecord {
    /// The file, without links.
    pub path: PathBuf,
    /// Device and inode of its directory.
    pub directory: (u64, u64),
}

impl ReportPlace {
    /// Opens the directory of `path`.
    ///
    /// # Errors
    /// A link on the way, as for the sources of mounts: in a workspace that an earlier payload wrote to, it
    /// would choose what the report overwrites.
    pub fn open(path: &Path) -> io::Result<ReportPlace> {
        let name =
            path.file_name().ok_or_else(|| io::Error::other("is not the name of a file"))?.to_os_string();
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let parent = Walk::to(parent).map_err(io::Error::other)?.resolved;
        let directory = open_directory(&parent)?;
        refuse_other_than_files(&directory, &name)?;
        rustix::fs::accessat(&directory, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
        let record = ReportRecord { path: parent.join(&name), directory: identity(&directory)? };
        Ok(ReportPlace { directory, name, record })
    }

    /// Opens a recorded place, if its directory is still the same.
    pub fn reopen(record: &ReportRecord) -> io::Result<ReportPlace> {
        let (Some(parent), Some(name)) = (record.path.parent(), record.path.file_name()) else {
            return Err(io::Error::other("is not the name of a file"));
        };
        let directory = open_directory(parent)?;
        if identity(&directory)? != record.directory {
            return Err(io::Error::other("its directory was replaced"));
        }
        Ok(ReportPlace { directory, name: name.to_os_string(), record: record.clone() })
    }

    /// What a later process needs to open the place again.
    pub fn record(&self) -> &ReportRecord {
        &self.record
    }

    /// Removes the report of an earlier run, so that it is never taken for this one's.
    pub fn clear(&self) -> io::Result<()> {
        refuse_other_than_files(&self.directory, &self.name)?;
        match rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// There is something of that name.
    pub fn is_taken(&self) -> bool {
        rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Writes the report as JSON, whole or not at all.
    pub fn write(&self, report: &EndReport) -> io::Result<()> {
        refuse_other_than_files(&self.directory, &self.name)?;
        // A name that nobody could have taken beforehand.
        let mut random = [0_u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let mut temporary = self.name.clone();
        temporary.push(format!(".{:016x}.tmp", u64::from_ne_bytes(random)));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, &temporary, flags, Mode::from_raw_mode(0o666))?;
        let written = (|| {
            let mut text = serde_json::to_vec_pretty(report)?;
            text.push(b'\n');
            fs::File::from(file).write_all(&text)?;
            Ok(rustix::fs::renameat(&self.directory, &temporary, &self.directory, &self.name)?)
        })();
        if written.is_err() {
            // The first error is the one to tell.
            let _ = rustix::fs::unlinkat(&self.directory, &temporary, AtFlags::empty());
        }
        written
    }
}

/// A report takes the place of a file; it must not take that of a device, a FIFO or a link such as /dev/stdout.
fn refuse_other_than_files(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let kind = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let what = match kind {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    };
    Err(io::Error::other(format!(
        "is {what}, which a report would replace; name a regular file or a new one"
    )))
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

fn identity(directory: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The report's JSON Schema.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(EndReport).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_become_128_and_more() {
        let mut report = EndReport::without_run("x", Reason::Signalled, "");
        assert_eq!(report.exit_status(), 125);
        report.signal = Some(9);
        assert_eq!(report.exit_status(), 137);
        report.exit_code = Some(3);
        assert_eq!(report.exit_status(), 3);
    }

    /// It may end before it is ended, and before anybody knows that nobody watches.
    #[test]
    fn what_its_gpus_say_of_an_end_counts() {
        let after = |exceeded: Option<&str>, unwatched| {
            let gpus = GpuReport {
                driver: "550.54.15".into(),
                cuda: "12.4".into(),
                devices: Vec::new(),
                left: vec!["not known".into()],
                exceeded: exceeded.map(str::to_owned),
                reset: None,
                unwatched,
            };
            let mut end = EndReport::without_run("x", Reason::Exited, "");
            (end.exit_code, end.error) = (Some(0), None);
            end.add_gpus(gpus);
            (end.reason, end.exit_status(), end.error)
        };
        let lost = "the watch over its GPUs ended: not known".to_owned();
        assert_eq!(after(None, false), (Reason::Exited, 0, None));
        assert_eq!(after(None, true), (Reason::SupervisorLost, 125, Some(lost)));
        assert_eq!(after(Some("GPU-1 had more"), false), (Reason::GpuLimit, 125, None));
        assert_eq!(after(Some("GPU-1 had more"), true), (Reason::GpuLimit, 125, None));
    }

    #[test]
    fn a_report_is_written_whole_and_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.json");
        let place = ReportPlace::open(&path).unwrap();
        place.write(&EndReport::without_run("x", Reason::Exited, "")).unwrap();
        let report: EndReport = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(report.id, "x");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(ReportPlace::open(directory.path()).is_err());
    }

    #[test]
    fn a_link_that_is_there_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("work")).unwrap();
        fs::create_dir(path("elsewhere")).unwrap();
        std::os::unix::fs::symlink("../elsewhere", path("work/out")).unwrap();
        let error = ReportPlace::open(&path("work/out/report.json")).unwrap_err().to_string();
        let link = path("work/out");
        assert_eq!(error, format!("leads through the link {}; name the real path", link.display()));
        assert!(ReportPlace::open(&path("elsewhere/report.json")).is_ok());
        assert_eq!(fs::read_dir(path("elsewhere")).unwrap().count(), 0);
    }

    #[test]
    fn a_report_replaces_files_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::os::unix::fs::symlink("elsewhere", path("link")).unwrap();
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        drop(std::os::unix::net::UnixListener::bind(path("socket")).unwrap());
        for name in ["link", "fifo", "socket"] {
            let error = ReportPlace::open(&path(name)).unwrap_err().to_string();
            assert!(error.contains("would replace"), "{name}: {error}");
        }
        let place = ReportPlace::open(&path("report")).unwrap();
        std::os::unix::fs::symlink("elsewhere", path("report")).unwrap();
        assert!(place.write(&EndReport::without_run("x", Reason::Exited, "")).is_err());
        assert!(place.clear().is_err());
    }

    #[test]
    fn an_earlier_report_is_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        fs::write(&path, "an earlier run's").unwrap();
        let place = ReportPlace::open(&path).unwrap();
        place.clear().unwrap();
        assert!(!path.exists());
        place.clear().unwrap();
    }

    #[test]
    fn a_link_put_in_the_way_leads_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let (work, elsewhere) = (directory.path().join("work"), directory.path().join("elsewhere"));
        fs::create_dir(&work).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        let place = ReportPlace::open(&work.join("report.json")).unwrap();
        let record = place.record().clone();
        fs::rename(&work, directory.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &work).unwrap();
        place.write(&EndReport::without_run("x", Reason::Exited, "")).unwrap();
        assert!(directory.path().join("moved/report.json").exists());
        assert!(ReportPlace::reopen(&record).is_err());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }
}
