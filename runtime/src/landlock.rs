//! Landlock: rules by path, restriction, and the proof that it holds.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, RestrictSelfAttr,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::plan::{Access, LandlockRule};

/// The newest ABI that Airlock knows.
pub const NEWEST_ABI: u8 = 10;

/// Restricts the calling thread to `rules`; everything that ABI `abi` handles and no rule grants is denied.
///
/// Each right is a hard requirement. TCP rights are left out: a set with them and no port rule breaks
/// binding to port 0 on loopback, and the network namespace has nothing else.
pub(crate) fn restrict(abi: u8, rules: &[LandlockRule]) -> io::Result<()> {
    let version = version(abi);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(version))
        .map_err(io::Error::other)?;
    let scopes = Scope::from_all(version);
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes).map_err(io::Error::other)?;
    }
    let mut ruleset = ruleset.create().map_err(io::Error::other)?;
    for rule in rules {
        let Some((place, kind)) = open(rule)? else {
            continue;
        };
        let mut rights = rights(rule.access, version);
        if kind != FileType::Directory {
            // A directory right on a file is refused by the kernel.
            rights &= AccessFs::from_file(version);
        }
        if !rights.is_empty() {
            ruleset = ruleset.add_rule(PathBeneath::new(place, rights)).map_err(io::Error::other)?;
        }
    }
    if abi >= 7 {
        // What a payload denies itself in a domain of its own is no news for the host's audit log.
        ruleset = ruleset.log_subdomains(false).map_err(io::Error::other)?;
    }
    let RestrictionStatus { ruleset, no_new_privs, .. } =
        ruleset.restrict_self().map_err(io::Error::other)?;
    if ruleset != RulesetStatus::FullyEnforced || !no_new_privs {
        return Err(io::Error::other(format!("the kernel enforces the ruleset only in part: {ruleset:?}")));
    }
    Ok(())
}

/// Opens a directory outside the rules; before the restriction this succeeds, after it Landlock denies it.
///
/// Landlock is shown nowhere in /proc, so this is its only proof.
pub(crate) fn outside_is_denied(outside: BorrowedFd<'_>) -> io::Result<bool> {
    match rustix::fs::openat(
        outside,
        ".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(_) => Ok(false),
        Err(Errno::ACCESS) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn open(rule: &LandlockRule) -> io::Result<Option<(OwnedFd, FileType)>> {
    match rustix::fs::open(&rule.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(place) => {
            let kind = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
            Ok(Some((place, kind)))
        }
        // No grant for what is not there: less access, never more.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
        Err(error) => {
            Err(io::Error::new(io::Error::from(error).kind(), format!("{}: {error}", rule.path.display())))
        }
    }
}

fn rights(access: Access, abi: ABI) -> BitFlags<AccessFs> {
    let mut rights = BitFlags::empty();
    let mut grant = |asked: bool, bits: BitFlags<AccessFs>| {
        if asked {
            rights |= bits;
        }
    };
    grant(access.read, AccessFs::ReadFile.into());
    grant(access.exec, AccessFs::Execute.into());
    grant(access.list, AccessFs::ReadDir.into());
    // Connecting to a pathname socket needs a right of its own from ABI 9 on; it goes with writing.
    grant(access.write, AccessFs::WriteFile | AccessFs::Truncate | AccessFs::ResolveUnix);
    grant(access.ioctl, AccessFs::IoctlDev.into());
    grant(
        access.create,
        AccessFs::RemoveDir
            | AccessFs::RemoveFile
            | AccessFs::MakeDir
            | AccessFs::MakeReg
            | AccessFs::MakeSym
            | AccessFs::MakeSock
            | AccessFs::MakeFifo
            | AccessFs::Refer,
    );
    rights & AccessFs::from_all(abi)
}

fn version(abi: u8) -> ABI {
    match abi {
        0 => ABI::Unsupported,
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        7 => ABI::V7,
        8 => ABI::V8,
        9 => ABI::V9,
        _ => ABI::V10,
    }
}
