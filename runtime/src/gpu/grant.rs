//! What the monitor of a sandbox gets of a tenancy.

use std::os::fd::OwnedFd;

use super::facts::Selection;

/// GPUs that were chosen for a sandbox.
#[derive(Debug)]
pub struct Grant {
    /// Which ones.
    pub selection: Selection,
    /// The holds on them, for the monitor and for init: others get the GPUs when the last of those who have them is dead.
    pub leases: Vec<OwnedFd>,
    /// Readable when the sandbox must be ended: it uses more than it may, or nobody can tell any more.
    pub alarm: Option<OwnedFd>,
}

/// GPUs that somebody holds who outlives the sandbox, and whose use has no limit.
impl From<Selection> for Grant {
    fn from(selection: Selection) -> Grant {
        Grant { selection, leases: Vec::new(), alarm: None }
    }
}
