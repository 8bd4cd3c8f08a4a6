//! The launches that faults are tried in: together their plans have every kind of step.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use airlock_tests::Site;

/// A launch to be, with what its host has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    /// In the words of the table.
    pub(crate) name: &'static str,
    /// What it works in; none where these tests cannot have it.
    pub(crate) site: fn() -> Option<Site>,
    /// Clauses on top of `base`, and what they need.
    pub(crate) clauses: fn(&Site) -> String,
    /// A shell script by which root changes the mount namespace first.
    pub(crate) script: Option<fn(&Site) -> String>,
    /// The caller's standard input is a terminal.
    pub(crate) terminal: bool,
    /// The steps that it is there for, by side and action; none: for all of its plan.
    pub(crate) steps: &'static [(&'static str, &'static str)],
    /// Where the monitor performs them: from its first call of this number until it has sent so many messages.
    pub(crate) window: Option<(i64, usize)>,
}

/// A policy whose plan has nearly every kind of step.
pub(crate) const WIDE: Scene = Scene {
    name: "wide",
    site: current,
    clauses: |site| {
        let folder = site.folder("data");
        format!(
            "[network]\nmode = \"loopback\"\n\n[[mount]]\nsource = {folder:?}\ntarget = \"/data\"\nmode = \"rw\"\n"
        )
    },
    script: None,
    terminal: false,
    steps: &[],
    window: None,
};

/// Those that the wide one has not, or that are done otherwise for another caller.
pub(crate) const OTHERS: [Scene; 8] = [
    Scene {
        name: "kept writes",
        clauses: |site| format!("[root]\nwritable = {:?}\n", site.folder("kept")),
        steps: &[("child", "new-overlay")],
        ..WIDE
    },
    Scene {
        name: "writable root",
        clauses: |_| "[root]\nwritable = \"tmpfs\"\n".into(),
        steps: &[("child", "new-overlay")],
        ..WIDE
    },
    Scene {
        name: "directory as root",
        clauses: tree,
        steps: &[("child", "new-overlay"), ("child", "attach-root"), ("child", "pivot")],
        ..WIDE
    },
    Scene {
        name: "empty root",
        clauses: |_| "[root]\nkind = \"empty\"\n".into(),
        steps: &[("child", "make"), ("child", "seal"), ("child", "pivot")],
        ..WIDE
    },
    Scene {
        name: "terminal",
        clauses: |_| String::new(),
        terminal: true,
        steps: &[("child", "open-terminal")],
        ..WIDE
    },
    Scene {
        name: "covered proc",
        site: Site::root,
        clauses: |_| String::new(),
        script: Some(|_| "mount --bind /dev/null /proc/version".into()),
        steps: &[("host", "new-proc")],
        window: Some((libc::SYS_setns, 1)),
        ..WIDE
    },
    Scene {
        name: "subordinate ids",
        site: with_newuidmap,
        clauses: |_| "[identity]\nids = \"subids\"\n".into(),
        script: Some(subordinate_ids),
        steps: &[("host", "write-id-maps")],
        window: Some((libc::SYS_clone3, 1)),
        ..WIDE
    },
    Scene {
        name: "delegated cgroup",
        site: Site::delegated,
        clauses: |_| String::new(),
        steps: &[
            ("host", "create-cgroup"),
            ("host", "clone-init"),
            ("host", "limit-cgroup"),
            ("host", "hand-over"),
            ("child", "receive"),
            ("child", "clone-device"),
        ],
        window: Some((libc::SYS_mkdirat, 2)),
        ..WIDE
    },
];

fn current() -> Option<Site> {
    Some(Site::new())
}

/// A tree with the places that a sandbox's mounts need. Root's belongs to root, as an unpacked image does.
fn tree(site: &Site) -> String {
    let tree = site.path("tree");
    let places = ["", "probe", "proc", "dev", "tmp", "run", "sys", "etc"];
    for place in places.map(|name| tree.join(name)) {
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        site.caller().own(&place);
    }
    format!("[root]\nkind = \"dir\"\npath = {tree:?}\nwritable = \"tmpfs\"\n")
}

/// An ordinary user, where root can give one subordinate ids and newuidmap is there to map them.
fn with_newuidmap() -> Option<Site> {
    let there = airlock_tests::is_root() && std::process::Command::new("newuidmap").output().is_ok();
    there.then(Site::user)
}

/// The user is known to the files that newuidmap reads; the machine's stay as they are.
fn subordinate_ids(site: &Site) -> String {
    let uid = site.caller().uid();
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let user = format!("airlock-user:x:{uid}:{uid}::/nonexistent:/usr/sbin/nologin\n");
    let passwd = site.file("passwd", passwd + &user);
    let ranges = site.file("subids", format!("airlock-user:{}:65536\n", 0x5000_0000));
    for file in [&passwd, &ranges] {
        std::os::unix::fs::chown(file, Some(0), Some(0)).unwrap();
    }
    let (passwd, ranges) = (passwd.display(), ranges.display());
    format!(
        "mount --bind {passwd} /etc/passwd; mount --bind {ranges} /etc/subuid; mount --bind {ranges} /etc/subgid"
    )
}
