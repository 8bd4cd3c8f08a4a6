//! The mounts of a sandbox, as the kernel lists them, against its plan.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::plan::{ExpectedMount, FileSystem, MountFlags};

/// Types that show or steer the host's kernel, its devices or its services. A recursive bind mount would carry them
/// in.
const KERNEL_FILE_SYSTEMS: [&str; 28] = [
    "autofs",
    "binder",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "cpuset",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "functionfs",
    "fusectl",
    "mqueue",
    "nfsd",
    "nsfs",
    "ocfs2_dlmfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sysfs",
    "tracefs",
    "xenfs",
];

/// Evidence, as clause and words.
type Holds = Vec<(String, String)>;
/// Differences in words.
type Differences = Vec<String>;

/// Compares `mountinfo`, the text of proc_pid_mountinfo(5), with the mounts of a plan and the paths that it covers.
pub(super) fn compare(
    expected: &[ExpectedMount],
    covered: &[PathBuf],
    mountinfo: &str,
) -> (Holds, Differences) {
    let (mut holds, mut differences) = (Vec::new(), Vec::new());
    let planned: HashMap<&Path, &ExpectedMount> =
        expected.iter().map(|mount| (mount.target.as_path(), mount)).collect();
    let coverable: HashSet<&Path> = covered.iter().map(PathBuf::as_path).collect();
    let mut found: HashMap<PathBuf, Mounted<'_>> = HashMap::new();
    let mut strangers: BTreeSet<PathBuf> = BTreeSet::new();
    for line in mountinfo.lines() {
        let Some(mounted) = Mounted::parse(line) else {
            differences.push(format!("the kernel's list of mounts has a line that is none: {line:?}"));
            continue;
        };
        let point = mounted.point.clone();
        if mounted.shared {
            let point = point.display();
            differences.push(format!("mount {point} still exchanges mount events with the host"));
        }
        match owner(&planned, &point) {
            _ if coverable.contains(point.as_path()) => {}
            Some(mount) => differences.extend(mounted.difference(mount)),
            None => {
                strangers.insert(point.clone());
            }
        }
        // Later mounts cover earlier ones at the same place.
        found.insert(point, mounted);
    }
    for mount in expected {
        let (clause, target) = (&mount.clause, mount.target.display());
        match found.get(&mount.target) {
            None => differences.push(format!("{clause}: nothing is mounted at {target}")),
            Some(mounted) => {
                holds.push((clause.clone(), format!("{target} mounted {}", mounted.options.join(","))));
            }
        }
    }
    for path in covered.iter().filter(|path| found.contains_key(*path)) {
        holds.push(("root".into(), format!("{} covered or read-only", path.display())));
    }
    if strangers.is_empty() {
        holds.push(("root".into(), "nothing else is mounted".into()));
    } else {
        differences.push(format!("root: mounts that nobody asked for: {strangers:?}"));
    }
    (holds, differences)
}

/// The planned mount that a mount at `point` is, or that brought it along.
fn owner<'a>(planned: &HashMap<&Path, &'a ExpectedMount>, point: &Path) -> Option<&'a ExpectedMount> {
    let nearest = point.ancestors().find_map(|above| planned.get(above))?;
    (nearest.target == point || nearest.file_system == FileSystem::Host).then_some(*nearest)
}

/// One mount.
struct Mounted<'a> {
    point: PathBuf,
    options: Vec<&'a str>,
    shared: bool,
    file_system: &'a str,
}

