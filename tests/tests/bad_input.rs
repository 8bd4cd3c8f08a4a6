//! Bad input gets an error that says what, where and what to do, and leaves nothing behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use airlock_tests::{Ended, Site, skip};

/// Runs `true` under `base` and these clauses.
fn under(site: &Site, clauses: &str) -> Ended {
    site.run().policy(site.policy(clauses)).end(["true"])
}

fn mount(source: &str, target: &str) -> String {
    format!("[[mount]]\nsource = {source:?}\ntarget = {target:?}\n")
}

#[test]
fn a_missing_source() {
    let site = Site::new();
    let source = site.path("missing");
    under(&site, &mount(source.to_str().unwrap(), "/data"))
        .refused(&["the host has no", source.to_str().unwrap()]);
    site.run()
        .policy(site.policy(""))
        .flag("--mount", format!("{}:/data", source.display()))
        .end(["true"])
        .refused(&["the host has no", source.to_str().unwrap()]);
}

#[test]
fn a_missing_workspace() {
    let site = Site::new();
    let workspace = site.path("missing");
    site.run()
        .policy(site.policy(""))
        .workspace(&workspace)
        .end(["true"])
        .refused(&[workspace.to_str().unwrap()]);
}

#[test]
fn a_workspace_that_is_a_file() {
    let site = Site::new();
    let workspace = site.file("file", "");
    let run = site.run().policy(site.policy("")).workspace(&workspace);
    run.end(["true"]).refused(&["--workspace", workspace.to_str().unwrap(), "not a directory", "--mount"]);
}

#[test]
fn a_control_group_that_is_no_path() {
    let site = Site::new();
    for group in ["x", "/", "/a/../b"] {
        let words = ["run", "--cgroup-parent", group, "--", "true"];
        site.airlock_with(words).refused(&[&format!("--cgroup-parent {group}\n"), "cgroup path"]);
    }
}

/// Init is a process too.
#[test]
fn no_room_for_the_command() {
    let site = Site::new();
    under(&site, "[limits]\npids = 1\n").refused(&["1 process leaves no room", "at least 2"]);
    let run = site.run().policy(site.policy("")).flag("--pids", "1");
    run.end(["true"]).refused(&["1 process leaves no room", "at least 2"]);
    under(&site, "[limits]\npids = 2\n").succeeded();
}

#[test]
fn a_relative_target() {
    let site = Site::new();
    let data = site.folder("data");
    under(&site, &mount(data.to_str().unwrap(), "data")).refused(&["`data`", "absolute"]);
}

#[test]
fn a_target_with_dots() {
    let site = Site::new();
    let data = site.folder("data");
    under(&site, &mount(data.to_str().unwrap(), "/data/../etc")).refused(&["/data/../etc"]);
}

/// CVE-2019-16884, CVE-2023-27561: a mount over /proc switched protections off.
#[test]
fn a_target_under_proc() {
    let site = Site::new();
    let data = site.folder("data");
    for (target, tree) in
        [("/proc", "/proc"), ("/proc/sys/kernel", "/proc"), ("/sys", "/sys"), ("/dev", "/dev")]
    {
        under(&site, &mount(data.to_str().unwrap(), target)).refused(&[tree]);
    }
}

#[test]
fn a_target_over_the_root() {
    let site = Site::new();
    let data = site.folder("data");
    under(&site, &mount(data.to_str().unwrap(), "/")).refused(&["`/`"]);
}

#[test]
fn a_symlinked_target() {
    let site = Site::new();
    let tree = site.folder("tree");
    for name in ["probe", "proc", "dev", "tmp", "run", "sys", "etc", "real"] {
        site.folder(&format!("tree/{name}"));
    }
    let outside = site.folder("outside");
    symlink(&outside, tree.join("link")).unwrap();
    let data = site.folder("data");
    let clauses = format!(
        "[root]\nkind = \"dir\"\npath = {tree:?}\nwritable = \"none\"\n{}",
        mount(data.to_str().unwrap(), "/link/data")
    );
    site.run()
        .policy(site.policy(&clauses))
        .end(["/probe/probe", "cwd"])
        .refused(&["/link", "symbolic link"]);
    assert!(fs::read_dir(outside).unwrap().next().is_none(), "something was made outside");
}

