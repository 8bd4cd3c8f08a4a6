//! What a phase mounts: what it names, what it has anyway, and what it must not see.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use airlock_policy::MountMode;
use airlock_policy::embed::{At, Fault, did_you_mean, mount_target};

use super::assets::word;
use super::draft::{Draft, inside, overlap};
use super::resolved::{Asset, MountSource, PhaseMount, RunSource};
use super::schema::{Handover, Lifecycle, PhaseMountTable, PhaseName, Visibility};

/// Where Airlock puts its own socket, feedback and client.
const OWN: [&str; 2] = ["/run/airlock", "/opt/harness"];

/// What decides about the mounts of a phase.
pub(super) struct Context<'a> {
    pub(super) lifecycle: Lifecycle,
    pub(super) assets: &'a BTreeMap<String, Asset>,
    /// Where workspaces are mounted.
    pub(super) workspace: &'static str,
    pub(super) has_tests: bool,
}

impl Draft<'_> {
    pub(super) fn mounts(
        &mut self,
        name: PhaseName,
        handover: Option<Handover>,
        tables: Vec<At<PhaseMountTable>>,
        context: &Context<'_>,
    ) -> Vec<PhaseMount> {
        let mut mounts: Vec<PhaseMount> = Vec::new();
        let mut targets = Vec::new();
        for table in tables {
            let PhaseMountTable { source: text, target, mode, exec } = table.into_inner();
            let source = self.source(&text, name, handover, context);
            let checked = mount_target(&target).and_then(|path| {
                match OWN.iter().find(|own| overlap(&path, Path::new(own))) {
                    Some(own) => Err(Fault::new(format!("{own} is where Airlock puts its own files"))),
                    None => Ok(path),
                }
            });
            let checked = self.ok(&target, checked);
            let (Some(source), Some(path)) = (source, checked) else { continue };
            if mounts.iter().any(|other| other.target == path) {
                self.at(&target, Fault::new(format!("{} is mounted twice in this phase", path.display())));
            }
            let writable = matches!(source, MountSource::Run(run) if run.writable());
            if let Some(mode) = mode.as_ref().filter(|mode| ***mode == MountMode::Rw && !writable) {
                let message = format!("`{}` is read-only: it is the same for every phase", *text);
                self.at(mode, Fault::new(message).help("leave `mode` out"));
            }
            let usual = if writable { MountMode::Rw } else { MountMode::Ro };
            let mode = mode.map_or(usual, At::into_inner);
            let exec = exec.unwrap_or_else(|| usually_exec(name, &source));
            mounts.push(PhaseMount { source, target: path, mode, exec });
            targets.push(target);
        }
        for (source, target) in implied(name, handover, context) {
            // What the task mounts elsewhere, it does not get twice.
            if mounts.iter().any(|mount| mount.source == source) {
                continue;
            }
            if let Some(taken) = targets.iter().find(|taken| Path::new(taken.as_str()) == Path::new(target)) {
                let fault = Fault::new(format!("{target} is where `{source}` goes"));
                self.at(taken, fault.help(format!("take another target, or mount `{source}` elsewhere too")));
            }
            let writable = matches!(source, MountSource::Run(run) if run.writable());
            let mode = if writable { MountMode::Rw } else { MountMode::Ro };
            let exec = usually_exec(name, &source);
            mounts.push(PhaseMount { source, target: target.into(), mode, exec });
        }
        mounts
    }

    fn source(
        &mut self,
        text: &At<String>,
        phase: PhaseName,
        handover: Option<Handover>,
        context: &Context<'_>,
    ) -> Option<MountSource> {
        let result = match text.split_once(':') {
            Some(("asset", name)) => asset(name, phase, context.assets),
            Some(("run", name)) => run(name, phase, handover),
            Some(("task", path)) => self.task_path(path, phase, context.assets),
            _ => Err(Fault::new(format!("`{}` is not a source", **text))
                .help("`asset:NAME`, `run:NAME` or `task:PATH`")),
        };
        self.ok(text, result)
    }

    fn task_path(
        &self,
        text: &str,
        phase: PhaseName,
        assets: &BTreeMap<String, Asset>,
    ) -> Result<MountSource, Fault> {
        let path = inside(text)?;
        if !matches!(phase, PhaseName::Validate | PhaseName::Score) {
            return Err(Fault::new("only scorers (`validate`, `score`) may mount `task:`")
                .help("make it an asset with `visibility = \"open\"`"));
        }
        match self.dir.join(&path).symlink_metadata() {
            Err(error) => Err(Fault::new(format!("`{}`: {error}", path.display()))),
            Ok(_) => unhidden(path, phase, assets).map(MountSource::Task),
        }
    }
}

