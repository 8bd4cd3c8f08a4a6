//! Who manages the cgroup in which this process stands.
//!
//! In systemd's tree every directory has one writer: systemd itself, or whoever it has delegated the directory to.
//! What others make in a unit that is not delegated, the next change of a unit may take away again. So where systemd
//! runs, Airlock works below a cgroup that is delegated to it, and asks for one if it has none.
//!
//! Source: systemd's `docs/CGROUP_DELEGATION.md`.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::XattrFlags;

use super::error::CgroupError;
use super::facts::{CgroupFacts, Layout, below};
use super::scope::{self, ScopeError};
use super::target::CgroupPath;
use super::v2;

/// Made by systemd as it starts, and by nothing else (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

/// Set to `1` on a cgroup that the system's manager delegates; the second, which all can read, by newer ones. A user's
/// manager sets none (systemd 252).
const DELEGATED: [&str; 2] = ["trusted.delegate", "user.delegate"];

/// Types of the units that have cgroups (systemd.unit(5)).
const UNITS: [&[u8]; 6] = [b".service", b".scope", b".slice", b".socket", b".mount", b".swap"];

/// Who manages the caller's own cgroup of version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manager {
    /// Whoever may write to it: systemd does not run, cgroup v1 is mounted too, or the cgroup is not systemd's.
    Cgroupfs,
    /// The caller, to whom systemd has delegated it.
    Delegated,
    /// systemd.
    Systemd,
    /// The caller: this process asked systemd for the scope.
    Scope(String),
    /// systemd, which gave no scope.
    Refused(ScopeError),
}

impl Manager {
    /// Of the cgroup `own` below `mount`, each an existing directory.
    pub(super) fn of(mount: &Path, own: &Path) -> Manager {
        let booted = std::fs::symlink_metadata(BOOTED).is_ok_and(|found| found.is_dir());
        if !booted || !knows_our_pids() {
            return Manager::Cgroupfs;
        }
        judge(own, |cgroup| is_delegated(&below(mount, cgroup)))
    }
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Manager::Cgroupfs => f.write_str("cgroupfs: no unit of systemd is concerned"),
            Manager::Delegated => f.write_str("cgroupfs, below a cgroup that systemd has delegated"),
            Manager::Systemd => f.write_str("systemd, of which a scope must be asked"),
            Manager::Scope(name) => write!(f, "systemd, by a transient scope ({name})"),
            Manager::Refused(why) => write!(f, "systemd: {why}"),
        }
    }
}

/// The nearest of `own` and what is above it that is a unit, or is delegated, decides. A directory that is below
/// neither was made by somebody else; the root is systemd's.
fn judge(own: &Path, is_delegated: impl Fn(&Path) -> bool) -> Manager {
    if own.parent().is_none() {
        return Manager::Systemd;
    }
    for cgroup in own.ancestors().take_while(|cgroup| cgroup.parent().is_some()) {
        if is_delegated(cgroup) {
            return Manager::Delegated;
        }
        if cgroup.file_name().is_some_and(is_unit) {
            return Manager::Systemd;
        }
    }
    Manager::Cgroupfs
}

/// Whether systemd gives processes the numbers that this one does: a container may show the host's directories and
/// sockets, and what is asked there for one process would be done to another.
fn knows_our_pids() -> bool {
    /// `PROC_PID_INIT_INO` of the kernel's `proc_ns.h`: where a host's systemd is.
    const INITIAL: &str = "pid:[4026531836]";
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace == Path::new(INITIAL))
        || std::fs::read_to_string("/proc/1/comm").is_ok_and(|name| name == "systemd\n")
}

fn is_unit(name: &OsStr) -> bool {
    UNITS.iter().any(|suffix| name.as_bytes().ends_with(suffix))
}

/// The second attribute is for the owner of a directory to set: what a user says of its own does not bind root.
fn is_delegated(directory: &Path) -> bool {
    let roots = std::fs::metadata(directory).is_ok_and(|found| found.uid() == 0);
    let believed = if roots || !crate::host::is_root() { &DELEGATED[..] } else { &DELEGATED[..1] };
    believed.iter().any(|name| {
        let mut value = [0_u8; 2];
        rustix::fs::getxattr(directory, *name, &mut value).is_ok_and(|length| value[..length] == *b"1")
    })
}