/// CVE-2019-19921: /proc of the tree is a link.
#[test]
fn a_tree_whose_proc_is_a_link() {
    let site = Site::new();
    let tree = site.folder("tree");
    for name in ["probe", "dev", "tmp", "run", "sys", "etc", "elsewhere"] {
        site.folder(&format!("tree/{name}"));
    }
    symlink("/elsewhere", tree.join("proc")).unwrap();
    let clauses = format!("[root]\nkind = \"dir\"\npath = {tree:?}\nwritable = \"none\"\n");
    site.run().policy(site.policy(&clauses)).end(["/probe/probe", "cwd"]).refused(&["/proc"]);
}

#[test]
fn a_directory_over_a_file() {
    let site = Site::new();
    let data = site.folder("data");
    for (target, why) in [
        ("/etc/passwd", "a directory can only be mounted over a directory"),
        ("/bin", "is a link to usr/bin"),
    ] {
        under(&site, &mount(data.to_str().unwrap(), target)).refused(&[target, why]);
    }
    let file = site.file("passwd", "mine:x:1000:1000::/home/user:/bin/sh\n");
    let ended = site
        .run()
        .policy(site.policy(&mount(file.to_str().unwrap(), "/etc/passwd")))
        .end(["cat", "/etc/passwd"]);
    assert!(ended.stdout.starts_with("mine:"), "{ended}");
}

#[test]
fn a_mount_below_a_file() {
    let site = Site::new();
    let data = site.folder("data");
    under(&site, &mount(data.to_str().unwrap(), "/etc/passwd/data"))
        .refused(&["/etc/passwd/data", "nothing below a file"]);
}

#[test]
fn two_mounts_on_one_target() {
    let site = Site::new();
    let (one, two) = (site.folder("one"), site.folder("two"));
    let clauses = mount(one.to_str().unwrap(), "/data") + &mount(two.to_str().unwrap(), "/data");
    under(&site, &clauses).refused(&["/data"]);
}

#[test]
fn a_newline_in_a_name() {
    let site = Site::new();
    let data = site.folder("data");
    // Shown escaped: a raw line break could forge a line of the error.
    let ended = under(&site, &mount(data.to_str().unwrap(), "/da\nta")).refused(&["\\n"]);
    assert!(!ended.stderr.contains("/da\nta"), "{ended}");
}

#[test]
fn a_nul_in_a_name() {
    let site = Site::new();
    let data = site.folder("data");
    let clauses = format!("[[mount]]\nsource = {data:?}\ntarget = \"/da\\u0000ta\"\n");
    under(&site, &clauses).refused(&["NUL"]);
}

#[test]
fn an_escape_in_a_name_is_not_sent_to_the_terminal() {
    let site = Site::new();
    let clauses = "[[mount]]\nsource = \"/no\\u001b[31m/such\"\ntarget = \"/data\"\n";
    let ended = under(&site, clauses).refused(&["such"]);
    assert!(!ended.stderr.contains('\u{1b}'), "{ended}");
}

#[test]
fn a_missing_root() {
    let site = Site::new();
    let clauses = "[root]\nkind = \"dir\"\npath = \"/no/such/tree\"\n";
    under(&site, clauses).refused(&["/no/such/tree", "No such file"]);
}

#[test]
fn a_root_that_is_a_file() {
    let site = Site::new();
    let file = site.file("tree", "");
    under(&site, &format!("[root]\nkind = \"dir\"\npath = {file:?}\n")).refused(&[file.to_str().unwrap()]);
}

#[test]
fn an_unreadable_root() {
    let site = Site::user();
    if !airlock_tests::is_root() {
        skip!("needs root to make a directory that the user cannot enter");
    }
    let tree = site.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o700)).unwrap();
    let clauses = format!("[root]\nkind = \"dir\"\npath = {tree:?}\n");
    under(&site, &clauses).refused(&[tree.to_str().unwrap(), "Permission denied"]);
}

