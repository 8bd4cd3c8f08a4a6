//! The peers: how each starts the program with what it isolates.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use airlock_tests::cgroup;
use serde_json::json;

/// The peer that the others are compared to.
pub(crate) const BASE: &str = "bwrap";

/// An ordinary user whom nobody else is.
const USER: u32 = 0x5fff_0000;

/// Stands for the name of a launch's cgroup in the bundles' document.
const CGROUP: &str = "@cgroup@";

/// More than can be running at once.
const BUNDLES: u32 = 128;

/// One way to start the program.
pub(crate) struct Peer<'a> {
    pub(crate) name: &'static str,
    /// What it isolates and what it leaves out.
    pub(crate) note: &'static str,
    user: bool,
    mounts: Option<&'a File>,
    state: OsString,
    words: Words<'a>,
}

type Words<'a> = Box<dyn Fn() -> Vec<OsString> + Sync + 'a>;

impl<'a> Peer<'a> {
    fn new(
        name: &'static str,
        note: &'static str,
        words: impl Fn() -> Vec<OsString> + Sync + 'a,
    ) -> Peer<'a> {
        Peer { name, note, user: false, mounts: None, state: OsString::new(), words: Box::new(words) }
    }

    pub(crate) fn command(&self) -> Command {
        let words = (self.words)();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/");
        command.env("XDG_RUNTIME_DIR", &self.state);
        let (user, mounts) = (self.user, self.mounts.map(|file| file.try_clone().expect("a descriptor")));
        // The same way for all: a closure makes the standard library fork and exec, where it might spawn.
        // SAFETY: the closure makes four system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                if let Some(mounts) = &mounts {
                    nix::sched::setns(mounts, nix::sched::CloneFlags::CLONE_NEWNS)?;
                }
                if user {
                    nix::unistd::setgroups(&[])?;
                    nix::unistd::setresgid(USER.into(), USER.into(), USER.into())?;
                    nix::unistd::setresuid(USER.into(), USER.into(), USER.into())?;
                }
                Ok(())
            });
        }
        command
    }

    /// Runs it once; says why it cannot be measured.
    pub(crate) fn trial(&self) -> Result<(), String> {
        let output = self.command().stderr(Stdio::piped()).output().map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        Err(format!("{}: {}", output.status, text.trim().lines().next_back().unwrap_or("no message")))
    }
}

/// Files, cgroups and the mount namespace that the peers need.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    airlock: PathBuf,
    cgroups: Option<cgroup::Parent>,
    without_v2: Option<Without>,
    without_v1: Option<Without>,
    next: AtomicU32,
}

