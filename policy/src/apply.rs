//! One layer, a policy file or the command line, checked and laid over what the layers below it say.

use std::collections::BTreeSet;
use std::path::Path;

use crate::checks;
use crate::diagnostic::{Diagnostic, Fault, Source};
use crate::merged::{Mount, Policy};
use crate::schema::{
    At, Document, EnvTable, GpuTable, LandlockTable, LimitsTable, MountTable, NetworkMode, NetworkTable,
    RootKind, RootTable, SeccompTable,
};
use crate::seccomp_file;
use crate::units::Size;

/// More mounts than any real policy has, and few enough to be made in well under a second.
const MOST_MOUNTS: usize = 1024;

/// A document and what its text is relative to.
pub(crate) struct Layer<'a> {
    pub(crate) source: &'a Source,
    /// What relative host paths are relative to.
    pub(crate) base: &'a Path,
    /// Lists of the command line extend those of the files instead of replacing them.
    pub(crate) extends_lists: bool,
}

/// Lays `document` over `policy`; scalars override, mounts merge by target, `env.set` by name, other lists
/// replace. Returns every mistake found, in the order of the text.
pub(crate) fn apply(policy: &mut Policy, layer: &Layer<'_>, document: Document) -> Vec<Diagnostic> {
    let mut merge = Merge { policy, layer, faults: Vec::new() };
    merge.document(document);
    let mut faults = merge.faults;
    faults.sort_by_key(|fault| (fault.place.line, fault.place.column));
    faults
}

struct Merge<'a> {
    policy: &'a mut Policy,
    layer: &'a Layer<'a>,
    faults: Vec<Diagnostic>,
}

