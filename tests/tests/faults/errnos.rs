//! Which errors a call is made to give: one that no code expects, and those that its manual page lists and a host gives.
//!
//! What a call gives in the usual course (ENOENT, EEXIST, EAGAIN of what does not block) is no fault, and not listed.

use libc::*;

/// The errors of a call. The first is EIO as a rule, which no code expects, so that none takes it for something else.
#[allow(non_upper_case_globals, reason = "libc has the calls by their names")]
pub(crate) fn errnos(call: i64) -> &'static [i32] {
    match call {
        SYS_open | SYS_openat | SYS_openat2 => &[EIO, EMFILE, EACCES, EINTR, ENOMEM],
        SYS_open_tree => &[EIO, EMFILE, EACCES, EPERM, ENOMEM],
        SYS_socket | SYS_socketpair | SYS_pipe2 | SYS_memfd_create | SYS_signalfd4 | SYS_pidfd_open => {
            &[EIO, EMFILE, ENOMEM]
        }
        SYS_dup | SYS_dup2 | SYS_dup3 | SYS_fcntl => &[EIO, EMFILE, EINTR],
        SYS_clone | SYS_clone3 | SYS_fork | SYS_vfork => &[EIO, EAGAIN, ENOMEM, EPERM, EMFILE],
        SYS_fsopen | SYS_fsmount => &[EIO, EMFILE, ENOMEM, EPERM],
        SYS_fsconfig | SYS_mount | SYS_mount_setattr | SYS_move_mount | SYS_pivot_root => {
            &[EIO, ENOMEM, EPERM, EBUSY]
        }
        SYS_umount2 => &[EIO, EBUSY, EPERM],
        SYS_unshare | SYS_setns => &[EIO, ENOSPC, EPERM, ENOMEM],
        SYS_read | SYS_pread64 | SYS_getdents64 => &[EIO, EINTR, ENOMEM],
        SYS_write | SYS_writev | SYS_pwrite64 => &[EIO, ENOSPC, EINTR, EPERM],
        SYS_recvmsg | SYS_sendmsg => &[EIO, EINTR, ENOMEM],
        SYS_connect | SYS_accept4 => &[EIO, EINTR, EACCES],
        SYS_ppoll => &[EIO, EINTR, ENOMEM],
        // Nothing else keeps a parent from its child; of a helper that is not waited for init's end would wait.
        SYS_wait4 => &[EINTR],
        SYS_waitid => &[ECHILD, EINTR],
        SYS_flock => &[EIO, EINTR, ENOLCK],
        SYS_mkdir | SYS_mkdirat | SYS_mknodat | SYS_symlinkat | SYS_rename | SYS_renameat => {
            &[EIO, ENOSPC, EACCES, EROFS, ENOMEM]
        }
        SYS_unlink | SYS_unlinkat => &[EIO, EBUSY, EACCES],
        SYS_ftruncate => &[EIO, EINTR, EPERM],
        SYS_statx | SYS_faccessat | SYS_faccessat2 | SYS_readlink | SYS_readlinkat => &[EIO, EACCES, ENOMEM],
        SYS_chdir | SYS_fchdir => &[EIO, EACCES, ENOMEM],
        SYS_fchmod | SYS_fchmodat | SYS_fchown | SYS_fchownat | SYS_fsetxattr => &[EIO, EPERM, EROFS, ENOSPC],
        SYS_setresuid | SYS_setresgid | SYS_setgroups => &[EIO, EAGAIN, EPERM, ENOMEM],
        SYS_prctl | SYS_capset | SYS_sethostname | SYS_prlimit64 | SYS_setsid | SYS_pidfd_send_signal => {
            &[EIO, EPERM]
        }
        SYS_seccomp | SYS_landlock_add_rule | SYS_landlock_create_ruleset | SYS_landlock_restrict_self => {
            &[EIO, EPERM, ENOMEM, EMFILE]
        }
        SYS_bpf => &[EIO, EPERM, ENOMEM, E2BIG],
        SYS_keyctl => &[EIO, EDQUOT, ENOMEM, EACCES],
        SYS_execve => &[EIO, EACCES, ENOMEM, EAGAIN],
        _ => &[EIO, ENOMEM],
    }
}
