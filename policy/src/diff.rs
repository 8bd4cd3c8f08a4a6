//! What becomes possible, and what impossible, from one policy to another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::path::PathBuf;

use airlock_runtime::seccomp::{Answer, FilterTable, SeccompError};
use serde::Serialize;

use crate::diagnostic::{Place, PolicyError};
use crate::merged::{Gpu, Limits, Mount, Policy};
use crate::resolve::filter;
use crate::schema::{CdiHooks, Groups, MountMode, NetworkMode};

/// One clause that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The clause.
    pub clause: String,
    /// Which way it goes.
    pub effect: Effect,
    /// What differs, in words.
    pub what: String,
    /// Where the second policy sets the clause; of what it lacks, where the first does.
    pub place: Option<Place>,
}

/// Which way a change goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The code inside can do more.
    Possible,
    /// It can do less.
    Impossible,
    /// Something else than before.
    Changed,
}

/// Why two policies cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// A policy without a filter that could be made.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A filter that cannot be read.
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
}

/// Every clause in which the policies differ: what becomes possible first.
pub fn diff(before: &Policy, after: &Policy) -> Result<Vec<Change>, DiffError> {
    let mut differences = Differences { before, after, changes: Vec::new() };
    differences.root();
    differences.mounts();
    differences.identity();
    differences.calls()?;
    differences.landlock();
    differences.limits();
    differences.environment();
    let mut changes = differences.changes;
    changes.sort_by(|a, b| (a.effect, &a.clause).cmp(&(b.effect, &b.clause)));
    Ok(changes)
}

struct Differences<'a> {
    before: &'a Policy,
    after: &'a Policy,
    changes: Vec<Change>,
}

