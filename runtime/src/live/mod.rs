//! What confines a running process of any runtime: the kernel's view, read from outside.
//!
//! Nothing is attached to and nothing is stopped, but by [`filters`], which is for those who ask for it: all is read through one handle of the process's directory in /proc,
//! so that a later process with the same id is not taken for it. What cannot be read is said.

mod cgroups;
mod compare;
mod descriptors;
mod filters;
mod mounts;
mod sockets;
mod status;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use serde::Serialize;

pub use self::cgroups::{CgroupView, Setting};
pub use self::compare::{Finding, against, exposure};
pub use self::descriptors::Descriptor;
pub use self::filters::{FilterError, filters};
pub use self::mounts::MountView;
pub use self::sockets::Sockets;
pub use self::status::Status;
use crate::plan::Namespace;
use crate::sys;

/// A process as the kernel shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Live {
    /// Process id, as the caller sees it.
    pub pid: i32,
    /// Its name (proc_pid_comm(5)); chosen by itself.
    pub name: String,
    /// Namespaces.
    pub namespaces: Vec<NamespaceView>,
    /// Lines of uid_map.
    pub uid_map: Vec<String>,
    /// Lines of gid_map.
    pub gid_map: Vec<String>,
    /// Real, effective, saved and file-system uid, as the caller's namespace names them.
    pub uids: Vec<u32>,
    /// The same of gids.
    pub gids: Vec<u32>,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Capabilities by set.
    pub capabilities: BTreeMap<&'static str, Vec<String>>,
    /// no_new_privs.
    pub no_new_privileges: Option<bool>,
    /// seccomp: 0 none, 1 strict, 2 filter.
    pub seccomp_mode: Option<u32>,
    /// How many filters (Linux 5.9).
    pub seccomp_filters: Option<u32>,
    /// Label of a security module (AppArmor, SELinux).
    pub label: Option<String>,
    /// Mounts.
    pub mounts: Vec<MountView>,
    /// Open descriptors.
    pub descriptors: Vec<Descriptor>,
    /// Control groups and their limits.
    pub cgroups: Vec<CgroupView>,
    /// Resource limits: name, soft, hard.
    pub limits: Vec<[String; 3]>,
    /// Sockets of its network namespace.
    pub sockets: BTreeMap<&'static str, Sockets>,
    /// Names of its environment's variables as it was started; values are not read out.
    pub environment: Vec<String>,
    /// What could not be seen, and why.
    pub unseen: Vec<Unseen>,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamespaceView {
    /// Its kind.
    pub kind: Namespace,
    /// Its link's text.
    pub id: String,
    /// It is the caller's own too, which stands for the host's.
    pub shared: bool,
}

/// Something that could not be seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// The process is not there.
#[derive(Debug, thiserror::Error)]
#[error("process {pid}: {source}")]
pub struct LiveError {
    /// Its id.
    pid: i32,
    /// Why its directory in /proc cannot be opened.
    source: io::Error,
}

impl Live {
    /// Reads a process.
    ///
    /// # Errors
    /// It is not there; whatever else cannot be read is listed in [`Live::unseen`].
    pub fn read(pid: i32) -> Result<Live, LiveError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty());
        let process = opened.map_err(|error| LiveError { pid, source: error.into() })?;
        let mut reader = Reader { process, unseen: Vec::new() };
        let status = reader.text("status", "ids, capabilities, seccomp, no_new_privs");
        let status = Status::of(&status);
        if status.is_empty() {
            return Err(LiveError { pid, source: io::ErrorKind::NotFound.into() });
        }
        let namespaces = reader.namespaces();
        let lines = |text: String| text.lines().map(|line| words(line).join(" ")).collect();
        let uid_map = lines(reader.text("uid_map", "the map of uids"));
        let gid_map = lines(reader.text("gid_map", "the map of gids"));
        let sets = [
            ("inheritable", "CapInh"),
            ("permitted", "CapPrm"),
            ("effective", "CapEff"),
            ("bounding", "CapBnd"),
            ("ambient", "CapAmb"),
        ];
        let capabilities = sets.map(|(name, key)| (name, status.capabilities(key))).into();
        let mounts = MountView::list(&reader.text("mountinfo", "mounts"));
        let descriptors = descriptors::read(&mut reader, &mounts);
        let cgroups = cgroups::read(&mut reader);
        let sockets = sockets::read(&mut reader, &descriptors);
        let limits = limits(&reader.text("limits", "resource limits"));
        // The caller may read its own label where there is none, and gets EINVAL then.
        let label = sys::read_small(reader.process.as_fd(), "attr/current").ok();
        let label = label.map(|bytes| String::from_utf8_lossy(&bytes).trim_matches(['\0', '\n']).to_owned());
        let environment = environment(&reader.text("environ", "names of its environment"));
        if status.number("Seccomp") == Some(2) {
            reader.miss(
                "the filter's instructions",
                "PTRACE_SECCOMP_GET_FILTER needs the process stopped under a tracer, which this audit never does",
            );
        }
        reader.miss("Landlock's rules", "the kernel shows a process's ruleset to nobody");
        Ok(Live {
            pid,
            name: status.field("Name").unwrap_or_default().to_owned(),
            namespaces,
            uid_map,
            gid_map,
            uids: status.numbers("Uid"),
            gids: status.numbers("Gid"),
            groups: status.numbers("Groups"),
            capabilities,
            no_new_privileges: status.number("NoNewPrivs").map(|value| value == 1),
            seccomp_mode: status.number("Seccomp"),
            seccomp_filters: status.number("Seccomp_filters"),
            label: label.filter(|label| !label.is_empty()),
            mounts,
            descriptors,
            cgroups,
            limits,
            sockets,
            environment,
            unseen: reader.unseen,
        })
    }

    /// Whether it shares a kind of namespace with the caller; `None` if that could not be seen.
    pub fn shares(&self, kind: Namespace) -> Option<bool> {
        self.namespaces.iter().find(|namespace| namespace.kind == kind).map(|namespace| namespace.shared)
    }
}