/// Many mounts are slow at worst; an absurd number is refused in words, not by a crash.
#[test]
fn ten_thousand_mounts() {
    let site = Site::new();
    let data = site.folder("data");
    let clauses: String =
        (0..10_000).map(|number| mount(data.to_str().unwrap(), &format!("/data/{number}"))).collect();
    under(&site, &clauses).refused(&["mounts"]);
    let clauses: String =
        (0..50).map(|number| mount(data.to_str().unwrap(), &format!("/data/{number}"))).collect();
    under(&site, &clauses).succeeded();
}

#[test]
fn an_argument_that_is_too_long() {
    let site = Site::new();
    // The kernel takes 128 KiB; the caller's own exec of airlock would fail first, so the policy carries it.
    let policy = site.policy(&format!("[env]\nset = {{ LONG = \"{}\" }}\n", "x".repeat(200_000)));
    site.run().policy(policy).end(["true"]).refused(&["LONG", "long"]);
}

#[test]
fn a_command_that_is_not_there() {
    let site = Site::new();
    let ended = site.run().policy(site.policy("")).end(["/no/such/program"]);
    assert_eq!(ended.code, 127, "{ended}");
    assert!(ended.stderr.contains("/no/such/program"), "{ended}");
    let ended = site.run().policy(site.policy("")).end(["no-such-program"]);
    assert_eq!(ended.code, 127, "{ended}");
}

#[test]
fn a_command_that_cannot_be_run() {
    let site = Site::new();
    let ended = site.run().policy(site.policy("")).end(["/etc/passwd"]);
    assert_eq!(ended.code, 126, "{ended}");
    assert!(ended.stderr.contains("/etc/passwd"), "{ended}");
}

#[test]
fn no_command_at_all() {
    let site = Site::new();
    let ended = site.airlock_with(["run", "--policy", "base"]);
    assert_eq!(ended.code, 125, "{ended}");
}

/// An unknown key is named with its place and its likely spelling.
#[test]
fn an_unknown_key() {
    let site = Site::new();
    let policy = site.file("typo.toml", "version = 1\n[limits]\nmemroy = \"1GiB\"\n");
    site.run().policy(policy).end(["true"]).refused(&["typo.toml:3:1", "`memroy`", "`memory`"]);
}

#[test]
fn a_bad_unit() {
    let site = Site::new();
    for (clause, piece) in [
        ("memory = \"1 gallon\"", "gallon"),
        ("memory = 100", "unit"),
        ("wall = \"10\"", "unit"),
        ("cpus = -1", "-1"),
        ("pids = 0", "0"),
    ] {
        under(&site, &format!("[limits]\n{clause}\n")).refused(&[piece]);
    }
    let negative =
        [("--memory", "-1GiB"), ("--cpus", "-1"), ("--pids", "-1"), ("--wall", "-1s"), ("--gpus", "-1")];
    for (flag, value) in negative {
        site.run().flag(flag, value).end(["true"]).refused(&[value, flag]);
    }
}

#[test]
fn an_unknown_policy() {
    let site = Site::new();
    let run = |name: &str| site.run().policy(name).end(["true"]);
    run("reserch").refused(&["reserch", "research"]);
    run("./missing.toml").refused(&["missing.toml", "No such file"]);
}

#[test]
fn a_policy_that_extends_itself() {
    let site = Site::new();
    let one = site.file("one.toml", "version = 1\nextends = \"./two.toml\"\n");
    site.file("two.toml", "version = 1\nextends = \"./one.toml\"\n");
    site.run().policy(one).end(["true"]).refused(&["one.toml", "two.toml"]);
}

#[test]
fn a_policy_that_is_no_toml() {
    let site = Site::new();
    let policy = site.file("broken.toml", "version = 1\n[limits\n");
    site.run().policy(policy).end(["true"]).refused(&["broken.toml:"]);
}

/// The image root is a reserved word: it is refused by name.
#[test]
fn an_image() {
    under(&Site::new(), "[root]\nkind = \"image\"\n").refused(&["image"]);
}

#[test]
fn a_report_that_cannot_be_written() {
    let site = Site::new();
    let report = site.path("missing/report.json");
    site.run_reporting_to(&report).policy(site.policy("")).end(["true"]).refused(&["missing/report.json"]);
}
