//! User namespaces that only carry an id map for a mount (mount_setattr(2), MOUNT_ATTR_IDMAP).

use std::fs::{self, File};
use std::io;

use crate::ids::{IdMaps, map_text};
use crate::sys;

/// A descriptor of a new user namespace with these maps.
pub(crate) fn user_namespace(maps: &IdMaps) -> io::Result<File> {
    sys::beside_user_namespace(|pid| {
        fs::write(format!("/proc/{pid}/uid_map"), map_text(&maps.uids))?;
        fs::write(format!("/proc/{pid}/gid_map"), map_text(&maps.gids))?;
        File::open(format!("/proc/{pid}/ns/user"))
    })
}
