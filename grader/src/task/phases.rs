//! The sandboxes of a task: which there are, and what each runs under.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use airlock_policy::embed::{Amendment, At, Fault};
use airlock_policy::{Duration, Overrides, Policy, PolicyError};

use super::draft::{Draft, inside};
use super::error::Finding;
use super::harbor::Resources;
use super::mounts::{Context, tests_hide_nothing};
use super::resolved::{Budget, MountSource, Phase, PhaseMount};
use super::schema::{Handover, Lifecycle, PhaseName, PhaseTable};

impl PhaseName {
    /// As the task writes it.
    pub fn word(self) -> &'static str {
        match self {
            PhaseName::Explore => "explore",
            PhaseName::Replay => "replay",
            PhaseName::Validate => "validate",
            PhaseName::Score => "score",
            PhaseName::Candidate => "candidate",
        }
    }

    fn usual_policy(self) -> &'static str {
        match self {
            PhaseName::Explore => "research",
            PhaseName::Replay => "replay",
            PhaseName::Validate | PhaseName::Score => "scorer",
            PhaseName::Candidate => "candidate",
        }
    }

    fn scores(self) -> bool {
        matches!(self, PhaseName::Validate | PhaseName::Score)
    }
}

impl Draft<'_> {
    /// `table` is the place of what the phases belong to.
    pub(super) fn phases(
        &mut self,
        table: std::ops::Range<usize>,
        tables: Vec<At<PhaseTable>>,
        budget: Option<&Budget>,
        resources: &Resources,
        context: &Context<'_>,
    ) -> BTreeMap<PhaseName, Phase> {
        let mut stated = Vec::new();
        let mut phases = BTreeMap::new();
        for phase in tables {
            let name = phase.name.clone();
            if stated.contains(&*name) {
                self.at(&name, Fault::new(format!("the phase `{}` stands here twice", name.word())));
                continue;
            }
            stated.push(*name);
            if *name == PhaseName::Replay && context.lifecycle == Lifecycle::Direct {
                let fault = Fault::new("`replay` belongs to lifecycle `replay`");
                self.at(&name, fault.help("lifecycle `direct` scores what research leaves behind"));
                continue;
            }
            let hidden =
                if *name == PhaseName::Validate { tests_hide_nothing(context.assets) } else { Ok(()) };
            self.ok(&name, hidden);
            if let Some(phase) = self.phase(phase, budget, resources, context) {
                phases.insert(*name, phase);
            }
        }
        let needed = match context.lifecycle {
            Lifecycle::Replay => &[PhaseName::Explore, PhaseName::Replay, PhaseName::Score][..],
            Lifecycle::Direct => &[PhaseName::Explore, PhaseName::Score],
        };
        for name in needed.iter().filter(|name| !stated.contains(name)) {
            let fault = Fault::new(format!("the phase `{}` is missing", name.word()));
            self.fault(
                table.clone(),
                fault.help(format!("[[airlock.phase]] with `name = \"{}\"`", name.word())),
            );
        }
        phases
    }

    fn phase(
        &mut self,
        at: At<PhaseTable>,
        budget: Option<&Budget>,
        resources: &Resources,
        context: &Context<'_>,
    ) -> Option<Phase> {
        let span = at.span();
        let PhaseTable { name, command, policy, mounts, network, limits, gpus, env, cwd, verdict } =
            at.into_inner();
        let before = self.findings.len();
        if let Some(verdict) = verdict.as_ref().filter(|_| !name.scores()) {
            self.at(
                verdict,
                Fault::new(format!("`{}` gives no verdict", name.word())).help("`validate` and `score` do"),
            );
        }
        let handover = name.scores().then(|| verdict.map(At::into_inner).unwrap_or_default());
        let command = match (&command, *name) {
            (Some(command), PhaseName::Explore) => {
                let fault = Fault::new("`explore` runs the agent that the operator names");
                self.at(command, fault.help("leave `command` out; the agent starts in the workspace"));
                None
            }
            (Some(command), _) => self.command(command),
            (None, PhaseName::Explore) => Some(Vec::new()),
            (None, phase) => {
                let fault = Fault::new(format!("the phase `{}` runs nothing", phase.word()));
                self.at(&name, fault.help("command = [\"python3\", …]"));
                None
            }
        };
        if let Some(wall) =
            limits.wall.as_ref().filter(|_| matches!(*name, PhaseName::Explore | PhaseName::Replay))
        {
            let fault = Fault::new(format!("the time of `{}` stands in [airlock.budget]", name.word()));
            self.at(wall, fault.help(format!("write it there as `{}`", name.word())));
        }
        let mut policy = match policy {
            Some(stated) => {
                let loaded = self.policy(&stated);
                self.loaded(stated.span(), loaded)
            }
            None => {
                let loaded = Policy::load(name.usual_policy(), &Overrides::default(), Path::new("/"));
                self.loaded(span.clone(), loaded)
            }
        };
        let mounts = self.mounts(*name, handover, mounts, context);
        if let Some(command) = &command {
            self.scripts(&format!("the phase `{}`", name.word()), *name, command, &mounts);
        }
        if let Some(policy) = &mut policy {
            resources.apply(policy);
            let no_gpu = gpus.as_ref().is_some_and(|gpus| **gpus == 0);
            let gpus = gpus.filter(|gpus| **gpus != 0);
            if no_gpu {
                policy.gpu = None;
            }
            let workspace = matches!(*name, PhaseName::Explore | PhaseName::Replay)
                || handover == Some(Handover::RewardFile);
            if workspace {
                policy.process.cwd = Some(context.workspace.into());
            }
            let amendment = Amendment { limits, env, network, gpus, cwd };
            let faults = policy.amend(amendment, self.source);
            self.findings.extend(faults.into_iter().map(Into::into));
            self.end(&name, policy, budget);
        }
        let phase = Phase { name: *name, command: command?, policy: policy?, mounts, verdict: handover };
        (self.findings.len() == before).then_some(phase)
    }

    /// Checks that what a command names of the task is there; `who` says whose command it is.
    pub(super) fn scripts(&mut self, who: &str, phase: PhaseName, command: &[String], mounts: &[PhaseMount]) {
        for word in command.iter().map(Path::new).filter(|word| word.is_absolute()) {
            // The mount that lies deepest covers the others.
            let above = mounts.iter().filter(|mount| word.starts_with(&mount.target));
            let place = match above.max_by_key(|mount| mount.target.components().count()) {
                Some(PhaseMount { source: MountSource::Task(source), target, .. }) => {
                    word.strip_prefix(target).ok().map(|below| source.join(below))
                }
                // Only a directory that is there is mounted.
                None if matches!(phase, PhaseName::Validate | PhaseName::Score) => {
                    word.strip_prefix("/tests").ok().map(|below| Path::new("tests").join(below))
                }
                _ => None,
            };
            let Some(place) = place else { continue };
            let path = self.dir.join(&place);
            let told =
                |finding: &Finding| matches!(finding, Finding::Tree { path: told, .. } if *told == path);
            if !path.exists() && !self.findings.iter().any(told) {
                let message = format!("nothing is there, and {who} names it as {}", word.display());
                self.tree(&place, message, "write it, or correct the `command`");
            }
        }
    }

    /// Every phase but the candidate's, which ends with its scorer, ends by itself.
    fn end(&mut self, name: &At<PhaseName>, policy: &mut Policy, budget: Option<&Budget>) {
        let of_budget = |time: fn(&Budget) -> Option<Duration>| budget.and_then(time);
        match **name {
            PhaseName::Explore => policy.limits.wall = of_budget(|budget| Some(budget.explore)),
            PhaseName::Replay => policy.limits.wall = of_budget(|budget| budget.replay),
            PhaseName::Validate | PhaseName::Score if policy.limits.wall.is_none() => {
                let fault = Fault::new(format!("the phase `{}` has no end", name.word()));
                self.at(name, fault.help("limits = { wall = \"1h\" }"));
            }
            PhaseName::Validate | PhaseName::Score | PhaseName::Candidate => {}
        }
    }

    fn policy(&self, stated: &At<String>) -> Result<Policy, Trouble> {
        let dir =
            std::path::absolute(self.dir).map_err(|error| Trouble::Fault(Fault::new(error.to_string())))?;
        let file = stated.contains('/') || stated.ends_with(".toml");
        let argument = if file {
            let path = inside(stated).map_err(Trouble::Fault)?;
            dir.join(path)
                .to_str()
                .ok_or_else(|| Trouble::Fault(Fault::new("the path is not UTF-8")))?
                .to_owned()
        } else {
            stated.to_string()
        };
        let policy = Policy::load(&argument, &Overrides::default(), &dir).map_err(Trouble::Policy)?;
        match policy.mount.iter().find(|mount| shows(&mount.source, &dir)) {
            Some(mount) => Err(Trouble::Fault(
                Fault::new(format!(
                    "the policy mounts {}, which shows the task directory",
                    mount.source.display()
                ))
                .help("phases mount what they need of the task by `asset:` and `task:`"),
            )),
            None => Ok(policy),
        }
    }

    fn loaded(
        &mut self,
        span: std::ops::Range<usize>,
        loaded: Result<Policy, impl Into<Trouble>>,
    ) -> Option<Policy> {
        match loaded.map_err(Into::into) {
            Ok(policy) => return Some(policy),
            Err(Trouble::Fault(fault)) => self.fault(span, fault),
            Err(Trouble::Policy(PolicyError::Invalid(diagnostics))) => {
                self.findings.extend(diagnostics.into_iter().map(Into::into));
            }
            Err(Trouble::Policy(error)) => self.fault(span, Fault::new(error.to_string())),
        }
        None
    }
}

/// Why a phase has no policy.
enum Trouble {
    Fault(Fault),
    Policy(PolicyError),
}

impl From<PolicyError> for Trouble {
    fn from(error: PolicyError) -> Self {
        Trouble::Policy(error)
    }
}

/// Whether a mount of `source` shows something of `dir`, links followed.
fn shows(source: &Path, dir: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| PathBuf::from(path));
    super::draft::overlap(&real(source), &real(dir))
}
