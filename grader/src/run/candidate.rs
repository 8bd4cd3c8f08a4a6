//! What research hands in: sealing it, and what the gates say.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use serde::Serialize;

use super::directory::{at, read_file, write_file};
use super::error::{RunError, changeset, tree};
use super::{Supervisor, blocking};
use crate::Digest;
use crate::changeset::{Changeset, ChangesetError, between, compare, render_patch};
use crate::gate::{ArtifactGate, HiddenRows, PatchGate, Refusal, Rule};
use crate::journal::{CandidateKind, Event, SealedFor, canonical};
use crate::protocol::refusal::{Fault, FaultKind, Refusal as Refused, ShownPath};
use crate::seal::{Limits, SealError, Sealed, Store, TreePath, seal_without};
use crate::task::{Lifecycle, Submission, Task};

/// Longest asset whose rows a gate looks for, in bytes.
const LONGEST_ROWS: u64 = 1 << 30;

/// Longest that sealing may take where research does not wait for it: of the choice, and of each checkpoint.
const LONGEST_SEAL: Duration = Duration::from_secs(30 * 60);

/// Longest that keeping what was not submitted may take.
const LONGEST_CAPTURE: Duration = Duration::from_secs(2 * 60);

/// Most that is shown of a change as a patch, in bytes. A patch is text in memory.
const LONGEST_PATCH: u64 = 64 << 20;

/// What was found where the candidate should be.
pub(crate) enum Found<T> {
    /// It is sealed.
    Sealed(T),
    /// It is nothing that can be sealed, or a gate refuses it.
    Refused(Refused, String),
}

/// What the gates need of a task, to be taken to another thread.
struct Rules {
    patch: PatchGate,
    artifact: ArtifactGate,
    whole_tree: bool,
    rows: Vec<PathBuf>,
    /// What validations have returned.
    returned: Option<PathBuf>,
}

impl Supervisor {
    /// The caps on a candidate. What goes over the room that there is, is [out of room](Self::out_of_room), so that a
    /// sandbox beside it does not have to be ended.
    fn limits(&self, sealed_for: SealedFor) -> Result<Limits, RunError> {
        let budget = self.manifest.budget;
        let time = match sealed_for {
            SealedFor::Validation if budget.validation_counts => {
                LONGEST_SEAL.min(self.research_left() + Duration::from_millis(budget.grace_ms))
            }
            SealedFor::Deadline => LONGEST_CAPTURE,
            _ => LONGEST_SEAL,
        };
        let mut limits = Limits { until: Instant::now().checked_add(time), ..Limits::default() };
        if let Some(storage) = self.task.storage {
            limits.logical_bytes = storage.0;
            limits.allocated_bytes = storage.0;
            limits.file_bytes = storage.0;
        }
        limits.allocated_bytes = limits.allocated_bytes.min(self.directory.room()?);
        Ok(limits)
    }

    /// Whether a tree is larger than the disk has room for, and not than the task allows.
    fn out_of_room(&self, error: &SealError) -> bool {
        let allowed = self.task.storage.map_or(Limits::default().allocated_bytes, |storage| storage.0);
        matches!(error, SealError::Limit { what, limit, .. } if what.contains("allocated") && *limit < allowed)
    }

    /// Seals the tree that lies below `base` under `name`, as research names it.
    pub(crate) async fn seal_tree(
        &self,
        base: PathBuf,
        name: String,
        sealed_for: SealedFor,
    ) -> Result<Found<Sealed>, RunError> {
        let (store, limits, ignored) =
            (Arc::clone(&self.store), self.limits(sealed_for)?, ignored(&self.task)?);
        let sealed = blocking(move || {
            let tree = open_below(&base, &name)?;
            seal_without(tree.as_fd(), &ignored, &store, &limits)
        })
        .await?;
        match sealed {
            Ok(sealed) => {
                let (files, bytes) = (sealed.manifest().files().count() as u64, sealed.manifest().bytes());
                let (candidate, kind) = (sealed.digest(), CandidateKind::Tree);
                self.append(Event::CandidateSealed { candidate, kind, sealed_for, files, bytes })?;
                Ok(Found::Sealed(sealed))
            }
            Err(error) if self.out_of_room(&error) => Err(self.directory.no_room("sealing a tree in").into()),
            Err(error) => match refusal(&error) {
                Some(refusal) => Ok(Found::Refused(refusal, error.to_string())),
                None => Err(tree("sealing a candidate")(error)),
            },
        }
    }

