//! What an earlier payload left in a directory that it might write does not lead a later run astray.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use airlock_tests::{Caller, Ended, Site, skip};

fn mount(source: &Path, target: &str, mode: &str) -> String {
    format!("[[mount]]\nsource = {source:?}\ntarget = {target:?}\nmode = {mode:?}\n")
}

/// Runs `true` under `base` and these clauses.
fn under(site: &Site, clauses: &str) -> Ended {
    site.run().policy(site.policy(clauses)).end(["true"])
}

/// A workspace whose files, and so its payload's links, belong to the caller; root's lies where only root comes.
fn own_workspace(site: &Site) -> PathBuf {
    if site.caller() == Caller::Root {
        fs::create_dir_all(site.path("private/workspace")).unwrap();
        fs::set_permissions(site.path("private"), fs::Permissions::from_mode(0o700)).unwrap();
        return site.path("private/workspace");
    }
    site.folder("workspace")
}

/// A payload makes a link in the workspace.
fn plant(site: &Site, workspace: &Path, target: &Path, name: &str) -> PathBuf {
    let name = format!("/workspace/{name}");
    let words = ["ln", "-s", target.to_str().unwrap(), &name];
    site.run().policy(site.policy("")).workspace(workspace).end(words).succeeded();
    workspace.join(name.trim_start_matches("/workspace/"))
}

#[test]
fn a_planted_link_is_no_source() {
    let site = Site::new();
    let workspace = own_workspace(&site);
    let secret = site.folder("secret");
    let link = plant(&site, &workspace, &secret, "data");
    let words = ["leads through the link", link.to_str().unwrap(), "name the real path"];
    for mode in ["ro", "rw"] {
        under(&site, &mount(&link, "/data", mode)).refused(&words);
        under(&site, &mount(&secret, "/data", mode)).succeeded();
    }
    let optional = mount(&link, "/data", "ro") + "optional = true\n";
    under(&site, &optional).refused(&words);
    site.run().policy(site.policy("")).workspace(&link).end(["true"]).refused(&words);
}

#[test]
fn a_planted_link_is_no_root_and_keeps_no_writes() {
    let site = Site::new();
    let workspace = own_workspace(&site);
    let tree = site.folder("tree");
    for name in ["probe", "proc", "dev", "tmp", "run", "sys", "etc"] {
        site.folder(&format!("tree/{name}"));
    }
    let kept = site.folder("kept");
    let link = plant(&site, &workspace, &tree, "tree");
    let kept_link = plant(&site, &workspace, &kept, "kept");
    let root = |tree: &Path| {
        let clauses = format!("[root]\nkind = \"dir\"\npath = {tree:?}\nwritable = \"none\"\n");
        site.run().policy(site.policy(&clauses)).end(["/probe/probe", "cwd"])
    };
    root(&link).refused(&["leads through the link", link.to_str().unwrap()]);
    root(&tree).succeeded();
    let writable = |kept: &Path| under(&site, &format!("[root]\nwritable = {kept:?}\n"));
    writable(&kept_link).refused(&["leads through the link", kept_link.to_str().unwrap()]);
    writable(&kept).succeeded();
}

#[test]
fn a_planted_link_gets_no_report() {
    let site = Site::new();
    let workspace = own_workspace(&site);
    let elsewhere = site.folder("elsewhere");
    let link = plant(&site, &workspace, &elsewhere, "out");
    let run = |report: &Path| site.run_reporting_to(report).policy(site.policy("")).end(["true"]);
    run(&link.join("report.json")).refused(&["leads through the link", link.to_str().unwrap()]);
    assert!(fs::read_dir(&elsewhere).unwrap().next().is_none(), "the link was followed");
    run(&workspace.join("report.json")).succeeded();
    assert!(workspace.join("report.json").exists());
}

/// A workspace of root's is mapped to the payload, who could open it to others again.
#[test]
fn roots_workspace_lies_where_only_root_comes() {
    let Some(site) = Site::root() else {
        skip!("only root's files are mapped");
    };
    let run = |workspace: &Path| {
        let policy = site.policy("[seccomp]\nprofile = \"none\"\n");
        site.run().policy(policy).workspace(workspace).end(["chmod", "0755", "/workspace"])
    };
    let workspace = site.path("own");
    fs::create_dir(&workspace).unwrap();
    fs::set_permissions(&workspace, fs::Permissions::from_mode(0o700)).unwrap();
    run(&workspace).refused(&[workspace.to_str().unwrap(), "below a directory that only root can enter"]);
    let inner = own_workspace(&site);
    run(&inner).succeeded();
    let kept = |kept: &Path| under(&site, &format!("[root]\nwritable = {kept:?}\n"));
    kept(&workspace).refused(&[workspace.to_str().unwrap(), "below a directory that only root can enter"]);
    kept(&inner).succeeded();
}

