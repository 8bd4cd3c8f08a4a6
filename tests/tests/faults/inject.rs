//! Makes one system call of a command fail or wait, from outside, without a hook in the command.
//!
//! The command starts under a seccomp filter of this test's own, which hands each call that can fail to a supervisor
//! (seccomp_unotify(2)). That one counts them, answers the one that is to fail with an errno, or not before the test says
//! so, and lets the kernel do the others. All processes that the command makes inherit the filter; Airlock's own filters
//! stack on it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

/// Where the command finds the socket by which it hands over its listener. The filter lets it be used.
const HANDOVER: RawFd = 250;

/// Calls that do not fail when they are made as they are made here: memory (its want ends a process), one's own signals
/// and ids, random numbers, the time (a call where the vDSO has no clock, as under QEMU at times), closing, ending.
/// And what the start of a Rust program aborts on by itself (poll).
const LEFT_ALONE: &[i64] = &[
    libc::SYS_arch_prctl,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_pause,
    libc::SYS_poll,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_umask,
    libc::SYS_uname,
];

/// Name of the first process, which is the monitor, and what the others call it here.
const AIRLOCK: &str = "airlock";
pub(crate) const MONITOR: &str = "monitor";

/// How long a call waits at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// One call of a run, by which it is found again in the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Point {
    /// Which process at what: the first is `monitor`, any other has the name that it gives itself.
    pub(crate) who: String,
    /// Number of the call.
    pub(crate) call: i64,
    /// How many of the same came before it.
    pub(crate) nth: u32,
}

/// What is done to the call at a point.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It fails with this errno.
    Fails(i32),
    /// It waits until the test lets it go on.
    Waits(Hold),
}

/// The supervisor's end of a call that waits.
#[derive(Debug)]
pub(crate) struct Hold {
    reached: Sender<i32>,
    go: Receiver<()>,
}

/// The test's end of it. Dropping it lets the call go on.
#[derive(Debug)]
pub(crate) struct Grip {
    reached: Receiver<i32>,
    _go: Sender<()>,
}

impl Hold {
    pub(crate) fn new() -> (Hold, Grip) {
        let ((reached, told), (go, wait)) = (channel(), channel());
        (Hold { reached, go: wait }, Grip { reached: told, _go: go })
    }
}

impl Grip {
    /// The monitor's process id, when some process has come to the call; none if all have ended before.
    pub(crate) fn reached(&self) -> Option<i32> {
        self.reached.recv().ok()
    }
}

/// What a supervisor has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// All calls, in their order.
    pub(crate) points: Vec<Point>,
    /// The one at the fault's point came.
    pub(crate) reached: bool,
}

/// A supervisor at work.
#[derive(Debug)]
pub(crate) struct Supervisor(JoinHandle<io::Result<Seen>>);

impl Supervisor {
    /// Lets `command` be started under the supervision of a new thread, which does `fault` to the call at its point.
    ///
    /// A command that has become another user by then gets no_new_privs.
    pub(crate) fn over(command: &mut Command, fault: Option<(Point, Fault)>) -> io::Result<Supervisor> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut filter = filter();
        // SAFETY: the closure makes system calls and allocates nothing.
        unsafe { command.pre_exec(move || hand_over(&theirs, &mut filter)) };
        let supervise = move || {
            let Some(listener) = received(&ours)? else { return Ok(Seen::default()) };
            supervise(&listener, fault)
        };
        Ok(Supervisor(std::thread::Builder::new().name("supervisor".into()).spawn(supervise)?))
    }

    /// What was seen until the last process under supervision ended. The `Command` must be dropped before.
    pub(crate) fn end(self) -> Seen {
        self.0.join().expect("the supervisor does not panic").expect("the supervisor's calls succeed")
    }
}