    /// Seals what changed in the tree below `base` under `name`.
    pub(crate) async fn seal_patch(
        &self,
        base: PathBuf,
        name: String,
        sealed_for: SealedFor,
    ) -> Result<Found<Changeset>, RunError> {
        let (store, limits, ignored) =
            (Arc::clone(&self.store), self.limits(sealed_for)?, ignored(&self.task)?);
        let frozen = Arc::clone(&self.frozen);
        let compared = blocking(move || {
            let tree = open_below(&base, &name)?;
            compare(&frozen, tree.as_fd(), &ignored, &store, &limits)
        })
        .await?;
        match compared {
            Ok(changes) => {
                self.keep_changeset(&changes, sealed_for)?;
                Ok(Found::Sealed(changes))
            }
            Err(ChangesetError::Seal(error)) if self.out_of_room(&error) => {
                Err(self.directory.no_room("sealing a tree in").into())
            }
            Err(ChangesetError::Seal(error)) => match refusal(&error) {
                Some(refusal) => Ok(Found::Refused(refusal, error.to_string())),
                None => Err(tree("sealing a candidate")(error)),
            },
            Err(error) => Err(changeset("comparing the workspace with the frozen source")(error)),
        }
    }

    /// Writes a changeset into the run directory, for later and (as a patch) for people.
    pub(crate) fn keep_changeset(
        &self,
        changes: &Changeset,
        sealed_for: SealedFor,
    ) -> Result<Digest, RunError> {
        let failed = changeset("writing a changeset");
        let candidate = changes.digest().map_err(&failed)?;
        let json = changes.to_json().map_err(&failed)?;
        let (files, bytes) = (changes.files().len() as u64, added(changes));
        let patch = shown(changes, &self.store, LONGEST_PATCH).map_err(&failed)?;
        let place = self.directory.join("changesets");
        write_file(&place.join(format!("{}.json", candidate.hex())), &json)?;
        write_file(&place.join(format!("{}.patch", candidate.hex())), patch.as_bytes())?;
        self.append(Event::CandidateSealed {
            candidate,
            kind: CandidateKind::Patch,
            sealed_for,
            files,
            bytes,
        })?;
        Ok(candidate)
    }

    /// A changeset of the run.
    pub(crate) fn changeset(&self, candidate: Digest) -> Result<Changeset, RunError> {
        let path = self.directory.join(format!("changesets/{}.json", candidate.hex()));
        let bytes = read_file(&path)?;
        if Digest::of(&bytes) != candidate {
            return Err(at("reading", &path)(io::Error::other("it is not what was sealed")).into());
        }
        Changeset::from_json(&bytes).map_err(changeset("reading a changeset"))
    }

    /// A sealed tree of the run, every byte of which was looked at again.
    pub(crate) async fn scored_tree(&self, candidate: Digest) -> Result<Sealed, RunError> {
        let store = Arc::clone(&self.store);
        let failed = tree("looking at a sealed candidate");
        blocking(move || {
            let sealed = store
                .get(candidate)?
                .ok_or(SealError::Damaged { digest: candidate, why: "it is not in the store".into() })?;
            sealed.verify()?;
            Ok(sealed)
        })
        .await?
        .map_err(failed)
    }

    /// Seals the choice of research, or the frozen source for a baseline. Nothing of research lives any more.
    pub(crate) async fn seal_choice(&self) -> Result<(), RunError> {
        // Without an agent the frozen source hands itself in.
        let (base, name, sealed_for) = match self.state().chosen.clone() {
            Some(name) => (self.directory.join("work/workspace"), name, SealedFor::Submission),
            None => (self.frozen.path().to_owned(), ".".to_owned(), SealedFor::Baseline),
        };
        let candidate = if self.task.lifecycle == Lifecycle::Replay {
            match self.seal_patch(base, name, sealed_for).await? {
                Found::Sealed(changes) => Ok(changes.digest().map_err(changeset("naming a changeset"))?),
                Found::Refused(_, cause) => Err(cause),
            }
        } else {
            match self.seal_tree(base, name, sealed_for).await? {
                Found::Sealed(sealed) => Ok(sealed.digest()),
                Found::Refused(_, cause) => Err(cause),
            }
        };
        match candidate {
            Ok(candidate) => self.append(Event::Submitted { candidate }),
            Err(cause) => self.append(Event::ChoiceRefused { cause }),
        }
    }

