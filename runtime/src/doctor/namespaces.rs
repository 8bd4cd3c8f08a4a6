//! Namespaces, and what a process may do in its own: all tried in one child, as a launch would.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Gid, Mode, Uid, mkdirat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use super::{Check, Topic, number};
use crate::attempt::{self, Failure, Outcome};
use crate::ids::{IdMapping, IdMaps, POOL_START, RANGE_LEN};
use crate::{mounts, network, sys};

const NAMESPACES: Topic = Topic::needed("user-namespaces", "user and other namespaces");
const PRIVILEGE: Topic = Topic::needed("namespace-privilege", "privilege inside them");
const PROC: Topic = Topic::needed("proc", "fresh /proc");
const OVERLAY: Topic = Topic::new("overlay", "overlay inside them");

/// A sysctl that limits user namespaces, and its value; absent where the kernel has none.
struct Knobs {
    /// Debian's and Arch's patch; 0 forbids.
    unprivileged_clone: Option<u64>,
    /// Ubuntu's, 23.10 and later; 1 takes all privilege away inside.
    apparmor: Option<u64>,
    /// The limits of namespaces(7), for the caller's own user namespace.
    limits: Vec<(String, u64)>,
}

/// What the child answers, in this order.
struct Answers {
    become_root: Outcome,
    private: Outcome,
    host_name: Outcome,
    loopback: Outcome,
    tmpfs: Outcome,
    proc: Outcome,
    overlay: Outcome,
}

pub(super) fn checks(root: bool) -> Vec<Check> {
    let knobs = Knobs::read();
    let answers = match attempt::in_namespaces(flags(), Some(&maps(root)), !root, || attempts(root)) {
        Ok([become_root, private, host_name, loopback, tmpfs, proc, overlay]) => {
            Answers { become_root, private, host_name, loopback, tmpfs, proc, overlay }
        }
        Err(failure) => {
            let not_tried = "not tried: there are no namespaces to try it in";
            let rest = [PRIVILEGE, PROC, OVERLAY]
                .map(|topic| topic.lacking(not_tried, "first see to the namespaces"));
            return [vec![no_namespaces(&failure, &knobs)], rest.to_vec()].concat();
        }
    };
    let mountinfo = fs::read("/proc/self/mountinfo").unwrap_or_default();
    vec![
        NAMESPACES.ok("user, mount, pid, network, ipc, uts"),
        privilege(&answers, &knobs),
        proc(answers.proc, &over_proc(&String::from_utf8_lossy(&mountinfo)), root),
        overlay(answers.overlay),
    ]
}

fn flags() -> u64 {
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    sys::clone_flag(flags)
}

/// The maps of a launch: a range for root, the caller's own ids for everyone else.
fn maps(root: bool) -> IdMaps {
    let map = |own| {
        let line = if root {
            IdMapping { inside: 0, outside: POOL_START, count: RANGE_LEN }
        } else {
            IdMapping { inside: 1000, outside: own, count: 1 }
        };
        vec![line]
    };
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    IdMaps { uids: map(uid), gids: map(gid) }
}

/// Runs in the child, so it makes system calls only.
fn attempts(root: bool) -> [Outcome; 7] {
    let become_root = if root { become_root() } else { Ok(()) };
    let private = mounts::make_private().map_err(errno);
    let host_name = rustix::system::sethostname(b"airlock");
    let loopback = network::loopback_up().map_err(errno);
    let proc = mounts::proc().map(drop).map_err(errno);
    let (tmpfs, overlay) = match tmpfs() {
        Ok(tmpfs) => (Ok(()), overlay_on(tmpfs.as_fd())),
        Err(error) => (Err(error), Err(error)),
    };
    [become_root, private, host_name, loopback, tmpfs, proc, overlay]
}

fn become_root() -> Outcome {
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)
}

/// A tmpfs over the child's `/`, which no other process sees.
fn tmpfs() -> Result<std::os::fd::OwnedFd, Errno> {
    let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    mounts::attach_root(mount.as_fd()).map_err(errno)?;
    Ok(mount)
}

fn overlay_on(tmpfs: BorrowedFd<'_>) -> Outcome {
    rustix::process::fchdir(tmpfs)?;
    let context = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, name) in [(c"lowerdir", c"lower"), (c"upperdir", c"upper"), (c"workdir", c"work")] {
        mkdirat(tmpfs, name, Mode::RWXU)?;
        fsconfig_set_string(&context, key, name)?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).map(drop)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl Knobs {
    fn read() -> Self {
        let kinds = ["user", "mnt", "pid", "net", "ipc", "uts"];
        let limit = |kind: &str| {
            let name = format!("user.max_{kind}_namespaces");
            Some((name, number(&format!("/proc/sys/user/max_{kind}_namespaces"))?))
        };
        Self {
            unprivileged_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            limits: kinds.into_iter().filter_map(limit).collect(),
        }
    }
}

