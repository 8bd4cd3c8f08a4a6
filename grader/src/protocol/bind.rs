//! Making the socket of a run.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, chmodat, fchmod, fstat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use thiserror::Error;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Why there is no socket.
#[derive(Debug, Error)]
pub enum BindError {
    /// Not one plain file name.
    #[error("socket {0:?}: not a file name")]
    Name(OsString),
    /// Somebody else could reach into the directory.
    #[error("directory of socket {name:?}: mode {mode:o} of uid {uid}; 700 and one's own are needed")]
    Directory {
        /// The socket's name.
        name: OsString,
        /// Permission bits of the directory.
        mode: u32,
        /// Its owner.
        uid: u32,
    },
    /// A step failed.
    #[error("{step} socket {name:?}: {source}")]
    Step {
        /// What was done.
        step: &'static str,
        /// The socket's name.
        name: OsString,
        /// Why it failed.
        source: io::Error,
    },
}

/// Who may connect, as far as the file's mode goes: connecting needs write permission (unix(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The caller's own user id. An ordinary user's sandbox runs under it.
    Own,
    /// Every user id that finds the file. Root's sandbox runs under one that is known only when it is started. The
    /// directory lets nobody but root in, so the file is found where a sandbox mounts it, and nowhere else.
    AnyoneInside,
}

impl Access {
    fn mode(self) -> Mode {
        match self {
            Access::Own => Mode::RUSR | Mode::WUSR,
            Access::AnyoneInside => Mode::from_raw_mode(0o666),
        }
    }
}

/// Binds a listening socket by `name` in a directory of mode 0700 that is the caller's own.
///
/// The directory is a handle, so that its path may be longer than the 108 bytes of an address and nobody can put
/// another one in its place.
pub fn bind_socket(directory: impl AsFd, name: &Path, access: Access) -> Result<UnixListener, BindError> {
    let directory = directory.as_fd();
    let file_name = name.file_name().filter(|file_name| *file_name == name.as_os_str());
    let name = file_name.ok_or_else(|| BindError::Name(name.into()))?.to_owned();
    let failed = |step| {
        let name = name.clone();
        move |source: rustix::io::Errno| BindError::Step { step, name, source: source.into() }
    };
    let found = fstat(directory).map_err(failed("looking at the directory of"))?;
    if found.st_mode & 0o7777 != 0o700 || found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(BindError::Directory { name, mode: found.st_mode & 0o7777, uid: found.st_uid });
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed("making"))?;
    // bind(2) gives the file the mode of the socket's own inode, less the umask: no moment with more.
    fchmod(&socket, access.mode()).map_err(failed("restricting"))?;
    let address = SocketAddrUnix::new(beneath(directory).join(&name)).map_err(failed("naming"))?;
    bind(&socket, &address).map_err(failed("binding"))?;
    if access == Access::AnyoneInside {
        // The umask may have taken from it. Nobody else can have put another file there.
        chmodat(directory, &name, access.mode(), AtFlags::empty()).map_err(failed("opening"))?;
    }
    listen(&socket, BACKLOG).map_err(failed("listening on"))?;
    Ok(socket.into())
}

fn beneath(directory: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", directory.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn directory(mode: u32) -> (tempfile::TempDir, File) {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
        let handle = File::open(directory.path()).unwrap();
        (directory, handle)
    }

    // hermes-agent#6231 and lens-sandbox#69: a socket with the umask's mode.
    #[test]
    fn the_socket_is_its_owners_alone_whatever_the_umask() {
        let (place, handle) = directory(0o700);
        let _listener = bind_socket(&handle, Path::new("s"), Access::Own).unwrap();
        assert_eq!(fs::metadata(place.path().join("s")).unwrap().mode() & 0o7777, 0o600);
        UnixStream::connect(place.path().join("s")).unwrap();
        let again = bind_socket(&handle, Path::new("s"), Access::Own).unwrap_err().to_string();
        assert!(again.starts_with("binding socket \"s\": Address already in use"), "{again}");
    }

    #[test]
    fn a_socket_for_a_mount_is_open_to_any_user_id_in_a_closed_directory() {
        let (place, handle) = directory(0o700);
        let _listener = bind_socket(&handle, Path::new("s"), Access::AnyoneInside).unwrap();
        assert_eq!(fs::metadata(place.path().join("s")).unwrap().mode() & 0o7777, 0o666);
        let (_place, handle) = directory(0o711);
        let error = bind_socket(&handle, Path::new("s"), Access::AnyoneInside).unwrap_err();
        assert!(matches!(error, BindError::Directory { mode: 0o711, .. }), "{error}");
    }

    #[test]
    fn a_path_beyond_an_address_is_no_obstacle() {
        let (place, _) = directory(0o700);
        let deep = place.path().join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        fs::set_permissions(&deep, Permissions::from_mode(0o700)).unwrap();
        bind_socket(File::open(&deep).unwrap(), Path::new("s"), Access::Own).unwrap();
        assert!(deep.join("s").exists());
        let name = "n".repeat(120);
        let error = bind_socket(File::open(&deep).unwrap(), Path::new(&name), Access::Own).unwrap_err();
        assert!(matches!(error, BindError::Step { step: "naming", .. }), "{error}");
    }

    #[test]
    fn a_directory_others_can_enter_and_a_name_that_is_a_path_are_refused() {
        let (_place, handle) = directory(0o755);
        let error = bind_socket(&handle, Path::new("s"), Access::Own).unwrap_err();
        assert!(matches!(error, BindError::Directory { mode: 0o755, .. }), "{error}");
        let (_place, handle) = directory(0o700);
        for name in ["", ".", "..", "a/b", "/s", "s/"] {
            let error = bind_socket(&handle, Path::new(name), Access::Own).unwrap_err();
            assert!(matches!(error, BindError::Name(_)), "{name:?}: {error}");
        }
    }
}