    /// Keeps what research left without choosing it, as evidence.
    pub(crate) async fn capture(&self) -> Result<(), RunError> {
        let early = self.research_left() > Duration::ZERO;
        let (workspace, name) = (self.directory.join("work/workspace"), ".".to_owned());
        let candidate = match self.seal_tree(workspace, name, SealedFor::Deadline).await {
            Ok(Found::Sealed(sealed)) => Some(sealed.digest()),
            Ok(Found::Refused(..)) => None,
            // What filled the disk may well be what is to be kept.
            Err(error) if error.is_full() => None,
            Err(error) => return Err(error),
        };
        self.append(Event::DeadlineCapture { candidate, early })
    }

    /// Lets the gates look at the submission.
    pub(crate) async fn gate(&self) -> Result<(), RunError> {
        let Some(candidate) = self.state().submitted else { return Ok(()) };
        let (changes, sealed) = match self.task.lifecycle {
            Lifecycle::Replay => (self.changeset(candidate)?, None),
            Lifecycle::Direct => {
                let sealed = self.scored_tree(candidate).await?;
                (between(&self.frozen, &sealed), Some(sealed))
            }
        };
        let refusals = self.refusals(changes, sealed, true).await?;
        self.journal_gate("submission", candidate, &refusals)
    }

    /// Journals what the gates said of a candidate.
    pub(crate) fn journal_gate(
        &self,
        gate: &str,
        candidate: Digest,
        refusals: &[Refusal],
    ) -> Result<(), RunError> {
        #[derive(Serialize)]
        struct GateReport<'a> {
            gate: &'a str,
            candidate: Digest,
            refusals: &'a [Refusal],
            words: Vec<String>,
        }

        let words = refusals.iter().map(ToString::to_string).collect();
        let bytes = canonical(&GateReport { gate, candidate, refusals, words })?;
        let path = self.directory.join(format!("changesets/{}.{gate}.json", candidate.hex()));
        let report = write_file(&path, &bytes)?;
        let (gate, passed) = (gate.to_owned(), refusals.is_empty());
        self.append(Event::GateResult { gate, candidate, passed, report })
    }

    /// What the gates refuse: of the changes everything, of a tree also what loading it would run. Rows that must not
    /// be known are looked for only where nobody inside learns what was found.
    pub(crate) async fn refusals(
        &self,
        changes: Changeset,
        sealed: Option<Sealed>,
        hidden_rows: bool,
    ) -> Result<Vec<Refusal>, RunError> {
        let rules = self.rules(hidden_rows)?;
        let store = Arc::clone(&self.store);
        blocking(move || rules.refusals(&changes, sealed.as_ref(), &store)).await?
    }

    /// What the artifact gate refuses of a checkpoint.
    pub(crate) async fn artifact_refusals(&self, sealed: Arc<Sealed>) -> Result<Vec<Refusal>, RunError> {
        let gate = ArtifactGate::new(self.task.gates.artifact.clone());
        blocking(move || gate.check(&sealed)).await?.map_err(tree("looking at a checkpoint"))
    }

    fn rules(&self, hidden_rows: bool) -> Result<Rules, RunError> {
        let gates = &self.task.gates;
        let patch =
            PatchGate::new(gates.patch.clone()).map_err(|error| RunError::Options(error.to_string()))?;
        let names = gates.rows.iter().filter(|_| hidden_rows);
        let rows = names.filter_map(|name| asset_path(&self.task, &self.manifest, name)).collect();
        Ok(Rules {
            patch,
            artifact: ArtifactGate::new(gates.artifact.clone()),
            whole_tree: self.task.submission == Submission::Tree,
            rows,
            returned: hidden_rows.then(|| self.directory.join("feedback")),
        })
    }
}

