//! User namespaces that only carry an id map for a mount (mount_setattr(2), MOUNT_ATTR_IDMAP).

use std::fs::{self, File};
use std::io;

use crate::ids::{IdMaps, map_text};
use crate::sys::UsernsHolder;

/// A descriptor of a new user namespace with these maps, and the throw-away process that made it, which is dying.
pub(crate) fn user_namespace(maps: &IdMaps) -> io::Result<(File, UsernsHolder)> {
    let holder = UsernsHolder::start()?;
    let id = holder.id();
    fs::write(format!("/proc/{id}/uid_map"), map_text(&maps.uids))?;
    fs::write(format!("/proc/{id}/gid_map"), map_text(&maps.gids))?;
    let namespace = File::open(format!("/proc/{id}/ns/user"))?;
    holder.kill()?;
    Ok((namespace, holder))
}
