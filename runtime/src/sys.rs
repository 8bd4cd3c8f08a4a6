//! Kernel calls that neither nix nor rustix wraps, and nothing else.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};
use rustix::mount::MountAttrFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// `CLONE_INTO_CGROUP`. libc declares it as a 32-bit zero on glibc, which starts the child in the
/// parent's cgroup without a word.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const CLONE_PIDFD: u64 = 0x1000;

/// Which side of [`clone3`] the caller is on.
pub(crate) enum Cloned {
    /// The new process.
    Child,
    /// The caller, with the child's id and a descriptor of it.
    Parent { pid: i32, pidfd: OwnedFd },
}

/// clone3(2) as a fork: copy-on-write memory, SIGCHLD on exit, a pidfd, and the given namespaces.
///
/// The process must have one thread: the child goes on with the parent's allocator and locks.
pub(crate) fn clone3(namespaces: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    #[repr(C)]
    #[derive(Default)]
    struct CloneArgs {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        cgroup: u64,
    }
    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: namespaces | CLONE_PIDFD,
        pidfd: std::ptr::from_mut(&mut pidfd) as u64,
        exit_signal: 17, // SIGCHLD
        ..CloneArgs::default()
    };
    if let Some(directory) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(directory.as_raw_fd().cast_unsigned());
    }
    // SAFETY: `args` is a valid clone_args of the stated size; without CLONE_VM the child has its own
    // copy of this stack and returns from the call like a fork.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Cloned::Child),
        pid => {
            // SAFETY: CLONE_PIDFD made the kernel store a fresh descriptor that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            let pid = i32::try_from(pid).map_err(io::Error::other)?;
            Ok(Cloned::Parent { pid, pidfd })
        }
    }
}

/// fork(2) of a single-threaded process, through libc so that its own state (thread id) stays right.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: the process has one thread, so the child may use everything the parent could.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// Takes the environment away: libc's list, and the strings that `/proc/PID/environ` shows.
///
/// The process must have one thread, and nobody may hold a pointer into the environment.
pub(crate) fn forget_environment() -> io::Result<()> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Fields 50 and 51 of proc_pid_stat(5), counted from the end of the name in field 2.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().skip(47));
    let mut bounds =
        fields.into_iter().flatten().map(|field| field.parse::<usize>().map_err(io::Error::other));
    let (Some(start), Some(end)) = (bounds.next().transpose()?, bounds.next().transpose()?) else {
        return Err(io::Error::other("/proc/self/stat has too few fields"));
    };
    // SAFETY: no other thread reads or changes the environment.
    if unsafe { libc::clearenv() } != 0 {
        return Err(io::Error::other("clearenv failed"));
    }
    let strings = std::ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: the kernel put the strings there, on the stack's writable top, and nobody looks at them any more.
    unsafe { strings.write_bytes(0, end.saturating_sub(start)) };
    Ok(())
}

/// vfork(2): runs `child` in a new process that shares the caller's memory, while the caller is suspended until the
/// child has executed a program or ended; returns the child's id. What `child` returns is its exit status.
///
/// A fork would copy page tables and then pages for a process that only executes something else. The process must
/// have one thread. What `child` leaves in memory, the caller finds there; descriptors are the child's own.
pub(crate) fn vfork<F: FnMut() -> c_int>(mut child: F) -> io::Result<i32> {
    extern "C" fn enter<F: FnMut() -> c_int>(child: *mut c_void) -> c_int {
        // SAFETY: `vfork` hands over its own `child`, and is suspended while this runs.
        let child = unsafe { &mut *child.cast::<F>() };
        child()
    }
    let mut stack = SharedStack::new();
    let argument = (&raw mut child).cast();
    // SAFETY: the stack and the argument live on until the child has another memory or none, for which CLONE_VFORK
    // waits.
    let pid = unsafe {
        libc::clone(enter::<F>, stack.top(), libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, argument)
    };
    if pid == -1 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}

/// A process in a new user namespace that waits to be killed; see `idmap.rs`. Dropping it reaps it.
///
/// It shares its parent's memory, as in [`vfork`], which makes it cheap, and makes no use of it. It holds no descriptor
/// of its parent and dies with it: a copy of a lock or of the end of a channel in a process that outlives the monitor
/// would keep its death from being seen.
#[derive(Debug)]
pub(crate) struct UsernsHolder {
    pid: Pid,
    /// What the process runs on: its stack, and its parent's id.
    memory: Box<(SharedStack, Pid)>,
}

