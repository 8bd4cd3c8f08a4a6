//! Hosts that lack something: Airlock works all the same, or says what is lacking and what to do. Each test makes the
//! lack itself, in mount namespaces, cgroups and filters of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use airlock_tests::{Ended, Run, Site, is_root, reader, record_refusal, skip, within};

const PROBE: &str = "/probe/probe";

/// Lowers what needs cgroups.
const WITHOUT_CGROUPS: &str = "limits,devices";

/// Checks a refusal, and tells it to whoever reads the table of kernels.
#[track_caller]
fn refused(lack: &str, ended: Ended, pieces: &[&str]) {
    let ended = ended.refused(pieces);
    record_refusal(lack, &ended.stderr);
}

macro_rules! needs_root {
    () => {
        if !is_root() {
            skip!("needs root, to change the host in a mount namespace");
        }
    };
}

/// A host whose kernel answers `errno` to landlock_create_ruleset: ENOSYS without it, EOPNOTSUPP where it is off.
fn without_landlock(run: Run<'_>, errno: i32) -> Run<'_> {
    const LOAD_NUMBER: u16 = 0x20;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let errno = libc::SECCOMP_RET_ERRNO | errno.unsigned_abs();
    let number = u32::try_from(libc::SYS_landlock_create_ruleset).unwrap();
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        line(LOAD_NUMBER, 0, 0, 0),
        line(IF_EQUAL, 0, 1, number),
        line(RETURN, 0, 0, errno),
        line(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
        // SAFETY: prctl takes numbers only.
        let quiet = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        // SAFETY: the program's four instructions outlive the call.
        let filtered =
            unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        if quiet == 0 && filtered == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    run.with(|command| {
        // SAFETY: the closure makes two system calls and allocates nothing.
        unsafe { command.pre_exec(install) };
    })
}

/// On a kernel that really has none, as it is too.
#[test]
fn landlock_absent_or_off_is_refused_unless_the_policy_says_best_effort() {
    let site = Site::new();
    let answers = [Some(libc::ENOSYS), Some(libc::EOPNOTSUPP), None];
    for errno in answers.into_iter().filter(|errno| errno.is_some() || reader::landlock_abi() < 1) {
        let run = |clauses: &str| {
            let run = site.run().policy(site.policy(clauses)).flag("--best-effort", WITHOUT_CGROUPS);
            let run = match errno {
                Some(errno) => without_landlock(run, errno),
                None => run,
            };
            run.end([PROBE, "cwd"])
        };
        refused("no Landlock", run(""), &["landlock.min_abi", "lsm=landlock", "min_abi = 0"]);
        let lowered = run("[landlock]\nmin_abi = 0\n").succeeded();
        assert!(lowered.report().lowered().contains("landlock"), "{}", lowered.report());
        assert!(lowered.report().evidence("landlock").is_empty(), "{}", lowered.report());
    }
}

/// bubblewrap#198: a host whose /proc hides processes.
#[test]
fn a_proc_that_hides_processes_is_no_hindrance() {
    needs_root!();
    let site = Site::new();
    for option in ["invisible", "noaccess", "ptraceable"] {
        let script = format!("mount -t proc -o hidepid={option} proc /proc");
        site.run().policy(site.policy("")).where_root_did(&script).end([PROBE, "cwd"]).succeeded();
    }
}

/// bubblewrap#505: the kernel lets a user's namespace have a new /proc only where the whole of one is in sight.
#[test]
fn a_masked_proc_is_refused_to_a_user_and_no_hindrance_to_root() {
    needs_root!();
    for script in [
        "mount --bind /dev/null /proc/version",
        "mount -t tmpfs none /proc/fs",
        "mount --bind -o ro /proc/sys /proc/sys",
    ] {
        let site = Site::new();
        let ended = site.run().policy(site.policy("")).where_root_did(script).end([PROBE, "list", "/proc"]);
        if site.caller().is_root() {
            let list = ended.succeeded().stdout;
            assert!(list.contains("uptime") && !list.contains(&std::process::id().to_string()), "{list}");
        } else {
            refused("a masked /proc", ended, &["/proc", "partly covered"]);
        }
    }
}

/// What lies on an overlay, such as the root of a container, cannot be shown with other owners; nor can a tmpfs before
/// Linux 6.3.
#[test]
fn a_file_system_without_idmapped_mounts_is_named() {
    let Some(site) = Site::root() else { skip!("only root's sandboxes map the owners of files") };
    let place = site.folder("place");
    let overlay = "mkdir -p $D/a $D/b $D/c; mount -t tmpfs t $D/b; mkdir $D/b/u $D/b/w; \
        mount -t overlay -o lowerdir=$D/a,upperdir=$D/b/u,workdir=$D/b/w o $P; chown 4242:4242 $P";
    let tmpfs = "mount -t tmpfs -o uid=4242,gid=4242 t $P";
    let run = |script: &str, ids: &str| {
        let script = format!("D={}; P={}; {script}", site.path("").display(), place.display());
        let policy = site.policy(&format!(
            "[identity]\nids = \"{ids}\"\n[[mount]]\nsource = \"{}\"\ntarget = \"/place\"\nmode = \"rw\"\n",
            place.display()
        ));
        site.run().policy(policy).where_root_did(&script).end([PROBE, "write", "/place/x", "y"])
    };
    refused(
        "an overlay as workspace",
        run(overlay, "auto"),
        &["refuses idmapped mounts", "ids = \"direct\""],
    );
    run(overlay, "direct").succeeded();
    if kernel() < (6, 3) {
        refused("a tmpfs as workspace", run(tmpfs, "auto"), &["refuses idmapped mounts", "ids = \"direct\""]);
    } else {
        run(tmpfs, "auto").succeeded();
    }
    run(tmpfs, "direct").succeeded();
}

/// A user's kernel without overlays in user namespaces, or a place that cannot hold an upper layer, as the root of a
/// container cannot: containers/storage falls back to fuse-overlayfs there. Of root's sandbox the directory is refused
/// before, as above.
#[test]
fn where_the_kernel_mounts_no_overlay_fuse_overlayfs_is_named() {
    needs_root!();
    let site = Site::user();
    let place = site.folder("place");
    let script = format!(
        "D={}; P={}; mkdir -p $D/a $D/b; mount -t tmpfs t $D/b; mkdir $D/b/u $D/b/w; \
         mount -t overlay -o lowerdir=$D/a,upperdir=$D/b/u,workdir=$D/b/w o $P; mkdir $P/upper; chown {} $P/upper",
        site.path("").display(),
        place.display(),
        site.caller().uid(),
    );
    let run = |writable: &str| {
        let policy = site.policy(&format!("[root]\nwritable = \"{writable}\"\n"));
        site.run().policy(policy).where_root_did(&script).end([PROBE, "write", "/usr/new", "x"])
    };
    let ended = run(&place.join("upper").display().to_string());
    refused("no overlay", ended, &["overlay", "fuse-overlayfs", "ext4"]);
    run("tmpfs").succeeded();
}

fn kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn a_host_without_cgroups_cannot_limit() {
    needs_root!();
    let site = Site::new();
    let run = |script: &str, best_effort: &str| {
        // No parent of the site's: none is there.
        let run = site.run_without_parent().policy("base");
        let run = if best_effort.is_empty() { run } else { run.flag("--best-effort", best_effort) };
        run.where_root_did(script).end(["true"])
    };
    let none = "umount -a -t cgroup,cgroup2";
    let read_only = "grep -E ' - cgroup2? ' /proc/self/mountinfo | while read -r _ _ _ _ point _; do \
        mount -o remount,bind,ro $point; done";
    for (lack, script) in [("no cgroups mounted", none), ("cgroups mounted read-only", read_only)] {
        refused(lack, run(script, ""), &["cgroup"]);
        let lowered = run(script, WITHOUT_CGROUPS).succeeded();
        assert!(lowered.report().lowered().contains("limit"), "{}", lowered.report());
        assert!(!lowered.report().field("enforced").to_string().contains("cgroup/"), "{}", lowered.report());
    }
}

#[test]
fn a_missing_memory_controller_is_named() {
    let site = Site::new();
    let mounted = Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
    let unified = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let script = match (mounted && is_root(), unified.is_empty() || unified.contains("memory")) {
        (true, _) => Some("umount /sys/fs/cgroup/memory"),
        (false, false) => None,
        (false, true) => skip!("this kernel has the controller, and no tree of its own to take away"),
    };
    let end = |run: Run<'_>| match script {
        Some(script) => run.where_root_did(script).end(["true"]),
        None => run.end(["true"]),
    };
    let ended = end(site.run_without_parent().policy("base"));
    refused("no memory controller", ended, &["memory cgroup controller"]);
    // Whatever else that kernel lacks.
    let policy = site.policy("[landlock]\nmin_abi = 0\n");
    let run = site.run_without_parent().policy(policy).flag("--best-effort", WITHOUT_CGROUPS);
    let lowered = end(run).succeeded();
    assert!(lowered.report().lowered().contains("memory"), "{}", lowered.report());
}

/// A namespace of the user's own stands for a host where no user may make one.
#[test]
fn where_no_user_namespace_may_be_made_the_sysctl_is_named() {
    let site = Site::user();
    let run = |script: &str| {
        let script = format!("{script} exec setpriv --inh-caps=-all --ambient-caps=-all \"$0\" \"$@\"");
        let words = ["--user", "--map-current-user", "--keep-caps", "sh", "-c", &script];
        site.run().policy(site.policy("")).in_program("unshare", &words).end([PROBE, "cwd"])
    };
    let forbid = "echo 0 >/proc/sys/user/max_user_namespaces;";
    refused("no user namespaces", run(forbid), &["user.max_user_namespaces"]);
    run("").succeeded();
}

#[test]
fn a_user_without_a_delegated_cgroup_is_told_how_to_get_one() {
    let site = Site::user();
    let ended = site.run().policy("base").flag("--best-effort", "devices").end(["true"]);
    refused("no delegated cgroup", ended, &["no delegated cgroup", "Delegate=yes", "best-effort"]);
    site.run().policy("base").flag("--best-effort", WITHOUT_CGROUPS).end(["true"]).succeeded();
}

/// A version 2 parent of the site's with controllers, or the reason why there is none.
macro_rules! unified {
    ($site:ident) => {
        match $site.as_ref().and_then(|site| site.cgroups()?.unified()) {
            Some(folder) => (folder.to_owned(), $site.as_ref().unwrap()),
            None => skip!("needs root, and a version 2 hierarchy with controllers"),
        }
    };
}

/// `airlock run` with this directory of a version 2 hierarchy as parent.
fn run_in(site: &Site, folder: &Path) -> Ended {
    let parent = Path::new("/").join(folder.strip_prefix("/sys/fs/cgroup").unwrap());
    site.run_without_parent().policy(site.policy("")).flag("--cgroup-parent", parent).end(["true"])
}

/// `airlock run` below this new directory of a version 2 hierarchy, after `change`; the directory is removed again.
fn run_below(site: &Site, folder: &Path, change: impl FnOnce(&Path)) -> Ended {
    fs::create_dir(folder).unwrap();
    change(folder);
    let ended = run_in(site, folder);
    assert!(within(Duration::from_secs(5), || fs::remove_dir(folder).is_ok()), "{}", folder.display());
    ended
}

#[test]
fn a_threaded_parent_is_refused() {
    let site = Site::root();
    let (folder, site) = unified!(site);
    run_below(site, &folder.join("domain"), |_| ()).succeeded();
    // The parent of a threaded cgroup has no controllers to hand down.
    let plain = folder.join("plain");
    fs::create_dir(&plain).unwrap();
    let ended = run_below(site, &plain.join("threads"), |folder| {
        fs::write(folder.join("cgroup.type"), "threaded").unwrap();
    });
    fs::remove_dir(plain).unwrap();
    refused("a threaded parent", ended, &["threaded cgroup, which cannot hold", "--cgroup-parent"]);
}

/// runc#2298, nsjail#196: EBUSY on subtree_control.
#[test]
fn a_parent_with_processes_is_refused() {
    let site = Site::root();
    let (folder, site) = unified!(site);
    let mut neighbour = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = neighbour.id().to_string();
    let parent = folder.join("inhabited");
    run_below(site, &parent, |_| ()).succeeded();
    fs::create_dir(&parent).unwrap();
    fs::write(parent.join("cgroup.procs"), &pid).unwrap();
    let ended = run_in(site, &parent);
    let handed_down = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap();
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
    fs::remove_dir(parent).unwrap();
    assert_eq!(handed_down, "");
    refused("a parent with processes", ended, &["holds other processes", &pid, "--cgroup-parent"]);
}

/// youki#3597, #3609: not all controllers are delegated.
#[test]
fn a_controller_that_is_not_delegated_is_named() {
    let site = Site::delegated();
    let (folder, site) = unified!(site);
    let scope = |name: &str, controllers: &str| {
        let slice = folder.join(name);
        fs::create_dir(&slice).unwrap();
        fs::write(slice.join("cgroup.subtree_control"), controllers).unwrap();
        let scope = slice.join("scope");
        fs::create_dir(&scope).unwrap();
        for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
            std::os::unix::fs::chown(scope.join(file), Some(site.caller().uid()), None).unwrap();
        }
        let script = format!("echo $$ >{}/cgroup.procs", scope.display());
        let run = site.run_without_parent().policy(site.policy("")).where_root_did(&script);
        let ended = run.end(["true"]);
        // The leaf that the caller made for itself.
        for leaf in fs::read_dir(&scope).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
            fs::remove_dir(leaf.path()).unwrap();
        }
        for folder in [scope, slice] {
            fs::remove_dir(folder).unwrap();
        }
        ended
    };
    scope("whole", "+memory +pids").succeeded();
    refused(
        "a controller not delegated",
        scope("part", "+pids"),
        &["memory cgroup controller", "subtree_control"],
    );
}
