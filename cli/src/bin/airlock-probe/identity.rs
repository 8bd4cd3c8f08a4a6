//! Ids, capabilities, namespaces, the environment.

use std::fs;

use airlock_runtime::probe::Outcome;
use nix::errno::Errno;
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};
use rustix::thread::CapabilitySet;

use crate::files::errno;
use crate::{Attempt, Verb, Words, done, number, word};

pub(crate) const VERBS: &[Verb] = &[
    ("namespace", namespace),
    ("capability", capability),
    ("no-new-privileges", no_new_privileges),
    ("variable", variable),
    ("root-id", root_id),
    ("set-uid", set_uid),
    ("set-gid", set_gid),
    ("set-groups", set_groups),
    ("map-ids", map_ids),
];

/// Whether a namespace is the one that the audit is in.
fn namespace(words: Words<'_>) -> Attempt {
    let own = fs::read_link(format!("/proc/self/ns/{}", word(words, 0)?)).map_err(|error| errno(&error))?;
    let same = own.as_os_str() == word(words, 1)?;
    Ok(if same { Outcome::Done(String::new()) } else { Outcome::Absent("it is another".into()) })
}

/// Whether a capability could ever be had: is in the bounding set.
fn capability(words: Words<'_>) -> Attempt {
    let wanted = CapabilitySet::from_bits_retain(1 << number(words, 0)?);
    let bounding = rustix::thread::capability_is_in_bounding_set(wanted);
    match bounding.map_err(|error| Errno::from_raw(error.raw_os_error()))? {
        true => done(),
        false => Ok(Outcome::Absent("it is not in the bounding set".into())),
    }
}

fn no_new_privileges(_: Words<'_>) -> Attempt {
    let set = rustix::thread::no_new_privs().map_err(|error| Errno::from_raw(error.raw_os_error()))?;
    Ok(if set { Outcome::Absent("no_new_privs is set".into()) } else { Outcome::Done(String::new()) })
}

fn variable(words: Words<'_>) -> Attempt {
    match std::env::var_os(word(words, 0)?) {
        Some(_) => done(),
        None => Ok(Outcome::Absent("there is no such variable".into())),
    }
}

fn root_id(_: Words<'_>) -> Attempt {
    Ok(if geteuid().is_root() { Outcome::Done(String::new()) } else { Outcome::Absent("it is not 0".into()) })
}

fn id(words: Words<'_>) -> Result<u32, Errno> {
    u32::try_from(number(words, 0)?).map_err(|_| Errno::EBADMSG)
}

fn set_uid(words: Words<'_>) -> Attempt {
    setuid(Uid::from_raw(id(words)?))?;
    done()
}

fn set_gid(words: Words<'_>) -> Attempt {
    setgid(Gid::from_raw(id(words)?))?;
    done()
}

fn set_groups(_: Words<'_>) -> Attempt {
    setgroups(&[])?;
    done()
}

/// Maps the present id to another one in a user namespace made for it.
fn map_ids(_: Words<'_>) -> Attempt {
    let own = geteuid();
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER)?;
    fs::write("/proc/self/uid_map", format!("0 {own} 1")).map_err(|error| errno(&error))?;
    done()
}
