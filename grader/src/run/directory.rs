//! The run directory: what lies where, and how it is written.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, chmodat, openat, renameat_with, unlinkat};
use rustix::io::Errno;

use crate::Digest;

/// Longest file of the run directory that is read whole, in bytes.
const LONGEST: u64 = 1 << 30;

/// A run directory.
///
/// ```text
/// RUN/run.json                 what the run is, fixed
/// RUN/journal.jsonl            what happened
/// RUN/store/                   sealed trees, by digest
/// RUN/changesets/              changesets and their patches, by digest
/// RUN/phases/<n>-<name>/       spec.json, end.json, verdict.json, stdout.log, stderr.log, gate reports
/// RUN/harness/                 what is mounted at /opt/harness
/// RUN/feedback/                what is mounted at /run/airlock/feedback
/// RUN/work/                    workspaces and the socket, while the run is open
/// RUN/receipt.json             the signed statement
/// RUN/report.html              the page for people
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDirectory {
    path: PathBuf,
}

/// What must be left of the disk, in bytes: for the journal, for sealing, and for others. Nothing else keeps a sandbox
/// from filling the disk of its workspace.
const FLOOR: u64 = 256 << 20;

/// The step that fails where there is no run directory.
pub(crate) const FINDING: &str = "finding";
/// The step that fails where none can be made.
pub const MAKING: &str = "making";

/// A file or a directory of the run could not be used.
#[derive(Debug, thiserror::Error)]
#[error("{step} {path}: {source}")]
pub struct DirectoryError {
    /// What was done.
    pub step: &'static str,
    /// With what.
    pub path: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

/// Names the step and the path of an I/O error.
pub(crate) fn at(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError + use<> {
    let path = path.to_owned();
    move |source| DirectoryError { step, path, source }
}

impl RunDirectory {
    /// Makes the directory, which must not exist or be empty, and what it always holds.
    pub fn create(path: &Path) -> Result<RunDirectory, DirectoryError> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut entries = fs::read_dir(path).map_err(at("reading", path))?;
                if entries.next().is_some() {
                    let why = "it is not empty; a run needs a directory of its own";
                    return Err(at(MAKING, path)(io::Error::other(why)));
                }
                let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
                fs::set_permissions(path, private).map_err(at("setting the mode of", path))?;
            }
            made => made.map_err(at(MAKING, path))?,
        }
        let run = RunDirectory::at(path)?;
        for name in ["changesets", "phases", "harness", "feedback", "work"] {
            make_directory(&run.path.join(name), 0o700)?;
        }
        Ok(run)
    }

    /// A directory that holds a run.
    pub fn at(path: &Path) -> Result<RunDirectory, DirectoryError> {
        Ok(RunDirectory { path: fs::canonicalize(path).map_err(at(FINDING, path))? })
    }

    /// Where it is: absolute, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path within.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// What may still be written, in bytes, before too little of the disk is left.
    pub(crate) fn room(&self) -> Result<u64, DirectoryError> {
        let disk = rustix::fs::statvfs(&self.path);
        let disk = disk.map_err(|error| at("looking at the disk of", &self.path)(error.into()))?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize).saturating_sub(FLOOR))
    }

    /// Checks that there is room for a sandbox at all.
    pub(crate) fn check_room(&self) -> Result<(), DirectoryError> {
        if self.room()? > 0 {
            return Ok(());
        }
        Err(self.no_room("starting anything in"))
    }

    /// The error of something for which there is no room.
    pub(crate) fn no_room(&self, step: &'static str) -> DirectoryError {
        let why = format!("less than {} MiB of its disk would be left; make room", FLOOR >> 20);
        at(step, &self.path)(io::Error::new(io::ErrorKind::StorageFull, why))
    }

    /// The directory of a phase.
    pub fn phase(&self, number: u32, name: &str) -> PathBuf {
        self.path.join(phase_name(number, name))
    }
}

/// The directory of a phase, relative to the run's.
pub fn phase_name(number: u32, name: &str) -> String {
    format!("phases/{number}-{name}")
}

/// Makes a directory that must not exist.
pub(crate) fn make_directory(path: &Path, mode: u32) -> Result<(), DirectoryError> {
    DirBuilder::new().mode(mode).create(path).map_err(at("making", path))?;
    // The umask may have taken something away.
    let exact = std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(path, exact).map_err(at("setting the mode of", path))
}

/// Makes a directory, or empties what a crash has left of one.
pub(crate) fn fresh_directory(path: &Path, mode: u32) -> Result<(), DirectoryError> {
    remove_directory(path)?;
    make_directory(path, mode)
}