impl UsernsHolder {
    /// The caller must have one thread.
    pub(crate) fn start() -> io::Result<UsernsHolder> {
        extern "C" fn hold(parent: *mut c_void) -> c_int {
            // SAFETY: `start` passes the id in the holder's memory, which outlives this process.
            let parent = unsafe { *parent.cast::<Pid>() };
            // A call that fails would set errno, which is the parent's too; rustix makes its calls without it.
            let orphan = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).is_err()
                || rustix::process::getppid() != Some(parent);
            // SAFETY: this process uses no descriptor.
            if orphan || unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) } == -1 {
                return 1;
            }
            loop {
                rustix::event::pause();
            }
        }
        let mut memory = Box::new((SharedStack::new(), rustix::process::getpid()));
        let (stack, parent) = &mut *memory;
        let flags = libc::CLONE_VM | libc::CLONE_NEWUSER | libc::SIGCHLD;
        // SAFETY: the memory lives on until the process is reaped; `hold` writes to nothing but its stack.
        match unsafe { libc::clone(hold, stack.top(), flags, std::ptr::from_mut(parent).cast()) } {
            -1 => Err(io::Error::last_os_error()),
            id => match Pid::from_raw(id) {
                Some(pid) => Ok(UsernsHolder { pid, memory }),
                None => Err(io::Error::other("clone gave no process id")),
            },
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Kills it, without waiting for its end.
    pub(crate) fn kill(&self) -> io::Result<()> {
        Ok(kill_process(self.pid, Signal::KILL)?)
    }
}

impl Drop for UsernsHolder {
    fn drop(&mut self) {
        // Not reaped yet, so the id is still its own.
        let reaped = self.kill().is_ok()
            && rustix::io::retry_on_intr(|| waitpid(Some(self.pid), WaitOptions::empty())).is_ok();
        if !reaped {
            // It may still run on its memory.
            std::mem::forget(std::mem::take(&mut self.memory.0.0));
        }
    }
}

/// The stack of a process that shares its parent's memory.
#[derive(Debug)]
struct SharedStack(Vec<u128>);

impl SharedStack {
    /// Far more than executing a program takes.
    const SIZE: usize = 64 << 10;

    fn new() -> SharedStack {
        SharedStack(Vec::with_capacity(Self::SIZE / size_of::<u128>()))
    }

    fn top(&mut self) -> *mut c_void {
        self.0.spare_capacity_mut().as_mut_ptr_range().end.cast()
    }
}

/// A libc clone flag as clone3's 64-bit field has it.
pub(crate) fn clone_flag(flag: c_int) -> u64 {
    u64::from(flag.cast_unsigned())
}

/// mount_setattr(2) on a mount descriptor.
///
/// `recursive` covers the mounts below. `set` and `clear` are `MOUNT_ATTR_*`; `propagation` is 0 or an
/// `MS_*` propagation type; `userns` idmaps the mount (kernel 5.12).
pub(crate) fn mount_setattr(
    mount: BorrowedFd<'_>,
    recursive: bool,
    set: MountAttrFlags,
    private: bool,
    userns: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut attr = libc::mount_attr {
        attr_set: u64::from(set.bits()),
        attr_clr: 0,
        propagation: if private { libc::MS_PRIVATE } else { 0 },
        userns_fd: 0,
    };
    if let Some(userns) = userns {
        attr.attr_set |= libc::MOUNT_ATTR_IDMAP;
        attr.userns_fd = u64::from(userns.as_raw_fd().cast_unsigned());
    }
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a NUL-terminated empty string and `attr` a valid mount_attr of the stated size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw mut attr,
            size_of::<libc::mount_attr>(),
        )
    };
    check(result)
}

/// Marks every descriptor from `first` on close-on-exec (close_range(2), kernel 5.11).
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: only the close-on-exec flag of descriptors changes; none is closed.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })
}

