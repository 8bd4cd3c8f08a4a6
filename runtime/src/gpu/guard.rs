//! Who could put something else at a path.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Whether root and `owner` alone can put another file at a path without links: theirs are all directories above it, and
/// where others can write, as in `/tmp`, nobody takes away what is not his own.
pub(super) fn is_guarded(path: &Path, owner: u32) -> bool {
    path.ancestors().skip(1).all(|directory| {
        fs::symlink_metadata(directory).is_ok_and(|it| {
            it.is_dir()
                && (it.uid() == 0 || it.uid() == owner)
                && (it.mode() & OTHERS_WRITE == 0 || it.mode() & STICKY != 0)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn one_directory_of_somebody_elses_is_enough() {
        let own = rustix::process::geteuid().as_raw();
        // Below /tmp, where everybody may write and nobody takes away.
        let place = tempfile::tempdir().unwrap();
        let (above, file) = (place.path().join("a"), place.path().join("a/b/file"));
        fs::create_dir_all(above.join("b")).unwrap();
        fs::write(&file, "").unwrap();
        assert!(is_guarded(&file, own));
        for (mode, guarded) in [(0o777, false), (0o775, false), (0o1777, true), (0o755, true)] {
            fs::set_permissions(&above, Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_guarded(&file, own), guarded, "{mode:o}");
        }
        symlink("a", place.path().join("link")).unwrap();
        assert!(!is_guarded(&place.path().join("link/b/file"), own));
        if own == 0 {
            chown(&above, Some(65_533), None).unwrap();
            assert!(!is_guarded(&file, 0));
            assert!(is_guarded(&file, 65_533));
        }
    }
}
