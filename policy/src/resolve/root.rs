//! The file tree inside: the skeleton, the mounts, and the clause that each comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use airlock_runtime::spec::Node;
use oci_spec::runtime::{Mount, MountBuilder, Root, RootBuilder};

use super::oci;
use crate::diagnostic::{Diagnostic, Fault, PolicyError};
use crate::host::{ETC, HostEntry, HostTree, OPT, TOP};
use crate::merged::{self, Policy, Writable};
use crate::schema::{MountMode, RootKind};
use crate::units::Size;

/// What to do about a source that is not there.
const MISSING: &str = "make it first, or leave out a mount without a source: `optional = true` in a policy, `:optional` after --mount";
/// `/run` holds sockets and pid files at most.
const RUN_SIZE: Size = Size(16 << 20);
/// Nodes and links.
const DEV_SIZE: Size = Size(1 << 20);

/// The tree inside, in OCI's words and in Airlock's.
pub(super) struct Tree {
    pub(super) oci: Root,
    /// In attach order: what lies deeper comes later.
    pub(super) mounts: Vec<Mount>,
    pub(super) skeleton: Vec<Node>,
    /// Policy clause of each mount, by destination.
    pub(super) origins: BTreeMap<PathBuf, String>,
    /// The home directory inside.
    pub(super) home: PathBuf,
}

pub(super) fn assemble(policy: &Policy, host: &HostTree) -> Result<Tree, PolicyError> {
    let kind = policy.root.kind;
    let mut build = Build::default();
    // A directory of the host may have no place for a home, and nothing is made in it.
    let home = PathBuf::from(match (kind, policy.identity.user.uid) {
        (RootKind::Dir, _) => "/tmp",
        (_, 0) => "/root",
        _ => "/home/user",
    });
    if kind == RootKind::Host {
        if let Some((path, why)) = host.unknown.first_key_value() {
            let message = format!("{path} of this host cannot be looked at: {why}");
            return Err(PolicyError::Host { clause: "root.kind".into(), message });
        }
        build.host(host)?;
    }
    if kind != RootKind::Dir {
        build.made_etc(policy);
        build.private(&home, policy)?;
        build.link("/var/tmp", "/tmp");
    }
    build.private(Path::new("/tmp"), policy)?;
    build.kernel(policy)?;
    build.policy_mounts(policy, host)?;
    // By bytes: a path stands before all that lies below it.
    build.mounts.sort_by(|a, b| a.destination().as_os_str().cmp(b.destination().as_os_str()));
    let oci = RootBuilder::default()
        .path(policy.root.path.as_deref().unwrap_or(Path::new("/")))
        .readonly(policy.root.writable == Writable::None)
        .build()
        .map_err(oci("root"))?;
    let Build { mut skeleton, mounts, origins, .. } = build;
    if kind == RootKind::Dir {
        skeleton.clear();
    }
    Ok(Tree { oci, mounts, skeleton, origins, home })
}

/// The name that `/etc/passwd` inside gives to a user id.
pub(super) fn user_name(uid: u32) -> &'static str {
    match uid {
        0 => "root",
        65534 => "nobody",
        _ => "user",
    }
}

#[derive(Default)]
struct Build {
    skeleton: Vec<Node>,
    made: BTreeSet<PathBuf>,
    mounts: Vec<Mount>,
    origins: BTreeMap<PathBuf, String>,
}