impl Differences<'_> {
    fn push(&mut self, clause: &str, effect: Effect, what: impl Into<String>) {
        let place = self.after.place(clause).or_else(|| self.before.place(clause));
        self.changes.push(Change { clause: clause.to_owned(), effect, what: what.into(), place });
    }

    /// Something that a policy lets the code do, or not.
    fn may(&mut self, clause: &str, before: bool, after: bool, what: &str) {
        match (before, after) {
            (false, true) => self.push(clause, Effect::Possible, what),
            (true, false) => self.push(clause, Effect::Impossible, what),
            _ => {}
        }
    }

    fn other<T: PartialEq>(&mut self, clause: &str, before: &T, after: &T, show: impl Fn(&T) -> String) {
        if before != after {
            self.push(clause, Effect::Changed, format!("{} instead of {}", show(after), show(before)));
        }
    }

    fn each<T: Ord + Display>(&mut self, clause: &str, before: BTreeSet<T>, after: BTreeSet<T>, what: &str) {
        for (effect, items) in [
            (Effect::Possible, after.difference(&before).map(ToString::to_string).collect::<Vec<_>>()),
            (Effect::Impossible, before.difference(&after).map(ToString::to_string).collect()),
        ] {
            if !items.is_empty() {
                self.push(clause, effect, format!("{what} {}", items.join(", ")));
            }
        }
    }

    fn root(&mut self) {
        use crate::merged::Writable;
        let (before, after) = (&self.before.root, &self.after.root);
        self.other("root.kind", &before.kind, &after.kind, words);
        let shown = |path: &Option<PathBuf>| stated(path.as_ref().map(|path| path.display()).as_ref());
        self.other("root.path", &before.path, &after.path, shown);
        let writable = |to: &Writable| *to != Writable::None;
        self.may("root.writable", writable(&before.writable), writable(&after.writable), "writing to `/`");
        if writable(&before.writable) && writable(&after.writable) {
            self.other("root.writable", &before.writable, &after.writable, |to| match to {
                Writable::Dir(path) => format!("writes kept in {}", path.display()),
                Writable::Tmpfs | Writable::None => "writes forgotten".into(),
            });
        }
        let what = "running programs from /tmp and the home directory";
        self.may("root.tmp_exec", before.tmp_exec, after.tmp_exec, what);
    }

    fn mounts(&mut self) {
        let by_target = |policy: &Policy| -> BTreeMap<PathBuf, Mount> {
            policy.mount.iter().map(|mount| (mount.target.clone(), mount.clone())).collect()
        };
        let (before, after) = (by_target(self.before), by_target(self.after));
        let targets: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
        for target in targets {
            let clause = format!("[[mount]] {}", target.display());
            let (source, at) = (|mount: &Mount| mount.source.display().to_string(), target.display());
            match (before.get(target), after.get(target)) {
                (None, Some(new)) => {
                    let what = format!("seeing {} at {at}", source(new));
                    self.push(&clause, Effect::Possible, what);
                    self.flags(
                        &clause,
                        &Mount { mode: MountMode::Ro, exec: false, socket: false, ..new.clone() },
                        new,
                    );
                }
                (Some(old), None) => {
                    self.push(&clause, Effect::Impossible, format!("seeing {} at {at}", source(old)));
                }
                (Some(old), Some(new)) => {
                    self.other(&clause, &old.source, &new.source, |source| source.display().to_string());
                    self.flags(&clause, old, new);
                }
                (None, None) => {}
            }
        }
    }

    fn flags(&mut self, clause: &str, old: &Mount, new: &Mount) {
        let at = new.target.display();
        let writable = |mount: &Mount| mount.mode == MountMode::Rw;
        self.may(clause, writable(old), writable(new), &format!("writing to {at}"));
        self.may(clause, old.exec, new.exec, &format!("running programs from {at}"));
        self.may(clause, old.socket, new.socket, &format!("connecting to {at}"));
    }

    fn identity(&mut self) {
        let (before, after) = (&self.before.identity, &self.after.identity);
        self.other("identity.user", &before.user, &after.user, ToString::to_string);
        self.other("identity.hostname", &before.hostname, &after.hostname, Clone::clone);
        self.other("identity.ids", &before.ids, &after.ids, words);
        let keeps = |groups| groups == Groups::Auto;
        let what = "keeping the caller's groups where the kernel does not let them go";
        self.may("identity.groups", keeps(before.groups), keeps(after.groups), what);
        let kept = |policy: &Policy| policy.capabilities.keep.iter().map(ToString::to_string).collect();
        self.each("capabilities.keep", kept(self.before), kept(self.after), "using the capabilities");
        let lowered = |policy: &Policy| policy.best_effort.iter().map(|clause| clause.word()).collect();
        self.each("best_effort", lowered(self.before), lowered(self.after), "a start without");
        self.may("nesting", self.before.nesting, self.after.nesting, "making namespaces inside");
        let loopback = |policy: &Policy| policy.network.mode == NetworkMode::Loopback;
        let what = "talking by a loopback of the sandbox's own";
        self.may("network.mode", loopback(self.before), loopback(self.after), what);
        let gpus = |policy: &Policy| {
            let Some(gpu) = &policy.gpu else { return Some(0) };
            let named = u32::try_from(gpu.devices.len()).unwrap_or(u32::MAX);
            let all = gpu.devices.iter().any(|device| device == "all");
            (!all).then(|| gpu.count.unwrap_or(named))
        };
        let (before, after) = (gpus(self.before), gpus(self.after));
        self.amount("gpu", before, after, "GPUs", ToString::to_string);
        if before == after {
            let names = |policy: &Policy| match &policy.gpu {
                Some(Gpu { count: Some(_), .. }) => ["of any kind".to_owned()].into(),
                gpu => gpu.iter().flat_map(|gpu| gpu.devices.iter().cloned()).collect(),
            };
            self.each("gpu.devices", names(self.before), names(self.after), "GPUs:");
        }
        self.gpu_parts();
    }

    /// What comes with GPUs, or instead of them.
    fn gpu_parts(&mut self) {
        let none = Gpu::default();
        let (old, new) =
            (self.before.gpu.as_ref().unwrap_or(&none), self.after.gpu.as_ref().unwrap_or(&none));
        let capabilities = |gpu: &Gpu| gpu.capabilities.iter().cloned().collect();
        self.each("gpu.capabilities", capabilities(old), capabilities(new), "using the driver for");
        let features = |gpu: &Gpu| gpu.features.iter().map(|feature| feature.word().to_owned()).collect();
        self.each("gpu.features", features(old), features(new), "reaching, of the driver,");
        let cdi = |gpu: &Gpu| gpu.cdi.iter().cloned().collect();
        self.each("gpu.cdi", cdi(old), cdi(new), "using the device");
        let nodes = |gpu: &Gpu| gpu.nodes.iter().map(|path| path.display().to_string()).collect();
        self.each("gpu.nodes", nodes(old), nodes(new), "using the node");
        self.may("gpu.shared", old.shared, new.shared, "running on a GPU that others hold too");
        if let (Some(old), Some(new)) = (&self.before.gpu, &self.after.gpu) {
            self.amount("gpu.memory", old.memory, new.memory, "memory of each GPU", ToString::to_string);
            self.amount("gpu.energy", old.energy, new.energy, "energy of each GPU", ToString::to_string);
            let what = "time of each GPU";
            self.amount("gpu.utilisation", old.utilisation, new.utilisation, what, ToString::to_string);
            let what = "leaving something on a GPU for who comes next";
            self.may("gpu.reset", !old.reset, !new.reset, what);
        }
        let skips = |gpu: &Gpu| gpu.cdi_hooks == CdiHooks::Skip;
        self.may("gpu.cdi_hooks", skips(old), skips(new), "a start without the hooks of CDI documents");
    }

    fn calls(&mut self) -> Result<(), DiffError> {
        let table = |policy: &Policy| -> Result<Option<FilterTable>, DiffError> {
            Ok(filter(policy)?.map(|document| FilterTable::of(&document)).transpose()?)
        };
        let (before, after) = match (table(self.before)?, table(self.after)?) {
            (None, None) => return Ok(()),
            (None, Some(_)) => {
                self.push("seccomp.profile", Effect::Impossible, "calls that the filter refuses");
                return Ok(());
            }
            (Some(_), None) => {
                self.push("seccomp.profile", Effect::Possible, "every system call");
                return Ok(());
            }
            (Some(before), Some(after)) => (before, after),
        };
        let mut named: BTreeMap<Effect, Vec<String>> = BTreeMap::new();
        for ((name, _, old), (_, _, new)) in before.calls().zip(after.calls()) {
            if old != new {
                let (effect, word) = call(&old, &new);
                named.entry(effect).or_default().push(format!("{name}{word}"));
            }
        }
        for (effect, calls) in named {
            self.push("seccomp.profile", effect, format!("system calls {}", calls.join(", ")));
        }
        Ok(())
    }

    fn landlock(&mut self) {
        let (before, after) = (&self.before.landlock, &self.after.landlock);
        let off = "opening what the mounts show without Landlock behind them";
        self.may("landlock.enabled", !before.enabled, !after.enabled, off);
        let what = "a start with an older Landlock";
        self.may("landlock.min_abi", before.min_abi < after.min_abi, after.min_abi < before.min_abi, what);
        for (clause, old, new, what) in [
            ("landlock.read", &before.read, &after.read, "reading"),
            ("landlock.write", &before.write, &after.write, "writing to"),
        ] {
            match (old, new) {
                (None, Some(_)) => {
                    self.push(clause, Effect::Impossible, format!("{what} what the list does not name"))
                }
                (Some(_), None) => {
                    self.push(clause, Effect::Possible, format!("{what} all that the mounts give"))
                }
                (Some(old), Some(new)) => {
                    let shown =
                        |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
                    self.each(clause, shown(old), shown(new), what);
                }
                (None, None) => {}
            }
        }
    }

    /// A limit; `None` is unlimited.
    fn amount<T: PartialOrd>(
        &mut self,
        clause: &str,
        before: Option<T>,
        after: Option<T>,
        what: &str,
        show: impl Fn(&T) -> String,
    ) {
        let shown = |limit: &Option<T>| limit.as_ref().map_or_else(|| "unlimited".to_owned(), &show);
        let effect = match (&before, &after) {
            (Some(old), Some(new)) if old < new => Effect::Possible,
            (Some(old), Some(new)) if old > new => Effect::Impossible,
            (Some(_), None) => Effect::Possible,
            (None, Some(_)) => Effect::Impossible,
            _ => return,
        };
        self.push(clause, effect, format!("{what}: {} instead of {}", shown(&after), shown(&before)));
    }

    fn limits(&mut self) {
        let (old, new): (&Limits, &Limits) = (&self.before.limits, &self.after.limits);
        self.amount("limits.memory", old.memory, new.memory, "memory", ToString::to_string);
        self.amount("limits.swap", old.swap, new.swap, "swap", ToString::to_string);
        self.amount("limits.cpus", old.cpus, new.cpus, "CPUs", ToString::to_string);
        self.amount("limits.pids", old.pids, new.pids, "processes", ToString::to_string);
        self.amount("limits.wall", old.wall, new.wall, "time", ToString::to_string);
        self.amount("limits.tmp", Some(old.tmp), Some(new.tmp), "/tmp", ToString::to_string);
        self.amount("limits.shm", Some(old.shm), Some(new.shm), "/dev/shm", ToString::to_string);
        self.amount("limits.nofile", Some(old.nofile), Some(new.nofile), "open files", ToString::to_string);
        self.amount("limits.core", Some(old.core), Some(new.core), "core files", ToString::to_string);
        self.other("limits.cpuset", &old.cpuset, &new.cpuset, |set| stated(set.as_ref()));
        self.other("limits.io_weight", &old.io_weight, &new.io_weight, |weight| stated(weight.as_ref()));
    }

    fn environment(&mut self) {
        let passed = |policy: &Policy| policy.env.pass.iter().cloned().collect();
        self.each("env.pass", passed(self.before), passed(self.after), "reading the caller's");
        let (old, new) = (&self.before.env.set, &self.after.env.set);
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names {
            self.other(&format!("env.set.{name}"), &old.get(name), &new.get(name), |value| stated(*value));
        }
        let shown = |path: &Option<PathBuf>| stated(path.as_ref().map(|path| path.display()).as_ref());
        self.other("process.cwd", &self.before.process.cwd, &self.after.process.cwd, shown);
    }
}

