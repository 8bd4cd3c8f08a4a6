//! The replay: the changed source, run once from scratch, and the checkpoints that it leaves.

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use airlock_runtime::report::Reason;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::candidate::Found;
use super::directory::{at, fresh_directory, remove_directory};
use super::error::{RunError, changeset, tree};
use super::phase::{PhaseRequest, Sources};
use super::state::{CheckpointRecord, names};
use super::{Supervisor, blocking};
use crate::Digest;
use crate::changeset::apply;
use crate::journal::{Event, SealedFor};
use crate::seal::Sealed;
use crate::task::{Checkpoints, PhaseName, RunSource};

/// Most entries of the output that are looked at for checkpoints.
const MOST_ENTRIES: usize = 10_000;

/// Most checkpoints that are sealed and validated, those of the greatest progress: each that is not valid costs the host
/// a copy and a sandbox.
const MOST_CHECKPOINTS: usize = 100;

impl Supervisor {
    /// Runs the changed source from scratch. Nothing of research is there but the changeset.
    pub(crate) async fn replay(&self) -> Result<(), RunError> {
        let Some(candidate) = self.state().submitted else { return Ok(()) };
        let changes = self.changeset(candidate)?;
        let phase = self.task.phases.get(&PhaseName::Replay);
        let phase = phase.ok_or_else(|| RunError::Options("the task has no phase `replay`".into()))?;
        self.check_parts(phase).await?;
        let work = self.directory.join("work/replay");
        fresh_directory(&work, 0o700)?;
        let (workspace, output) = (work.join("workspace"), work.join("output"));
        fresh_directory(&workspace, 0o755)?;
        fresh_directory(&output, 0o755)?;
        let (frozen, store, target) = (Arc::clone(&self.frozen), Arc::clone(&self.store), workspace.clone());
        blocking(move || {
            frozen.verify().map_err(tree("looking at the frozen source"))?;
            let directory = fs::File::open(&target).map_err(at("opening", &target))?;
            frozen.copy_to(directory.as_fd()).map_err(tree("copying the frozen source"))?;
            apply(&changes, &store, directory.as_fd()).map_err(changeset("applying the changeset"))
        })
        .await??;
        let sources = Sources::default()
            .with(RunSource::Workspace, workspace)
            .with(RunSource::Output, output)
            .with(RunSource::Frozen, self.frozen.path());
        let command = phase.command.clone();
        self.run(PhaseRequest {
            name: names::REPLAY,
            phase,
            command,
            sources,
            mounts: Vec::new(),
            pass: Vec::new(),
            deadline_ns: None,
            wall: None,
        })
        .await?;
        Ok(())
    }

    /// Seals the checkpoints of the replay, lets the gates and the frozen validation look at them, and selects the
    /// valid ones with the greatest progress.
    pub(crate) async fn checkpoints(&self) -> Result<(), RunError> {
        let rules = self.task.checkpoints.clone();
        let rules = rules.ok_or_else(|| RunError::Options("the task has no [airlock.checkpoints]".into()))?;
        let output = self.directory.join("work/replay/output");
        let mut found = listed(&output, &rules)?;
        // From the last to the first, so that no more are looked at than are needed.
        found.sort_by(|a, b| b.cmp(a));
        if found.len() > MOST_CHECKPOINTS {
            tracing::warn!(found = found.len(), "no more than {MOST_CHECKPOINTS} checkpoints are looked at");
            found.truncate(MOST_CHECKPOINTS);
        }
        let mut selected: Vec<Digest> = Vec::new();
        let limit = usize::try_from(rules.limit).unwrap_or(usize::MAX);
        for (progress, name) in found {
            if selected.len() >= limit {
                break;
            }
            let known = self.state().checkpoints.iter().find(|known| known.name == name).cloned();
            let record = match known {
                Some(known) => Some(known),
                None => self.checkpoint(&output, progress, name, &rules).await?,
            };
            // The same bytes twice are one checkpoint.
            if let Some(record) = record.filter(|record| record.valid && !selected.contains(&record.digest)) {
                selected.push(record.digest);
            }
        }
        self.append(Event::CheckpointsSelected { checkpoints: selected })?;
        remove_directory(&self.directory.join("work/replay"))?;
        Ok(())
    }

