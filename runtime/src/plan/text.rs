//! A plan in words, one line per step.

use std::fmt;

use super::{Access, Action, Entry, Limit, MountFlags, Namespace, Plan, Step, limit_name};
use crate::cgroups::{CgroupTarget, Version};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (side, steps) in [("host", &self.host), ("child", &self.child)] {
            writeln!(f, "{side} side")?;
            for (number, step) in steps.iter().enumerate() {
                writeln!(f, "{:>4}  {:<24} {}", number + 1, step.clause, step.action)?;
            }
        }
        writeln!(f, "payload")?;
        writeln!(f, "      {}", self.payload.args.join(" "))?;
        for lowered in &self.lowered {
            writeln!(f, "lowered: {}: {}", lowered.clause, lowered.what)?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.action, self.clause)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::CreateCgroup { target } => match trees(target, Version::V2).as_str() {
                "" => f.write_str("create no control group yet: there is no v2 tree"),
                v2 => write!(f, "create control group {v2}"),
            },
            Action::LimitCgroup { target, resources } => {
                match trees(target, Version::V1).as_str() {
                    "" => f.write_str("limit the control group:")?,
                    v1 => write!(f, "create control groups {v1}, limit them all:")?,
                }
                let writes = target.limit_writes(resources).unwrap_or_default();
                let asked = writes.iter().filter(|write| !write.implied);
                let values: Vec<_> =
                    asked.map(|write| format!(" {} = {}", write.file, write.value)).collect();
                f.write_str(if values.is_empty() { " nothing" } else { "" })?;
                f.write_str(&values.join(","))
            }
            Action::FilterDevices { filter } => write!(f, "{filter}"),
            Action::CloneInit { namespaces } => {
                write!(f, "clone init into new namespaces: {}", names(namespaces))
            }
            Action::WriteIdMaps { maps, helper, .. } => {
                write!(f, "map ids{}:", if *helper { " by newuidmap" } else { "" })?;
                for (kind, lines) in [("uid", &maps.uids), ("gid", &maps.gids)] {
                    for line in lines {
                        write!(f, " {kind} {}->{}+{}", line.inside, line.outside, line.count)?;
                    }
                }
                Ok(())
            }
            Action::AwaitIdMaps => f.write_str("wait for the id maps"),
            Action::NewTmpfs { mount, size, mode, owner, flags } => {
                write!(
                    f,
                    "{mount} = tmpfs of {size} bytes, mode {mode:o}, owner {}:{}{flags}",
                    owner.uid, owner.gid
                )
            }
            Action::CloneTree { mount, source, flags, idmap, .. } => {
                let idmap = if idmap.is_some() { ", idmapped" } else { "" };
                write!(f, "{mount} = clone of {}{flags}{idmap}", source.display())
            }
            Action::CloneDevice { mount, source, major, minor } => {
                write!(f, "{mount} = node {}, which must be {major}:{minor}, noexec", source.display())
            }
            Action::Make { mount, path, entry, .. } => write!(f, "{mount}:{} = {entry}", path.display()),
            Action::Seal { mount } => write!(f, "seal {mount} read-only"),
            Action::NewProc { mount } => write!(f, "{mount} = proc, foreign processes hidden"),
            Action::NewDevpts { mount } => write!(f, "{mount} = devpts"),
            Action::NewOverlay { mount, lower, upper, .. } => {
                let lower: Vec<String> = lower.iter().map(ToString::to_string).collect();
                let upper = upper.map_or_else(|| "none".into(), |upper| upper.to_string());
                write!(f, "{mount} = overlay, lower {}, upper {upper}", lower.join(":"))
            }
            Action::HandOver { mounts } => write!(f, "hand over {} mounts", mounts.len()),
            Action::Receive { mounts } => write!(f, "receive {} mounts, join control groups", mounts.len()),
            Action::OpenTerminal => f.write_str("open the pseudo-terminal"),
            Action::BecomeRoot => f.write_str("become the sandbox's root"),
            Action::Unshare { namespaces } => write!(f, "unshare {}", names(namespaces)),
            Action::NewSession => f.write_str("new session and session keyring"),
            Action::PrivateMounts => f.write_str("make / recursively private"),
            Action::AttachRoot { mount } => write!(f, "move {mount} onto /"),
            Action::Attach { mount, target } => write!(f, "move {mount} to {}", target.display()),
            Action::Pivot => f.write_str("pivot into it, detach the old root"),
            Action::Mask { paths } => write!(f, "mask {} paths", paths.len()),
            Action::ReadOnly { paths } => write!(f, "make {} paths read-only", paths.len()),
            Action::Hostname { name } => write!(f, "host name {name}"),
            Action::LoopbackUp => f.write_str("loopback up"),
            Action::ForbidUserNamespaces => f.write_str("user.max_user_namespaces = 0"),
            Action::LimitQuotas => f.write_str("limit what is counted for the owner too"),
            Action::Limits { limits } => {
                let limits: Vec<String> = limits.iter().map(ToString::to_string).collect();
                write!(f, "resource limits: {}", limits.join(", "))
            }
            Action::DropBounding { keep, .. } => write!(f, "drop the bounding set but {}", keep.len()),
            Action::SetIds { uid, gid, groups } => {
                let groups = groups.as_ref().map_or_else(|| "kept".into(), |groups| format!("{groups:?}"));
                write!(f, "become {uid}:{gid}, supplementary groups {groups}")
            }
            Action::SetCapabilities { keep } => write!(f, "keep {} capabilities in every set", keep.len()),
            Action::DieWithMonitor => f.write_str("die with the monitor"),
            Action::NoNewPrivileges => f.write_str("no_new_privs"),
            Action::Landlock { abi, rules } => {
                write!(f, "Landlock ABI {abi}:")?;
                rules.iter().try_for_each(|rule| write!(f, " {}={}", rule.path.display(), rule.access))
            }
            Action::CloseDescriptors => f.write_str("close what was inherited, reset umask"),
            Action::EnterWorkingDirectory { path } => write!(f, "enter {}", path.display()),
            Action::Seccomp { instructions, .. } => {
                write!(f, "seccomp filter of {instructions} instructions")
            }
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match limit_name(self.resource) {
            Some(name) => f.write_str(name.trim_start_matches("Max "))?,
            None => write!(f, "number {}", self.resource)?,
        }
        let value = |value: u64| if value == u64::MAX { "unlimited".into() } else { value.to_string() };
        write!(f, " {}", value(self.soft))?;
        if self.hard == self.soft { Ok(()) } else { write!(f, " (at most {})", value(self.hard)) }
    }
}

