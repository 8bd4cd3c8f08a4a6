//! The caller has a terminal.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use airlock_tests::{Site, within};
use nix::pty::{Winsize, openpty};

/// A command with a controlling terminal, whose other end the test holds.
struct Session {
    master: File,
    child: Child,
    seen: Arc<Mutex<String>>,
}

impl Session {
    fn start(site: &Site, words: &[&str]) -> Session {
        Session::under(site, "", words)
    }

    fn under(site: &Site, clauses: &str, words: &[&str]) -> Session {
        Session::with(site, clauses, &[], words)
    }

    fn with(site: &Site, clauses: &str, flags: &[&str], words: &[&str]) -> Session {
        let size = Winsize { ws_row: 30, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None).unwrap();
        let stream = || Stdio::from(pair.slave.try_clone().unwrap());
        let mut command = Command::new(site.airlock());
        command.args(["run", "--policy"]).arg(site.policy(clauses));
        if let Some(parent) = site.cgroups() {
            command.args(["--cgroup-parent", parent.name()]);
        }
        command.args(flags).arg("--").args(words).stdin(stream()).stdout(stream()).stderr(stream());
        command.env("XDG_RUNTIME_DIR", site.path("state")).env("TERM", "xterm");
        site.caller().become_by(&mut command);
        // SAFETY: the closure makes two system calls and allocates nothing.
        unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, take_terminal) };
        let child = command.spawn().unwrap();
        drop(pair.slave);

        let master = File::from(pair.master);
        let seen = Arc::new(Mutex::new(String::new()));
        let (shared, mut source) = (Arc::clone(&seen), master.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut block = [0; 4096];
            while let Ok(length @ 1..) = source.read(&mut block) {
                shared.lock().unwrap().push_str(&String::from_utf8_lossy(&block[..length]));
            }
        });
        Session { master, child, seen }
    }

    fn saw(&self, text: &str) -> bool {
        self.seen.lock().unwrap().contains(text)
    }

    #[track_caller]
    fn expect(&self, text: &str) {
        let found = within(Duration::from_secs(10), || self.seen.lock().unwrap().contains(text));
        assert!(found, "`{text}` did not appear: {:?}", self.seen.lock().unwrap());
    }

    fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    #[track_caller]
    fn end(mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let mut status = None;
        within(Duration::from_secs(10), || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap_or_else(|| panic!("it still runs: {:?}", self.seen.lock().unwrap()));
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    }
}

/// Becomes a session leader with standard input as its terminal.
fn take_terminal() -> std::io::Result<()> {
    nix::unistd::setsid()?;
    rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
    Ok(())
}

#[test]
fn the_payload_has_a_terminal_of_its_own() {
    let site = Site::new();
    let host = std::fs::read_dir("/dev/pts").unwrap().count();
    let session = Session::start(
        &site,
        &["/bin/sh", "-c", "tty; ls /dev/pts; test -t 0 -a -t 1 && echo yes; stty size"],
    );
    session.expect("/dev/pts/0");
    session.expect("yes");
    session.expect("30 90");
    assert!(host >= 1);
    assert_eq!(session.end(), 0);
}

/// The streams are then the caller's own terminal, which controls nothing inside.
#[test]
fn no_terminal_is_made_if_none_is_wanted() {
    let site = Site::new();
    let script = "tty; set -- /dev/pts/[0-9]*; echo \"made: $*\"; exec < /dev/tty";
    let words = ["/bin/sh", "-c", script];
    let session = Session::with(&site, "", &["--no-tty"], &words);
    session.expect("made: /dev/pts/[0-9]*");
    session.expect("/dev/tty");
    assert_ne!(session.end(), 0);
    let session = Session::start(&site, &words);
    session.expect("made: /dev/pts/0");
    assert_eq!(session.end(), 0);
}

#[test]
fn a_new_size_is_passed_on() {
    let site = Site::new();
    let mut session = Session::start(
        &site,
        &["/bin/sh", "-c", "trap 'stty size' WINCH; echo begun; read line; read line; read line"],
    );
    session.expect("begun");
    let size = libc::winsize { ws_row: 50, ws_col: 132, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request reads one winsize, which outlives the call.
    let set = unsafe { libc::ioctl(session.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    assert_eq!(set, 0);
    session.type_in("\n");
    session.expect("50 132");
    session.type_in("\n\n");
    session.end();
}

#[test]
fn what_is_typed_arrives() {
    let site = Site::new();
    let mut session =
        Session::start(&site, &["/bin/sh", "-c", "echo begun; read word; echo \"got <$word>\""]);
    session.expect("begun");
    session.type_in("hello\n");
    session.expect("got <hello>");
    assert_eq!(session.end(), 0);
}

#[test]
fn the_interrupt_key_interrupts_the_payload() {
    let site = Site::new();
    let mut session = Session::start(
        &site,
        &["/bin/sh", "-c", "trap 'echo caught; exit 9' INT; echo begun; while :; do sleep 0.05; done"],
    );
    session.expect("begun");
    session.type_in("\u{3}");
    session.expect("caught");
    assert_eq!(session.end(), 9);
}

/// CVE-2017-5226: a payload that shares the caller's terminal could type into it. The filter refuses the call;
/// without the filter it types into a terminal that is the sandbox's own.
#[test]
fn nothing_is_typed_back() {
    let site = Site::new();
    let action = ["/probe/probe", "call", "ioctl", "0", "0x5412", "buffer"];
    let session = Session::start(&site, &action);
    session.expect("refused EPERM");
    assert_eq!(session.end(), 1);
    let session = Session::under(&site, "[seccomp]\nprofile = \"none\"\n", &action);
    // EIO: the host has switched the call off for all (sysctl dev.tty.legacy_tiocsti).
    let answered = || session.saw("ok 0") || session.saw("refused EIO");
    assert!(within(Duration::from_secs(10), answered));
    session.end();
}
