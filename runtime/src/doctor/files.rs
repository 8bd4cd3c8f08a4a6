//! Files and limits that belong to the caller: state directory, ids, groups, open files.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::{Resource, getrlimit};

use super::{Check, Topic};
use crate::ids::{POOL_START, subordinate_range};

const STATE: Topic = Topic::needed("state-directory", "state directory");
const POOL: Topic = Topic::new("id-pool", "id ranges");
const SUBIDS: Topic = Topic::new("subordinate-ids", "subordinate ids");
const GROUPS: Topic = Topic::new("groups", "supplementary groups");
const OPEN_FILES: Topic = Topic::new("open-files", "open files");

/// `limits.nofile` of the policy `research`.
const RESEARCH_OPEN_FILES: u64 = 65_536;
/// End of the id pool: ids from 2^31 on are refused by too much software.
const POOL_END: u64 = 1 << 31;

pub(super) fn checks(root: bool) -> Vec<Check> {
    let uid = rustix::process::geteuid().as_raw();
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let place = if uid == 0 { Some("/run/airlock".into()) } else { base.map(|base| base.join("airlock")) };
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    vec![
        state(uid, place.as_deref()),
        if root {
            pool(&read("/etc/subuid"), &read("/etc/subgid"))
        } else {
            let helpers = has_helper("newuidmap") && has_helper("newgidmap");
            subids(helpers, &read("/etc/passwd"), &read("/etc/subuid"), &read("/etc/subgid"), uid)
        },
        groups(root, &supplementary()),
        open_files(getrlimit(Resource::Nofile).maximum),
    ]
}

