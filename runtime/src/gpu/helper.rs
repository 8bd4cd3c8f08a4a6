//! Running the discovery helper: a process that can be given up.
//!
//! It is executed from a sealed memory file with an empty environment, no descriptor but its three streams, and a
//! deadline. A driver that hangs keeps its caller in the kernel, where even SIGKILL does not end it; such a process is
//! left behind and not waited for.

use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::wire::Answer;
use crate::sys;

/// The program; see `runtime/build.rs`.
static PROGRAM: &[u8] = include_bytes!(env!("AIRLOCK_NVML"));

/// How long the driver may take. Without persistence mode it initialises each GPU first, which takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the kernel gets to take a killed helper away.
const DYING: Duration = Duration::from_millis(200);
/// More than 64 GPUs with all their slices and processes need.
const LONGEST: usize = 4 << 20;

/// Why the helper said nothing of use.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// A step failed.
    #[error("gpu: discovery helper: {step}: {source}")]
    Io {
        /// What was done.
        step: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The driver does not answer.
    #[error(
        "gpu: NVIDIA's driver does not answer within {} s; see the kernel log (`dmesg`), and reset the GPU or reboot{}",
        PATIENCE.as_secs(),
        if *.stuck { "; the process that asked it hangs in the kernel and is left behind" } else { "" }
    )]
    Hangs {
        /// The helper could not even be killed.
        stuck: bool,
    },
    /// It ended without an answer: the loader or the library ended it.
    #[error("gpu: discovery helper: it ended without an answer{}", words(.0))]
    Silent(String),
    /// It said something else than what it is there for.
    #[error("gpu: discovery helper: unexpected answer: {0}")]
    Answer(String),
}

fn words(text: &str) -> String {
    if text.trim().is_empty() { String::new() } else { format!(": {}", text.trim()) }
}

/// A running helper. Dropping it ends it, and so does the end of its last holder: it sees the end of its input.
///
/// It is waited for only on drop: the resources of children that were waited for count as used by the payload in the
/// end report of a sandbox without a control group. A holder that is a fork of its parent, such as a detached monitor,
/// cannot wait for it.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
    pidfd: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    /// What came and is not read yet.
    pending: Vec<u8>,
    /// Where the loader complains.
    complaints: File,
}

impl Helper {
    /// Starts it with these arguments.
    pub(crate) fn start(arguments: &[&str]) -> Result<Helper, HelperError> {
        let io = |step| move |source: io::Error| HelperError::Io { step, source };
        let program = program().map_err(io("making a memory file of it"))?;
        let complaints = memfd_create("complaints", MemfdFlags::CLOEXEC).map_err(io::Error::from);
        let complaints = File::from(complaints.map_err(io("making a memory file"))?);
        let stderr = complaints.try_clone().map_err(io("duplicating a descriptor"))?;
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.arg0("airlock-nvml").args(arguments).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        // The caller's interrupt key is for the payload, not for who watches its GPUs.
        command.process_group(0);
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(|| sys::close_on_exec_from(3)) };
        let mut child = command.spawn().map_err(io("starting it"))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pidfd = pid.ok_or(Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let pidfd = pidfd.map_err(|errno| io("opening its process")(errno.into()))?;
        match (child.stdin.take(), child.stdout.take()) {
            (stdin, Some(stdout)) => {
                Ok(Helper { child, pidfd, stdin, stdout, pending: Vec::new(), complaints })
            }
            (_, None) => Err(io("starting it")(io::Error::other("it has no output"))),
        }
    }

    /// Readable when it has said something, or has ended.
    pub(crate) fn output(&self) -> io::Result<OwnedFd> {
        self.stdout.as_fd().try_clone_to_owned()
    }

    /// Tells it that nothing more is to be watched.
    pub(crate) fn end_watch(&mut self) {
        self.stdin = None;
    }

    /// Lets go of it; it goes on for a fork of this process.
    pub(crate) fn leave_to_fork(self) {
        let mut kept = ManuallyDrop::new(self);
        // Its input is the one thing that must not stay open here: its end is the fork's to say.
        kept.stdin = None;
    }

    /// Its next answer.
    pub(crate) fn answer(&mut self) -> Result<Answer, HelperError> {
        let deadline = Instant::now() + PATIENCE;
        let line = loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(end + 1);
                break std::mem::replace(&mut self.pending, rest);
            }
            if self.pending.len() > LONGEST {
                return Err(HelperError::Answer(format!("longer than {LONGEST} bytes")));
            }
            self.read(deadline)?;
        };
        serde_json::from_slice(&line).map_err(|error| HelperError::Answer(error.to_string()))
    }

    fn read(&mut self, deadline: Instant) -> Result<(), HelperError> {
        let io = |errno: Errno| HelperError::Io { step: "reading its answer", source: errno.into() };
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(left).unwrap_or_default();
        let mut fds = [PollFd::new(&self.stdout, PollFlags::IN)];
        if rustix::io::retry_on_intr(|| poll(&mut fds, Some(&limit))).map_err(io)? == 0 {
            return Err(HelperError::Hangs { stuck: !self.kill() });
        }
        let mut block = [0; 1 << 16];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.stdout, &mut block)).map_err(io)? {
            0 => Err(HelperError::Silent(self.complaint())),
            count => {
                self.pending.extend_from_slice(&block[..count]);
                Ok(())
            }
        }
    }

    fn complaint(&self) -> String {
        let mut text = [0; 1024];
        let read = rustix::io::pread(&self.complaints, &mut text, 0).unwrap_or(0);
        String::from_utf8_lossy(&text[..read]).into_owned()
    }

    /// True if it is gone.
    fn kill(&mut self) -> bool {
        // It may have ended by itself.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let limit = Timespec::try_from(DYING).unwrap_or_default();
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let gone = matches!(rustix::io::retry_on_intr(|| poll(&mut fds, Some(&limit))), Ok(1..));
        gone && {
            // Not this process's child in a detached monitor.
            let _ = self.child.try_wait();
            true
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program in memory, which nobody can change any more.
fn program() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag, and make such files executable.
    let file = match memfd_create("airlock-nvml", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create("airlock-nvml", flags)?,
        file => file?,
    };
    let mut file = File::from(file);
    file.write_all(PROGRAM)?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file.into())
}
