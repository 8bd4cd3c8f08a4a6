//! Objects of the host's kernel that a sandbox must not find: a System V segment, a POSIX queue, a key, a process.

use std::ffi::{CStr, CString};
use std::io;

use rustix::process::{Pid, Signal};

use crate::sys;

/// The caller's session keyring (keyctl(2)).
const SESSION: libc::c_int = -3;

/// A System V segment, removed when dropped.
#[derive(Debug)]
pub(super) struct Segment {
    id: libc::c_int,
}

impl Segment {
    pub(super) fn new(key: i32) -> io::Result<Segment> {
        // SAFETY: shmget touches no memory.
        match unsafe { libc::shmget(key, 1, libc::IPC_CREAT | libc::IPC_EXCL | 0o666) } {
            -1 => Err(io::Error::last_os_error()),
            id => Ok(Segment { id }),
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: IPC_RMID needs no buffer.
        unsafe { libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// A POSIX message queue, removed when dropped. Not every kernel has them.
#[derive(Debug)]
pub(super) struct Queue(CString);

impl Queue {
    pub(super) fn new(name: &str) -> io::Result<Queue> {
        // By the call itself: libc's name has a slash, and fails in a program that is linked without it.
        let name = CString::new(name)?;
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        // SAFETY: the name is a C string; without attributes the kernel's defaults hold.
        let fd = unsafe {
            libc::syscall(libc::SYS_mq_open, name.as_ptr(), flags, 0o666, std::ptr::null::<libc::mq_attr>())
        };
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is fresh and nobody else's.
        unsafe { libc::close(fd) };
        Ok(Queue(name))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the name is a C string.
        unsafe { libc::syscall(libc::SYS_mq_unlink, self.0.as_ptr()) };
    }
}

/// A key in the caller's session keyring, unlinked when dropped. Not every kernel has keys.
#[derive(Debug)]
pub(super) struct Key(libc::c_long);

impl Key {
    pub(super) fn new(name: &str) -> io::Result<Key> {
        const TYPE: &CStr = c"user";
        let name = CString::new(name)?;
        // SAFETY: the two names are C strings, and the payload is one byte of the first.
        match unsafe {
            libc::syscall(libc::SYS_add_key, TYPE.as_ptr(), name.as_ptr(), TYPE.as_ptr(), 1, SESSION)
        } {
            -1 => Err(io::Error::last_os_error()),
            key => Ok(Key(key)),
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        const UNLINK: libc::c_int = 9;
        // SAFETY: the call takes numbers.
        unsafe { libc::syscall(libc::SYS_keyctl, UNLINK, self.0, SESSION) };
    }
}

/// A process that does nothing, killed when dropped or when its parent dies.
#[derive(Debug)]
pub(super) struct Decoy(Pid);

impl Decoy {
    /// The caller must have one thread.
    pub(super) fn start() -> io::Result<Decoy> {
        match sys::fork()? {
            Some(pid) => Pid::from_raw(pid).map(Decoy).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            None => {
                // A parent that is gone before this has nobody left who waits.
                let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
                // SAFETY: this process uses no descriptor.
                if unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) } == -1 {
                    sys::exit_now(1);
                }
                loop {
                    rustix::event::pause();
                }
            }
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.0.as_raw_nonzero().get()
    }
}

impl Drop for Decoy {
    fn drop(&mut self) {
        // Not reaped yet, so the id is still its own.
        let _ = rustix::process::kill_process(self.0, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.0), rustix::process::WaitOptions::empty());
    }
}
