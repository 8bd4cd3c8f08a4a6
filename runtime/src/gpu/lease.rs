//! Leases: the hold of a supervisor, or of `airlock run`, on GPUs for one phase.
//!
//! One lock file per device in a directory that no sandbox sees, locked with flock(2) through an open handle. The monitor
//! and the init of the sandbox have the handle too, so that the device is given back when all of them are dead, and
//! not before the rest of the sandbox is, as `holder` says. Holders exclude each other if they use the same directory:
//! those of one user. Others are seen by what they run on a GPU.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode as FileMode, OFlags, flock, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::facts::Selection;
use super::holder::{self, Holder};

/// Longest device id and longest words of a holder, in bytes.
const LONGEST: usize = 256;

/// How often a lock file that was replaced while it was being locked is opened again.
const TRIES: u32 = 16;

/// What must be locked for a selection: a slice takes its share of the whole GPU, so that nobody has that alone.
pub fn claims(selection: &Selection, mode: Mode) -> Vec<(&str, Mode)> {
    let claims = selection.gpus.iter().flat_map(|chosen| match &chosen.instance {
        None => vec![(chosen.gpu.uuid.as_str(), mode)],
        Some(slice) => vec![(chosen.gpu.uuid.as_str(), Mode::Shared), (slice.uuid.as_str(), mode)],
    });
    claims.collect()
}

/// Who else may have the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nobody.
    Exclusive,
    /// Others that share it as well.
    Shared,
}

/// Why there is no lease.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Somebody has it.
    #[error("{device} is held by {holder}; wait until it is given back, or choose another device")]
    Held {
        /// The device.
        device: String,
        /// What the holder said of itself; of several that share the device, the last one.
        holder: String,
    },
    /// It would not be a file name.
    #[error("the device id {0:?} is not made of 1 to {LONGEST} of the characters A-Z a-z 0-9 : . _ -")]
    DeviceId(String),
    /// They would not be one line.
    #[error("a holder's words {0:?} are not one line of 1 to {LONGEST} printable bytes")]
    Owner(String),
    /// Others could remove the lock files, and so take what is held.
    #[error(
        "lease directory {0}: it is not a directory that only its owner can enter; make it one with `chmod 700` and `chown`"
    )]
    Exposed(PathBuf),
    /// A lock file was removed or replaced, so that somebody else can have the same device.
    #[error(
        "lease directory {directory}: the lock file of {device} was replaced; nothing but Airlock may write there"
    )]
    Replaced {
        /// The directory.
        directory: PathBuf,
        /// The device.
        device: String,
    },
    /// A step failed.
    #[error("lease directory {directory}: {step}: {source}")]
    Io {
        /// What was done.
        step: &'static str,
        /// The directory.
        directory: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// The directory of the lock files.
#[derive(Debug)]
pub struct Leases {
    path: PathBuf,
    directory: OwnedFd,
}

/// A hold on devices, given back in so many words, or when the last of those who have its descriptors is dead.
///
/// A lock belongs to the open file: its descriptor is closed on exec, but a child that is forked without exec keeps
/// it. Such children, as the launcher, are started before. A drop lets go of it and gives nothing back: what runs on the
/// devices may still be ending.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
    directory: OwnedFd,
    locks: Vec<Lock>,
}

#[derive(Debug)]
struct Lock {
    device: String,
    mode: Mode,
    file: File,
}