fn no_namespaces(failure: &Failure, knobs: &Knobs) -> Check {
    match failure {
        Failure::Clone(error) => {
            NAMESPACES.lacking(format!("clone3: {error}"), clone_remedy(Errno::from_io_error(error), knobs))
        }
        Failure::Maps(error) => NAMESPACES.lacking(
            format!("a user namespace is made, but its id maps are refused: {error}"),
            "run outside the container or sandbox that refuses them, from a process that is dumpable",
        ),
        Failure::NoAnswer => NAMESPACES.lacking(
            "a process in new namespaces is made, but does not answer",
            "look in the kernel log for what ended or stopped it (a security module, want of memory)",
        ),
    }
}

/// clone(2) and user_namespaces(7), ERRORS, with the distributions' own switches.
fn clone_remedy(error: Option<Errno>, knobs: &Knobs) -> String {
    match error {
        Some(Errno::NOSPC | Errno::USERS) => {
            let used_up = knobs.limits.iter().filter(|(_, limit)| *limit == 0);
            let names: Vec<String> = used_up.map(|(name, _)| format!("`sysctl {name}=15000`")).collect();
            if names.is_empty() {
                "a limit of a surrounding user namespace is reached: raise user.max_*_namespaces there".into()
            } else {
                format!("as root: {}", names.join(", "))
            }
        }
        Some(Errno::PERM | Errno::ACCESS) if knobs.unprivileged_clone == Some(0) => {
            "as root: `sysctl kernel.unprivileged_userns_clone=1`".into()
        }
        Some(Errno::PERM | Errno::ACCESS) if knobs.apparmor == Some(1) => apparmor_remedy(),
        Some(Errno::PERM | Errno::ACCESS) => {
            "the kernel refuses it inside a chroot and to ids that are not mapped, and a container's seccomp filter or \
             a security module may refuse it: run outside of that"
                .into()
        }
        Some(Errno::INVAL) => "boot a kernel with CONFIG_USER_NS, PID_NS, NET_NS, IPC_NS and UTS_NS".into(),
        Some(Errno::NOSYS) => "a surrounding seccomp filter hides clone3: run outside of that container or sandbox".into(),
        Some(Errno::AGAIN | Errno::NOMEM) => {
            "too many processes for the caller's RLIMIT_NPROC or pids cgroup, or no memory: end some".into()
        }
        _ => "see clone(2), ERRORS".into(),
    }
}

/// codex#15057 and others: creation works, and every privileged call after it is refused.
fn apparmor_remedy() -> String {
    "as root: give airlock an AppArmor profile with `userns,` (see /etc/apparmor.d/ for those of other programs), or \
     `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
        .into()
}

fn privilege(answers: &Answers, knobs: &Knobs) -> Check {
    let tried = [
        ("taking its ids", answers.become_root),
        ("making mounts private", answers.private),
        ("setting the host name", answers.host_name),
        ("bringing up the loopback interface", answers.loopback),
        ("mounting a tmpfs", answers.tmpfs),
    ];
    let refused: Vec<String> =
        tried.iter().filter_map(|(what, outcome)| Some(format!("{what}: {}", outcome.err()?))).collect();
    if refused.is_empty() {
        return PRIVILEGE.ok("mounts, host name and network can be set up");
    }
    let remedy = if knobs.apparmor == Some(1) {
        apparmor_remedy()
    } else {
        "a security module, or the seccomp filter of a surrounding container, takes the privilege away: see the \
         kernel's audit log, or run outside of that"
            .into()
    };
    PRIVILEGE.lacking(refused.join("; "), remedy)
}

/// Mounts below /proc, and options of /proc itself, that make the kernel refuse a fresh one.
fn over_proc(mountinfo: &str) -> Vec<String> {
    let lines = mountinfo.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (point, options) = (fields.nth(4)?, fields.next()?);
        let superblock = fields.skip_while(|field| *field != "-").nth(3).unwrap_or("");
        Some((point, options, superblock))
    });
    lines
        .filter_map(|(point, options, superblock)| {
            if point == "/proc" {
                let mut options = options.split(',').chain(superblock.split(','));
                let limiting = options.find(|option| {
                    *option == "ro"
                        || option.starts_with("hidepid=") && *option != "hidepid=off"
                        || option.starts_with("subset=")
                });
                limiting.map(|option| format!("/proc is mounted with {option}"))
            } else {
                point.starts_with("/proc/").then(|| point.to_owned())
            }
        })
        .collect()
}