impl Mounted<'_> {
    fn parse(line: &str) -> Option<Mounted<'_>> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(4);
        Some(Mounted {
            point: unescape(fields.next()?),
            options: fields.next()?.split(',').collect(),
            shared: fields.any(|field| field.starts_with("shared:")),
            file_system: file_system.split(' ').next()?,
        })
    }

    /// What is not as `mount`, which this is or which brought it along, should be.
    fn difference(&self, mount: &ExpectedMount) -> Option<String> {
        let ExpectedMount { clause, flags, .. } = mount;
        let (point, kind) = (self.point.display(), self.file_system);
        let wrong = match mount.file_system {
            FileSystem::Own(wanted) => kind != wanted,
            FileSystem::Host => KERNEL_FILE_SYSTEMS.contains(&kind),
            FileSystem::Device => false,
        };
        if wrong {
            return Some(match mount.file_system {
                FileSystem::Own(wanted) => format!("{clause}: {point} should be a {wanted}, is a {kind}"),
                _ => format!(
                    "{clause}: {point} is a {kind} of the host, a file system of its kernel: mount a part of the source without it"
                ),
            });
        }
        let MountFlags { read_only, no_exec, no_dev } = *flags;
        let wanted = [(true, "nosuid"), (read_only, "ro"), (no_exec, "noexec"), (no_dev, "nodev")];
        let lacks = |(asked, name): &(bool, &'static str)| *asked && !self.options.contains(name);
        let missing: Vec<&str> = wanted.into_iter().filter(lacks).map(|(_, name)| name).collect();
        (!missing.is_empty()).then(|| format!("{clause}: {point} lacks {missing:?}"))
    }
}