impl Leases {
    /// Opens the directory, or makes it with mode 0700.
    pub fn open(path: &Path) -> Result<Leases, LeaseError> {
        let error = |step| move |source| LeaseError::Io { step, directory: path.into(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(error("making it"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match openat(CWD, path, flags, FileMode::empty()) {
            // What the two flags say of a symbolic link.
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(LeaseError::Exposed(path.into())),
            directory => directory.map_err(io::Error::from).map_err(error("opening it"))?,
        };
        let stat = fstat(&directory).map_err(io::Error::from).map_err(error("reading its state"))?;
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err(LeaseError::Exposed(path.into()));
        }
        Ok(Leases { path: path.into(), directory })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes all these devices or none, and waits for nobody. `owner` is who an error names to others, such as
    /// `run 7f3a, phase score`. A device that is named twice is taken as it is named first.
    pub fn take(&self, devices: &[(&str, Mode)], owner: &str) -> Result<Lease, LeaseError> {
        let printable = |byte| matches!(byte, b' '..=b'~');
        if !(1..=LONGEST).contains(&owner.len()) || !owner.bytes().all(printable) {
            return Err(LeaseError::Owner(owner.into()));
        }
        let mut devices = devices.to_vec();
        devices.sort_by_key(|(device, _)| *device);
        devices.dedup_by_key(|(device, _)| *device);
        let directory = self.directory.try_clone().map_err(self.error("duplicating its handle"))?;
        let mut lease = Lease { path: self.path.clone(), directory, locks: Vec::new() };
        for (device, mode) in devices {
            lease.locks.push(self.lock(device, mode)?);
        }
        for Lock { file, mode, .. } in &lease.locks {
            holder::write(file, owner, *mode).map_err(self.error("writing a lock file"))?;
        }
        Ok(lease)
    }

    fn error(&self, step: &'static str) -> impl Fn(io::Error) -> LeaseError {
        move |source| LeaseError::Io { step, directory: self.path.clone(), source }
    }

    fn lock(&self, device: &str, mode: Mode) -> Result<Lock, LeaseError> {
        let file_name = file_name(device)?;
        for _ in 0..TRIES {
            let file = self.open_lock(&file_name)?;
            if self.lock_file(&file, device, mode)? {
                self.check_left(&file, device, mode)?;
                return Ok(Lock { device: device.into(), mode, file });
            }
        }
        Err(LeaseError::Replaced { directory: self.path.clone(), device: device.into() })
    }

    fn open_lock(&self, file_name: &str) -> Result<File, LeaseError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.directory, file_name, flags, FileMode::RUSR | FileMode::WUSR);
        Ok(file.map_err(io::Error::from).map_err(self.error("opening a lock file"))?.into())
    }

    /// Locks the file; false if it is not the device's lock file any more.
    fn lock_file(&self, file: &File, device: &str, mode: Mode) -> Result<bool, LeaseError> {
        let operation = match mode {
            Mode::Exclusive => FlockOperation::NonBlockingLockExclusive,
            Mode::Shared => FlockOperation::NonBlockingLockShared,
        };
        match flock(file, operation) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let holder = self.holder(file)?.to_string();
                return Err(LeaseError::Held { device: device.into(), holder });
            }
            Err(errno) => return Err(self.error("locking a lock file")(errno.into())),
        }
        is_current(&self.directory, file, device)
            .map_err(io::Error::from)
            .map_err(self.error("looking at a lock file"))
    }

    /// Refuses a device on which a sandbox may still run though its holders were killed.
    fn check_left(&self, file: &File, device: &str, mode: Mode) -> Result<(), LeaseError> {
        let holder = self.holder(file)?;
        if holder.excludes(&holder.living(), mode) {
            let holder = format!("{}, which is ending", holder.words);
            return Err(LeaseError::Held { device: device.into(), holder });
        }
        Ok(())
    }

    fn holder(&self, file: &File) -> Result<Holder, LeaseError> {
        Holder::read(file).map_err(self.error("reading a lock file"))
    }
}

impl Lease {
    /// The devices, sorted.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().map(|lock| lock.device.as_str())
    }

    /// Gives the devices back, whoever else has the descriptors. Nothing of the sandbox may be left.
    pub fn give_back(self) {
        for lock in &self.locks {
            let _ = flock(&lock.file, FlockOperation::Unlock);
        }
    }

    /// The same hold for the monitor of a sandbox and its init.
    pub fn share(&self) -> io::Result<Vec<OwnedFd>> {
        self.locks.iter().map(|lock| lock.file.as_fd().try_clone_to_owned()).collect()
    }

    /// Checks that the lock files are still the ones that are locked: whoever removes one lets somebody else in.
    /// To be asked after the phase as well as before it.
    pub fn verify(&self) -> Result<(), LeaseError> {
        for Lock { device, file, .. } in &self.locks {
            let directory = || self.path.clone();
            match is_current(&self.directory, file, device) {
                Ok(true) => {}
                Ok(false) => {
                    return Err(LeaseError::Replaced { directory: directory(), device: device.clone() });
                }
                Err(errno) => {
                    let step = "looking at a lock file";
                    return Err(LeaseError::Io { step, directory: directory(), source: errno.into() });
                }
            }
        }
        Ok(())
    }
}

fn file_name(device: &str) -> Result<String, LeaseError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":._-".contains(&byte);
    // Not the longest file name: that is 255 with the suffix.
    if (1..=LONGEST - 6).contains(&device.len()) && device.bytes().all(allowed) {
        Ok(format!("{device}.lock"))
    } else {
        Err(LeaseError::DeviceId(device.into()))
    }
}

