//! Directories that bodies work in.

use std::path::Path;

use tempfile::TempDir;

/// A new directory, in memory where that is possible: what is written there is synced and thrown away.
pub(super) fn directory() -> TempDir {
    let in_memory = tempfile::Builder::new().prefix("airlock-fuzz-").tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).unwrap()
}

/// Files of a directory, by path below it; directories are made for them.
pub(super) fn write(directory: &Path, files: &[(&str, &[u8])]) {
    for (path, bytes) in files {
        let path = directory.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}