/// Lets pass what is left alone, the handover, a process naming itself, reading one's own limits, and asking for a
/// descriptor's flags (which debug builds do before each close); all else is for the supervisor.
fn filter() -> Vec<libc::sock_filter> {
    const LOAD: u16 = 0x20;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const NUMBER: u32 = 0;
    const FIRST: u32 = 16;
    const SECOND: u32 = 24;
    const THIRD: u32 = 32;
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let number = |call: i64| u32::try_from(call).expect("calls have small numbers");
    let allow = line(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW);
    let mut program = vec![line(LOAD, 0, 0, NUMBER)];
    for call in LEFT_ALONE {
        program.extend([line(IF_EQUAL, 0, 1, number(*call)), allow]);
    }
    for (call, argument, value) in [
        (libc::SYS_sendmsg, FIRST, HANDOVER.unsigned_abs()),
        (libc::SYS_fcntl, SECOND, libc::F_GETFD.unsigned_abs()),
        (libc::SYS_prctl, FIRST, libc::PR_SET_NAME.unsigned_abs()),
        (libc::SYS_prlimit64, THIRD, 0),
    ] {
        program.extend([
            line(IF_EQUAL, 0, 4, number(call)),
            line(LOAD, 0, 0, argument),
            line(IF_EQUAL, 0, 1, value),
            allow,
            line(LOAD, 0, 0, NUMBER),
        ]);
    }
    program.push(line(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
    program
}

/// In the command's process before it executes: installs the filter and sends the listener to the supervisor.
fn hand_over(socket: &OwnedFd, filter: &mut [libc::sock_filter]) -> io::Result<()> {
    // SAFETY: dup3 takes numbers; nothing owns the new one, which is closed on exec.
    check(unsafe { libc::dup3(socket.as_raw_fd(), HANDOVER, libc::O_CLOEXEC) }.into())?;
    // SAFETY: geteuid takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        // SAFETY: prctl takes numbers only.
        check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    }
    let length = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // SAFETY: the program outlives the call.
    let listener = check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    })?;
    let listener = RawFd::try_from(listener).map_err(io::Error::other)?;
    send(listener)
}

/// Sends a descriptor without allocating.
fn send(fd: RawFd) -> io::Result<()> {
    let mut byte = 0_u8;
    let mut block = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    #[repr(C)]
    struct Control {
        header: libc::cmsghdr,
        fd: RawFd,
        padding: u32,
    }
    let mut control = Control {
        header: libc::cmsghdr { cmsg_len: 20, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS },
        fd,
        padding: 0,
    };
    // SAFETY: all zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut block;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    // SAFETY: all that the message points to outlives the call.
    check(unsafe { libc::sendmsg(HANDOVER, &raw const message, 0) } as i64).map(drop)
}

fn check(result: i64) -> io::Result<i64> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The listener; none if the command did not get that far.
fn received(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [io::IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    }))
}

/// Answers every call until nobody is left who could make one.
fn supervise(listener: &OwnedFd, mut fault: Option<(Point, Fault)>) -> io::Result<Seen> {
    let mut seen = Seen::default();
    let mut counts = BTreeMap::new();
    let mut first = None;
    let mut begun = false;
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
        if !fds[0].revents().contains(PollFlags::IN) {
            return Ok(seen);
        }
        let Some(call) = notified(listener.as_fd())? else { continue };
        if i64::from(call.data.nr) == libc::SYS_execve {
            first.get_or_insert(call.pid);
        }
        // What comes before is the test's own, or of a program that only executes the next.
        begun = begun || (first == Some(call.pid) && name_of(call.pid) == AIRLOCK);
        if !begun {
            respond(listener.as_fd(), call.id, None)?;
            continue;
        }
        let who = if first == Some(call.pid) { MONITOR.into() } else { name_of(call.pid) };
        let nth = counts.entry((who.clone(), call.data.nr)).or_insert(0);
        let point = Point { who, call: call.data.nr.into(), nth: *nth };
        *nth += 1;
        let here = fault.take_if(|(wanted, _)| *wanted == point);
        seen.reached |= here.is_some();
        seen.points.push(point);
        let answer = match here {
            Some((_, Fault::Fails(errno))) => Some(errno),
            Some((_, Fault::Waits(hold))) => {
                let monitor = first.map_or(0, u32::cast_signed);
                // A test that has failed meanwhile has let go of it.
                let _ = hold.reached.send(monitor).is_ok() && hold.go.recv_timeout(PATIENCE).is_ok();
                None
            }
            None => None,
        };
        respond(listener.as_fd(), call.id, answer)?;
    }
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// The next call; none if whoever made it is gone.
fn notified(listener: BorrowedFd<'_>) -> io::Result<Option<libc::seccomp_notif>> {
    // SAFETY: all zero is a valid seccomp_notif, and what the kernel asks for.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to `call`, which outlives it.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) };
    match check(result.into()) {
        Ok(_) => Ok(Some(call)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn respond(listener: BorrowedFd<'_>, id: u64, errno: Option<i32>) -> io::Result<()> {
    let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).map_err(io::Error::other)?;
    let flags = if errno.is_some() { 0 } else { flags };
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: -errno.unwrap_or(0), flags };
    // SAFETY: the call reads `answer`, which outlives it.
    let result =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    match check(result.into()) {
        // Killed while it waited.
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(()),
    }
}
