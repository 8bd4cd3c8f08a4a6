//! System calls by number, with plain arguments.

use nix::errno::Errno;

/// Makes a call.
pub(crate) fn call(number: i64, args: [u64; 6]) -> Result<i64, Errno> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the callers pass numbers, addresses of memory that they own and the kernel may fill, and an address
    // where nothing is, for which the kernel says EFAULT.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    Errno::result(result)
}

/// An address as a call takes it.
pub(crate) fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// Makes a call by its name in the native table.
pub(crate) fn named(name: &str, args: [u64; 6]) -> Result<i64, Errno> {
    let number = airlock_runtime::seccomp::syscall_number(name).ok_or(Errno::EBADMSG)?;
    call(number.into(), args)
}

/// getpid by its number in the i386 table.
#[cfg(target_arch = "x86_64")]
pub(crate) fn by_int80() -> i64 {
    let result: i64;
    // SAFETY: getpid touches no memory; the kernel may clobber r8 to r11.
    unsafe {
        std::arch::asm!(
            "int 0x80", inlateout("rax") 20_i64 => result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    result
}