    /// Seals one checkpoint and says whether it is valid; none if it cannot be sealed.
    async fn checkpoint(
        &self,
        output: &std::path::Path,
        progress: u64,
        name: String,
        rules: &Checkpoints,
    ) -> Result<Option<CheckpointRecord>, RunError> {
        let found = self.seal_tree(output.to_owned(), name.clone(), SealedFor::Checkpoint).await?;
        let Found::Sealed(whole) = found else {
            return Ok(None);
        };
        let whole = Arc::new(whole);
        let sealed = self.payload(&whole, rules).await?;
        let valid = match &sealed {
            None => false,
            Some(sealed) => self.is_valid(sealed, rules).await?,
        };
        let checkpoint = sealed.map_or(whole.digest(), |sealed| sealed.digest());
        self.append(Event::CheckpointValidated { checkpoint, name: name.clone(), progress, valid })?;
        Ok(Some(CheckpointRecord { digest: checkpoint, name, progress, valid }))
    }

    /// The part of a checkpoint that counts; none if a glob of the payload matches nothing.
    async fn payload(
        &self,
        whole: &Arc<Sealed>,
        rules: &Checkpoints,
    ) -> Result<Option<Arc<Sealed>>, RunError> {
        let globs = rules.payload.iter().map(|glob| GlobBuilder::new(glob).literal_separator(true).build());
        let globs: Vec<_> =
            globs.collect::<Result<_, _>>().map_err(|error| RunError::Options(error.to_string()))?;
        let matched = |glob: &globset::Glob| {
            let matcher = glob.compile_matcher();
            whole.manifest().files().any(|(path, _)| matcher.is_match(path.as_str()))
        };
        if !globs.iter().all(matched) {
            return Ok(None);
        }
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            set.add(glob);
        }
        let set: GlobSet = set.build().map_err(|error| RunError::Options(error.to_string()))?;
        if whole.manifest().files().all(|(path, _)| set.is_match(path.as_str())) {
            return Ok(Some(Arc::clone(whole)));
        }
        let (whole, store) = (Arc::clone(whole), Arc::clone(&self.store));
        let part = blocking(move || whole.part(&store, |path| set.is_match(path.as_str()))).await?;
        part.map(|part| Some(Arc::new(part))).map_err(tree("taking the payload of a checkpoint"))
    }

    async fn is_valid(&self, sealed: &Arc<Sealed>, rules: &Checkpoints) -> Result<bool, RunError> {
        let refusals = self.artifact_refusals(Arc::clone(sealed)).await?;
        self.journal_gate("checkpoint", sealed.digest(), &refusals)?;
        if !refusals.is_empty() {
            return Ok(false);
        }
        let Some(validation) = &rules.validation else { return Ok(true) };
        self.check_parts(validation).await?;
        let work: PathBuf = self.directory.join("work/checkpoint");
        for _ in 0..super::state::TRIES {
            fresh_directory(&work, 0o700)?;
            let sources = self.scorer_sources(&work, sealed, validation).await?;
            let ended = self
                .run(PhaseRequest {
                    name: names::CHECKPOINT,
                    phase: validation,
                    command: validation.command.clone(),
                    sources,
                    mounts: Vec::new(),
                    pass: Vec::new(),
                    deadline_ns: None,
                    wall: None,
                })
                .await?;
            remove_directory(&work)?;
            if !matches!(ended.reason, Reason::SetupFailed | Reason::SupervisorLost) {
                return Ok(ended.reason == Reason::Exited && ended.exit_code == Some(0));
            }
        }
        Err(RunError::Options(
            "the frozen validation of a checkpoint could not be run; see its end report".into(),
        ))
    }
}

/// The checkpoints of an output by progress. Names that are none are passed over.
fn listed(output: &std::path::Path, rules: &Checkpoints) -> Result<Vec<(u64, String)>, RunError> {
    let entries = match fs::read_dir(output) {
        // The replay has taken an ordinary user's right to read it away.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(Vec::new()),
        entries => entries.map_err(at("reading", output))?,
    };
    let mut found = Vec::new();
    for entry in entries.take(MOST_ENTRIES) {
        let entry = entry.map_err(at("reading", output))?;
        let name = entry.file_name().into_string().ok();
        let progress = name.as_deref().and_then(|name| rules.name.progress(name));
        let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if let (Some(progress), Some(name), true) = (progress, name, directory) {
            found.push((progress, name));
        }
    }
    Ok(found)
}