impl Bench {
    pub(crate) fn new(airlock: &Path) -> Bench {
        let folder =
            tempfile::Builder::new().prefix("airlock-bench-").tempdir_in("/tmp").expect("a directory");
        let path = |name: &str| folder.path().join(name);
        for name in ["", "bin", "state", "work", "runc", "crun", "root", "root/bench"] {
            fs::create_dir_all(path(name)).expect("own directory");
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o755)).expect("own directory");
        }
        for name in
            ["root/usr", "root/etc", "root/proc", "root/dev", "root/sys", "root/tmp", "root/run", "root/work"]
        {
            fs::create_dir(path(name)).expect("own directory");
        }
        fs::copy(concat!(env!("OUT_DIR"), "/true"), path("bin/true")).expect("the program");
        if airlock.exists() {
            fs::copy(airlock, path("bin/airlock")).expect("the airlock command");
        }
        if airlock_tests::is_root() {
            for name in ["state", "work"] {
                std::os::unix::fs::chown(path(name), Some(USER), Some(USER)).expect("root may chown");
            }
        }
        let policy = format!(
            "version = 1\nname = \"bench\"\nextends = \"base\"\n[limits]\nmemory = \"1GiB\"\npids = 1024\ncpus = 2\n\
             [[mount]]\nsource = {:?}\ntarget = \"/bench\"\nexec = true\n\
             [[mount]]\nsource = {:?}\ntarget = \"/work\"\nmode = \"rw\"\n",
            path("bin"),
            path("work"),
        );
        fs::write(path("policy.toml"), policy).expect("own file");
        let cgroups = cgroup::Parent::new(&format!("airlock-bench-{}", std::process::id())).ok();
        Bench {
            airlock: path("bin/airlock"),
            cgroups,
            without_v2: Without::new("cgroup2"),
            without_v1: Without::new("cgroup"),
            next: AtomicU32::new(0),
            folder,
        }
    }

    fn path(&self, name: &str) -> OsString {
        self.folder.path().join(name).into_os_string()
    }

    /// All peers, in the order of the table.
    pub(crate) fn peers(&self) -> Vec<Peer<'_>> {
        let root = airlock_tests::is_root();
        let mut all = vec![
            Peer::new("true", "the program alone", || vec![self.path("bin/true")]),
            Peer::new(BASE, BWRAP, || self.bwrap()),
            Peer::new("bwrap full", BWRAP_FULL, || self.bwrap_full()),
            Peer::new("airlock", AIRLOCK, move || self.airlock(!root)),
        ];
        if !root {
            return all;
        }
        self.bundle("runc");
        self.bundle("crun");
        all.push(Peer::new("runc", RUNC, || self.oci("runc")));
        let mut crun = Peer::new("crun", CRUN, || self.oci("crun"));
        crun.mounts = self.without_v2.as_ref().map(|without| &without.mounts);
        all.push(crun);
        if let Some(without) = &self.without_v1 {
            let airlock = Peer::new("airlock, v2 alone", AIRLOCK_V2, || self.airlock_without_controllers());
            all.push(Peer { mounts: Some(&without.mounts), ..airlock });
        }
        let users = [
            Peer::new("bwrap, user", BWRAP, || self.bwrap()),
            Peer::new("bwrap full, user", BWRAP_FULL, || self.bwrap_full()),
            Peer::new("airlock, user", AIRLOCK_USER, || self.airlock(true)),
        ];
        all.extend(users.map(|peer| Peer { user: true, state: self.path("state"), ..peer }));
        all
    }

    fn bwrap(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            ["bwrap", "--unshare-all", "--ro-bind", "/", "/"].map(Into::into).into();
        words.push(self.path("bin/true"));
        words
    }

    fn bwrap_full(&self) -> Vec<OsString> {
        let fixed = "bwrap --unshare-all --new-session --die-with-parent --cap-drop ALL --hostname bench \
                     --ro-bind /usr /usr --ro-bind /etc /etc --symlink usr/bin /bin --symlink usr/lib /lib \
                     --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --tmpfs /run --chdir /";
        let mut words: Vec<OsString> = fixed.split_whitespace().map(Into::into).collect();
        words.extend(["--ro-bind".into(), self.path("bin"), "/bench".into()]);
        words.extend(["--bind".into(), self.path("work"), "/work".into(), "/bench/true".into()]);
        words
    }

    fn airlock(&self, user: bool) -> Vec<OsString> {
        let mut words = vec![self.airlock.clone().into_os_string(), "run".into(), "--policy".into()];
        words.push(self.path("policy.toml"));
        match &self.cgroups {
            Some(parent) if !user => words.extend(["--cgroup-parent".into(), parent.name().into()]),
            _ => words.extend(["--best-effort", "limits", "--best-effort", "devices"].map(Into::into)),
        }
        words.extend(["--".into(), "/bench/true".into()]);
        words
    }

    fn airlock_without_controllers(&self) -> Vec<OsString> {
        let mut words = self.airlock(false);
        words.splice(2..2, ["--best-effort", "limits"].map(Into::into));
        words
    }

    /// A bundle for this launch alone: two that share a cgroup path would remove each other's.
    fn oci(&self, runtime: &str) -> Vec<OsString> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("bench-{}-{number}", std::process::id());
        let bundle = self.folder.path().join(runtime).join(format!("bundle-{}", number % BUNDLES));
        let text =
            fs::read_to_string(self.folder.path().join(runtime).join("config.json")).unwrap_or_default();
        fs::create_dir_all(&bundle).expect("own directory");
        fs::write(bundle.join("config.json"), text.replace(CGROUP, &id)).expect("own file");
        let state = self.path(&format!("{runtime}/state"));
        let mut words = vec![runtime.into(), "--root".into(), state, "run".into(), "--bundle".into()];
        words.extend([bundle.into_os_string(), id.into()]);
        words
    }

    /// The runtime's own default document, with the mounts and limits that the others have.
    fn bundle(&self, runtime: &str) {
        let folder = self.folder.path().join(runtime);
        let made = Command::new(runtime).arg("spec").current_dir(&folder).status();
        if !made.is_ok_and(|status| status.success()) {
            return;
        }
        let file = folder.join("config.json");
        let mut config: serde_json::Value =
            serde_json::from_slice(&fs::read(&file).expect("it was just made")).expect("JSON");
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(["/bench/true"]);
        config["root"]["path"] = json!(self.folder.path().join("root"));
        let bind = |source: &Path, target: &str, mode: &str| json!({"source": source, "destination": target, "type": "bind", "options": ["rbind", mode]});
        let mounts = config["mounts"].as_array_mut().expect("a list");
        mounts.push(bind(Path::new("/usr"), "/usr", "ro"));
        mounts.push(bind(Path::new("/etc"), "/etc", "ro"));
        mounts.push(bind(&self.folder.path().join("bin"), "/bench", "ro"));
        mounts.push(bind(&self.folder.path().join("work"), "/work", "rw"));
        for target in ["/tmp", "/run"] {
            mounts.push(json!({"source": "tmpfs", "destination": target, "type": "tmpfs"}));
        }
        let limits = &mut config["linux"]["resources"];
        limits["memory"] = json!({"limit": 1 << 30});
        limits["pids"] = json!({"limit": 1024});
        limits["cpu"] = json!({"quota": 200_000, "period": 100_000});
        if let Some(parent) = &self.cgroups {
            config["linux"]["cgroupsPath"] = json!(format!("{}/{CGROUP}", parent.name()));
        }
        fs::write(&file, config.to_string()).expect("own file");
    }

    /// Resident memory of the monitor while its payload waits.
    pub(crate) fn monitor_memory(&self) -> Option<String> {
        let mut words = self.airlock(!airlock_tests::is_root());
        words.pop();
        let mut child =
            Command::new(&words[0]).args(&words[1..]).args(["/usr/bin/sleep", "5"]).spawn().ok()?;
        std::thread::sleep(std::time::Duration::from_secs(1));
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        child.wait().ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().to_owned())
    }
}

