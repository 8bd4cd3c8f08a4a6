//! The sandbox's network namespace: nothing but a loopback interface.

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Brings `lo` up in the caller's network namespace (netdevice(7), SIOCSIFFLAGS).
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let flags = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(io::Error::other)?;
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags },
    };
    for (place, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *place = byte.cast_signed();
    }
    // SAFETY: `request` is a valid ifreq with a NUL-terminated name, and outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Interface names in the text of `/proc/PID/net/dev` (proc_pid_net(5)).
pub(crate) fn interfaces(text: &str) -> Vec<&str> {
    text.lines().skip(2).filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_from_proc() {
        let text = "Inter-|   Receive\n face |bytes\n    lo:       0 0\n  eth0: 12 1\n";
        assert_eq!(interfaces(text), ["lo", "eth0"]);
    }
}