/// What becomes of one call, and the word that says so behind its name.
fn call(old: &Answer, new: &Answer) -> (Effect, &'static str) {
    match (old.may_run(), new.may_run()) {
        (false, true) if new.always_runs() => (Effect::Possible, ""),
        (false, true) => (Effect::Possible, " (under a condition)"),
        (true, false) => (Effect::Impossible, ""),
        (true, true) if new.always_runs() => (Effect::Possible, " (with any arguments)"),
        (true, true) if old.always_runs() => (Effect::Impossible, " (but under a condition)"),
        (true, true) => (Effect::Changed, " (another condition)"),
        (false, false) => (Effect::Changed, " (refused otherwise)"),
    }
}

/// A value, or that there is none.
fn stated<T: Display>(value: Option<&T>) -> String {
    value.map_or_else(|| "nothing".into(), |value| format!("`{value}`"))
}

/// A word of the policy language.
fn words(value: &impl Debug) -> String {
    format!("{value:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::overrides::Overrides;

    fn policy(text: &str) -> Policy {
        let directory = tempfile::tempdir().unwrap();
        let head = "version = 1\nname = \"p\"\nextends = \"strict\"\n";
        fs::write(directory.path().join("p.toml"), format!("{head}{text}\n")).unwrap();
        Policy::load("./p.toml", &Overrides::default(), directory.path()).unwrap()
    }

    /// Each clause goes the way it should, and the other way round the other way.
    #[test]
    fn a_wider_policy_makes_things_possible_and_a_narrower_one_impossible() {
        for (clause, narrow, wide) in [
            ("root.tmp_exec", "", "[root]\ntmp_exec = true"),
            ("root.writable", "", "[root]\nwritable = \"tmpfs\""),
            ("identity.groups", "", "[identity]\ngroups = \"auto\""),
            ("capabilities.keep", "", "[capabilities]\nkeep = [\"CAP_KILL\"]"),
            ("best_effort", "", "best_effort = [\"limits\"]"),
            ("network.mode", "", "[network]\nmode = \"loopback\""),
            ("gpu", "", "[gpu]\ncount = 1"),
            ("gpu.cdi", "", "[gpu]\ncdi = [\"a.com/b=c\"]"),
            ("gpu.nodes", "", "[gpu]\nnodes = [\"/dev/kfd\"]"),
            ("gpu", "[gpu]\ncount = 2", "[gpu]\ndevices = [\"all\"]"),
            ("gpu.memory", "[gpu]\ncount = 1\nmemory = \"1GiB\"", "[gpu]\ncount = 1\nmemory = \"2GiB\""),
            ("gpu.memory", "[gpu]\ncount = 1\nmemory = \"1GiB\"", "[gpu]\ncount = 1"),
            ("gpu.energy", "[gpu]\ncount = 1\nenergy = \"1MJ\"", "[gpu]\ncount = 1\nenergy = \"1kWh\""),
            ("gpu.utilisation", "[gpu]\ncount = 1\nutilisation = \"5%\"", "[gpu]\ncount = 1"),
            ("gpu.reset", "[gpu]\ncount = 1\nreset = true", "[gpu]\ncount = 1"),
            ("gpu.shared", "[gpu]\ncount = 1", "[gpu]\ncount = 1\nshared = true"),
            ("gpu.features", "[gpu]\ncount = 1", "[gpu]\ncount = 1\nfeatures = [\"mps\"]"),
            ("gpu.cdi_hooks", "[gpu]\ncount = 1", "[gpu]\ncount = 1\ncdi_hooks = \"skip\""),
            ("seccomp.profile", "", "[seccomp]\nallow = [\"keyctl\"]"),
            ("seccomp.profile", "", "[seccomp]\nprofile = \"none\""),
            ("landlock.enabled", "", "[landlock]\nenabled = false"),
            ("landlock.min_abi", "[landlock]\nmin_abi = 3", ""),
            ("landlock.write", "[landlock]\nwrite = []", ""),
            ("landlock.read", "[landlock]\nread = [\"/usr\"]", "[landlock]\nread = [\"/usr\", \"/opt\"]"),
            ("limits.memory", "", "[limits]\nmemory = \"unlimited\""),
            ("limits.pids", "", "[limits]\npids = 65"),
            ("limits.wall", "", "[limits]\nwall = \"unlimited\""),
            ("limits.core", "", "[limits]\ncore = \"1MiB\""),
            ("env.pass", "", "[env]\npass = [\"LANG\"]"),
            ("[[mount]] /a", "", "[[mount]]\nsource = \"/srv/a\"\ntarget = \"/a\""),
            (
                "[[mount]] /a",
                "[[mount]]\nsource = \"/srv/a\"\ntarget = \"/a\"",
                "[[mount]]\nsource = \"/srv/a\"\ntarget = \"/a\"\nmode = \"rw\"",
            ),
        ] {
            let (narrow, wide) = (policy(narrow), policy(wide));
            for (from, to, effect) in
                [(&narrow, &wide, Effect::Possible), (&wide, &narrow, Effect::Impossible)]
            {
                let changes = diff(from, to).unwrap();
                let told: Vec<_> = changes.iter().map(|change| (&*change.clause, change.effect)).collect();
                assert_eq!(told, [(clause, effect)], "{changes:?}");
                assert!(changes[0].place.is_some(), "{changes:?}");
            }
            assert_eq!(diff(&wide, &wide).unwrap(), []);
        }
    }

    #[test]
    fn other_gpus_are_told() {
        for (from, to, gained, lost) in [
            ("devices = [\"0\"]", "devices = [\"1\"]", "GPUs: 1", "GPUs: 0"),
            ("devices = [\"0\"]", "count = 1", "GPUs: of any kind", "GPUs: 0"),
            ("count = 1", "devices = [\"H100\"]", "GPUs: H100", "GPUs: of any kind"),
        ] {
            let gpu = |keys| policy(&format!("[gpu]\n{keys}"));
            let changes = diff(&gpu(from), &gpu(to)).unwrap();
            let told: Vec<_> = changes.iter().map(|change| (change.effect, &*change.what)).collect();
            assert_eq!(told, [(Effect::Possible, gained), (Effect::Impossible, lost)]);
        }
    }

    #[test]
    fn conditions_of_calls_are_told_apart() {
        let load = |name| Policy::load(name, &Overrides::default(), Path::new("/")).unwrap();
        let changes = diff(&load("strict"), &load("base")).unwrap();
        let calls = |effect| {
            let of = |change: &&Change| change.clause == "seccomp.profile" && change.effect == effect;
            changes.iter().find(of).map(|change| change.what.clone()).unwrap_or_default()
        };
        assert!(calls(Effect::Possible).contains("socket (under a condition)"));
        assert!(calls(Effect::Possible).contains(" bind,"));
        assert!(calls(Effect::Changed).contains("ioctl (another condition)"));
        assert_eq!(calls(Effect::Impossible), "");
    }
}
