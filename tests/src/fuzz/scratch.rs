//! Directories that bodies work in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

/// A directory that goes with its sealed trees, which are not writable.
pub(super) struct Scratch(TempDir);

impl Scratch {
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        open_up(self.path());
    }
}

/// Makes all directories writable, for who is not root.
fn open_up(directory: &Path) {
    let _ = fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        open_up(&entry.path());
    }
}

/// A new directory, in memory where that is possible: what is written there is synced and thrown away.
pub(super) fn directory() -> Scratch {
    let in_memory = tempfile::Builder::new().prefix("airlock-fuzz-").tempdir_in("/dev/shm");
    Scratch(in_memory.or_else(|_| tempfile::tempdir()).unwrap())
}

/// Files of a directory, by path below it; directories are made for them.
pub(super) fn write(directory: &Path, files: &[(&str, &[u8])]) {
    for (path, bytes) in files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}