/// Undoes the octal escapes of proc_pid_mountinfo(5).
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if bytes[at] == b'\\' => {
                plain.push(byte);
                at += 4;
            }
            _ => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    OsString::from_vec(plain).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sandbox with a root, a proc with a covered file, and a read-only bind mount; `more` is beside them.
    fn compared(more: &str) -> (Holds, Differences) {
        let expected = |target: &str, file_system| {
            let flags = MountFlags { read_only: true, no_exec: false, no_dev: true };
            let flags = if target == "/data" { flags } else { MountFlags::default() };
            ExpectedMount { clause: format!("mount {target}"), target: target.into(), flags, file_system }
        };
        let mounts = [
            expected("/", FileSystem::Own("tmpfs")),
            expected("/proc", FileSystem::Own("proc")),
            expected("/data", FileSystem::Host),
            expected("/null", FileSystem::Device),
        ];
        let text = format!(
            "50 40 0:50 / / ro,nosuid - tmpfs none rw\n\
             51 50 0:51 / /proc rw,nosuid,nodev - proc none rw\n\
             52 51 0:5 /null /proc/kcore rw,nosuid - devtmpfs udev rw\n\
             53 50 8:1 /srv /data ro,nosuid,nodev - ext4 /dev/sda1 rw\n\
             54 50 0:5 /null /null rw,nosuid - devtmpfs udev rw\n{more}\n"
        );
        compare(&mounts, &["/proc/kcore".into()], text.trim_end())
    }

    /// The differences that one more mount makes.
    fn differences(more: &str) -> Vec<String> {
        compared(more).1
    }

    #[test]
    fn what_was_planned_holds() {
        let (holds, differences) = compared("");
        assert_eq!(differences, [""; 0]);
        let words: Vec<&str> = holds.iter().map(|(_, what)| what.as_str()).collect();
        assert_eq!(
            words,
            [
                "/ mounted ro,nosuid",
                "/proc mounted rw,nosuid,nodev",
                "/data mounted ro,nosuid,nodev",
                "/null mounted rw,nosuid",
                "/proc/kcore covered or read-only",
                "nothing else is mounted",
            ]
        );
    }

    #[test]
    fn what_was_planned_must_be_there() {
        let (flags, file_system) = (MountFlags::default(), FileSystem::Host);
        let mount = ExpectedMount { clause: "mount".into(), target: "/data".into(), flags, file_system };
        assert_eq!(compare(&[mount], &[], "").1, ["mount: nothing is mounted at /data"]);
    }

    /// A recursive bind mount carries what is mounted below its source: the host's /proc in a chroot, say.
    #[test]
    fn a_kernel_file_system_below_a_bind_mount_is_a_difference() {
        let below =
            |kind: &str| differences(&format!("60 53 0:60 / /data/x ro,nosuid,nodev - {kind} none rw"));
        for kind in ["ext4", "tmpfs", "overlay", "nfs4", "fuse.sshfs"] {
            assert_eq!(below(kind), [""; 0], "{kind}");
        }
        for kind in KERNEL_FILE_SYSTEMS {
            assert_eq!(
                below(kind),
                [format!(
                    "mount /data: /data/x is a {kind} of the host, a file system of its kernel: mount a part of the \
                     source without it"
                )]
            );
        }
        assert!(KERNEL_FILE_SYSTEMS.is_sorted());
    }

    /// The path of a source does not tell what it is on: another proc can be mounted anywhere.
    #[test]
    fn a_mount_is_of_the_planned_type() {
        let at = |point: &str, kind: &str| {
            differences(&format!("60 50 0:60 / {point} ro,nosuid,nodev - {kind} none rw"))
        };
        assert!(at("/data", "proc")[0].starts_with("mount /data: /data is a proc of the host"));
        assert_eq!(at("/proc", "sysfs"), ["mount /proc: /proc should be a proc, is a sysfs"]);
        assert_eq!(at("/", "ext4"), ["mount /: / should be a tmpfs, is a ext4"]);
    }

    #[test]
    fn flags_hold_for_what_lies_below() {
        let below = |options: &str| differences(&format!("60 53 0:60 / /data/x {options} - ext4 none rw"));
        assert_eq!(below("ro,nosuid,nodev"), [""; 0]);
        assert_eq!(below("ro,nodev"), ["mount /data: /data/x lacks [\"nosuid\"]"]);
        assert_eq!(below("rw,nosuid"), ["mount /data: /data/x lacks [\"ro\", \"nodev\"]"]);
        // A mount that another one covers is there too.
        let covered = "60 53 0:60 / /data/x rw,nosuid,nodev - ext4 none rw\n\
                       61 60 0:61 / /data/x ro,nosuid,nodev - ext4 none rw";
        assert_eq!(differences(covered), ["mount /data: /data/x lacks [\"ro\"]"]);
    }

    #[test]
    fn nothing_is_mounted_that_was_not_planned() {
        for point in ["/database", "/proc/self", "/null/x", "/home"] {
            let stranger = differences(&format!("60 50 0:60 / {point} ro,nosuid,nodev - tmpfs none rw"));
            assert_eq!(stranger, [format!("root: mounts that nobody asked for: {{{point:?}}}")]);
        }
        let shared = differences("60 53 0:60 / /data/x ro,nosuid,nodev shared:7 - ext4 none rw");
        assert_eq!(shared, ["mount /data/x still exchanges mount events with the host"]);
        assert!(differences("60 53 0:60")[0].contains("has a line that is none"));
    }

    #[test]
    fn escaped_mount_points_are_read() {
        assert_eq!(unescape(r"/a\040b\134c"), PathBuf::from(r"/a b\c"));
        assert_eq!(unescape("/plain\\"), PathBuf::from("/plain\\"));
    }

    /// As the kernel does it (`seq_path` in `fs/seq_file.c`, with `" \t\n\\"`).
    fn escape(path: &[u8]) -> String {
        let escaped = path.iter().flat_map(|byte| match byte {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            plain => vec![*plain],
        });
        String::from_utf8(escaped.collect()).unwrap()
    }

    proptest::proptest! {
        #[test]
        fn any_path_is_read_as_it_was_before_it_was_escaped(path in "(/|[ab\\\\ \t\n0-7+é]){0,12}") {
            proptest::prop_assert_eq!(unescape(&escape(path.as_bytes())), PathBuf::from(path));
        }

        /// A mount that was planned holds only if some line says so; a line that is none is a difference.
        #[test]
        fn no_list_of_mounts_holds_by_itself(
            lines in proptest::collection::vec("[0-9 ]{0,4}1 0:1 / /(data|x)? (ro,nosuid,nodev|rw)( shared:1)? - (ext4|proc) s rw|[0-9/ -]{0,20}", 0..6),
        ) {
            let flags = MountFlags { read_only: true, no_exec: false, no_dev: true };
            let data =
                ExpectedMount { clause: "c".into(), target: "/data".into(), flags, file_system: FileSystem::Host };
            let text = lines.join("\n");
            let (_, differences) = compare(&[data], &[], &text);
            if differences.is_empty() {
                proptest::prop_assert!(text.lines().all(|line| line.contains(" /data ro,nosuid,nodev - ext4 ")));
                proptest::prop_assert!(!text.is_empty());
            }
        }
    }
}