impl Build {
    /// The host's programs, and of its `/etc` what [`ETC`] lists.
    fn host(&mut self, host: &HostTree) -> Result<(), PolicyError> {
        if host.system.get("/usr") != Some(&HostEntry::Dir) {
            return Err(PolicyError::Host {
                clause: "root.kind".into(),
                message: "this host has no directory /usr that you may see; use root kind `dir` or `empty`"
                    .into(),
            });
        }
        let javas = host
            .system
            .keys()
            .map(String::as_str)
            .filter(|path| path.starts_with("/etc/") && !ETC.contains(path));
        // Taken apart, `/opt` has room for what the policy mounts there.
        let opt = host.opt.as_ref().filter(|_| host.system.get(OPT) == Some(&HostEntry::Dir));
        if opt.is_some() {
            self.dir(Path::new(OPT), 0o755);
        }
        let whole = host.system.iter().filter(|(name, _)| opt.is_none() || *name != OPT);
        let entries: BTreeMap<&str, &HostEntry> =
            whole.chain(opt.into_iter().flatten()).map(|(name, entry)| (name.as_str(), entry)).collect();
        let in_opt = opt.into_iter().flatten().map(|(name, _)| name.as_str());
        for name in TOP.into_iter().chain(ETC).chain(javas).chain(in_opt) {
            let path = Path::new(name);
            match entries.get(name) {
                None => {}
                Some(HostEntry::Dir) => {
                    self.dir(path, 0o755);
                    // Programs run from /usr, /opt and their like; /etc holds none.
                    let exec = !name.starts_with("/etc/");
                    let (source, target) = (path.into(), path.into());
                    let (mode, optional, socket) = (MountMode::Ro, false, false);
                    let mount = merged::Mount { source, target, mode, exec, optional, socket };
                    self.bind(&mount, "root.kind".into())?;
                }
                Some(HostEntry::File) => {
                    self.parents(path);
                    self.skeleton.push(Node::Copy { path: path.into(), source: path.into() });
                }
                Some(HostEntry::Link(target)) if leads_to_usr(path, target) => self.link(path, target),
                // It leads to a place that is not shown.
                Some(HostEntry::Link(_)) => {}
            }
        }
        Ok(())
    }

    /// What `/etc` says of users and names, made for the sandbox instead of copied from the host.
    fn made_etc(&mut self, policy: &Policy) {
        let user = policy.identity.user;
        let hostname = &policy.identity.hostname;
        let mut passwd = String::from("root:x:0:0:root:/root:/bin/sh\n");
        let mut group = String::from("root:x:0:\ntty:x:5:\n");
        if !matches!(user.uid, 0 | 65534) {
            passwd += &format!("user:x:{}:{}:user:/home/user:/bin/sh\n", user.uid, user.gid);
        }
        if !matches!(user.gid, 0 | 5 | 65534) {
            group += &format!("user:x:{}:\n", user.gid);
        }
        passwd += "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
        group += "nogroup:x:65534:\n";
        let files = "passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\n\
                     protocols: files\nservices: files\nrpc: files\n";
        self.file("/etc/passwd", passwd);
        self.file("/etc/group", group);
        self.file("/etc/hosts", format!("127.0.0.1 localhost {hostname}\n::1 localhost {hostname}\n"));
        self.file("/etc/hostname", format!("{hostname}\n"));
        self.file("/etc/nsswitch.conf", files.into());
        self.file("/etc/resolv.conf", String::new());
    }

    /// `/proc`, `/dev` and `/run`. The runtime fills `/dev` with the spec's nodes and OCI's links.
    fn kernel(&mut self, policy: &Policy) -> Result<(), PolicyError> {
        let dev_size = size(DEV_SIZE);
        let shm_size = size(policy.limits.shm);
        let run_size = size(RUN_SIZE);
        // hidepid=2: processes of other ids inside, such as the reaper, are not shown.
        let proc = ["nosuid", "nodev", "noexec", "hidepid=2"];
        // No gid=5: an ordinary user's sandbox has no group 5 (EINVAL).
        let pts = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"];
        self.mount("/proc", "proc", "proc", &proc, "root")?;
        self.mount("/dev", "tmpfs", "tmpfs", &["nosuid", "noexec", "mode=755", &dev_size], "root")?;
        self.mount("/dev/pts", "devpts", "devpts", &pts, "root")?;
        let shm = ["nosuid", "nodev", "noexec", "mode=1777", &shm_size];
        self.mount("/dev/shm", "tmpfs", "shm", &shm, "limits.shm")?;
        let run = ["nosuid", "nodev", "noexec", "mode=755", &run_size];
        self.mount("/run", "tmpfs", "tmpfs", &run, "root")
    }

