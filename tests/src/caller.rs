//! Who runs `airlock`.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::unistd::{Gid, Uid};

/// First id of the ordinary users that root's tests become. Airlock's own ranges start at 0x7000_0000.
const FIRST_USER: u32 = 0x6000_0000;

/// Who runs `airlock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Root.
    Root,
    /// The user who started the tests.
    Self_,
    /// An ordinary user with this uid and gid, whom nobody else uses. The tests are root and become it.
    User(u32),
    /// An ordinary user whose manager systemd runs, with this uid and gid, and perhaps with other work. The tests are
    /// root and become it.
    Managed(u32),
}

impl Caller {
    /// The caller that `AIRLOCK_TESTS_AS` and the tests' own id say.
    pub fn current() -> Caller {
        match crate::is_root() && !asked_for("user") && !asked_for("delegated") {
            true => Caller::Root,
            false => Caller::user(),
        }
    }

    /// Whether the tests are about a user in a cgroup that root has delegated.
    pub fn is_delegated() -> bool {
        crate::is_root() && asked_for("delegated")
    }

    /// An ordinary user.
    pub fn user() -> Caller {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !crate::is_root() {
            return Caller::Self_;
        }
        // Pids have 22 bits at most, so this stays below Airlock's ranges.
        let place = NEXT.fetch_add(1, Ordering::Relaxed) % 64;
        Caller::User(FIRST_USER + std::process::id() * 64 + place)
    }

    /// The first ordinary user whose manager has a bus; none if the tests are not root.
    pub fn managed() -> Option<Caller> {
        let folders = std::fs::read_dir("/run/user").into_iter().flatten().flatten();
        let uids = folders.filter(|folder| folder.path().join("bus").exists());
        let uids = uids.filter_map(|folder| folder.file_name().to_str()?.parse().ok());
        uids.filter(|uid| *uid != 0 && crate::is_root()).min().map(Caller::Managed)
    }

    /// Host uid.
    pub fn uid(self) -> u32 {
        match self {
            Caller::Root => 0,
            Caller::Self_ => Uid::effective().as_raw(),
            Caller::User(id) | Caller::Managed(id) => id,
        }
    }

    /// Whether this is root.
    pub fn is_root(self) -> bool {
        self.uid() == 0
    }

    /// Gives a file or directory to this caller.
    pub fn own(self, path: &Path) {
        if let Caller::User(id) | Caller::Managed(id) = self {
            std::os::unix::fs::chown(path, Some(id), Some(id)).expect("root may chown");
        }
    }

    /// Makes a command run as this caller, without supplementary groups.
    pub fn become_by(self, command: &mut Command) {
        if let Caller::User(id) | Caller::Managed(id) = self {
            let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
            // SAFETY: the closure makes three system calls and allocates nothing.
            unsafe {
                command.pre_exec(move || {
                    nix::unistd::setgroups(&[])?;
                    nix::unistd::setresgid(gid, gid, gid)?;
                    nix::unistd::setresuid(uid, uid, uid)?;
                    Ok(())
                });
            }
        }
    }
}

fn asked_for(who: &str) -> bool {
    std::env::var_os("AIRLOCK_TESTS_AS").is_some_and(|asked| asked == who)
}