impl CgroupFacts {
    /// The facts of a place where this process may make cgroups. Where the present one is systemd's and no `parent` is
    /// named, this process moves into a transient scope, which lives until the last process in it has ended. That
    /// systemd gives none is a fact as well: what needs a cgroup is then refused, or lowered.
    ///
    /// The process must have one thread.
    ///
    /// # Errors
    /// The facts could not be read again, or the scope is not as it must be.
    pub fn settle(mut self, parent: Option<&CgroupPath>) -> Result<CgroupFacts, CgroupError> {
        let Some(tree) = self.v2.as_mut().filter(|tree| tree.manager == Manager::Systemd) else {
            return Ok(self);
        };
        if parent.is_some() {
            return Ok(self);
        }
        let name = match scope::enter() {
            Ok(name) => name,
            // Of a user's manager nothing says what it has delegated, and what it has not is the user's own as well.
            Err(_) if tree.writable && !crate::host::is_root() => {
                tree.manager = Manager::Delegated;
                return Ok(self);
            }
            Err(why) => {
                tree.manager = Manager::Refused(why);
                return Ok(self);
            }
        };
        let mut facts = CgroupFacts::read()?;
        if let (Layout::V2, Some(tree)) = (facts.layout, &mut facts.v2) {
            let own = tree.own.as_deref().unwrap_or(Path::new("/"));
            if own.file_name() == Some(name.as_ref()) {
                let directory = below(&tree.mount, own);
                // For the processes that this one starts, which would ask again.
                let _ = rustix::fs::setxattr(&directory, DELEGATED[1], b"1", XattrFlags::empty());
                // This process must not sit where its sandboxes' directories get their controllers from.
                v2::move_to_leaf(&directory)?;
                tree.manager = Manager::Scope(name);
            } else {
                let found = own.to_path_buf();
                tree.manager = Manager::Refused(ScopeError::Elsewhere { scope: name, found });
            }
        }
        Ok(facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(own: &str, delegated: &[&str]) -> Manager {
        judge(Path::new(own), |cgroup| delegated.iter().any(|name| Path::new(name) == cgroup))
    }

    /// Any user may set it on what they own, and root's sandboxes would lie in that user's cgroup.
    #[test]
    fn root_believes_only_itself_that_a_cgroup_is_delegated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        if rustix::fs::setxattr(path, DELEGATED[1], b"1", XattrFlags::empty()).is_err() {
            return;
        }
        assert!(is_delegated(path));
        if crate::host::is_root() {
            std::os::unix::fs::chown(path, Some(1001), None).unwrap();
            assert!(!is_delegated(path));
        }
    }

    #[test]
    fn what_is_neither_a_unit_nor_below_one_is_not_systemds() {
        assert_eq!(of("/", &[]), Manager::Systemd);
        assert_eq!(of("/airlock", &[]), Manager::Cgroupfs);
        assert_eq!(of("/a/b.c/d", &[]), Manager::Cgroupfs);
    }

    #[test]
    fn a_unit_is_systemds_unless_it_is_delegated() {
        let session = "/user.slice/user-1000.slice/session-3.scope";
        assert_eq!(of(session, &[]), Manager::Systemd);
        assert_eq!(of(session, &[session]), Manager::Delegated);
        assert_eq!(of("/system.slice/ssh.service/child", &[]), Manager::Systemd);
        assert_eq!(of("/system.slice/ci.service/job/7", &["/system.slice/ci.service"]), Manager::Delegated);
    }

    /// A user's manager is delegated its cgroup, and what is below is its own units.
    #[test]
    fn the_nearest_unit_decides() {
        let user = "/user.slice/user-1000.slice/user@1000.service";
        let terminal = format!("{user}/app.slice/terminal.scope");
        assert_eq!(of(&terminal, &[user]), Manager::Systemd);
        assert_eq!(of(&terminal, &[user, &terminal]), Manager::Delegated);
    }
}