    /// What `[[mount]]` asks for; it hides what Airlock would have put there or below.
    fn policy_mounts(&mut self, policy: &Policy, host: &HostTree) -> Result<(), PolicyError> {
        let mut faults: Vec<Diagnostic> = Vec::new();
        let mut wanted = Vec::new();
        for mount in &policy.mount {
            let present = host.sources.get(&mount.source).copied().unwrap_or(true);
            let (clause, fault) = if !present && mount.optional {
                continue;
            } else if !present {
                let fault = Fault::new(format!("the host has no {}", mount.source.display()));
                (mount.source_clause(), fault.help(MISSING))
            } else if let Some(fault) = self.link_on_the_way(&mount.target) {
                (mount.clause(), fault)
            } else {
                wanted.push(mount);
                continue;
            };
            match policy.place(&clause) {
                Some(place) => faults.push(fault.at(place)),
                None => return Err(policy.fault(&clause, fault)),
            }
        }
        Policy::check(faults)?;
        let hidden = |path: &Path| wanted.iter().any(|mount| path.starts_with(&mount.target));
        self.mounts.retain(|mount| !hidden(mount.destination()));
        self.origins.retain(|path, _| !hidden(path));
        for mount in wanted {
            self.bind(mount, mount.clause())?;
        }
        Ok(())
    }

    fn link_on_the_way(&self, target: &Path) -> Option<Fault> {
        self.skeleton.iter().find_map(|node| match node {
            Node::Link { path, target: text } if target.starts_with(path) => {
                let message = format!("{} is a link to {} inside", path.display(), text.display());
                Some(Fault::new(message).help("name the target without the link"))
            }
            _ => None,
        })
    }

    /// An empty, private place to write, of the size `limits.tmp`.
    fn private(&mut self, path: &Path, policy: &Policy) -> Result<(), PolicyError> {
        let exec = if policy.root.tmp_exec { "exec" } else { "noexec" };
        let size = size(policy.limits.tmp);
        let options = ["rw", "nosuid", "nodev", exec, "mode=1777", &size];
        self.mount(path, "tmpfs", "tmpfs", &options, "limits.tmp")
    }

    fn bind(&mut self, mount: &merged::Mount, clause: String) -> Result<(), PolicyError> {
        let merged::Mount { source, target, mode, exec, socket, .. } = mount;
        // The r-variants reach the mounts below the source too.
        let mode = if *mode == MountMode::Ro { "rro" } else { "rrw" };
        let exec = if *exec { "rexec" } else { "rnoexec" };
        let mut options = vec!["rbind", "rprivate", mode, "rnosuid", "rnodev", exec];
        options.extend(socket.then_some("socket"));
        let mount = MountBuilder::default()
            .destination(target)
            .typ("bind")
            .source(source)
            .options(options.into_iter().map(String::from).collect::<Vec<_>>())
            .build()
            .map_err(oci("mount"))?;
        self.mounts.push(mount);
        self.origins.insert(target.clone(), clause);
        Ok(())
    }

    fn mount(
        &mut self,
        target: impl AsRef<Path>,
        kind: &str,
        source: &str,
        options: &[&str],
        clause: &str,
    ) -> Result<(), PolicyError> {
        let target = target.as_ref();
        if !target.starts_with("/dev") || target == Path::new("/dev") {
            self.dir(target, 0o755);
        }
        let mount = MountBuilder::default()
            .destination(target)
            .typ(kind)
            .source(source)
            .options(options.iter().map(ToString::to_string).collect::<Vec<_>>())
            .build()
            .map_err(oci("mount"))?;
        self.mounts.push(mount);
        self.origins.insert(target.to_owned(), clause.to_owned());
        Ok(())
    }

    fn dir(&mut self, path: &Path, mode: u32) {
        self.parents(path);
        if self.made.insert(path.to_owned()) {
            self.skeleton.push(Node::Dir { path: path.to_owned(), mode, user_owned: false });
        }
    }

    fn parents(&mut self, path: &Path) {
        if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("/")) {
            self.dir(parent, 0o755);
        }
    }

    fn link(&mut self, path: impl AsRef<Path>, target: impl AsRef<Path>) {
        let (path, target) = (path.as_ref(), target.as_ref());
        self.parents(path);
        self.skeleton.push(Node::Link { path: path.to_owned(), target: target.to_owned() });
    }

    fn file(&mut self, path: &str, content: String) {
        self.parents(Path::new(path));
        self.skeleton.push(Node::File { path: path.into(), mode: 0o644, content });
    }
}

fn size(size: Size) -> String {
    format!("size={}", size.0)
}

/// Whether a link's text, read from where it stands, leads below `/usr` or `/opt`.
fn leads_to_usr(link: &Path, text: &Path) -> bool {
    let mut path = link.parent().unwrap_or(Path::new("/")).to_owned();
    for part in text.components() {
        match part {
            Component::RootDir => path = PathBuf::from("/"),
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    path.starts_with("/usr") || path.starts_with("/opt")
}
