//! User and group ids: which ids of the host a sandbox may use, and how they map.
//!
//! Root gives each sandbox 65,536 ids of its own from a pool, one lock file per range. The lock is held
//! by the monitor and by the sandbox's init, and its file names the sandbox, so that a range whose last
//! user died without cleaning up is swept before it is used again.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::spec::IdMode;

/// First id of the pool.
pub const POOL_START: u32 = 0x7000_0000;
/// Ids per sandbox.
pub const RANGE_LEN: u32 = 65_536;
/// Ranges in the pool.
const POOL_RANGES: u32 = 4096;

/// Ids of the host that a sandbox may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum HostIds {
    /// Root: [`RANGE_LEN`] ids from `base` on.
    Range {
        /// First id.
        base: u32,
    },
    /// Ordinary user: the caller's own uid and gid.
    Caller,
    /// Ordinary user: the caller's own and those of /etc/subuid and /etc/subgid.
    Subids {
        /// First uid and count.
        uids: (u32, u32),
        /// First gid and count.
        gids: (u32, u32),
    },
}

impl HostIds {
    /// Those of a sandbox that is only planned: root's would take a range of the pool, and has the first here.
    ///
    /// # Errors
    /// [`IdError::NoSubids`].
    pub fn planned(root: bool, mode: IdMode) -> Result<HostIds, IdError> {
        if root { Ok(HostIds::Range { base: POOL_START }) } else { HostIds::of_user(mode) }
    }

    /// Those of an ordinary user, the caller.
    ///
    /// # Errors
    /// [`IdError::NoSubids`].
    pub fn of_user(mode: IdMode) -> Result<HostIds, IdError> {
        if mode != IdMode::Subids {
            return Ok(HostIds::Caller);
        }
        let uid = rustix::process::getuid().as_raw();
        let user = user_name(uid).unwrap_or_default();
        let range = |path: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            subordinate_range(&text, &user, uid).ok_or_else(|| IdError::NoSubids { path: path.into(), uid })
        };
        Ok(HostIds::Subids { uids: range("/etc/subuid")?, gids: range("/etc/subgid")? })
    }
}

/// The caller's name, by which subuid(5) may list it.
fn user_name(uid: u32) -> Option<String> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_string())
    })
}

/// One line of a uid_map or gid_map (user_namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMapping {
    /// First id inside.
    pub inside: u32,
    /// First id of the host.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// The two maps of a user namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMaps {
    /// User ids.
    pub uids: Vec<IdMapping>,
    /// Group ids.
    pub gids: Vec<IdMapping>,
}

/// A range of ids, or what a range comes from, cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum IdError {
    /// A lock file of the pool cannot be used.
    #[error("id pool: {step} {path}: {source}")]
    Pool {
        /// What was done.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// All ranges are taken.
    #[error("id pool: all {POOL_RANGES} ranges of ids are in use (see `airlock list`, `airlock gc`)")]
    Exhausted,
    /// /etc/subuid or /etc/subgid has no range for the caller.
    #[error(
        "{path}: no range of subordinate ids for uid {uid}; add one with `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER`"
    )]
    NoSubids {
        /// The file looked at.
        path: PathBuf,
        /// The caller.
        uid: u32,
    },
}

/// A range taken from the pool; given back on drop.
#[derive(Debug)]
pub struct RangeLock {
    /// First id of the range.
    pub base: u32,
    path: PathBuf,
    file: File,
}

impl RangeLock {
    /// Takes a free range for sandbox `id`. `sweep` removes what is left of a sandbox whose monitor died
    /// and says whether nothing of it lives any more.
    pub fn take(pool: &Path, id: &str, mut sweep: impl FnMut(&str) -> bool) -> Result<RangeLock, IdError> {
        let error = |step, path: &Path| {
            let path = path.to_path_buf();
            move |source| IdError::Pool { step, path, source }
        };
        match fs::create_dir(pool) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(error("creating", pool))?,
        }
        for slot in 0..POOL_RANGES {
            let path = pool.join(format!("{slot:04}.lock"));
            let mut file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(error("opening", &path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(source)) => return Err(error("locking", &path)(source)),
            }
            // Another process may have removed the file between open and lock.
            let held = file.metadata().map_err(error("checking", &path))?;
            let current =
                fs::metadata(&path).is_ok_and(|named| held.ino() == named.ino() && held.dev() == named.dev());
            if !current {
                continue;
            }
            let base = POOL_START + slot * RANGE_LEN;
            let range = if held.len() == 0 {
                RangeLock { base, path, file }
            } else {
                let mut last_user = String::new();
                file.read_to_string(&mut last_user).map_err(error("reading", &path))?;
                if !sweep(&last_user) {
                    continue;
                }
                let range = RangeLock { base, path, file };
                range.file.set_len(0).map_err(error("truncating", &range.path))?;
                range
            };
            range.file.write_all_at(id.as_bytes(), 0).map_err(error("writing", &range.path))?;
            return Ok(range);
        }
        Err(IdError::Exhausted)
    }

    /// Removes the lock files of ranges whose last user is gone; `sweep` as for [`RangeLock::take`].
    pub fn sweep_pool(pool: &Path, mut sweep: impl FnMut(&str) -> bool) -> Result<(), IdError> {
        let entries = match fs::read_dir(pool) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => {
                entries.map_err(|source| IdError::Pool { step: "reading", path: pool.into(), source })?
            }
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            // A file that is locked, or gone by now, has or had its own user.
            let Ok(mut file) = File::open(&path) else { continue };
            let mut last_user = String::new();
            if file.try_lock().is_ok() && file.read_to_string(&mut last_user).is_ok() && sweep(&last_user) {
                let _ = fs::remove_file(&path);
            }
        }
        Ok(())
    }

    /// The lock's file, for the sandbox's init to hold too.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Leaves the lock file in place, with the name of the sandbox that may still be alive.
    pub fn abandon(mut self) {
        self.path.clear();
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // Removed while locked: whoever has the file open finds another inode by the name and goes on.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The caller's subordinate ids from the text of /etc/subuid or /etc/subgid (subuid(5)): the first range that is one, which
/// has an id and ends below the last.
pub fn subordinate_range(text: &str, user: &str, uid: u32) -> Option<(u32, u32)> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let owner = fields.next()?;
        let (start, count): (u32, u32) =
            (fields.next()?.trim().parse().ok()?, fields.next()?.trim().parse().ok()?);
        let possible = count > 0 && start.checked_add(count).is_some();
        (possible && (owner == user || owner == uid.to_string())).then_some((start, count))
    })
}