impl fmt::Display for MountFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [(self.read_only, ", ro"), (self.no_exec, ", noexec"), (self.no_dev, ", nodev")];
        words.iter().filter(|(set, _)| *set).try_for_each(|(_, word)| f.write_str(word))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Dir { mode } => write!(f, "directory {mode:o}"),
            Entry::File { content, .. } => write!(f, "file of {} bytes", content.len()),
            Entry::Copy { source } => write!(f, "copy of {}", source.display()),
            Entry::Link { target } => write!(f, "link to {}", target.display()),
            Entry::Device { major, minor } => write!(f, "device {major}:{minor}"),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = [
            (self.read, 'r'),
            (self.exec, 'x'),
            (self.list, 'l'),
            (self.write, 'w'),
            (self.create, 'c'),
            (self.ioctl, 'i'),
        ];
        let set: String = letters.iter().filter(|(set, _)| *set).map(|(_, letter)| letter).collect();
        f.write_str(&set)
    }
}

fn trees(target: &CgroupTarget, version: Version) -> String {
    let trees = target.trees.iter().filter(|tree| tree.version == version);
    trees.map(|tree| tree.path().display().to_string()).collect::<Vec<_>>().join(" ")
}

fn names(namespaces: &[Namespace]) -> String {
    namespaces.iter().map(|namespace| namespace.proc_name()).collect::<Vec<_>>().join(" ")
}
