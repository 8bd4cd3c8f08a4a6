//! Idmapped mounts: without them a root sandbox cannot share a directory and keep its owner.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};

use super::{Check, Topic};
use crate::attempt::{self, Outcome};
use crate::ids::{IdMapping, IdMaps, POOL_START};
use crate::{idmap, sys};

const IDMAPS: Topic = Topic::new("idmapped-mounts", "idmapped mounts");

pub(super) fn check(root: bool) -> Check {
    if !root {
        return IDMAPS.ok("not needed: an ordinary user's sandbox has the user's own id");
    }
    let line = || vec![IdMapping { inside: 0, outside: POOL_START, count: 1 }];
    let namespace = match idmap::user_namespace(&IdMaps { uids: line(), gids: line() }) {
        Ok((namespace, _)) => namespace,
        Err(error) => {
            return IDMAPS.lacking(
                format!("no user namespace to take the map from: {error}"),
                "first see to the namespaces",
            );
        }
    };
    let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let places = [cwd, "/home".into(), "/tmp".into()];
    let names = places.each_ref().map(|path| CString::new(path.as_os_str().as_bytes()).unwrap_or_default());
    // A dead network file system must not stop the parent.
    let outcomes = attempt::in_namespaces(0, None, false, || {
        names.each_ref().map(|name| attempt_at(name, namespace.as_fd()))
    });
    match outcomes {
        Ok(outcomes) => judge(&places.into_iter().zip(outcomes).collect::<Vec<_>>()),
        Err(_) => IDMAPS.lacking(
            "a file system does not answer",
            "look for a network file system whose server is gone at the working directory, /tmp or /home",
        ),
    }
}

/// Runs in the child, so it makes system calls only. The clone is attached nowhere and ends with the child.
fn attempt_at(path: &std::ffi::CStr, namespace: BorrowedFd<'_>) -> Outcome {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_NO_AUTOMOUNT;
    let tree = open_tree(CWD, path, flags)?;
    let map = sys::mount_setattr(tree.as_fd(), false, MountAttrFlags::empty(), false, Some(namespace));
    map.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn judge(places: &[(PathBuf, Outcome)]) -> Check {
    let list = |wanted: fn(&Outcome) -> bool| {
        let mut names: Vec<String> = places
            .iter()
            .filter(|(_, outcome)| wanted(outcome))
            .map(|(path, _)| path.display().to_string())
            .collect();
        names.sort_unstable();
        names.dedup();
        names.join(", ")
    };
    let able = list(Result::is_ok);
    let refusing = list(|outcome| matches!(outcome, Err(error) if *error != Errno::NOENT));
    if refusing.is_empty() {
        return IDMAPS.ok(format!("at {able}"));
    }
    let able = if able.is_empty() { String::new() } else { format!("; possible at {able}") };
    IDMAPS.lacking(
        format!("the file systems of {refusing} refuse them{able}"),
        "keep what a root sandbox writes on ext4, xfs or btrfs (tmpfs from kernel 6.3), or use `identity.ids = \"direct\"`",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn file_systems_that_refuse_are_named_once() {
        let at = |path: &str, outcome| (PathBuf::from(path), outcome);
        let refused = Err(Errno::INVAL);
        let check = judge(&[at("/root", Ok(())), at("/tmp", refused), at("/tmp", refused)]);
        assert_eq!(check.status, Status::Lacking);
        assert_eq!(check.found, "the file systems of /tmp refuse them; possible at /root");
        assert_eq!(judge(&[at("/root", Err(Errno::NOENT)), at("/tmp", Ok(()))]).found, "at /tmp");
    }
}
