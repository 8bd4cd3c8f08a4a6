//! Capability sets of the sandbox: numbers, dropping, setting, reading back (capabilities(7)).

use std::io;

use caps::{CapSet, CapsHashSet};
use oci_spec::runtime::Capability;

/// The kernel's number of a capability.
pub(crate) fn number(capability: Capability) -> u8 {
    // Both enums carry the names of linux/capability.h; `caps` also knows their numbers.
    let name = format!("CAP_{}", capability.to_string().trim_start_matches("CAP_"));
    name.parse::<caps::Capability>().map_or(u8::MAX, |capability| capability.index())
}

/// Drops every capability up to `last` that is not in `keep` from the bounding set.
pub(crate) fn drop_bounding(keep: &[u8], last: u8) -> io::Result<()> {
    for number in (0..=last).filter(|number| !keep.contains(number)) {
        // By number: the kernel may know capabilities newer than the crate's list.
        // SAFETY: PR_CAPBSET_DROP takes a number and touches no memory.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Leaves exactly `keep` in the permitted, effective, inheritable and ambient sets.
pub(crate) fn set(keep: &[u8]) -> io::Result<()> {
    let kept: CapsHashSet =
        caps::all().into_iter().filter(|capability| keep.contains(&capability.index())).collect();
    caps::clear(None, CapSet::Ambient).map_err(io::Error::other)?;
    // The inheritable set first: raising an ambient capability needs it there (capabilities(7)).
    for which in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        let kept = &kept;
        caps::set(None, which, kept).map_err(io::Error::other)?;
    }
    if !kept.is_empty() {
        caps::set(None, CapSet::Ambient, &kept).map_err(io::Error::other)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        assert_eq!(number(Capability::Chown), 0);
        assert_eq!(number(Capability::SysAdmin), 21);
        assert_eq!(number(Capability::CheckpointRestore), 40);
    }
}
