//! A transient scope: the unit in which systemd delegates a cgroup to processes that it did not start.
//!
//! systemd is asked over D-Bus by a child of this process, which ends with its answer: what a client of the bus needs
//! of threads, memory and descriptors never comes into a process that builds sandboxes.
//!
//! Sources: org.freedesktop.systemd1(5), systemd's `docs/CONTROL_GROUP_INTERFACE.md`, the D-Bus specification.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bus;
use crate::attempt;

/// How long systemd may take. It takes milliseconds, but for a host that is just starting.
const PATIENCE: Duration = Duration::from_secs(10);
/// The bus of the system's manager.
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

/// What is done for a scope, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScopeStep {
    /// Starting the process that asks.
    Ask,
    /// Connecting to the bus.
    Connect,
    /// Asking the bus for the signal that says that a job is done.
    Watch,
    /// Calling `StartTransientUnit`.
    Start,
    /// Waiting for systemd's job.
    Job,
}

impl fmt::Display for ScopeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScopeStep::Ask => "starting the process that asks for it",
            ScopeStep::Connect => "connecting to the bus",
            ScopeStep::Watch => "asking the bus for the signal JobRemoved",
            ScopeStep::Start => "StartTransientUnit",
            ScopeStep::Job => "waiting for its job",
        })
    }
}

/// Why there is no scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ScopeError {
    /// Nothing says where the bus of the user's manager is.
    #[error(
        "its manager for this user cannot be asked for a scope: neither $XDG_RUNTIME_DIR/bus nor \
         DBUS_SESSION_BUS_ADDRESS is there (no session of systemd-logind, or no dbus-user-session)"
    )]
    NoBus,
    /// A step failed.
    #[error("it gives no scope: {step} ({bus}): {why}{}", hint(why))]
    Step {
        /// What was done.
        step: ScopeStep,
        /// Address of the bus.
        bus: String,
        /// The errno, or the name and text of the D-Bus error.
        why: String,
    },
    /// systemd, or the bus, does not answer.
    #[error("it gives no scope: {step} ({bus}): no answer within {} s", PATIENCE.as_secs())]
    Silent {
        /// What was done.
        step: ScopeStep,
        /// Address of the bus.
        bus: String,
    },
    /// The job did not end well.
    #[error("it gives no scope: the job of {scope} ended as `{result}`; see `systemctl status {scope}`")]
    Job {
        /// The unit.
        scope: String,
        /// As org.freedesktop.systemd1(5) lists them: `canceled`, `timeout`, `failed`, `dependency`, `skipped`.
        result: String,
    },
    /// systemd says that all is done, and the kernel that nothing is.
    #[error("it gives no scope: this process is in {} and not in {scope}", found.display())]
    Elsewhere {
        /// The unit.
        scope: String,
        /// The process's cgroup.
        found: PathBuf,
    },
}

/// What else an error of D-Bus says about the host.
fn hint(why: &str) -> &'static str {
    const HINTS: [(&str, &str); 6] = [
        (".AccessDenied", " (a rule of the bus, polkit or a security module forbids it)"),
        (".InteractiveAuthorizationRequired", " (polkit would have to ask)"),
        (".UnitExists", " (another process took the name at the same time)"),
        (".PropertyReadOnly", " (a systemd older than 236 lacks CollectMode)"),
        (".UnknownProperty", " (a systemd older than 236 lacks CollectMode)"),
        (".ServiceUnknown", " (a bus without systemd)"),
    ];
    HINTS.iter().find(|(name, _)| why.contains(name)).map_or("", |(_, hint)| hint)
}

/// A scope to be.
#[derive(Debug)]
pub(super) struct Scope {
    /// Address of the bus of the manager that is asked.
    pub bus: String,
    /// Name of the unit.
    pub name: String,
    /// Unit in which it lies.
    pub slice: &'static str,
    /// The process that is to be in it.
    pub pid: u32,
}

/// What the child says, one a line.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    Doing(ScopeStep),
    Ended(Result<(), ScopeError>),
}

/// Moves this process into a new scope and returns its name. The process must have one thread.
pub(super) fn enter() -> Result<String, ScopeError> {
    let pid = std::process::id();
    let scope = Scope::new(crate::host::is_root(), pid, rand(), |name| std::env::var_os(name))?;
    let said = attempt::forked(PATIENCE, |answer| scope.ask(answer));
    let failed = |why: std::io::Error| ScopeError::Step {
        step: ScopeStep::Ask,
        bus: scope.bus.clone(),
        why: why.to_string(),
    };
    scope.outcome(&said.map_err(failed)?).map(|()| scope.name)
}

/// Names of scopes that end are free only after a while, and pids come back.
fn rand() -> u32 {
    let mut bytes = [0; 4];
    // Without it the name is still that of this process.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK);
    u32::from_ne_bytes(bytes)
}

