//! The child side: the sandbox's init performs its steps, proves what only it can prove, and waits.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Signal, Uid};

use super::error::{READY_NAME, STEP_NAME};
use super::message::{Channel, FromInit, Probe, StepFailure, ToInit};
use crate::mounts::{self, Mounts};
use crate::plan::{Action, Limit, MountId, Namespace, Owner, Plan};
use crate::seccomp::{self, Program, SeccompData, SeccompError, Verdict};
use crate::{capabilities, init, landlock, network, sys};

/// What init inherits from the monitor.
pub(crate) struct Inherited {
    pub(crate) channel: Channel,
    /// Descriptors for the payload and the numbers that they get.
    pub(crate) pass: Vec<(OwnedFd, i32)>,
    /// Held so that neither the id range nor the GPUs are given away while init lives.
    pub(crate) locks: Vec<OwnedFd>,
    /// Fixed filter of init itself.
    pub(crate) own_filter: Program,
}

struct Child<'a> {
    channel: &'a Channel,
    mounts: Mounts,
    /// The mount that was last moved onto `/`.
    root: Option<MountId>,
    /// The host's `/`, kept until Landlock has been proven on it.
    outside: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
    probes: Vec<Probe>,
}

/// Builds the sandbox from inside and becomes its init. Never returns.
pub(crate) fn run(plan: &Plan, inherited: Inherited) -> ! {
    let Inherited { channel, pass, locks, own_filter } = inherited;
    // Again after the ids are set, which clears it. A monitor that is dead already is seen on the channel.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // The monitor's own end of the channel among them: with it open here, its death would go unseen.
    let mut keep = vec![channel.fd().as_raw_fd()];
    keep.extend(pass.iter().map(|(fd, _)| fd.as_raw_fd()).chain(locks.iter().map(AsRawFd::as_raw_fd)));
    // SAFETY: this process never returns to the monitor's code, whose owners of the others live on unused.
    if unsafe { sys::close_all_but(&keep) }.is_err() {
        sys::exit_now(1);
    }
    let mut child = Child {
        channel: &channel,
        mounts: Mounts::of_caller(),
        root: None,
        outside: None,
        terminal: None,
        probes: Vec::new(),
    };
    rustix::process::umask(Mode::empty());
    for (index, step) in plan.child.iter().enumerate() {
        name(&format!("{STEP_NAME}{index}"));
        if let Err(error) = child.perform(&step.action) {
            let errno = error.raw_os_error();
            let failure = StepFailure { index, errno, message: error.to_string() };
            // The monitor is gone or will read this; either way the sandbox ends here.
            let _ = channel.send(&FromInit::Failed(failure), &[]);
            sys::exit_now(1);
        }
    }
    let probes = std::mem::take(&mut child.probes);
    let terminal = child.terminal.take();
    drop(child);
    name(READY_NAME);
    let ready = channel.send(&FromInit::Ready(probes), &[]).and_then(|()| channel.receive::<ToInit>());
    match ready {
        Ok(Some((ToInit::Release { confirm }, _))) => {
            init::run(&plan.payload, channel, pass, terminal, locks, &own_filter, confirm)
        }
        _ => sys::exit_now(1),
    }
}

/// Names this process, for people and for the monitor's error if it hangs.
fn name(name: &str) {
    if let Ok(name) = CString::new(name) {
        // A name is worth no error.
        let _ = rustix::thread::set_name(&name);
    }
}

fn expect(channel: &Channel, wanted: impl Fn(&ToInit) -> bool) -> io::Result<(ToInit, Vec<OwnedFd>)> {
    match channel.receive::<ToInit>()? {
        Some((message, fds)) if wanted(&message) => Ok((message, fds)),
        Some((message, _)) => Err(io::Error::other(format!("unexpected message {message:?}"))),
        None => Err(io::Error::other("the monitor is gone")),
    }
}

