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
        Session::on(site, clauses, flags, None, words)
    }

    fn with_stdin(site: &Site, stdin: Stdio, words: &[&str]) -> Session {
        Session::on(site, "", &[], Some(stdin), words)
    }

    fn on(site: &Site, clauses: &str, flags: &[&str], stdin: Option<Stdio>, words: &[&str]) -> Session {
        let size = Winsize { ws_row: 30, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None).unwrap();
        let stream = || Stdio::from(pair.slave.try_clone().unwrap());
        let mut command = Command::new(site.airlock());
        command.args(["run", "--policy"]).arg(site.policy(clauses));
        if let Some(parent) = site.cgroups() {
            command.args(["--cgroup-parent", parent.name()]);
        }
        command.args(flags).arg("--").args(words).stdout(stream()).stderr(stream());
        command.stdin(stdin.unwrap_or_else(stream));
        command.env("XDG_RUNTIME_DIR", site.path("state")).env("TERM", "xterm");
        site.enter_by(&mut command);
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
    rustix::process::ioctl_tiocsctty(rustix::stdio::stdout())?;
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
    // Without one of its own a sandbox would share the caller's: that is refused, and without a terminal it runs.
    let session = Session::with(&site, "", &["--no-tty"], &words);
    session.expect("terminal, whose modes and input the sandbox would share");
    assert_eq!(session.end(), 125);
    let piped = site.run().policy(site.policy("")).with(|command| {
        command.arg("--no-tty");
    });
    let ended = piped.end(words);
    assert!(ended.stdout.contains("made: /dev/pts/[0-9]*"), "{}", ended.stdout);
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

/// A payload that never reads, and whose output makes the terminal answer, fills the way to it; the clock goes on.
#[test]
fn a_payload_that_does_not_read_cannot_stop_the_clock() {
    let site = Site::new();
    let deaf = "stty raw -echo; echo deaf; sleep 60";
    let mut session = Session::with(&site, "", &["--wall", "3s"], &["/bin/sh", "-c", deaf]);
    session.expect("deaf");
    let mut keyboard = session.master.try_clone().unwrap();
    let typing = std::thread::spawn(move || {
        // Ends with an error when the other side is gone.
        while keyboard.write_all(&[b'x'; 1024]).is_ok() {}
    });
    session.type_in("x");
    assert_eq!(session.end(), 128 + 15);
    drop(typing);
}

/// The caller's terminal is not the payload's, whichever stream it is.
#[test]
fn a_terminal_on_stdout_alone_is_not_handed_over() {
    let site = Site::new();
    let own = "test -t 1 && readlink /proc/self/fd/1; echo end";
    let session = Session::with_stdin(&site, Stdio::null(), &["/bin/sh", "-c", own]);
    session.expect("end");
    assert!(session.saw("/dev/pts/0"), "{:?}", session.seen.lock().unwrap());
    assert_eq!(session.end(), 0);
}

/// Once the payload has closed its end, the monitor has nothing to do and does nothing.
#[test]
fn a_closed_terminal_costs_no_time() {
    let site = Site::new();
    let silent = "echo closing; exec 0<&- 1>&- 2>&-; sleep 2";
    let session = Session::start(&site, &["/bin/sh", "-c", silent]);
    session.expect("closing");
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", session.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    std::thread::sleep(Duration::from_millis(300));
    let before = ticks();
    std::thread::sleep(Duration::from_secs(1));
    let taken = ticks() - before;
    // A loop that never waits takes 100 ticks a second.
    assert!(taken < 50, "{taken} ticks");
    assert_eq!(session.end(), 0);
}