/// Removes a directory with all that it holds, links not followed. Nothing may write there any more.
///
/// What an agent left may be nested deeper than descriptors or a path reach, so that directories are brought up to the
/// top before they are emptied: two are open at a time. Sealed trees are read-only, and what an agent left has any mode,
/// which is opened first: an ordinary user could not remove it otherwise.
pub fn remove_directory(path: &Path) -> Result<(), DirectoryError> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if !found.is_dir() => return fs::remove_file(path).map_err(at("removing", path)),
        found => found.map_err(at("removing", path))?,
    };
    let empty = || -> io::Result<()> {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        let top = File::open(path)?;
        let mut brought_up = 0_u64;
        loop {
            let directories = unlink_files(&top)?;
            if directories.is_empty() {
                return Ok(());
            }
            for name in directories {
                let directory = open_directory(&top, &name)?;
                for below in unlink_files(&directory)? {
                    // Its parent link changes with the move, which needs its own write permission.
                    drop(open_directory(&directory, &below)?);
                    loop {
                        brought_up += 1;
                        let new = format!(".removed-{brought_up}");
                        let flags = RenameFlags::NOREPLACE;
                        match renameat_with(&directory, &below, &top, new, flags) {
                            Err(Errno::EXIST) => {}
                            moved => break moved?,
                        }
                    }
                }
                unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
            }
        }
    };
    empty().and_then(|()| fs::remove_dir(path)).map_err(at("removing", path))
}

/// Removes what is no directory from an open directory, and lists the directories.
fn unlink_files(directory: &File) -> io::Result<Vec<CString>> {
    let mut directories = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => directories.push(name.to_owned()),
            removed => removed?,
        }
    }
    Ok(directories)
}

/// Opens a directory in another one with a mode by which it can be emptied.
fn open_directory(parent: &File, name: &CString) -> io::Result<File> {
    chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?.into())
}

/// Writes a file whole and waits for the disk: under another name first, so that it is never there in part.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<Digest, DirectoryError> {
    let new = path.with_extension("new");
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        match path.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    };
    write().inspect_err(|_| drop(fs::remove_file(&new))).map_err(at("writing", path))?;
    Ok(Digest::of(bytes))
}

/// Reads a regular file whole, without following a link, up to 1 GiB.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, DirectoryError> {
    read_file_within(path, LONGEST)
}

fn read_file_within(path: &Path, most: u64) -> Result<Vec<u8>, DirectoryError> {
    let read = || -> io::Result<Vec<u8>> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = flags.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes)
    };
    read().map_err(at("reading", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_needs_a_directory_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        let run = RunDirectory::create(&path).unwrap();
        assert!(run.join("phases").is_dir());
        let error = RunDirectory::create(&path).unwrap_err().to_string();
        assert!(error.contains("not empty"), "{error}");
        assert_eq!(run.phase(3, "score"), run.path().join("phases/3-score"));
    }

    // Nested deeper than a process may have descriptors, with a path longer than the kernel takes.
    #[test]
    fn what_lies_deep_or_is_closed_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("tree");
        fs::create_dir(&path).unwrap();
        let mut directory = File::open(&path).unwrap();
        for _ in 0..5000 {
            rustix::fs::mkdirat(&directory, "d", Mode::RWXU).unwrap();
            openat(&directory, "f", OFlags::CREATE | OFlags::WRONLY, Mode::empty()).unwrap();
            directory = open_directory(&directory, &CString::from(c"d")).unwrap();
        }
        fs::create_dir(path.join("closed")).unwrap();
        fs::create_dir(path.join("closed/below")).unwrap();
        fs::set_permissions(path.join("closed"), std::os::unix::fs::PermissionsExt::from_mode(0o000))
            .unwrap();
        std::os::unix::fs::symlink("/", path.join("link")).unwrap();
        remove_directory(&path).unwrap();
        assert!(!path.exists());
        remove_directory(&path).unwrap();
    }

    #[test]
    fn files_are_written_whole_and_read_as_files() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.json");
        assert_eq!(write_file(&path, b"abc").unwrap(), Digest::of(b"abc"));
        assert_eq!(write_file(&path, b"abcd").unwrap(), Digest::of(b"abcd"));
        assert_eq!(read_file(&path).unwrap(), b"abcd");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        std::os::unix::fs::symlink(&path, place.path().join("link")).unwrap();
        assert!(read_file(&place.path().join("link")).is_err());
        assert!(read_file(place.path()).is_err());
        assert_eq!(read_file_within(&path, 4).unwrap(), b"abcd");
        let error = read_file_within(&path, 3).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::FileTooLarge);
        // One without an end.
        assert!(read_file_within(Path::new("/dev/zero"), 3).is_err());
    }
}