impl Child<'_> {
    fn perform(&mut self, action: &Action) -> io::Result<()> {
        match action {
            Action::AwaitIdMaps => {
                expect(self.channel, |message| matches!(message, ToInit::Mapped))?;
                // Before they are mapped, the caller's ids read as the overflow ids.
                self.mounts = Mounts::of_caller();
                Ok(())
            }
            Action::BecomeRoot => {
                self.mounts.builder = Owner { uid: 0, gid: 0 };
                set_ids(0, 0, Some(&[]))
            }
            Action::NewSession => {
                rustix::process::setsid()?;
                sys::new_session_keyring()
            }
            Action::PrivateMounts => {
                self.outside = Some(rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
                mounts::make_private()
            }
            Action::Unshare { namespaces } => unshare(namespaces),
            Action::LoopbackUp => network::loopback_up(),
            Action::NewProc { mount } => {
                let fd = mounts::proc().map_err(too_revealing)?;
                self.keep(*mount, fd)
            }
            Action::NewDevpts { mount } => self.keep(*mount, mounts::devpts()?),
            Action::NewOverlay { mount, lower, upper, name, flags } => {
                let scratch = self.root()?;
                let upper = match upper {
                    Some(upper) => Some((self.mounts.get(*upper)?, name.as_str())),
                    None => None,
                };
                let fd = mounts::overlay(scratch, lower, upper, *flags)?;
                self.keep(*mount, fd)
            }
            Action::Receive { mounts } => self.receive(mounts),
            Action::AttachRoot { mount } => {
                mounts::attach_root(self.mounts.get(*mount)?)?;
                self.root = Some(*mount);
                Ok(())
            }
            Action::Attach { mount, target } => {
                mounts::attach(self.root()?, self.mounts.get(*mount)?, target)
            }
            Action::Pivot => mounts::pivot(self.root()?),
            Action::Mask { paths } => mounts::mask(paths),
            Action::ReadOnly { paths } => mounts::read_only(paths),
            Action::OpenTerminal => self.open_terminal(),
            Action::Hostname { name } => Ok(rustix::system::sethostname(name.as_bytes())?),
            Action::ForbidUserNamespaces => fs::write("/proc/sys/user/max_user_namespaces", "0"),
            // Instances are charged to the namespace's owner too, whose 128 (by default) all sandboxes share.
            Action::LimitQuotas => limit_quotas(),
            Action::Limits { limits } => limits.iter().try_for_each(limit),
            Action::DropBounding { keep, last } => capabilities::drop_bounding(keep, *last),
            Action::SetIds { uid, gid, groups } => {
                rustix::thread::set_keep_capabilities(true)?;
                set_ids(*uid, *gid, groups.as_deref())
            }
            Action::SetCapabilities { keep } => capabilities::set(keep),
            Action::DieWithMonitor => {
                Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
            }
            Action::NoNewPrivileges => Ok(rustix::thread::set_no_new_privs(true)?),
            Action::Landlock { abi, rules } => self.landlock(*abi, rules),
            Action::CloseDescriptors => {
                self.mounts = Mounts::of_caller();
                self.outside = None;
                rustix::process::umask(Mode::from_raw_mode(0o022));
                sys::close_on_exec_from(3)
            }
            Action::EnterWorkingDirectory { path } => enter(path),
            Action::Seccomp { program, flags, .. } => self.seccomp(program, *flags),
            other => mounts::build(&mut self.mounts, other),
        }
    }

    fn keep(&mut self, mount: MountId, fd: OwnedFd) -> io::Result<()> {
        self.mounts.insert(mount, fd);
        Ok(())
    }

    fn root(&self) -> io::Result<std::os::fd::BorrowedFd<'_>> {
        self.mounts.get(self.root.ok_or_else(|| io::Error::other("no root is attached"))?)
    }

    /// Takes the mounts built by the monitor, and joins the v1 groups: `0` in a `tasks` file moves the
    /// writer without the wait that a pid in `cgroup.procs` costs.
    fn receive(&mut self, mounts: &[MountId]) -> io::Result<()> {
        let mut received = VecDeque::new();
        let tasks = loop {
            let (message, fds) =
                expect(self.channel, |message| matches!(message, ToInit::Descriptors { .. }))?;
            received.extend(fds);
            if let ToInit::Descriptors { more: false, tasks } = message {
                break tasks;
            }
        };
        if received.len() != mounts.len() + tasks {
            return Err(io::Error::other(format!(
                "{} descriptors came instead of {}",
                received.len(),
                mounts.len() + tasks
            )));
        }
        for mount in mounts {
            if let Some(fd) = received.pop_front() {
                self.mounts.insert(*mount, fd);
            }
        }
        received.iter().try_for_each(|file| rustix::io::write(file, b"0").map(drop))?;
        Ok(())
    }

    fn open_terminal(&mut self) -> io::Result<()> {
        let (master, peer) = crate::terminal::open()?;
        self.channel.send(&FromInit::Terminal, &[master.as_fd()])?;
        self.terminal = Some(peer);
        Ok(())
    }

    fn landlock(&mut self, abi: u8, rules: &[crate::plan::LandlockRule]) -> io::Result<()> {
        let outside = self.outside.as_ref().ok_or_else(|| io::Error::other("nothing outside is held"))?;
        if landlock::outside_is_denied(outside.as_fd())? {
            return Err(io::Error::other("the probe fails even without Landlock, so it proves nothing"));
        }
        landlock::restrict(abi, rules)?;
        if !landlock::outside_is_denied(outside.as_fd())? {
            return Err(io::Error::other("rules were accepted, yet a forbidden directory can be opened"));
        }
        let what = "opening the host's / was possible before the restriction, EACCES after it";
        self.probes.push(Probe { clause: "landlock".into(), what: what.into() });
        Ok(())
    }

    /// Installs the filter, then tries one harmless call that it refuses and that succeeds without it.
    fn seccomp(&mut self, program: &Program, flags: seccomp::Flags) -> io::Result<()> {
        let number = u32::try_from(libc::SYS_unshare).map_err(io::Error::other)?;
        let call = SeccompData::native(number, [0; 6]).map_err(io::Error::other)?;
        let verdict = seccomp::run(program, &call).map_err(io::Error::other)?;
        seccomp::install(program, flags).map_err(|error| match error {
            SeccompError::Install(source) => source,
            error => io::Error::other(error),
        })?;
        let Verdict::Errno(expected) = verdict else {
            return Ok(());
        };
        let found = nix::sched::unshare(nix::sched::CloneFlags::empty()).err().map(|errno| errno as i32);
        if found != Some(i32::from(expected)) {
            return Err(io::Error::other(format!("unshare(0) gave {found:?} instead of errno {expected}")));
        }
        let what = format!("unshare(0), which does nothing, gives errno {expected}");
        self.probes.push(Probe { clause: "seccomp.profile".into(), what });
        Ok(())
    }
}