/// Judges the directory that a launch would use or make, without making it.
fn state(uid: u32, place: Option<&Path>) -> Check {
    let Some(place) = place else {
        return STATE.lacking(
            "XDG_RUNTIME_DIR is not set to an absolute path",
            "log in through systemd-logind (which makes /run/user/UID), or set it to a directory that only you can enter",
        );
    };
    let name = place.display();
    match fs::symlink_metadata(place) {
        Ok(metadata) if !is_safe(&metadata, uid) => STATE.lacking(
            format!("{name} is no directory, belongs to someone else, or can be written by others"),
            format!("remove {name}, or give it to uid {uid} with mode 700"),
        ),
        Ok(_) => {
            writable(place).map_or_else(|error| unwritable(place, &error), |()| STATE.ok(name.to_string()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = place.parent().unwrap_or(place);
            writable(parent).map_or_else(
                |error| unwritable(parent, &error),
                |()| STATE.ok(format!("{name}, made when first needed")),
            )
        }
        Err(error) => unwritable(place, &error),
    }
}

fn is_safe(metadata: &Metadata, uid: u32) -> bool {
    metadata.is_dir() && metadata.uid() == uid && metadata.mode() & 0o022 == 0
}

fn writable(directory: &Path) -> io::Result<()> {
    Ok(accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?)
}

fn unwritable(directory: &Path, error: &io::Error) -> Check {
    let name = directory.display();
    STATE.lacking(format!("{name}: {error}"), format!("make {name} a directory that you can write to"))
}

/// Nobody else may have been given ids of the pool.
fn pool(subuid: &str, subgid: &str) -> Check {
    let ours = u64::from(POOL_START)..POOL_END;
    let found = format!("{} to {}, 65536 for each sandbox", ours.start, ours.end - 1);
    let taken: Vec<&str> =
        subuid.lines().chain(subgid.lines()).filter(|line| overlaps(line, &ours)).collect();
    if taken.is_empty() {
        POOL.ok(found)
    } else {
        POOL.advice(
            format!("{found}; but others were given some of these: {}", taken.join(", ")),
            "move those lines of /etc/subuid and /etc/subgid below 1879048192, or two sandboxes may share an id",
        )
    }
}

fn overlaps(line: &str, ours: &std::ops::Range<u64>) -> bool {
    let mut numbers = line.split(':').skip(1).map(|field| field.trim().parse::<u64>().ok());
    let (Some(Some(start)), Some(Some(count))) = (numbers.next(), numbers.next()) else {
        return false;
    };
    start < ours.end && start.saturating_add(count) > ours.start
}

fn has_helper(name: &str) -> bool {
    ["/usr/bin", "/bin", "/usr/local/bin", "/sbin", "/usr/sbin"]
        .iter()
        .any(|directory| Path::new(directory).join(name).exists())
}

fn subids(helpers: bool, passwd: &str, subuid: &str, subgid: &str, uid: u32) -> Check {
    let user = user_name(passwd, uid).unwrap_or("");
    match (helpers, subordinate_range(subuid, user, uid), subordinate_range(subgid, user, uid)) {
        (true, Some((first, count)), Some(_)) => SUBIDS.ok(format!("{count} from {first}")),
        (false, _, _) => SUBIDS.advice(
            "newuidmap and newgidmap are not installed: a sandbox has one id, which `ids = \"auto\"` uses",
            "install the package `uidmap` (Debian) or `shadow-utils`",
        ),
        (true, _, _) => SUBIDS.advice(
            "none given to the caller: a sandbox has one id, which `ids = \"auto\"` uses",
            "as root: `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER`, with a range that is free",
        ),
    }
}

fn user_name(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

/// The caller's groups other than its first.
fn supplementary() -> Vec<u32> {
    let first = rustix::process::getegid();
    let all = rustix::process::getgroups().unwrap_or_default();
    all.into_iter().filter(|group| *group != first).map(|group| group.as_raw()).collect()
}

/// setgroups(2) is denied in a user namespace made without privilege (user_namespaces(7), CVE-2014-8989).
fn groups(root: bool, supplementary: &[u32]) -> Check {
    match (root, supplementary) {
        (true, _) => GROUPS.ok("dropped"),
        (false, []) => GROUPS.ok("none to drop"),
        (false, kept) => {
            let names: Vec<String> = kept.iter().map(u32::to_string).collect();
            GROUPS.advice(
                format!("{} cannot be dropped by an ordinary user, and open the same files inside", names.join(", ")),
                "use `ids = \"subids\"`, which drops them, or `groups = \"none\"`, which refuses to start with them",
            )
        }
    }
}

/// `hard`: the caller's hard limit; absent: none.
fn open_files(hard: Option<u64>) -> Check {
    match hard {
        Some(hard) if hard < RESEARCH_OPEN_FILES => OPEN_FILES.advice(
            format!("hard limit {hard}, below the {RESEARCH_OPEN_FILES} of `research`: sandboxes get the lower one"),
            format!(
                "raise the session's hard limit (limits.conf(5), systemd's LimitNOFILE=), or set `limits.nofile` to \
                 {hard} or less in a policy that extends `research`"
            ),
        ),
        Some(hard) => OPEN_FILES.ok(format!("hard limit {hard}")),
        None => OPEN_FILES.ok("no hard limit"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::Status;
    use super::*;

    #[test]
    fn the_state_directory_is_judged_and_not_made() {
        let base = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let place = base.path().join("airlock");
        assert_eq!(state(uid, Some(&place)).status, Status::Ok);
        assert!(!place.exists());
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(state(uid, Some(&place)).status, Status::Ok);
        assert_eq!(state(uid + 1, Some(&place)).status, Status::Lacking);
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(state(uid, Some(&place)).status, Status::Lacking);
        assert_eq!(state(uid, Some(&base.path().join("none/airlock"))).status, Status::Lacking);
        assert!(state(uid, None).found.contains("XDG_RUNTIME_DIR"));
    }

    #[test]
    fn ranges_given_to_others_in_the_pool_are_named() {
        assert_eq!(pool("alice:100000:65536\n", "").status, Status::Ok);
        let check = pool("alice:100000:65536\nbob:1879113728:65536\n", "broken\n");
        assert_eq!(check.status, Status::Advice);
        assert!(check.found.contains("bob:") && !check.found.contains("alice"), "{}", check.found);
        assert_eq!(pool("", "huge:0:4294967295\n").status, Status::Advice);
    }

    #[test]
    fn subordinate_ids_need_the_helper_and_both_files() {
        let (passwd, ids) = ("root:x:0:0::/:/bin/sh\nalice:x:1001:100::/:/bin/sh\n", "alice:100000:65536\n");
        assert_eq!(subids(true, passwd, ids, ids, 1001).status, Status::Ok);
        assert!(subids(false, passwd, ids, ids, 1001).found.contains("not installed"));
        assert!(subids(true, passwd, ids, "", 1001).found.contains("none given"));
        assert!(subids(true, passwd, ids, ids, 1002).found.contains("none given"));
    }

    #[test]
    fn groups_that_stay_are_named() {
        assert!(groups(false, &[27, 998]).found.starts_with("27, 998 cannot be dropped"));
        assert_eq!(groups(false, &[]).status, Status::Ok);
        assert_eq!(groups(true, &[27]).status, Status::Ok);
    }

    #[test]
    fn a_low_hard_limit_is_told_not_refused() {
        assert_eq!(open_files(Some(20_000)).status, Status::Advice);
        assert_eq!(open_files(Some(RESEARCH_OPEN_FILES)).status, Status::Ok);
        assert_eq!(open_files(None).status, Status::Ok);
    }
}