/// The map in which `inside` is `outside` and every other id below `limit` comes from `rest`, in order.
pub fn map_with_one_apart(inside: u32, outside: u32, rest: u32, limit: u32) -> Vec<IdMapping> {
    let after = inside + 1;
    [
        IdMapping { inside: 0, outside: rest, count: inside.min(limit) },
        IdMapping { inside, outside, count: 1 },
        IdMapping { inside: after, outside: rest + inside, count: limit.saturating_sub(inside) },
    ]
    .into_iter()
    .filter(|line| line.count > 0)
    .collect()
}

/// The text that the kernel takes for a uid_map or gid_map.
pub fn map_text(lines: &[IdMapping]) -> String {
    lines.iter().map(|line| format!("{} {} {}\n", line.inside, line.outside, line.count)).collect()
}

impl IdMaps {
    /// The host's uid and gid for a pair of ids inside; `None` where one is not mapped.
    pub fn to_host(&self, uid: u32, gid: u32) -> Option<(u32, u32)> {
        Some((to_host(&self.uids, uid)?, to_host(&self.gids, gid)?))
    }
}

fn to_host(lines: &[IdMapping], id: u32) -> Option<u32> {
    lines
        .iter()
        .find(|line| (line.inside..line.inside.saturating_add(line.count)).contains(&id))
        .map(|line| line.outside + (id - line.inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_holders_never_get_the_same_range() {
        let pool = tempfile::tempdir().unwrap();
        let first = RangeLock::take(pool.path(), "a", |_| true).unwrap();
        let second = RangeLock::take(pool.path(), "b", |_| true).unwrap();
        assert_eq!((first.base, second.base), (POOL_START, POOL_START + RANGE_LEN));
        drop(first);
        assert_eq!(RangeLock::take(pool.path(), "c", |_| true).unwrap().base, POOL_START);
    }

    #[test]
    fn a_range_given_back_leaves_no_file() {
        let pool = tempfile::tempdir().unwrap();
        drop(RangeLock::take(pool.path(), "a", |_| true).unwrap());
        assert_eq!(fs::read_dir(pool.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_range_whose_last_user_still_lives_is_passed_over() {
        let pool = tempfile::tempdir().unwrap();
        RangeLock::take(pool.path(), "crashed", |_| true).unwrap().abandon();
        fs::write(pool.path().join("0000.lock"), "crashed").unwrap();
        let lock = RangeLock::take(pool.path(), "next", |id| id != "crashed").unwrap();
        assert_eq!(lock.base, POOL_START + RANGE_LEN);
    }

    #[test]
    fn subordinate_ranges_are_found_by_name_or_number() {
        let text = "alice:100000:65536\n1001:200000:65536\nbroken\n";
        assert_eq!(subordinate_range(text, "alice", 1000), Some((100_000, 65_536)));
        assert_eq!(subordinate_range(text, "bob", 1001), Some((200_000, 65_536)));
        assert_eq!(subordinate_range(text, "carol", 1002), None);
    }

    /// Found by tests/fuzz: a map that begins in such a range was added up beyond the last id.
    #[test]
    fn a_range_that_no_id_can_have_is_passed_over() {
        let text = "alice:4294967295:65536\nalice:5:0\nalice:100000:65536\n";
        assert_eq!(subordinate_range(text, "alice", 1000), Some((100_000, 65_536)));
    }

    #[test]
    fn one_id_apart_keeps_the_others_in_order() {
        let maps = IdMaps { uids: map_with_one_apart(1000, 42, 5000, 65_535), gids: vec![] };
        assert_eq!(map_text(&maps.uids), "0 5000 1000\n1000 42 1\n1001 6000 64535\n");
        assert_eq!(map_text(&map_with_one_apart(0, 42, 5000, 10)), "0 42 1\n1 5000 10\n");
    }
}
