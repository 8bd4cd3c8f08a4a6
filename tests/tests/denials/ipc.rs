//! System V and POSIX objects, keys and processes of the host.

use std::ffi::CString;
use std::path::PathBuf;

use airlock_tests::Site;

use crate::STRIPPED;

/// A System V shared memory segment of the host, removed when dropped.
struct Segment(i32);

impl Segment {
    fn new(key: i32) -> Segment {
        // SAFETY: takes numbers alone.
        let id = unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | libc::IPC_EXCL | 0o666) };
        assert!(id >= 0, "{}", std::io::Error::last_os_error());
        Segment(id)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: IPC_RMID reads no pointer.
        unsafe { libc::shmctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

fn key() -> i32 {
    0x0a10_0000 + (std::process::id() & 0xf_ffff).cast_signed()
}

#[test]
fn shared_memory_of_the_host_is_not_found() {
    let site = Site::new();
    let _segment = Segment::new(key());
    let action = ["find-segment".to_owned(), key().to_string()];
    site.outside(&action).done();
    site.inside("", &action).refused(&["ENOENT"]);
    site.inside(STRIPPED, &action).refused(&["ENOENT"]);
}

#[test]
fn shared_memory_of_ones_own_works() {
    Site::new().inside("", ["make-segment", "77"]).done();
}

/// Landlock has no rule that could allow a queue: the file system of queues is mounted nowhere.
#[test]
fn message_queues_of_the_host_are_not_found() {
    struct Queue(CString);
    impl Drop for Queue {
        fn drop(&mut self) {
            // SAFETY: the name is a C string that outlives the call.
            unsafe { libc::mq_unlink(self.0.as_ptr()) };
        }
    }
    let site = Site::new();
    let name = format!("/airlock-test-{}", std::process::id());
    let _queue = Queue(CString::new(name.clone()).unwrap());
    site.outside(["make-queue", &name]).done();
    site.outside(["open-queue", &name]).done();
    site.inside("", ["open-queue", &name]).refused(&["ENOENT", "EACCES"]);
    site.inside(STRIPPED, ["open-queue", &name]).refused(&["ENOENT"]);
    site.inside("", ["make-queue", "/mine"]).refused(&["EACCES"]);
    site.inside("[landlock]\nenabled = false\n", ["make-queue", "/mine"]).done();
}

#[test]
fn dev_shm_is_private() {
    struct File(PathBuf);
    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
    let site = Site::new();
    let file = File(format!("/dev/shm/airlock-test-{}", std::process::id()).into());
    std::fs::write(&file.0, "hidden").unwrap();
    let action = ["read", file.0.to_str().unwrap()];
    site.outside(action).done();
    site.inside("", action).refused(&["ENOENT"]);
    site.inside(STRIPPED, action).refused(&["ENOENT"]);
    site.inside("", ["write", "/dev/shm/x", "hello"]).done();
}

/// Keys of the caller's session stay with the caller (isolate, NEWS 2.4).
#[test]
fn the_callers_keys_are_not_found() {
    let site = Site::new();
    let mine = site.outside(["keyring"]).done();
    let allowed = "[seccomp]\nallow = [\"keyctl\", \"add_key\"]\n";
    let first = site.inside(allowed, ["keyring"]).done();
    let second = site.inside(allowed, ["keyring"]).done();
    assert_ne!(first, mine);
    assert_ne!(first, second);
    let description = format!("airlock-test-{}", std::process::id());
    site.outside(["make-key", &description]).done();
    site.inside(allowed, ["find-key", &description]).refused(&["ENOKEY", "EACCES"]);
    site.inside("", ["find-key", &description]).refused(&["EPERM"]);
}

#[test]
fn the_hosts_processes_are_not_signalled() {
    let site = Site::new();
    let mut victim = site.start_outside(["rest", "30"]);
    victim.printed("ready");
    let pid = victim.pid().to_string();
    let action = ["signal", pid.as_str(), "0"];
    site.outside(action).done();
    site.inside("", action).refused(&["ESRCH"]);
    site.inside(STRIPPED, action).refused(&["ESRCH"]);
    // Everyone that the payload may signal at once is itself.
    site.inside("", ["signal", "-1", "15"]).refused(&["ESRCH", "EPERM"]);
    assert!(victim.runs());
    victim.signal(nix::sys::signal::Signal::SIGKILL);
    victim.end();
}

#[test]
fn the_hosts_processes_are_not_seen() {
    let site = Site::new();
    let listed = site.inside("", ["list", "/proc"]).done();
    let pids: Vec<i32> = listed.split(' ').filter_map(|name| name.parse().ok()).collect();
    assert!(pids.len() <= 2 && pids.iter().all(|pid| *pid < 20), "{pids:?}");
}