/// Whether this file is what stands at the device's name.
fn is_current(directory: impl AsFd, file: &File, device: &str) -> Result<bool, Errno> {
    let held = fstat(file)?;
    match statat(directory, format!("{device}.lock"), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::state::ProcessRecord;

    /// Where the child finds the directory, and what it takes.
    const PLACE: &str = "LEASE_TEST_PLACE";
    const DEVICES: &str = "LEASE_TEST_DEVICES";

    fn leases() -> (tempfile::TempDir, Leases) {
        let place = tempfile::tempdir().unwrap();
        let leases = Leases::open(&place.path().join("leases")).unwrap();
        (place, leases)
    }

    fn is_held(result: Result<Lease, LeaseError>) -> bool {
        match result {
            Ok(_) => false,
            Err(LeaseError::Held { .. }) => true,
            Err(error) => panic!("{error}"),
        }
    }

    /// Not a test of its own: another supervisor, which holds its devices until it is killed.
    #[test]
    #[ignore = "run by the tests below in a process of its own"]
    fn child() {
        let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else {
            return;
        };
        let devices = std::env::var(DEVICES).unwrap();
        let devices: Vec<_> = devices.split(' ').map(|device| (device, Mode::Exclusive)).collect();
        let lease = Leases::open(&place).unwrap().take(&devices, "run 7f3a, phase score");
        println!("\n{}", if lease.is_ok() { "taken" } else { "refused" });
        thread::sleep(Duration::from_secs(60));
    }

    /// Another process, and whether it got them.
    fn process(leases: &Leases, devices: &str) -> (Child, bool) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "gpu::lease::tests::child"])
            .env(PLACE, &leases.path)
            .env(DEVICES, devices)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let word = lines.find(|line| line == "taken" || line == "refused").unwrap();
        (child, word == "taken")
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn another_process_is_named_and_its_death_gives_back() {
        let (_place, leases) = leases();
        let (child, taken) = process(&leases, "GPU-2 GPU-1");
        assert!(taken);
        let error =
            leases.take(&[("GPU-0", Mode::Shared), ("GPU-1", Mode::Shared)], "me").unwrap_err().to_string();
        assert!(error.starts_with("GPU-1 is held by run 7f3a, phase score;"), "{error}");
        // All or nothing: the device that was free is free again.
        let (other, taken) = process(&leases, "GPU-0");
        assert!(taken);
        end(other);
        end(child);
        let lease = leases
            .take(&[("GPU-2", Mode::Exclusive), ("GPU-1", Mode::Exclusive), ("GPU-2", Mode::Exclusive)], "me")
            .unwrap();
        assert_eq!(lease.devices().collect::<Vec<_>>(), ["GPU-1", "GPU-2"]);
        lease.verify().unwrap();
    }

    #[test]
    fn of_many_processes_one_gets_it() {
        let (_place, leases) = leases();
        let (send, receive) = mpsc::channel();
        thread::scope(|scope| {
            for turn in 0..6 {
                let (send, leases) = (send.clone(), &leases);
                let devices = if turn % 2 == 0 { "a b" } else { "b a" };
                scope.spawn(move || send.send(process(leases, devices)).unwrap());
            }
        });
        drop(send);
        let children: Vec<_> = receive.into_iter().collect();
        // With one order of locking, somebody gets all of them.
        assert_eq!(children.iter().filter(|(_, taken)| *taken).count(), 1);
        children.into_iter().for_each(|(child, _)| end(child));
    }

    #[test]
    fn sharing_excludes_only_the_exclusive() {
        let (_place, leases) = leases();
        let one = leases.take(&[("a", Mode::Shared)], "one").unwrap();
        let two = leases.take(&[("a", Mode::Shared)], "two").unwrap();
        assert!(is_held(leases.take(&[("a", Mode::Exclusive)], "three")));
        drop(one);
        assert!(is_held(leases.take(&[("a", Mode::Exclusive)], "three")));
        drop(two);
        let three = leases.take(&[("a", Mode::Exclusive)], "three").unwrap();
        assert!(is_held(leases.take(&[("a", Mode::Shared)], "one")));
        drop(three);
        leases.take(&[("a", Mode::Shared)], "one").unwrap();
    }

    /// One user's slice keeps another from having the card whole, and leaves the other slices free.
    #[test]
    fn slices_of_one_card_go_to_two_and_the_card_to_nobody() {
        let (_place, leases) = leases();
        let slice = |name| [("card", Mode::Shared), (name, Mode::Exclusive)];
        let one = leases.take(&slice("slice-1"), "one").unwrap();
        let two = leases.take(&slice("slice-2"), "two").unwrap();
        assert!(is_held(leases.take(&slice("slice-1"), "three")));
        assert!(is_held(leases.take(&[("card", Mode::Exclusive)], "three")));
        drop((one, two));
        let card = leases.take(&[("card", Mode::Exclusive)], "three").unwrap();
        assert!(is_held(leases.take(&slice("slice-1"), "one")));
        drop(card);
        leases.take(&slice("slice-1"), "one").unwrap();
    }

    #[test]
    fn a_drop_gives_back_nothing_that_a_monitor_has_too() {
        let (_place, leases) = leases();
        let lease = leases.take(&[("a", Mode::Exclusive)], "one").unwrap();
        let shared = lease.share().unwrap();
        drop(lease);
        assert!(is_held(leases.take(&[("a", Mode::Exclusive)], "two")));
        drop(shared);
        let lease = leases.take(&[("a", Mode::Exclusive)], "two").unwrap();
        // In so many words it is given back all the same: the monitor may take a moment to exit.
        let _shared = lease.share().unwrap();
        lease.give_back();
        leases.take(&[("a", Mode::Exclusive)], "three").unwrap();
    }

    /// Without the look at who is left, the device would be free as soon as the last descriptor is closed.
    #[test]
    fn a_sandbox_that_outlives_its_holders_keeps_the_device() {
        let (_place, leases) = leases();
        let lease = leases.take(&[("a", Mode::Exclusive)], "sandbox 7f3a").unwrap();
        let mut left = Command::new("sleep").arg("60").spawn().unwrap();
        let init = ProcessRecord::of(i32::try_from(left.id()).unwrap()).unwrap();
        holder::add_sandbox(&lease.share().unwrap(), init).unwrap();
        drop(lease);
        for mode in [Mode::Exclusive, Mode::Shared] {
            let error = leases.take(&[("a", mode)], "two").unwrap_err().to_string();
            assert!(error.starts_with("a is held by sandbox 7f3a, which is ending; wait"), "{error}");
        }
        left.kill().unwrap();
        left.wait().unwrap();
        leases.take(&[("a", Mode::Exclusive)], "two").unwrap();
    }

    /// AI4AI-Bench's lock lay where the agent could unlink it, and a lock on the file made anew is another lock.
    #[test]
    fn a_lock_on_a_removed_file_is_none() {
        let (_place, leases) = leases();
        let path = leases.path.join("a.lock");
        let lease = leases.take(&[("a", Mode::Exclusive)], "one").unwrap();
        // Opened before the removal, locked after it.
        let late = leases.open_lock("a.lock").unwrap();
        lease.verify().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(matches!(lease.verify(), Err(LeaseError::Replaced { .. })));
        drop(lease);
        let lease = leases.take(&[("a", Mode::Exclusive)], "two").unwrap();
        lease.verify().unwrap();
        assert!(!leases.lock_file(&late, "a", Mode::Exclusive).unwrap());
        let same = leases.open_lock("a.lock").unwrap();
        assert!(matches!(leases.lock_file(&same, "a", Mode::Exclusive), Err(LeaseError::Held { .. })));
    }

    #[test]
    fn a_lock_file_that_is_a_link_is_not_followed() {
        let (place, leases) = leases();
        let target = place.path().join("target");
        fs::write(&target, "kept").unwrap();
        symlink(&target, leases.path.join("a.lock")).unwrap();
        let error = leases.take(&[("a", Mode::Exclusive)], "one").unwrap_err();
        assert!(matches!(error, LeaseError::Io { step: "opening a lock file", .. }), "{error}");
        assert_eq!(fs::read(target).unwrap(), b"kept");
    }

    #[test]
    fn a_directory_that_others_enter_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("leases");
        Leases::open(&path).unwrap();
        Leases::open(&path).unwrap();
        symlink(&path, place.path().join("link")).unwrap();
        assert!(matches!(Leases::open(&place.path().join("link")), Err(LeaseError::Exposed(_))));
        for mode in [0o710, 0o701, 0o770] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(matches!(Leases::open(&path), Err(LeaseError::Exposed(_))), "{mode:o}");
        }
    }

    #[test]
    fn names_are_checked() {
        let (_place, leases) = leases();
        let long = "x".repeat(251);
        for device in ["", "a/b", "../a", "a b", "a\n", "ä", &long] {
            let error = leases.take(&[(device, Mode::Exclusive)], "me").unwrap_err();
            assert!(matches!(error, LeaseError::DeviceId(_)), "{device}: {error}");
        }
        for device in ["GPU-8f6e:1.0_x", "..", &long[1..]] {
            leases.take(&[(device, Mode::Exclusive)], "me").unwrap();
        }
        for owner in ["", "a\nb", "\u{1b}[31m", &"x".repeat(257)] {
            let error = leases.take(&[("a", Mode::Exclusive)], owner).unwrap_err();
            assert!(matches!(error, LeaseError::Owner(_)), "{owner}: {error}");
        }
    }
}
