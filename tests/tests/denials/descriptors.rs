//! Descriptors, standard streams and the working directory.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use airlock_tests::{Outcome, Site};

#[test]
fn descriptors_of_the_caller_are_closed() {
    let site = Site::new();
    let folder = site.folder("data");
    site.file("data/secret", "hidden");
    let open = || OwnedFd::from(File::open(&folder).unwrap());
    let run = || site.run().policy(site.policy("")).descriptor(open(), 9);
    let seen = run().probe(["descriptors"]).done();
    let numbers: Vec<&str> = seen.split(' ').filter_map(|item| item.split('=').next()).collect();
    assert_eq!(numbers, ["0", "1", "2"], "{seen}");
    run().probe(["read", "/proc/self/fd/9/secret"]).refused(&["ENOENT"]);
    // The caller's own shell has it.
    let direct = std::process::Command::new("/bin/sh")
        .arg("-c")
        .arg("exec 9<\"$0\"; cat /proc/self/fd/9/secret")
        .arg(&folder)
        .output()
        .unwrap();
    assert_eq!(direct.stdout, b"hidden");
}

/// CVE-2024-21626: a working directory or descriptor of the host was a way back to it.
#[test]
fn the_callers_working_directory_stays_outside() {
    let site = Site::new();
    let folder = site.folder("data");
    site.file("data/secret", "hidden");
    let run = || site.run().policy(site.policy("")).from(&folder);
    let inside = run().probe(["cwd"]).done();
    assert!(inside.starts_with('/') && !inside.starts_with("/tmp/airlock-test"), "{inside}");
    run().probe(["read", "secret"]).refused(&["ENOENT"]);
    run().probe(["read", "/proc/self/cwd/secret"]).refused(&["ENOENT"]);
    for way in ["/proc/self/fd/3", "/proc/self/fd/7", "/proc/self/fd/8", "/proc/1/cwd"] {
        assert!(matches!(run().probe(["list", way]), Outcome::Refused(_)), "{way}");
    }
}

#[test]
fn a_working_directory_of_the_policy() {
    let site = Site::new();
    assert_eq!(site.inside("[process]\ncwd = \"/usr\"\n", ["cwd"]).done(), "/usr");
    let policy = site.policy("[process]\ncwd = \"/no/such/place\"\n");
    site.run().policy(policy).end(["true"]).refused(&["/no/such/place"]);
}

#[test]
fn a_directory_is_no_standard_stream() {
    let site = Site::new();
    let folder = File::open(site.folder("data")).unwrap();
    site.run().policy(site.policy("")).stdin(folder).end(["true"]).refused(&["stdin", "directory"]);
    let file = File::open(site.file("input", "hello")).unwrap();
    let ended = site.run().policy(site.policy("")).stdin(file).end(["cat"]).succeeded();
    assert_eq!(ended.stdout, "hello");
}

#[test]
fn a_socket_is_no_standard_stream() {
    let site = Site::new();
    let (_ours, theirs) = UnixStream::pair().unwrap();
    let socket = || OwnedFd::from(theirs.try_clone().unwrap());
    let run = || site.run().policy(site.policy(""));
    run().stdin(socket()).end(["true"]).refused(&["stdin", "socket"]);
    run().stdout(socket()).end(["true"]).refused(&["stdout", "socket"]);
    let (input, typed) = nix::unistd::pipe().unwrap();
    drop(typed);
    run().stdin(input).end(["cat"]).succeeded();
}

#[test]
fn a_block_device_is_no_standard_stream() {
    let Some(site) = Site::root() else { airlock_tests::skip!("needs root") };
    let disks = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let device = disks.map(|disk| std::path::Path::new("/dev").join(disk.file_name()));
    let Some(disk) = device.filter_map(|path| File::open(path).ok()).next() else {
        airlock_tests::skip!("no block device here")
    };
    site.run().policy(site.policy("")).stdin(disk).end(["true"]).refused(&["stdin", "block device"]);
}