/// Closes every descriptor but the standard streams and those of `keep`.
///
/// # Safety
/// No owner of any other descriptor may be used or dropped afterwards.
pub(crate) unsafe fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> =
        keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).filter(|fd| *fd > 2).collect();
    keep.sort_unstable();
    let mut first = 3;
    for kept in keep.into_iter().chain([u32::MAX]) {
        if first < kept {
            let last = if kept == u32::MAX { kept } else { kept - 1 };
            // SAFETY: the caller vouches that nobody uses these descriptors.
            check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
        }
        first = kept.saturating_add(1);
    }
    Ok(())
}

/// The whole of a small file of the kernel's. Such files have no size to ask for, and std's growing probes cost
/// several reads each.
pub(crate) fn read_small(directory: BorrowedFd<'_>, path: impl rustix::path::Arg) -> io::Result<Vec<u8>> {
    let file = rustix::fs::openat(directory, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut content = Vec::with_capacity(8192);
    loop {
        if content.spare_capacity_mut().is_empty() {
            content.reserve(content.len());
        }
        if rustix::io::retry_on_intr(|| {
            rustix::io::read(&file, rustix::buffer::spare_capacity(&mut content))
        })? == 0
        {
            return Ok(content);
        }
    }
}

/// Gives every signal its default disposition. glibc's sigaction hides the two signals that it uses itself, so the
/// call is made directly.
pub(crate) fn reset_signals() -> io::Result<()> {
    #[repr(C)]
    struct KernelSigaction {
        handler: usize,
        flags: libc::c_ulong,
        restorer: usize,
        mask: u64,
    }
    let default = KernelSigaction { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };
    for signal in (1..=64).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
        // SAFETY: `default` is the kernel's sigaction of x86-64 with its 8-byte mask; no handler is installed.
        let result = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                &raw const default,
                std::ptr::null::<u8>(),
                size_of::<u64>(),
            )
        };
        check(result)?;
    }
    Ok(())
}

/// Replaces the session keyring by a new, anonymous one (keyctl(2) KEYCTL_JOIN_SESSION_KEYRING).
pub(crate) fn new_session_keyring() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring; no memory is passed.
    check(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) })
}

/// The Landlock ABI of the running kernel; 0 where Landlock is absent or disabled at boot.
pub(crate) fn landlock_abi() -> u8 {
    const LANDLOCK_CREATE_RULESET_VERSION: c_int = 1;
    // SAFETY: with a null attribute and this flag the call only returns a number.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    u8::try_from(abi).unwrap_or(0)
}

/// execve(2): returns only on failure.
pub(crate) fn execve(
    path: &std::ffi::CStr,
    argv: &[*const std::ffi::c_char],
    envp: &[*const std::ffi::c_char],
) -> io::Error {
    debug_assert!(argv.last().is_some_and(|last| last.is_null()));
    debug_assert!(envp.last().is_some_and(|last| last.is_null()));
    // SAFETY: both arrays end in a null pointer and point to NUL-terminated strings that outlive the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Gives back what a process that only waits does not need: free heap, and the pages of its own code and
/// constants, which come back from the page cache when they are used again.
pub(crate) fn release_memory() {
    unsafe extern "C" fn drop_pages(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr hands over a valid dl_phdr_info.
        let info = unsafe { &*info };
        // SAFETY: `dlpi_phdr` points to `dlpi_phnum` program headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        for header in headers {
            if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
                continue;
            }
            const PAGE: u64 = 4096;
            let start = (info.dlpi_addr + header.p_vaddr) & !(PAGE - 1);
            let length = (info.dlpi_addr + header.p_vaddr + header.p_memsz) - start;
            let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else {
                continue;
            };
            // SAFETY: the segment is mapped from a file and never written, so its pages can be read again.
            unsafe {
                libc::madvise(std::ptr::with_exposed_provenance_mut(start), length, libc::MADV_DONTNEED)
            };
        }
        0
    }
    // SAFETY: the callback keeps to its contract and uses no data.
    unsafe { libc::dl_iterate_phdr(Some(drop_pages), std::ptr::null_mut()) };
    // SAFETY: malloc_trim has no preconditions.
    unsafe { libc::malloc_trim(0) };
}

/// Ends the process at once, without running exit handlers that belong to the parent's copy.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) has no preconditions.
    unsafe { libc::_exit(code) }
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