fn proc(outcome: Outcome, over: &[String], root: bool) -> Check {
    match outcome {
        Ok(()) => PROC.ok("can be mounted, with hidepid"),
        Err(Errno::PERM) if root && over.iter().any(|path| path.starts_with("/proc/")) => {
            PROC.ok("made outside of the sandbox's user namespace, because the visible one is partly covered")
        }
        Err(Errno::PERM) => {
            let what = if over.is_empty() { "no whole /proc is in sight".into() } else { over.join(", ") };
            PROC.lacking(
                format!("the kernel refuses a /proc that shows more than the visible one: {what}"),
                "run where /proc is whole: on the host, or in a container with podman's `--security-opt unmask=ALL --cap-add \
                 SYS_ADMIN`, \
                 docker's `--security-opt systempaths=unconfined`",
            )
        }
        Err(error) => PROC.lacking(
            format!("cannot be mounted with hidepid=invisible: {error}"),
            "boot a kernel of 5.8 or newer with CONFIG_PROC_FS",
        ),
    }
}

fn overlay(outcome: Outcome) -> Check {
    match outcome {
        Ok(()) => OVERLAY.ok("can be mounted"),
        Err(Errno::NODEV) => OVERLAY.lacking(
            "the kernel has no overlay file system, or its module is not loaded",
            "as root: `modprobe overlay`; policies with `root.writable = \"none\"` need none",
        ),
        Err(error) => OVERLAY.lacking(
            format!("cannot be mounted in a user namespace: {error}"),
            "a kernel of 5.11 or newer, and no security module against it; policies with `root.writable = \"none\"` \
             need none",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::Status;
    use super::*;

    fn knobs() -> Knobs {
        let limits =
            vec![("user.max_user_namespaces".into(), 15000), ("user.max_net_namespaces".into(), 15000)];
        Knobs { unprivileged_clone: None, apparmor: None, limits }
    }

    fn refused(error: Errno, knobs: &Knobs) -> String {
        no_namespaces(&Failure::Clone(io::Error::from(error)), knobs).remedy.unwrap()
    }

    #[test]
    fn the_limit_that_is_zero_is_named() {
        let mut knobs = knobs();
        assert!(refused(Errno::NOSPC, &knobs).contains("surrounding"));
        knobs.limits[0].1 = 0;
        let remedy = refused(Errno::NOSPC, &knobs);
        assert!(remedy.contains("user.max_user_namespaces") && !remedy.contains("max_net"), "{remedy}");
    }

    #[test]
    fn the_switch_of_the_distribution_is_named() {
        let debian = Knobs { unprivileged_clone: Some(0), ..knobs() };
        assert!(refused(Errno::PERM, &debian).contains("kernel.unprivileged_userns_clone=1"));
        let ubuntu = Knobs { apparmor: Some(1), ..knobs() };
        assert!(refused(Errno::ACCESS, &ubuntu).contains("apparmor_restrict_unprivileged_userns"));
        assert!(refused(Errno::PERM, &knobs()).contains("chroot"));
    }

    /// codex#15057, #17337, sandbox-runtime#74, hakoniwa#109: namespaces are made, what follows is EPERM.
    #[test]
    fn privilege_taken_away_by_apparmor_is_told_from_no_namespaces() {
        let denied = Err(Errno::PERM);
        let answers = Answers {
            become_root: Ok(()),
            private: denied,
            host_name: denied,
            loopback: denied,
            tmpfs: denied,
            proc: denied,
            overlay: denied,
        };
        let check = privilege(&answers, &Knobs { apparmor: Some(1), ..knobs() });
        assert_eq!((check.id, check.status), ("namespace-privilege", Status::Lacking));
        assert!(check.found.contains("loopback") && check.found.contains("tmpfs"), "{}", check.found);
        assert!(check.remedy.unwrap().contains("kernel.apparmor_restrict_unprivileged_userns"));
    }

    /// bubblewrap#505, #284, #134 (masked files), #198 (hidepid).
    #[test]
    fn what_covers_proc_is_named() {
        let whole =
            "22 27 0:21 / /proc rw,relatime - proc proc rw\n23 27 0:22 / /process rw - ext4 /dev/vda rw\n";
        assert!(over_proc(whole).is_empty());
        let masked = format!("{whole}50 22 0:6 /null /proc/kcore rw,nosuid - devtmpfs devtmpfs rw\n");
        assert_eq!(over_proc(&masked), ["/proc/kcore"]);
        let hidden = "22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw,hidepid=invisible\n";
        assert_eq!(over_proc(hidden), ["/proc is mounted with hidepid=invisible"]);
        let check = proc(Err(Errno::PERM), &over_proc(&masked), false);
        assert_eq!(check.status, Status::Lacking);
        assert_eq!(proc(Err(Errno::PERM), &over_proc(&masked), true).status, Status::Ok);
        assert!(check.found.contains("/proc/kcore"), "{}", check.found);
        assert_eq!(
            proc(Ok(()), &over_proc(&masked), false).status,
            Status::Ok,
            "the kernel has the last word"
        );
    }

    #[test]
    fn a_missing_overlay_module_is_told_from_a_refusal() {
        assert!(overlay(Err(Errno::NODEV)).remedy.unwrap().contains("modprobe"));
        assert!(overlay(Err(Errno::PERM)).remedy.unwrap().contains("5.11"));
        assert_eq!(overlay(Ok(())).status, Status::Ok);
    }
}