/// A path of the task, unless `validate` would see a hidden asset through it.
fn unhidden(path: PathBuf, phase: PhaseName, assets: &BTreeMap<String, Asset>) -> Result<PathBuf, Fault> {
    let hidden = |asset: &&Asset| asset.visibility == Visibility::Hidden && phase == PhaseName::Validate;
    let inside = |asset: &&Asset| asset.path.as_ref().is_some_and(|hidden| overlap(hidden, &path));
    match assets.values().filter(hidden).find(inside).and_then(|asset| asset.path.as_ref()) {
        None => Ok(path),
        Some(asset) => {
            let (path, asset) = (path.display(), asset.display());
            Err(Fault::new(format!("`validate` would see the hidden asset `{asset}` through `task:{path}`"))
                .help("move the asset to a directory of its own, such as `assets/`"))
        }
    }
}

/// What the scorer's programs would show to `validate`, mounted or not.
pub(super) fn tests_hide_nothing(assets: &BTreeMap<String, Asset>) -> Result<(), Fault> {
    unhidden("tests".into(), PhaseName::Validate, assets).map(drop)
}

fn asset(name: &str, phase: PhaseName, assets: &BTreeMap<String, Asset>) -> Result<MountSource, Fault> {
    let Some(asset) = assets.get(name) else {
        let near = did_you_mean(name, assets.keys().map(String::as_str));
        let fault = Fault::new(format!("no asset is called `{name}`"));
        return Err(fault.help(near.unwrap_or_else(|| "declare it in [[airlock.asset]]".into())));
    };
    let (allowed, who) = match asset.visibility {
        Visibility::Open => (true, ""),
        Visibility::Validation => {
            (matches!(phase, PhaseName::Validate | PhaseName::Score), "`validate` and `score`")
        }
        Visibility::Hidden => (phase == PhaseName::Score, "`score`"),
    };
    if allowed {
        return Ok(MountSource::Asset(name.to_owned()));
    }
    let visibility = word(asset.visibility);
    Err(Fault::new(format!("asset `{name}` has visibility `{visibility}`: only {who} may mount it")))
}

fn run(name: &str, phase: PhaseName, handover: Option<Handover>) -> Result<MountSource, Fault> {
    let Some((_, source)) = RunSource::NAMES.iter().find(|(known, _)| *known == name) else {
        let names = RunSource::NAMES.map(|(name, _)| name);
        let near = did_you_mean(name, names);
        let fault = Fault::new(format!("a run has no `{name}`"));
        return Err(fault.help(near.unwrap_or_else(|| format!("one of {}", names.join(", ")))));
    };
    let in_process = handover == Some(Handover::RewardFile);
    let scorer = matches!(phase, PhaseName::Validate | PhaseName::Score);
    let candidate = phase == PhaseName::Candidate;
    let (allowed, who) = match source {
        RunSource::Frozen => (true, ""),
        RunSource::Workspace | RunSource::Output => {
            (matches!(phase, PhaseName::Explore | PhaseName::Replay), "`explore` and `replay` have")
        }
        RunSource::Candidate => (scorer || candidate, "`validate`, `score` and `candidate` have"),
        RunSource::Copy => {
            (in_process || candidate, "`candidate` and scorers with `verdict = \"reward-file\"` have")
        }
        RunSource::Trajectories => (scorer, "`validate` and `score` have"),
        RunSource::Reward => (in_process, "scorers with `verdict = \"reward-file\"` have"),
    };
    if allowed {
        return Ok(MountSource::Run(*source));
    }
    Err(Fault::new(format!("only {who} `run:{name}`")))
}

/// What a phase has without naming it.
fn implied(
    phase: PhaseName,
    handover: Option<Handover>,
    context: &Context<'_>,
) -> Vec<(MountSource, &'static str)> {
    let run = MountSource::Run;
    let workspace = context.workspace;
    let tests = context.has_tests.then(|| (MountSource::Task("tests".into()), "/tests"));
    let mut mounts = match (phase, handover) {
        (PhaseName::Explore, _) if context.lifecycle == Lifecycle::Direct => {
            vec![(run(RunSource::Workspace), workspace)]
        }
        (PhaseName::Explore | PhaseName::Replay, _) => {
            vec![(run(RunSource::Workspace), workspace), (run(RunSource::Output), "/output")]
        }
        (PhaseName::Candidate, _) => vec![(run(RunSource::Candidate), "/candidate")],
        (_, Some(Handover::RewardFile)) => {
            vec![(run(RunSource::Copy), workspace), (run(RunSource::Reward), "/logs/verifier")]
        }
        _ => vec![(run(RunSource::Candidate), "/candidate"), (run(RunSource::Trajectories), "/trajectories")],
    };
    if matches!(phase, PhaseName::Validate | PhaseName::Score) {
        mounts.extend(tests);
    }
    mounts
}

fn usually_exec(phase: PhaseName, source: &MountSource) -> bool {
    match source {
        MountSource::Run(RunSource::Workspace | RunSource::Copy) => true,
        MountSource::Run(RunSource::Candidate) => phase == PhaseName::Candidate,
        _ => false,
    }
}
