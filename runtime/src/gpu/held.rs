//! Who holds which device, as the lock files and the kernel's list of locks say.
//!
//! Nothing is locked to find it out: that would keep somebody out for a moment.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::holder::Holder;
use super::lease::LeaseError;
use super::select::Held;

/// See proc_locks(5).
const LOCKS: &str = "/proc/locks";

/// A file, as that list names it: major and minor number of its device, and inode.
type FileId = (u32, u32, u64);

/// The holders that the directory of the lock files knows; a directory that is not there knows none.
pub fn held(directory: &Path) -> Result<Held, LeaseError> {
    let error = |step| move |source| LeaseError::Io { step, directory: directory.into(), source };
    let entries = match fs::read_dir(directory) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(Held::new()),
        entries => entries.map_err(error("listing it"))?,
    };
    let locks = fs::read_to_string(LOCKS).map_err(error("reading the kernel's list of locks"))?;
    let locked: BTreeSet<FileId> = locks.lines().filter_map(flock).collect();
    let mut held = Held::new();
    for entry in entries {
        let entry = entry.map_err(error("listing it"))?;
        let (name, path) = (entry.file_name(), entry.path());
        let Some(device) = name.to_str().and_then(|name| name.strip_suffix(".lock")) else { continue };
        // Airlock makes nothing else there.
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let error = |step| {
            let directory = path.clone();
            move |source| LeaseError::Io { step, directory, source }
        };
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let file = File::options().read(true).custom_flags(flags).open(&path);
        let file = file.map_err(error("opening a lock file"))?;
        if let Some(words) = holder(&file, &locked).map_err(error("reading a lock file"))? {
            held.insert(device.to_owned(), words);
        }
    }
    Ok(held)
}

fn holder(file: &File, locked: &BTreeSet<FileId>) -> io::Result<Option<String>> {
    let metadata = file.metadata()?;
    let device = metadata.dev();
    let id = (rustix::fs::major(device), rustix::fs::minor(device), metadata.ino());
    let holder = Holder::read(file)?;
    // In a PID namespace the list lacks the locks of processes that have ended, though others have them still.
    Ok((locked.contains(&id) || !holder.living().is_empty()).then(|| holder.to_string()))
}

/// The file of a line such as `5: FLOCK  ADVISORY  WRITE 1234 00:1b:5678 0 EOF`; others' waiting is not theirs yet.
fn flock(line: &str) -> Option<FileId> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let mut id = words.nth(3)?.split(':');
    let mut number = || u32::from_str_radix(id.next()?, 16).ok();
    let (major, minor) = (number()?, number()?);
    Some((major, minor, id.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::lease::{Leases, Mode};
    use super::*;

    #[test]
    fn holders_are_named_as_long_as_they_hold() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("leases");
        assert_eq!(held(&path).unwrap(), Held::new());
        let leases = Leases::open(&path).unwrap();
        let one = leases.take(&[("GPU-1", Mode::Exclusive)], "run one").unwrap();
        let shared = leases.take(&[("GPU-2", Mode::Shared)], "run two").unwrap();
        let words = |device: &str| held(&path).unwrap().get(device).cloned();
        assert_eq!(
            (words("GPU-1").as_deref(), words("GPU-2").as_deref()),
            (Some("run one"), Some("sandboxes that share it (the last to begin: run two)"))
        );
        one.give_back();
        assert_eq!(held(&path).unwrap().into_keys().collect::<Vec<_>>(), ["GPU-2"]);
        drop(shared);
        assert_eq!(held(&path).unwrap(), Held::new());
    }

    #[test]
    fn only_locks_of_files_that_are_held_count() {
        assert_eq!(flock("5: FLOCK  ADVISORY  WRITE 1234 00:1b:5678 0 EOF"), Some((0, 0x1b, 5678)));
        assert_eq!(flock("5: -> FLOCK  ADVISORY  WRITE 1234 00:1b:5678 0 EOF"), None);
        assert_eq!(flock("6: OFDLCK ADVISORY  READ -1 00:06:1033 0 EOF"), None);
        assert_eq!(flock("7: FLOCK"), None);
    }
}