/// The process that a sandbox's init, of this id, runs: its oldest child. Init itself, if it has none or the kernel does
/// not tell.
pub fn payload_of(init: i32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children")).unwrap_or_default();
    children.split_whitespace().next().and_then(|pid| pid.parse().ok()).unwrap_or(init)
}

/// Reads below a process's directory, and remembers what cannot be.
struct Reader {
    process: OwnedFd,
    unseen: Vec<Unseen>,
}

impl Reader {
    fn text(&mut self, file: &str, what: &str) -> String {
        match sys::read_small(self.process.as_fd(), file) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => {
                self.miss(what, &format!("/proc/PID/{file}: {error}"));
                String::new()
            }
        }
    }

    fn miss(&mut self, what: &str, why: &str) {
        self.unseen.push(Unseen { what: what.into(), why: why.into() });
    }

    fn namespaces(&mut self) -> Vec<NamespaceView> {
        let mut seen = Vec::new();
        for kind in Namespace::ALL {
            let link = |directory, path: String| {
                rustix::fs::readlinkat(directory, path, Vec::new())
                    .map(|text| text.to_string_lossy().into_owned())
            };
            let own = link(CWD, format!("/proc/self/ns/{}", kind.proc_name()));
            match link(self.process.as_fd(), format!("ns/{}", kind.proc_name())) {
                Ok(id) => seen.push(NamespaceView { kind, shared: own.is_ok_and(|own| own == id), id }),
                Err(error) => self.miss(
                    &format!("the {} namespace", kind.proc_name()),
                    &format!("/proc/PID/ns/{}: {}", kind.proc_name(), io::Error::from(error)),
                ),
            }
        }
        seen
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Columns of proc_pid_limits(5): a name of several words, soft, hard, unit.
fn limits(text: &str) -> Vec<[String; 3]> {
    let line = |line: &str| {
        let (name, rest) = line.split_at_checked(26)?;
        let mut values = rest.split_whitespace().map(str::to_owned);
        Some([name.trim_end().to_owned(), values.next()?, values.next()?])
    };
    text.lines().skip(1).filter_map(line).collect()
}

fn environment(text: &str) -> Vec<String> {
    let mut names: Vec<String> =
        text.split('\0').filter_map(|pair| Some(pair.split_once('=')?.0.to_owned())).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_by_column() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            1024                 4096                 files     \n\
                    Max nice priority         0                    0                    \n";
        assert_eq!(limits(text)[0], ["Max open files", "1024", "4096"]);
        assert_eq!(limits(text)[1], ["Max nice priority", "0", "0"]);
    }

    #[test]
    fn values_of_the_environment_are_not_kept() {
        assert_eq!(environment("B=secret\0A=x=y\0junk\0"), ["A", "B"]);
    }

    #[test]
    fn this_process_shares_everything_with_itself() {
        let own = Live::read(std::process::id().cast_signed()).unwrap();
        assert!(own.namespaces.len() == Namespace::ALL.len() && own.namespaces.iter().all(|one| one.shared));
        assert!(!own.mounts.is_empty() && !own.descriptors.is_empty() && !own.limits.is_empty());
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let error = Live::read(i32::MAX).unwrap_err();
        assert!(error.to_string().contains("process 2147483647"), "{error}");
    }
}