impl Rules {
    fn refusals(
        &self,
        changes: &Changeset,
        sealed: Option<&Sealed>,
        store: &Store,
    ) -> Result<Vec<Refusal>, RunError> {
        let mut rows = Vec::new();
        for path in &self.rows {
            read_rows(path, &mut rows)?;
        }
        let hidden = HiddenRows::new(&rows);
        let hidden = Some(&hidden).filter(|_| !rows.is_empty());
        let failed = changeset("looking at a changeset");
        let mut refusals = match (self.whole_tree, sealed) {
            (true, Some(_)) => self.patch.check_tree(changes, store, hidden).map_err(&failed)?,
            _ => self.patch.check(changes, store, hidden).map_err(&failed)?,
        };
        if let Some(returned) = &self.returned
            && changes.files().iter().any(|change| self.patch.is_data(change))
        {
            let mut rows = Vec::new();
            read_rows(returned, &mut rows)?;
            let returned = HiddenRows::new(&rows);
            refusals.extend(self.patch.check_data(changes, store, &returned).map_err(&failed)?);
        }
        if let Some(sealed) = sealed {
            refusals.extend(self.artifact.check(sealed).map_err(tree("looking at a candidate"))?);
        }
        Ok(refusals)
    }
}

/// The bytes of all files that a changeset adds or changes.
fn added(changes: &Changeset) -> u64 {
    changes.files().iter().filter_map(|change| change.after()?.as_file().map(|file| file.size)).sum()
}

/// A changeset as a patch; one line in its place if it brings more bytes than `most`.
fn shown(changes: &Changeset, store: &Store, most: u64) -> Result<String, ChangesetError> {
    let (files, bytes) = (changes.files().len(), added(changes));
    if bytes > most {
        return Ok(format!("# {files} files of {bytes} bytes: too much to be shown as a patch\n"));
    }
    render_patch(changes, store)
}

/// What is never part of a candidate: see [`crate::task::Editable::ignore`].
pub(crate) fn ignored(task: &Task) -> Result<GlobSet, RunError> {
    let mut set = GlobSetBuilder::new();
    for glob in &task.editable.ignore {
        let glob = GlobBuilder::new(glob).literal_separator(true).build();
        set.add(glob.map_err(|error| RunError::Options(error.to_string()))?);
    }
    set.build().map_err(|error| RunError::Options(error.to_string()))
}

/// Where an asset lies on the host.
pub(crate) fn asset_path(task: &Task, manifest: &super::Manifest, name: &str) -> Option<PathBuf> {
    match manifest.digests.supplied.get(name) {
        Some(supplied) => Some(supplied.path.clone()),
        None => Some(task.dir.join(task.assets.get(name)?.path.as_ref()?)),
    }
}

/// The lines of a file, or of every file below a directory.
fn read_rows(path: &Path, rows: &mut Vec<String>) -> Result<(), RunError> {
    let metadata = std::fs::symlink_metadata(path).map_err(at("looking at", path))?;
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).map_err(at("reading", path))? {
            read_rows(&entry.map_err(at("reading", path))?.path(), rows)?;
        }
        return Ok(());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(at("opening", path))?;
    file.take(LONGEST_ROWS).read_to_end(&mut bytes).map_err(at("reading", path))?;
    rows.extend(String::from_utf8_lossy(&bytes).lines().map(str::to_owned));
    Ok(())
}

