//! Open descriptors: what they point to, and whether that lies in the process's own mounts.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use serde::Serialize;

use super::{MountView, Reader};
use crate::sys;

/// An open descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Descriptor {
    /// Its number.
    pub number: i32,
    /// What the kernel says it is: a path as the process sees it, or `socket:[INODE]` and the like.
    pub target: String,
    /// It is a file on a mount that is none of the process's.
    pub outside: bool,
    /// It is a directory: one outside is a way out of the root (CVE-2024-21626).
    pub directory: bool,
}

impl Descriptor {
    /// Inode of a socket.
    pub(super) fn socket(&self) -> Option<u64> {
        self.target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    }
}

pub(super) fn read(reader: &mut Reader, mounts: &[MountView]) -> Vec<Descriptor> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(&reader.process, "fd", flags, Mode::empty()).and_then(Dir::new);
    let folder = match opened {
        Ok(folder) => folder,
        Err(error) => {
            reader.miss("open descriptors", &format!("/proc/PID/fd: {}", std::io::Error::from(error)));
            return Vec::new();
        }
    };
    let names = folder.filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse::<i32>().ok());
    let mut found: Vec<Descriptor> = names.filter_map(|number| descriptor(reader, mounts, number)).collect();
    found.sort_by_key(|descriptor| descriptor.number);
    found
}

fn descriptor(reader: &Reader, mounts: &[MountView], number: i32) -> Option<Descriptor> {
    use std::os::fd::AsFd;
    let target = rustix::fs::readlinkat(&reader.process, format!("fd/{number}"), Vec::new()).ok()?;
    let target = target.to_string_lossy().into_owned();
    // Pipes and sockets lie on mounts of the kernel's own.
    let file = target.starts_with('/') && !target.starts_with("/memfd:");
    let outside = file && {
        let info = sys::read_small(reader.process.as_fd(), format!("fdinfo/{number}")).ok()?;
        let info = String::from_utf8_lossy(&info).into_owned();
        let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse::<u64>().ok());
        mount.is_some_and(|id| !mounts.iter().any(|mount| mount.id == id))
    };
    let directory = file && {
        let stat = rustix::fs::statat(&reader.process, format!("fd/{number}"), AtFlags::empty());
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    };
    Some(Descriptor { number, target, outside, directory })
}
