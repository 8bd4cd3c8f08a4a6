//! What of the file system is there, and what may be done to it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use airlock_tests::{Caller, Outcome, Site};

use crate::STRIPPED;

fn mount(source: &Path, more: &str) -> String {
    format!("\n[[mount]]\nsource = \"{}\"\ntarget = \"/data\"\n{more}\n", source.display())
}

#[test]
fn a_read_only_mount_is_not_written() {
    let site = Site::new();
    let data = site.folder("data");
    let action = ["write", "/data/x", "hello"];
    site.inside(&mount(&data, ""), action).refused(&["EROFS", "EACCES"]);
    site.inside(&format!("{STRIPPED}{}", mount(&data, "")), action).refused(&["EROFS"]);
    assert!(!data.join("x").exists());
    site.inside(&mount(&data, "mode = \"rw\""), action).done();
    assert_eq!(fs::read_to_string(data.join("x")).unwrap(), "hello");
}

/// What is written through a read-write mount belongs to the owner of the directory on the host.
#[test]
fn written_files_keep_the_host_owner() {
    use std::os::unix::fs::MetadataExt;
    let site = Site::new();
    let data = site.folder("data");
    site.inside(&mount(&data, "mode = \"rw\""), ["write", "/data/x", "hello"]).done();
    assert_eq!(fs::metadata(data.join("x")).unwrap().uid(), fs::metadata(&data).unwrap().uid());
}

#[test]
fn an_unmounted_path_is_not_there() {
    let site = Site::new();
    let data = site.folder("data");
    let secret = site.file("data/secret", "hidden");
    let there = ["read", secret.to_str().unwrap()];
    site.inside("", there).refused(&["ENOENT"]);
    site.inside(STRIPPED, there).refused(&["ENOENT"]);
    assert_eq!(site.outside(there).done(), "hidden");
    assert_eq!(site.inside(&mount(&data, ""), ["read", "/data/secret"]).done(), "hidden");
}

#[test]
fn the_hosts_private_files_are_not_there() {
    let site = Site::new();
    for path in ["/etc/shadow", "/root", "/var/log", "/boot/grub"] {
        if Path::new(path).is_dir() {
            let found = site.inside("", ["list", path]);
            assert!(matches!(found, Outcome::Refused(_)) || found == Outcome::Done(String::new()), "{path}");
        } else {
            site.inside("", ["read", path]).refused(&["ENOENT", "EACCES"]);
        }
    }
    // The sandbox's own, in memory.
    assert_eq!(site.inside("", ["list", "/home"]).done(), "user");
    assert_eq!(site.inside("", ["list", "/home/user"]).done(), "");
}

#[test]
fn a_mount_is_not_run_from() {
    let site = Site::new();
    let program = ["run", "/data/probe", "cwd"];
    site.inside(&mount(&site.path("probe"), ""), program).refused(&["EACCES"]);
    site.inside(&format!("{STRIPPED}{}", mount(&site.path("probe"), "")), program).refused(&["EACCES"]);
    site.inside(&mount(&site.path("probe"), "exec = true"), program).done();
}

#[test]
fn tmp_is_not_run_from() {
    let site = Site::new();
    let script = "cp /probe/probe /tmp/probe && exec /probe/probe run /tmp/probe cwd";
    let attempt = |clauses: &str| {
        let run = site.run().policy(site.policy(clauses));
        Outcome::of(&run.end(["/bin/sh", "-c", script]))
    };
    attempt("[root]\ntmp_exec = false\n").refused(&["EACCES"]);
    attempt("[root]\ntmp_exec = true\n").done();
}

#[test]
fn the_hosts_programs_are_not_written() {
    let site = Site::new();
    let action = ["open", "/usr/bin/env", "w"];
    site.inside("", action).refused(&["EROFS", "EACCES"]);
    // Inside, root's file would refuse user 1000 as well; the mount alone says EROFS.
    let flags = site.inside("", ["read", "/proc/self/mountinfo"]).done();
    let usr = flags.lines().find(|line| line.split(' ').nth(4) == Some("/usr"));
    assert!(usr.is_some_and(|line| line.split(' ').nth(5).unwrap().starts_with("ro,")), "{flags}");
}

/// A link in a shared directory leads to what its text names inside, never to the host's file.
#[test]
fn a_link_does_not_lead_out() {
    let site = Site::new();
    let data = site.folder("data");
    let secret = site.file("secret", "hidden");
    symlink(&secret, data.join("link")).unwrap();
    symlink("../../../../../../../../etc/shadow", data.join("climb")).unwrap();
    site.inside(&mount(&data, ""), ["read", "/data/link"]).refused(&["ENOENT"]);
    site.inside(&mount(&data, ""), ["read", "/data/climb"]).refused(&["ENOENT", "EACCES"]);
}