/// A mount namespace of a hybrid host without one of its kinds of cgroup trees, and the process that holds it.
struct Without {
    holder: Child,
    mounts: File,
}

impl Without {
    /// `kind` is the file system's type: `cgroup` or `cgroup2`. `None` where the host is not a hybrid one.
    fn new(kind: &str) -> Option<Without> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let points = |kind: &str| -> Vec<&str> {
            let kind = format!(" - {kind} ");
            mounts
                .lines()
                .filter(|line| line.contains(&kind))
                .filter_map(|line| line.split(' ').nth(4))
                .collect()
        };
        if points("cgroup").is_empty() || points("cgroup2").is_empty() {
            return None;
        }
        let script = format!("umount {} && echo ready && exec sleep 3600", points(kind).join(" "));
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut answer = [0; 6];
        let ready = holder.stdout.take()?.read_exact(&mut answer).is_ok();
        match File::open(format!("/proc/{}/ns/mnt", holder.id())) {
            Ok(mounts) if ready => Some(Without { holder, mounts }),
            _ => {
                let _ = holder.kill();
                let _ = holder.wait();
                None
            }
        }
    }
}

impl Drop for Without {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

const BWRAP: &str = "all namespaces, the host's / read-only. Leaves out: limits, a root of its own, private /proc, \
                     /dev and /tmp, seccomp, Landlock, uid range, verification, report";
const BWRAP_FULL: &str = "namespaces, comparable mounts, private /proc, /dev, /tmp, /run, no capabilities. Leaves \
                          out: limits, seccomp, Landlock, masks of /proc, uid range, device filter, keyring, \
                          verification, report";
const AIRLOCK: &str = "everything of `base`, limits in all cgroup trees, a read-write mount";
const AIRLOCK_V2: &str = "as a host whose cgroups have no controllers: everything of `base` in a version 2 cgroup, with the \
                          device filter, without limits";
const AIRLOCK_USER: &str = "everything of `base` but the cgroups (no limits, no device filter)";
const RUNC: &str = "its `runc spec`, comparable mounts, memory, pids and cpu limits. Leaves out: user namespace, \
                    seccomp (that document has none), Landlock, idmapped mounts, verification, report";
const CRUN: &str = "as runc, from `crun spec`; on a hybrid host in a mount namespace without the version 2 tree, \
                    which crun refuses";