impl Scope {
    /// `slice` is where each manager puts units of whom nobody says more, so that none is left after the last one.
    fn new(
        root: bool,
        pid: u32,
        random: u32,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Scope, ScopeError> {
        let bus = if root { address(Path::new(SYSTEM_BUS)) } else { user_bus(environment)? };
        let slice = if root { "system.slice" } else { "app.slice" };
        Ok(Scope { bus, name: format!("airlock-{pid}-{random:08x}.scope"), slice, pid })
    }

    /// The child's part.
    fn ask(&self, mut answer: File) {
        let mut say = |said: &Said| {
            let line = serde_json::to_string(said).unwrap_or_default();
            // A parent that is gone needs no answer.
            let _ = writeln!(answer, "{line}");
        };
        let ended = bus::start(self, |step| say(&Said::Doing(step)));
        say(&Said::Ended(ended));
    }

    /// The parent's part: the child may have been ended at any step.
    fn outcome(&self, said: &[u8]) -> Result<(), ScopeError> {
        let lines = said.split(|&byte| byte == b'\n');
        let last = lines.filter_map(|line| serde_json::from_slice(line).ok()).next_back();
        let step = match last {
            Some(Said::Ended(result)) => return result,
            Some(Said::Doing(step)) => step,
            None => ScopeStep::Ask,
        };
        Err(ScopeError::Silent { step, bus: self.bus.clone() })
    }
}

/// The bus of the caller's own manager: where systemd puts its socket, or what the session says.
fn user_bus(environment: impl Fn(&str) -> Option<OsString>) -> Result<String, ScopeError> {
    let socket = environment("XDG_RUNTIME_DIR").map(|directory| Path::new(&directory).join("bus"));
    if let Some(socket) = socket.filter(|socket| socket.is_absolute() && socket.exists()) {
        return Ok(address(&socket));
    }
    let said = environment("DBUS_SESSION_BUS_ADDRESS").and_then(|address| address.into_string().ok());
    said.filter(|address| !address.is_empty()).ok_or(ScopeError::NoBus)
}

/// The address of a socket (D-Bus specification, "Server Addresses"): all but a few bytes are escaped.
fn address(socket: &Path) -> String {
    let mut address = String::from("unix:path=");
    for &byte in socket.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-_/.".contains(&byte) {
            address.push(byte.into());
        } else {
            // Writing to a string does not fail.
            let _ = write!(address, "%{byte:02x}");
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(runtime: &str, session: &str) -> Result<String, ScopeError> {
        user_bus(|name| match name {
            "XDG_RUNTIME_DIR" => (!runtime.is_empty()).then(|| runtime.into()),
            _ => Some(session.into()),
        })
    }

    #[test]
    fn a_users_bus_is_where_systemd_puts_it_or_where_the_session_says() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = folder.path().to_str().unwrap();
        assert_eq!(user(runtime, "unix:abstract=x").unwrap(), "unix:abstract=x");
        std::fs::write(folder.path().join("bus"), "").unwrap();
        assert_eq!(user(runtime, "unix:abstract=x").unwrap(), format!("unix:path={runtime}/bus"));
        assert_eq!(user("", ""), Err(ScopeError::NoBus));
        assert_eq!(user("relative", ""), Err(ScopeError::NoBus));
    }

    #[test]
    fn an_address_can_hold_any_path() {
        assert_eq!(address(Path::new("/run/user/1/b,u=s;%")), "unix:path=/run/user/1/b%2cu%3ds%3b%25");
    }

    #[test]
    fn root_asks_the_systems_manager_whatever_its_environment_says() {
        let scope = Scope::new(true, 7, 0xab, |_| Some("unix:abstract=planted".into())).unwrap();
        assert_eq!(scope.bus, "unix:path=/run/dbus/system_bus_socket");
        assert_eq!((scope.name.as_str(), scope.slice), ("airlock-7-000000ab.scope", "system.slice"));
    }

    #[test]
    fn a_child_that_ends_early_leaves_its_step() {
        let scope = Scope { bus: "unix:path=/b".into(), name: "a.scope".into(), slice: "app.slice", pid: 1 };
        let silent = |step| Err(ScopeError::Silent { step, bus: scope.bus.clone() });
        assert_eq!(scope.outcome(b""), silent(ScopeStep::Ask));
        assert_eq!(
            scope.outcome(b"{\"Doing\":\"Connect\"}\n{\"Doing\":\"Start\"}\n{\"En"),
            silent(ScopeStep::Start)
        );
        assert_eq!(scope.outcome(b"{\"Doing\":\"Job\"}\n{\"Ended\":{\"Ok\":null}}\n"), Ok(()));
        let job = ScopeError::Job { scope: "a.scope".into(), result: "failed".into() };
        let line = serde_json::to_string(&Said::Ended(Err(job.clone()))).unwrap();
        assert_eq!(scope.outcome(line.as_bytes()), Err(job));
    }

    #[test]
    fn an_error_names_the_step_and_what_the_host_lacks() {
        let error = ScopeError::Step {
            step: ScopeStep::Start,
            bus: "unix:path=/run/dbus/system_bus_socket".into(),
            why: "org.freedesktop.DBus.Error.AccessDenied: Access denied".into(),
        };
        let text = error.to_string();
        assert!(text.contains("StartTransientUnit") && text.contains("polkit"), "{text}");
    }
}