impl Merge<'_> {
    fn document(&mut self, document: Document) {
        self.set("version", document.version, checks::version, |policy| &mut policy.version);
        self.set("name", document.name, checks::name, |policy| &mut policy.name);
        self.set("nesting", document.nesting, Ok, |policy| &mut policy.nesting);
        if let Some(names) = self.items("best_effort", document.best_effort, Ok) {
            let kept = std::mem::take(&mut self.policy.best_effort);
            let below = if self.layer.extends_lists { kept } else { BTreeSet::new() };
            self.policy.best_effort = below.into_iter().chain(names).collect();
        }
        self.root(document.root);
        self.mounts(document.mount);
        self.set(
            "process.cwd",
            document.process.cwd,
            |text| checks::inside_path(&text).map(Some),
            |policy| &mut policy.process.cwd,
        );
        let identity = document.identity;
        self.set("identity.user", identity.user, checks::user, |policy| &mut policy.identity.user);
        self.set("identity.hostname", identity.hostname, checks::hostname, |policy| {
            &mut policy.identity.hostname
        });
        self.set("identity.ids", identity.ids, Ok, |policy| &mut policy.identity.ids);
        self.set("identity.groups", identity.groups, Ok, |policy| &mut policy.identity.groups);
        self.network(document.network);
        if let Some(keep) = self.items("capabilities.keep", document.capabilities.keep, checks::capability) {
            self.policy.capabilities.keep = keep;
        }
        self.seccomp(document.seccomp);
        self.landlock(document.landlock);
        self.limits(document.limits);
        if let Some(gpu) = document.gpu {
            self.gpu(gpu);
        }
        self.env(document.env);
    }

    fn root(&mut self, root: RootTable) {
        let base = self.layer.base;
        let kind = |kind| match kind {
            RootKind::Image => Err(Fault::new("root kind `image` is a reserved word; this Airlock has none")
                .help("unpack the image and use `kind = \"dir\"` with `path`")),
            kind => Ok(kind),
        };
        self.set("root.kind", root.kind, kind, |policy| &mut policy.root.kind);
        self.set(
            "root.path",
            root.path,
            |text| checks::host_path(&text, base).map(Some),
            |policy| &mut policy.root.path,
        );
        self.set(
            "root.writable",
            root.writable,
            |text| checks::writable(&text, base),
            |policy| &mut policy.root.writable,
        );
        self.set("root.tmp_exec", root.tmp_exec, Ok, |policy| &mut policy.root.tmp_exec);
    }

    fn mounts(&mut self, mounts: Vec<At<MountTable>>) {
        if let Some(first_too_many) = mounts.get(MOST_MOUNTS) {
            let message = format!("{} mounts; at most {MOST_MOUNTS} are taken", mounts.len());
            self.fault(first_too_many, Fault::new(message).help("mount a directory that holds them"));
            return;
        }
        let base = self.layer.base;
        let mut seen = BTreeSet::new();
        for mount in mounts {
            let spot = self.layer.source.spot(mount.target.span());
            let table = mount.into_inner();
            let source_spot = self.layer.source.spot(table.source.span());
            let source = self.checked(&table.source, |text| checks::source(text, base));
            let target = self.checked(&table.target, checks::target);
            let (Some(source), Some(target)) = (source, target) else {
                continue;
            };
            if !seen.insert(target.clone()) {
                let message = format!("{} is mounted twice in this file", target.display());
                self.faults.push(Fault::new(message).at(spot.place()));
                continue;
            }
            let MountTable { mode, exec, optional, socket, .. } = table;
            let mount = Mount { source, target, mode, exec, optional, socket };
            self.policy.spots.insert(mount.clause(), spot);
            self.policy.spots.insert(mount.source_clause(), source_spot);
            match self.policy.mount.iter_mut().find(|below| below.target == mount.target) {
                Some(below) => *below = mount,
                None => self.policy.mount.push(mount),
            }
        }
    }

    fn network(&mut self, network: NetworkTable) {
        let mode = |mode| match mode {
            NetworkMode::Broker => {
                Err(Fault::new("network mode `broker` is a reserved word; this Airlock has none")
                    .help("`none` or `loopback`"))
            }
            mode => Ok(mode),
        };
        self.set("network.mode", network.mode, mode, |policy| &mut policy.network.mode);
        if let Some(allow) = network.allow.filter(|allow| !allow.is_empty()) {
            let fault = Fault::new("`allow` belongs to network mode `broker`, which is reserved");
            self.fault(&allow, fault);
        }
    }

    fn seccomp(&mut self, seccomp: SeccompTable) {
        let base = self.layer.base;
        self.set(
            "seccomp.profile",
            seccomp.profile,
            |text| seccomp_file::profile(&text, base),
            |policy| &mut policy.seccomp.profile,
        );
        let mut named = BTreeSet::new();
        for (clause, list) in [("allow", seccomp.allow), ("deny", seccomp.deny), ("log", seccomp.log)] {
            for name in list.iter().flat_map(|list| list.iter()) {
                if !named.insert(name.to_string()) {
                    let message = format!("`{}` is named twice in the lists of [seccomp]", **name);
                    self.fault(name, Fault::new(message));
                }
            }
            let Some(names) = self.items(&format!("seccomp.{clause}"), list, seccomp_file::syscall) else {
                continue;
            };
            match clause {
                "allow" => self.policy.seccomp.allow = names,
                "deny" => self.policy.seccomp.deny = names,
                _ => self.policy.seccomp.log = names,
            }
        }
    }

    fn landlock(&mut self, landlock: LandlockTable) {
        if let Some(enabled) = landlock.enabled.as_ref().filter(|enabled| !***enabled) {
            let rest = landlock.min_abi.is_some() || landlock.read.is_some() || landlock.write.is_some();
            if rest {
                let fault = Fault::new("`enabled = false` contradicts the other keys of [landlock]")
                    .help("leave one of them out");
                self.fault(enabled, fault);
            }
        }
        self.set("landlock.enabled", landlock.enabled, Ok, |policy| &mut policy.landlock.enabled);
        self.set("landlock.min_abi", landlock.min_abi, checks::min_abi, |policy| {
            &mut policy.landlock.min_abi
        });
        if let Some(paths) = self.items("landlock.read", landlock.read, |text| checks::inside_path(&text)) {
            self.policy.landlock.read = Some(paths);
        }
        if let Some(paths) = self.items("landlock.write", landlock.write, |text| checks::inside_path(&text)) {
            self.policy.landlock.write = Some(paths);
        }
    }

    fn limits(&mut self, limits: LimitsTable) {
        use checks::{always, unless_unlimited};
        self.set("limits.memory", limits.memory, unless_unlimited(checks::memory), |policy| {
            &mut policy.limits.memory
        });
        self.set("limits.swap", limits.swap, unless_unlimited(Size::parse), |policy| &mut policy.limits.swap);
        self.set("limits.cpus", limits.cpus, unless_unlimited(checks::cpus), |policy| {
            &mut policy.limits.cpus
        });
        self.set(
            "limits.cpuset",
            limits.cpuset,
            |text| checks::cpuset(text).map(Some),
            |policy| &mut policy.limits.cpuset,
        );
        self.set("limits.pids", limits.pids, unless_unlimited(checks::pids), |policy| {
            &mut policy.limits.pids
        });
        self.set("limits.io_weight", limits.io_weight, unless_unlimited(checks::io_weight), |policy| {
            &mut policy.limits.io_weight
        });
        self.set("limits.tmp", limits.tmp, always(checks::some_bytes), |policy| &mut policy.limits.tmp);
        self.set("limits.shm", limits.shm, always(checks::some_bytes), |policy| &mut policy.limits.shm);
        self.set("limits.wall", limits.wall, unless_unlimited(checks::some_time), |policy| {
            &mut policy.limits.wall
        });
        self.set("limits.nofile", limits.nofile, always(checks::nofile), |policy| &mut policy.limits.nofile);
        self.set("limits.core", limits.core, always(Size::parse), |policy| &mut policy.limits.core);
    }

    /// What this layer does not state of GPUs stays as below; `count` and `devices` are stated together.
    fn gpu(&mut self, gpu: At<GpuTable>) {
        let spot = self.layer.source.spot(gpu.span());
        let table = gpu.into_inner();
        match (&table.count, &table.devices) {
            (Some(_), Some(devices)) => {
                let fault = Fault::new("`count` and `devices` contradict each other");
                return self.fault(devices, fault.help("leave one of them out"));
            }
            (None, Some(devices)) if devices.is_empty() => {
                let fault = Fault::new("`devices` is empty").help("leave [gpu] out for none");
                return self.faults.push(fault.at(spot.place()));
            }
            _ => {}
        }
        let mut gpu = self.policy.gpu.take().unwrap_or_default();
        if table.count.is_some() || table.devices.is_some() {
            gpu.count = table.count.and_then(|count| {
                let checked = checks::gpu_count(*count);
                self.ok(&count, checked)
            });
            gpu.devices = self.items("gpu.devices", table.devices, checks::word).unwrap_or_default();
        }
        if let Some(words) = self.items("gpu.capabilities", table.capabilities, checks::gpu_capability) {
            gpu.capabilities = words;
        }
        if let Some(features) = self.items("gpu.features", table.features, Ok) {
            gpu.features = features.into_iter().collect();
        }
        if let Some(names) = self.items("gpu.cdi", table.cdi, checks::cdi_name) {
            gpu.cdi = names;
        }
        if let Some(nodes) = self.items("gpu.nodes", table.nodes, checks::render_node) {
            gpu.nodes = nodes;
        }
        for (clause, span) in [
            ("gpu.shared", table.shared.as_ref().map(At::span)),
            ("gpu.memory", table.memory.as_ref().map(At::span)),
            ("gpu.energy", table.energy.as_ref().map(At::span)),
            ("gpu.utilisation", table.utilisation.as_ref().map(At::span)),
            ("gpu.reset", table.reset.as_ref().map(At::span)),
            ("gpu.cdi_hooks", table.cdi_hooks.as_ref().map(At::span)),
        ] {
            let spot = span.map(|span| self.layer.source.spot(span));
            self.policy.spots.extend(spot.map(|spot| (clause.to_owned(), spot)));
        }
        gpu.shared = table.shared.map_or(gpu.shared, At::into_inner);
        gpu.reset = table.reset.map_or(gpu.reset, At::into_inner);
        if let Some(memory) = table.memory {
            let checked = checks::unless_unlimited(checks::some_bytes)((*memory).clone());
            gpu.memory = self.ok(&memory, checked).flatten();
        }
        if let Some(energy) = table.energy {
            let checked = checks::unless_unlimited(checks::some_energy)((*energy).clone());
            gpu.energy = self.ok(&energy, checked).flatten();
        }
        if let Some(utilisation) = table.utilisation {
            let checked = checks::unless_unlimited(checks::utilisation)((*utilisation).clone());
            gpu.utilisation = self.ok(&utilisation, checked).flatten();
        }
        gpu.cdi_hooks = table.cdi_hooks.map_or(gpu.cdi_hooks, At::into_inner);
        // A count or a list that was refused has been told already.
        let refused = !self.faults.is_empty();
        if gpu.count.is_none()
            && gpu.devices.is_empty()
            && gpu.cdi.is_empty()
            && gpu.nodes.is_empty()
            && !refused
        {
            let fault = Fault::new("[gpu] asks for nothing").help("`count = 1`, or `devices = […]`");
            return self.faults.push(fault.at(spot.place()));
        }
        if let Some(fault) = checks::gpu_keys(&gpu).err().filter(|_| !refused) {
            return self.faults.push(fault.at(spot.place()));
        }
        self.policy.gpu = Some(gpu);
        self.policy.spots.insert("gpu".into(), spot);
    }

    fn env(&mut self, env: EnvTable) {
        let passed = env.pass.as_ref().map(|pass| pass.iter().map(|name| name.to_string()).collect());
        let passed: BTreeSet<String> = passed.unwrap_or_default();
        let name = |name: String| checks::variable(&name).map(|()| name);
        if let Some(names) = self.items("env.pass", env.pass, name) {
            if !self.layer.extends_lists {
                self.policy.env.pass.clear();
            }
            self.policy.env.pass.extend(names);
        }
        for (name, value) in env.set {
            if self.checked(&name, checks::variable).is_none() {
                continue;
            }
            if passed.contains(name.as_str()) {
                let message = format!("`{}` is both passed and set", *name);
                self.fault(&name, Fault::new(message).help("leave one of them out"));
                continue;
            }
            let spot = self.layer.source.spot(value.span());
            let checked = checks::value(value.to_string());
            if let Some(value) = self.ok(&value, checked) {
                self.policy.spots.insert(format!("env.set.{}", *name), spot);
                self.policy.env.set.insert(name.into_inner(), value);
            }
        }
    }

    /// Sets one clause, if this layer states it.
    fn set<T, U>(
        &mut self,
        clause: &str,
        value: Option<At<T>>,
        convert: impl FnOnce(T) -> Result<U, Fault>,
        slot: impl FnOnce(&mut Policy) -> &mut U,
    ) {
        let Some(value) = value else { return };
        let spot = self.layer.source.spot(value.span());
        match convert(value.into_inner()) {
            Ok(value) => {
                *slot(self.policy) = value;
                self.policy.spots.insert(clause.to_owned(), spot);
            }
            Err(fault) => self.faults.push(fault.at(spot.place())),
        }
    }

    /// The items of a list, if this layer states it and every item is good.
    fn items<T, U>(
        &mut self,
        clause: &str,
        list: Option<At<Vec<At<T>>>>,
        convert: impl Fn(T) -> Result<U, Fault>,
    ) -> Option<Vec<U>> {
        let list = list?;
        let spot = self.layer.source.spot(list.span());
        let mut good = Vec::new();
        let before = self.faults.len();
        for item in list.into_inner() {
            let span = item.span();
            match convert(item.into_inner()) {
                Ok(item) => good.push(item),
                Err(fault) => self.faults.push(fault.at(self.layer.source.place(span))),
            }
        }
        self.policy.spots.insert(clause.to_owned(), spot);
        (self.faults.len() == before).then_some(good)
    }

    fn checked<U>(&mut self, text: &At<String>, check: impl FnOnce(&str) -> Result<U, Fault>) -> Option<U> {
        let checked = check(text);
        self.ok(text, checked)
    }

    fn ok<T, U>(&mut self, at: &At<T>, checked: Result<U, Fault>) -> Option<U> {
        checked.map_err(|fault| self.fault(at, fault)).ok()
    }

    fn fault<T>(&mut self, at: &At<T>, fault: Fault) {
        self.faults.push(fault.at(self.layer.source.place(at.span())));
    }
}