#[test]
fn a_hosts_socket_is_not_reached() {
    let site = Site::new();
    let socket = site.path("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    let action = ["connect-unix", socket.to_str().unwrap()];
    site.outside(action).done();
    site.inside("", action).refused(&["ENOENT"]);
    site.inside(STRIPPED, action).refused(&["ENOENT"]);
}

#[test]
fn run_is_private() {
    let site = Site::new();
    let inside = site.inside("", ["list", "/run"]).done();
    let host: Vec<String> = fs::read_dir("/run")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !["lock", "user", "shm"].contains(&name.as_str()))
        .collect();
    assert!(!inside.split(' ').any(|name| host.iter().any(|of_host| of_host == name)), "{inside}");
}

#[test]
fn the_root_takes_writes_where_the_policy_says() {
    let site = Site::new();
    // Root's tree belongs to root, as an unpacked image does.
    let folder = |name: &str| match site.caller() {
        Caller::Root => {
            fs::create_dir(site.path(name)).unwrap();
            site.path(name)
        }
        _ => site.folder(name),
    };
    let tree = folder("tree");
    for name in ["probe", "proc", "dev", "tmp", "run", "sys", "etc", "open"] {
        folder(&format!("tree/{name}"));
    }
    fs::set_permissions(tree.join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let kept = site.folder("kept");
    let root = |writable: &str| {
        let tree = tree.display();
        let clauses = format!("[root]\nkind = \"dir\"\npath = \"{tree}\"\nwritable = \"{writable}\"\n");
        site.inside(&clauses, ["write", "/open/x", "hello"])
    };
    root("none").refused(&["EROFS", "EACCES"]);
    root("tmpfs").done();
    assert!(!tree.join("open/x").exists());
    root(kept.to_str().unwrap()).done();
    assert!(!tree.join("open/x").exists());
    assert!(fs::read_dir(&kept).unwrap().next().is_some(), "the writes are kept");
}

#[test]
fn an_empty_root_has_only_what_is_mounted() {
    let site = Site::new();
    let listed = site.inside("[root]\nkind = \"empty\"\n", ["list", "/"]).done();
    let expected = ["probe", "proc", "dev", "tmp", "run", "etc", "home", "workspace", "sys", "var"];
    assert!(listed.split(' ').all(|name| expected.contains(&name)), "{listed}");
    assert!(!listed.split(' ').any(|name| name == "usr"), "{listed}");
    site.inside("", ["list", "/usr"]).done();
}

/// Masked files say nothing, even to a reader whom their mode would let in.
#[test]
fn proc_is_masked() {
    let site = Site::new();
    for path in ["/proc/kcore", "/proc/timer_list", "/proc/keys", "/proc/sched_debug", "/proc/acpi/wakeup"] {
        match site.inside("", ["read", path]) {
            Outcome::Refused(_) => {}
            Outcome::Done(text) => assert_eq!(text, "", "{path}"),
            other => panic!("{path}: {other:?}"),
        }
    }
}

#[test]
fn proc_takes_no_writes() {
    let site = Site::new();
    for path in ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches"] {
        let action = ["open", path, "w"];
        site.inside("", action).refused(&["EROFS", "EACCES", "EPERM", "ENOENT"]);
        if site.caller().is_root() && Path::new(path).exists() {
            site.outside(action).done();
        }
    }
}

/// The reaper shares the sandbox with the payload, and tells it nothing.
#[test]
fn the_first_process_is_closed() {
    let site = Site::new();
    for path in ["/proc/1/environ", "/proc/1/maps", "/proc/1/fd", "/proc/1/root", "/proc/1/mem"] {
        site.inside("", ["open", path, "r"]).refused(&["EACCES", "EPERM", "ENOENT"]);
    }
    site.inside("", ["open", "/proc/self/environ", "r"]).done();
}

/// Root of a namespace made inside may mount, but what Airlock mounted stays as it is.
#[test]
fn mounts_are_locked_for_namespaces_inside() {
    let site = Site::new();
    let data = site.folder("data");
    let clauses = |mode: &str| {
        let mount = mount(&data, &format!("mode = \"{mode}\""));
        format!("nesting = true\n{STRIPPED}{mount}")
    };
    site.inside(&clauses("ro"), ["nested", "mount-tmpfs", "/tmp"]).done();
    site.inside(&clauses("ro"), ["nested", "set-writable", "/data"]).refused(&["EPERM"]);
    site.inside(&clauses("rw"), ["nested", "set-writable", "/data"]).done();
    site.inside(&clauses("ro"), ["nested", "unmount", "/usr"]).refused(&["EINVAL"]);
}

/// In the sandbox's own namespaces a kept CAP_SYS_ADMIN could undo the mounts, so it is not kept.
#[test]
fn the_capability_that_undoes_mounts_is_not_kept() {
    let site = Site::new();
    let keep = |name: &str| {
        let policy = site.policy(&format!("[capabilities]\nkeep = [\"{name}\"]\n"));
        site.run().policy(policy).end(["true"])
    };
    keep("CAP_SYS_ADMIN").refused(&["CAP_SYS_ADMIN", "narrower"]);
    keep("CAP_NET_BIND_SERVICE").succeeded();
}