/// What is counted for the namespace's owner too, the host's root as a rule, whose share all sandboxes use up.
fn limit_quotas() -> io::Result<()> {
    const QUOTAS: [(&str, u32); 10] = [
        ("inotify_instances", 32),
        ("inotify_watches", 16_384),
        ("cgroup_namespaces", 64),
        ("ipc_namespaces", 64),
        ("mnt_namespaces", 64),
        ("net_namespaces", 64),
        ("pid_namespaces", 64),
        ("time_namespaces", 64),
        ("user_namespaces", 64),
        ("uts_namespaces", 64),
    ];
    let directory = rustix::fs::open("/proc/sys/user", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    for (quota, most) in QUOTAS {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, format!("max_{quota}"), flags, Mode::empty())?;
        rustix::io::write(file, most.to_string().as_bytes())?;
    }
    Ok(())
}

fn unshare(namespaces: &[Namespace]) -> io::Result<()> {
    let flags = namespaces.iter().fold(0, |flags, namespace| flags | namespace.flag());
    nix::sched::unshare(nix::sched::CloneFlags::from_bits_retain(flags)).map_err(io::Error::from)
}

/// Sets all of the real, effective and saved ids. Raw calls: libc's set-id functions would broadcast to
/// threads, of which there are none.
fn set_ids(uid: u32, gid: u32, groups: Option<&[u32]>) -> io::Result<()> {
    if let Some(groups) = groups {
        let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
        rustix::thread::set_thread_groups(&groups)?;
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    Ok(rustix::thread::set_thread_res_uid(uid, uid, uid)?)
}

fn limit(limit: &Limit) -> io::Result<()> {
    let wanted = libc::rlimit { rlim_cur: limit.soft, rlim_max: limit.hard };
    // By number: rustix's enum has no conversion from it.
    // SAFETY: `wanted` is a valid rlimit that outlives the call.
    if unsafe { libc::setrlimit(limit.resource, &raw const wanted) } == -1 {
        let error = io::Error::last_os_error();
        let text = format!("{limit}: {error}; a hard limit cannot be raised without CAP_SYS_RESOURCE");
        return Err(io::Error::new(error.kind(), text));
    }
    Ok(())
}

/// chdir, then a look at where that led (CVE-2024-21626: a working directory outside the root).
fn enter(path: &std::path::Path) -> io::Result<()> {
    rustix::process::chdir(path)?;
    let here = rustix::process::getcwd(Vec::new())?;
    // getcwd(2): a directory outside the root starts with "(unreachable)".
    if here.to_bytes().starts_with(b"/") {
        Ok(())
    } else {
        Err(io::Error::other(format!("{} leads outside the sandbox", path.display())))
    }
}

/// The kernel refuses a new proc where the visible one is partly covered.
fn too_revealing(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::EPERM) {
        return error;
    }
    io::Error::new(
        error.kind(),
        "the kernel refuses a new /proc where the visible one is partly covered, as inside many containers; \
         run where /proc is whole (for podman: --security-opt unmask=ALL --cap-add SYS_ADMIN)",
    )
}