/// A directory below `base`, found without following any link.
pub(crate) fn open_below(base: &Path, name: &str) -> Result<OwnedFd, SealError> {
    let path = || TreePath::new(name).unwrap_or(TreePath::ROOT);
    let base = File::open(base).map_err(|error| {
        SealError::at("opening", &TreePath::ROOT)(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    openat2(&base, name, flags, Mode::empty(), resolve)
        .map_err(|error| SealError::at("opening", &path())(error))
}

/// A small regular file that a sandbox has left in a directory; none if there is nothing of that name.
pub(crate) fn small_file(place: &Path, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
    let place = File::open(place)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let file = match openat2(&place, name, flags, Mode::empty(), resolve) {
        Err(Errno::NOENT) => return Ok(None),
        file => File::from(file?),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{name} is not a regular file")));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// What research is told where the fault is the candidate's own; none where it is the host's, as on a full disk.
pub(crate) fn refusal(error: &SealError) -> Option<Refused> {
    let (kind, path) = match error {
        SealError::Name { directory, .. } => (FaultKind::Name, Some(directory)),
        SealError::Kind { path, kind } if kind.contains("link") => (FaultKind::Link, Some(path)),
        SealError::Kind { path, .. } => (FaultKind::SpecialFile, Some(path)),
        SealError::Links { path, .. } => (FaultKind::HardLink, Some(path)),
        SealError::Mount { path } => (FaultKind::Mount, Some(path)),
        SealError::Lease { path } | SealError::Changed { path } => (FaultKind::Changed, Some(path)),
        SealError::Limit { path, what, .. } if what.starts_with("entries") => {
            (FaultKind::TooMany, Some(path))
        }
        SealError::Limit { path, what, .. } if what.starts_with("levels") => (FaultKind::TooDeep, Some(path)),
        SealError::Limit { path, what, .. } if what.contains("the name") || what.contains("the path") => {
            (FaultKind::Name, Some(path))
        }
        SealError::Limit { path, .. } => (FaultKind::TooLarge, Some(path)),
        SealError::Late { path } => (FaultKind::TooSlow, Some(path)),
        SealError::Entry { path, source, .. } => match *source {
            Errno::NOENT => (FaultKind::Missing, Some(path)),
            Errno::NOTDIR => (FaultKind::NotDirectory, Some(path)),
            Errno::LOOP => (FaultKind::Link, Some(path)),
            Errno::XDEV => (FaultKind::Mount, Some(path)),
            // What was a file when it was looked at, and a socket or a device when it was opened (open(2)).
            Errno::NXIO | Errno::NODEV | Errno::ISDIR => (FaultKind::Changed, Some(path)),
            // An ordinary user's supervisor reads no more than the modes that an agent sets let it.
            Errno::ACCESS => (FaultKind::Unreadable, Some(path)),
            _ => return None,
        },
        SealError::Store { .. }
        | SealError::Damaged { .. }
        | SealError::Digest { .. }
        | SealError::Absent { .. } => return None,
    };
    Some(Fault { fault: kind, path: path.map(|path| ShownPath::new(path.as_str().as_bytes())) }.into())
}

/// What research is told of what a gate refuses.
pub(crate) fn gate_refusal(refusal: &Refusal) -> Refused {
    let kind = match refusal.rule {
        Rule::Editable | Rule::Create | Rule::Executable => FaultKind::NotEditable,
        Rule::FileSize | Rule::TotalSize => FaultKind::TooLarge,
        Rule::FileCount => FaultKind::TooMany,
        _ => FaultKind::Content,
    };
    let path = Some(&refusal.path).filter(|path| !path.is_root());
    Fault { fault: kind, path: path.map(|path| ShownPath::new(path.as_str().as_bytes())) }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::seal;

    #[test]
    fn a_patch_is_shown_up_to_its_cap() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store")).unwrap();
        let [before, after] = ["before", "after"].map(|name| {
            let tree = place.path().join(name);
            std::fs::create_dir(&tree).unwrap();
            if name == "after" {
                std::fs::write(tree.join("a"), "1234\n").unwrap();
                std::fs::write(tree.join("b"), "567\n").unwrap();
            }
            seal(File::open(tree).unwrap().as_fd(), &store, &Limits::default()).unwrap()
        });
        let changes = between(&before, &after);
        assert!(shown(&changes, &store, 9).unwrap().contains("+1234\n"));
        let told = shown(&changes, &store, 8).unwrap();
        assert_eq!(told, "# 2 files of 9 bytes: too much to be shown as a patch\n");
    }

    /// A file that is exchanged for a socket between the look and the open is the candidate's own doing (open(2)).
    #[test]
    fn what_a_candidate_puts_in_the_way_is_its_own_fault_and_what_the_host_fails_at_is_not() {
        let entry =
            |source| SealError::Entry { step: "opening", path: TreePath::new("data/x").unwrap(), source };
        for errno in [Errno::NXIO, Errno::NODEV, Errno::ISDIR, Errno::NOENT, Errno::NOTDIR, Errno::LOOP] {
            assert!(refusal(&entry(errno)).is_some(), "{errno}");
        }
        assert!(refusal(&entry(Errno::IO)).is_none());
    }
}
