//! An independent reader of what confines a process. It takes the kernel's word while the process runs, and holds each
//! line of an end report's `enforced` list against it. It shares no code with what wrote the list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernel's word on one process of a sandbox.
#[derive(Debug)]
pub struct Reading {
    /// Files and links of `/proc/PID`.
    process: BTreeMap<String, String>,
    /// Control files of its cgroups.
    groups: BTreeMap<PathBuf, String>,
    /// Cgroups that keep a process of root's from a device which no sandbox gets.
    filtering: BTreeSet<PathBuf>,
    /// What is read through its namespaces.
    inside: BTreeMap<&'static str, String>,
}

impl Reading {
    /// Reads all there is to read of process `pid` and of these cgroups. Only root may look into namespaces.
    pub fn take(pid: i32, groups: impl IntoIterator<Item = PathBuf>) -> Reading {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let mut process = BTreeMap::new();
        for name in ["status", "limits", "uid_map", "gid_map", "mountinfo", "net/dev", "stat"] {
            process.insert(name.to_owned(), fs::read_to_string(folder.join(name)).expect(name));
        }
        for name in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"].map(|name| format!("ns/{name}")) {
            process.insert(name.clone(), link(&folder.join(name)));
        }
        process.insert("cwd".into(), link(&folder.join("cwd")));
        let descriptors = fs::read_dir(folder.join("fd")).expect("root may look").flatten();
        let descriptors: Vec<String> = descriptors.map(|fd| link(&fd.path())).collect();
        process.insert("fd".into(), descriptors.join("\n"));
        let groups: Vec<PathBuf> = groups.into_iter().collect();
        let filtering = groups.iter().filter(|group| denies_the_kernel_log(group)).cloned().collect();
        let files = groups.iter().flat_map(|group| fs::read_dir(group).into_iter().flatten().flatten());
        let files = files.map(|file| file.path());
        let files = files.filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?)));
        let inside = [
            ("hostname", vec!["--uts", "hostname"]),
            ("namespaces", vec!["--user", "cat", "/proc/sys/user/max_user_namespaces"]),
        ];
        let inside = inside.map(|(name, words)| (name, entered(pid, &words)));
        Reading { process, groups: files.collect(), filtering, inside: inside.into() }
    }

    /// Holds a line of `enforced` against the reading; says what is wrong with it.
    pub fn confirms(&self, clause: &str, what: &str) -> Result<(), String> {
        let fine = match what.split_once(": ").unwrap_or((what, "")) {
            (file @ ("uid_map" | "gid_map"), lines) => self.map(file) == lines,
            ("uids on the host", ids) => self.status("Uid") == ids,
            ("gids on the host", ids) => self.status("Gid") == ids,
            ("supplementary groups on the host" | "supplementary groups kept", ids) => {
                self.status("Groups") == if ids == "none" { "" } else { ids }
            }
            (set, value) if set.starts_with("Cap") => self.status(set) == value,
            ("NoNewPrivs", value) => self.status("NoNewPrivs") == value,
            ("Seccomp mode", value) => self.status("Seccomp") == value,
            ("interfaces", names) => self.interfaces() == names,
            (limit, values) if limit.starts_with("Max ") => self.limit(limit) == values,
            (name, link) if name.ends_with(" namespace") => self.is_own_namespace(name, link),
            ("v1 list", rest) => self.filters_devices(rest),
            _ => return self.confirms_sentence(clause, what),
        };
        if fine { Ok(()) } else { Err(format!("{clause}: `{what}` is not what the kernel says")) }
    }

    fn confirms_sentence(&self, clause: &str, what: &str) -> Result<(), String> {
        let fine = if let Some((point, options)) =
            what.split_once(" mounted ").filter(|(point, _)| point.starts_with('/'))
        {
            self.mounts().any(|(found, flags)| found == point && flags == options)
        } else if let Some(path) = what.strip_suffix(" covered or read-only") {
            self.is_covered(path)
        } else if what == "nothing else is mounted" {
            // Each mount that is listed was compared by itself; the count is the test's to compare.
            true
        } else if let Some(group) = what.strip_prefix("in control group ") {
            let tasks = ["cgroup.procs", "tasks"].map(|file| self.groups.get(&Path::new(group).join(file)));
            let pid = self.status("Pid");
            tasks.iter().flatten().any(|text| text.lines().any(|line| line == pid))
        } else if let Some((file, value)) = what.rsplit_once(" is ").filter(|(file, _)| file.starts_with('/'))
        {
            self.groups.get(Path::new(file)).is_some_and(|text| text.trim() == value)
        } else if let Some(abi) = what.strip_prefix("Landlock ABI ") {
            let abi: String = abi.chars().take_while(char::is_ascii_digit).collect();
            abi.parse() == Ok(landlock_abi())
        } else if let Some(name) = what.strip_prefix("host name set to ") {
            self.inside["hostname"] == name
        } else if what == "no user namespace can be made inside" {
            self.inside["namespaces"] == "0"
        } else if let Some(path) = what.strip_prefix("working directory ") {
            path.strip_suffix(" lies inside") == Some(self.process["cwd"].as_str())
        } else if what == "inherited descriptors are closed on exec" {
            self.process["fd"].lines().count() == 3
        } else if what == "own session and anonymous session keyring" {
            let session = |stat: &str| Some(stat.rsplit_once(')')?.1.split_whitespace().nth(3)?.to_owned());
            let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
            session(&self.process["stat"]) != session(&own)
        } else {
            return Err(format!("{clause}: nobody else reads `{what}`"));
        };
        if fine { Ok(()) } else { Err(format!("{clause}: `{what}` is not what the kernel says")) }
    }

    /// Points where something is mounted, with the mount's options.
    pub fn mounts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.process["mountinfo"].lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(4);
            Some((fields.next()?, fields.next()?))
        })
    }

    fn status(&self, key: &str) -> String {
        let line = self.process["status"].lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or("absent").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn map(&self, file: &str) -> String {
        let line = |line: &str| {
            let numbers: Vec<&str> = line.split_whitespace().collect();
            format!("{} -> {}, {}", numbers[0], numbers[1], numbers[2])
        };
        self.process[file].lines().map(line).collect::<Vec<_>>().join("; ")
    }

    fn interfaces(&self) -> String {
        let names = self.process["net/dev"].lines().skip(2).filter_map(|line| line.split_once(':'));
        names.map(|(name, _)| name.trim()).collect::<Vec<_>>().join(" ")
    }

    fn limit(&self, name: &str) -> String {
        let line = self.process["limits"].lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    fn is_own_namespace(&self, name: &str, found: &str) -> bool {
        let kind = name.strip_prefix("own ").and_then(|name| name.strip_suffix(" namespace"));
        let file = format!("ns/{}", kind.unwrap_or_default());
        self.process
            .get(&file)
            .is_some_and(|theirs| theirs == found && *theirs != link(&Path::new("/proc/self").join(&file)))
    }

    /// `rest`: the v1 list, and how many programs are attached.
    fn filters_devices(&self, rest: &str) -> bool {
        let (list, programs) = rest.rsplit_once("; ").unwrap_or_default();
        let v1 = self.groups.iter().find(|(path, _)| path.ends_with("devices.list"));
        let listed = v1.is_none_or(|(_, text)| text.lines().collect::<Vec<_>>().join(", ") == list);
        let v2 = self.groups.keys().any(|path| path.ends_with("cgroup.controllers"));
        let places = usize::from(v1.is_some()) + usize::from(v2);
        listed && (v2 == programs.starts_with('1')) && self.filtering.len() == places && places > 0
    }

    /// Something is mounted there, or above it below /proc; or this kernel has no such file.
    fn is_covered(&self, path: &str) -> bool {
        self.mounts()
            .any(|(point, _)| point != "/proc" && path.starts_with(point) && point.starts_with("/proc"))
            || !Path::new(path).exists()
    }
}

fn link(path: &Path) -> String {
    fs::read_link(path).map(|target| target.display().to_string()).unwrap_or_else(|error| error.to_string())
}

/// What a program says in a process's namespaces.
fn entered(pid: i32, words: &[&str]) -> String {
    let target = pid.to_string();
    let output =
        Command::new("nsenter").args(["--preserve-credentials", "--target", &target]).args(words).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Whether root, in this cgroup, may not open `/dev/kmsg`, which it may elsewhere.
fn denies_the_kernel_log(group: &Path) -> bool {
    let opens = |procs: Option<PathBuf>| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec 3>/dev/kmsg"]).stderr(std::process::Stdio::null());
        if let Some(procs) = procs {
            let Ok(procs) = fs::OpenOptions::new().write(true).open(procs) else { return true };
            // SAFETY: the closure makes one system call on an open file and allocates nothing.
            unsafe {
                command.pre_exec(move || nix::unistd::write(&procs, b"0").map(drop).map_err(Into::into))
            };
        }
        command.status().is_ok_and(|status| status.success())
    };
    opens(None) && !opens(Some(group.join("cgroup.procs")))
}

/// The kernel's Landlock ABI; -1 without Landlock.
pub fn landlock_abi() -> i64 {
    // SAFETY: with a null attribute and the version flag, the call only returns a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, 1_usize) }
}