/// Does something in a mount namespace of its own, with a file system of `kind` at `place`.
fn with_mounted(kind: &str, place: &Path, action: impl FnOnce() + Send) {
    use nix::mount::MsFlags;
    let none: Option<&str> = None;
    let alone = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        nix::mount::mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        nix::mount::mount(Some("none"), place, Some(kind), MsFlags::empty(), none).unwrap();
        action();
    };
    // Only this thread moves; what it starts comes along.
    std::thread::scope(|scope| scope.spawn(alone).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// A bind mount carries what is mounted below its source: the host's processes, in a directory that was a chroot.
#[test]
fn no_file_system_of_the_hosts_kernel_comes_with_a_mount() {
    let site = Site::new();
    if !airlock_tests::is_root() {
        skip!("needs root to mount something on the host");
    }
    let (data, part) = (site.folder("data"), site.folder("data/part"));
    let place = site.folder("data/place");
    let run = |source: &Path| under(&site, &mount(source, "/data", "ro"));
    with_mounted("proc", &place, || {
        let remedy = "mount a part of the source without it";
        run(&data).refused(&["/data/place is a proc of the host", remedy]);
        run(&place).refused(&["/data is a proc of the host", remedy]);
        run(&part).succeeded();
    });
    with_mounted("tmpfs", &place, || {
        run(&data).succeeded();
        run(&place).succeeded();
        let lines = site.run().policy(site.policy(&mount(&data, "/data", "ro")));
        let lines = lines.end(["grep", " /data/place ", "/proc/self/mountinfo"]).succeeded();
        assert!(lines.stdout.contains(" ro,nosuid,nodev,noexec"), "{lines}");
    });
    run(&data).succeeded();
}

/// A second payload removes the mount point, and with it what the policy had mounted over it.
#[test]
fn no_mount_lies_where_another_payload_can_remove_its_mount_point() {
    let site = Site::new();
    let (shared, cover) = (site.folder("shared"), site.folder("cover"));
    site.folder("shared/point");
    let clauses = |mode: &str| mount(&shared, "/data", mode) + &mount(&cover, "/data/point", "ro");
    // The owner of the outer directory can write there, whatever the mode of this mount.
    for mode in ["rw", "ro"] {
        under(&site, &clauses(mode)).refused(&[
            "/data/point",
            "lies inside /data, which others than root can write to",
            "mount it elsewhere",
        ]);
    }
    let beside = mount(&shared, "/data", "rw") + &mount(&cover, "/cover", "ro");
    under(&site, &beside).succeeded();
}

/// Ids beyond the range are mapped to nothing: writes to the root would fail with a bare EACCES.
#[test]
fn a_root_of_unmapped_ids_takes_no_writes() {
    let Some(site) = Site::root() else {
        skip!("an ordinary user's root is not mapped");
    };
    let tree = site.folder("tree");
    for name in ["probe", "proc", "dev", "tmp", "run", "sys", "etc"] {
        site.folder(&format!("tree/{name}"));
    }
    let root = |writable: &str| {
        let clauses = format!("[root]\nkind = \"dir\"\npath = {tree:?}\nwritable = {writable:?}\n");
        site.run().policy(site.policy(&clauses)).end(["/probe/probe", "cwd"])
    };
    root("none").succeeded();
    let kept = site.folder("kept");
    for writable in ["tmpfs", kept.to_str().unwrap()] {
        root(writable).refused(&[tree.to_str().unwrap(), "`chown` it to ids of 0..65535"]);
    }
    std::os::unix::fs::chown(&tree, Some(0), Some(0)).unwrap();
    root("tmpfs").succeeded();
}

/// A link that an earlier sandbox left where the overlay's directory is expected leads nowhere.
#[test]
fn a_link_in_a_kept_directory_is_not_followed() {
    let site = Site::new();
    let (kept, secret) = (site.folder("kept"), site.folder("secret"));
    fs::write(secret.join("key"), "secret").unwrap();
    let policy = site.policy(&format!("[root]\nwritable = {kept:?}\n"));
    site.run().policy(&policy).end(["true"]).succeeded();
    let upper = kept.join("usr.upper");
    let moved = kept.join("moved");
    fs::rename(&upper, &moved).unwrap();
    std::os::unix::fs::symlink(&secret, &upper).unwrap();
    site.run().policy(&policy).end(["/bin/cat", "/usr/key"]).refused(&["usr.upper"]);
    fs::remove_file(&upper).unwrap();
    fs::rename(&moved, &upper).unwrap();
    site.run().policy(&policy).end(["true"]).succeeded();
}
