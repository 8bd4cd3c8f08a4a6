//! Scoring one candidate: the scorer's sandbox, beside it the candidate's own where the task has one, and the verdict.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use airlock_runtime::report::Reason;

use super::directory::{at, fresh_directory, make_directory, remove_directory, write_file};
use super::drain::read_capped;
use super::error::{RunError, call, tree};
use super::phase::{Ended, PhaseRequest, Sources, Start, read_only};
use super::relay::{Relay, RelayLimits};
use super::state::{TRIES, names};
use super::verdict::{VERDICT_CAP, Verdict};
use super::{Supervisor, blocking};
use crate::Digest;
use crate::journal::Event;
use crate::score::{Metric, Tally};
use crate::seal::Sealed;
use crate::task::{Phase, PhaseName, RunSource, read_reward};

/// The items that were asked for, one a line, where it is not all of them. A scorer may leave out the others.
const ITEMS: &str = "/run/airlock/items";
/// The scorer's descriptor for its verdict.
const VERDICT: i32 = 3;
/// The socket between scorer and candidate, at both ends.
const CANDIDATE: i32 = 4;
/// Longest reward file, in bytes, and one more.
const LONGEST_REWARD: u64 = (64 << 10) + 1;

/// What came of a scoring.
pub(crate) struct Scoring {
    /// The phase.
    pub(crate) phase: u32,
    /// How the scorer ended.
    pub(crate) ended: Ended,
    /// The verdict's own bytes, by digest.
    pub(crate) verdict: Digest,
    /// What it amounts to. Without a verdict every planned attempt is missing.
    pub(crate) tally: Tally,
    /// Why there is no verdict.
    pub(crate) fault: Option<String>,
    /// What the scorer wants kept, sealed.
    pub(crate) trajectories: Option<Digest>,
}

impl Supervisor {
    /// Scores a candidate by `phase`, under `name`, over the items of `metric`. None: the host could not set the
    /// scorer up, and nothing ran.
    pub(crate) async fn grade(
        &self,
        name: &'static str,
        phase: &Phase,
        candidate: &Arc<Sealed>,
        metric: &Metric,
        items: Option<&[String]>,
    ) -> Result<Result<Scoring, String>, RunError> {
        self.check_parts(phase).await?;
        let place = self.scratch.get();
        self.scratch.set(place + 1);
        let work = self.directory.join(format!("work/scoring-{place}"));
        fresh_directory(&work, 0o700)?;
        let graded = self.grade_in(&work, name, phase, candidate, metric, items).await;
        let removed = remove_directory(&work);
        let graded = graded?;
        removed?;
        Ok(graded)
    }

    async fn grade_in(
        &self,
        work: &Path,
        name: &'static str,
        phase: &Phase,
        candidate: &Arc<Sealed>,
        metric: &Metric,
        items: Option<&[String]>,
    ) -> Result<Result<Scoring, String>, RunError> {
        let sources = self.scorer_sources(work, candidate, phase).await?;
        let in_process = phase.in_process();
        let (mut pass, mut reader) = (Vec::new(), None);
        if !in_process {
            let (read, write) = pipe()?;
            pass.push((write, VERDICT));
            reader = Some(tokio::task::spawn_local(read_capped(read, VERDICT_CAP)));
        }
        let beside = self.task.phases.get(&PhaseName::Candidate).filter(|_| name != names::CHECKPOINT);
        let mut relay = None;
        let mut candidate_end = None;
        if beside.is_some() {
            let (scorer, other, both) =
                Relay::start(RelayLimits::default()).map_err(call("joining scorer and candidate"))?;
            pass.push((scorer, CANDIDATE));
            candidate_end = Some(other);
            relay = Some(tokio::task::spawn_local(both.run()));
        }
        let mut mounts = Vec::new();
        if let Some(items) = items {
            let list = work.join("items");
            write_file(&list, (items.join("\n") + "\n").as_bytes())?;
            fs::set_permissions(&list, PermissionsExt::from_mode(0o644))
                .map_err(at("setting the mode of", &list))?;
            mounts.push(read_only(&list, ITEMS, false));
        }
        let scorer = self.start(PhaseRequest {
            name,
            phase,
            command: phase.command.clone(),
            sources: sources.clone(),
            mounts,
            pass,
            deadline_ns: None,
            wall: None,
        });
        let scorer = match scorer.await? {
            Start::Running(scorer) => scorer,
            Start::Failed(ended) => return Ok(Err(ended.error.unwrap_or_default())),
        };
        let beside = match (beside, candidate_end) {
            (Some(beside), Some(end)) => match self.serve(beside, sources, end).await? {
                Start::Running(beside) => Some(beside),
                Start::Failed(ended) => {
                    scorer.kill()?;
                    self.end(scorer, Some(Reason::SetupFailed)).await?;
                    return Ok(Err(ended.error.unwrap_or_default()));
                }
            },
            _ => None,
        };
        let number = scorer.number();
        let ended = self.end(scorer, None).await?;
        if let Some(beside) = beside {
            beside.kill()?;
            self.end(beside, None).await?;
        }
        if let Some(relay) = relay {
            relay.abort();
        }
        if ended.reason == Reason::SetupFailed {
            return Ok(Err(ended.error.unwrap_or_default()));
        }
        let verdict = match reader {
            Some(reader) => {
                let bytes =
                    reader.await.map_err(|error| call("reading a verdict")(std::io::Error::other(error)))?;
                let bytes = bytes.map_err(|error| error.to_string());
                bytes.and_then(|bytes| Verdict::decode(&bytes, metric).map_err(|error| words(&error)))
            }
            None => self.reward(&work.join("reward"), metric, ended.wall)?,
        };
        let fault = ended_badly(&ended, in_process);
        let (mut verdict, fault) = match (verdict, fault) {
            (Ok((verdict, _)), None) => (verdict, None),
            (Ok(_), Some(fault)) | (Err(fault), _) => (Verdict::default(), Some(fault)),
        };
        let only = items.and_then(|items| metric.only(items));
        if let Some(items) = items {
            verdict.items.retain(|result| items.contains(&result.id));
        }
        let tally = only.as_ref().unwrap_or(metric).tally(&verdict.items);
        let tally = tally.map_err(|error| RunError::Options(error.to_string()))?;
        let dir = self.directory.phase(number, name);
        let bytes = verdict.to_json()?;
        let digest = write_file(&dir.join("verdict.json"), &bytes)?;
        if let Some(fault) = &fault {
            write_file(&dir.join("fault.txt"), fault.as_bytes())?;
        }
        let trajectories = self.keep_trajectories(work.join("trajectories"), dir).await?;
        Ok(Ok(Scoring { phase: number, ended, verdict: digest, tally, fault, trajectories }))
    }

    /// Starts the candidate's own sandbox.
    async fn serve(&self, phase: &Phase, sources: Sources, end: OwnedFd) -> Result<Start, RunError> {
        self.start(PhaseRequest {
            name: names::CANDIDATE,
            phase,
            command: phase.command.clone(),
            sources,
            mounts: Vec::new(),
            pass: vec![(end, CANDIDATE)],
            deadline_ns: None,
            wall: None,
        })
        .await
    }

    /// What a scorer and the candidate beside it mount of the run.
    pub(crate) async fn scorer_sources(
        &self,
        work: &Path,
        candidate: &Arc<Sealed>,
        phase: &Phase,
    ) -> Result<Sources, RunError> {
        let beside = self.task.phases.get(&PhaseName::Candidate);
        let copies = [Some(phase), beside].into_iter().flatten().flat_map(|phase| &phase.mounts);
        let wants_copy = copies.into_iter().any(|mount| mount.source.is_run(RunSource::Copy));
        for (name, mode) in [("trajectories", 0o755), ("reward", 0o755), ("copy", 0o755)] {
            make_directory(&work.join(name), mode)?;
        }
        if wants_copy {
            let (candidate, copy) = (Arc::clone(candidate), work.join("copy"));
            blocking(move || {
                let target = fs::File::open(&copy).map_err(at("opening", &copy))?;
                candidate.copy_to(target.as_fd()).map_err(tree("copying a candidate"))
            })
            .await??;
        }
        Ok(Sources::default()
            .with(RunSource::Frozen, self.frozen.path())
            .with(RunSource::Candidate, candidate.path())
            .with(RunSource::Trajectories, work.join("trajectories"))
            .with(RunSource::Reward, work.join("reward"))
            .with(RunSource::Copy, work.join("copy")))
    }

    /// The verdict of tests that leave a reward file.
    fn reward(
        &self,
        place: &Path,
        metric: &Metric,
        wall: Duration,
    ) -> Result<Result<(Verdict, Tally), String>, RunError> {
        let read = |name: &str| super::candidate::small_file(place, name, LONGEST_REWARD);
        let reward = match (read("reward.json"), read("reward.txt")) {
            (Ok(json), Ok(text)) => {
                read_reward(json.as_deref(), text.as_deref()).map_err(|error| error.to_string())
            }
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        };
        Ok(reward.and_then(|reward| {
            let verdict = Verdict::of_reward(reward, wall);
            let tally = metric.tally(&verdict.items).map_err(|error| error.to_string())?;
            Ok((verdict, tally))
        }))
    }

    /// The one final scoring of a candidate.
    pub(crate) async fn score(&self, candidate: Digest) -> Result<(), RunError> {
        let sealed = Arc::new(self.scored_tree(candidate).await?);
        let number = self.state().next_phase();
        // A supervisor that died between the claim and the start of the phase has run nothing.
        let claimed = self.state().claims.last().is_some_and(|claim| {
            claim.candidate == candidate && claim.phase == number && claim.verdict.is_none()
        });
        if !claimed {
            if self.state().failed_setups(candidate) >= TRIES {
                return self.give_up(names::SCORE);
            }
            self.append(Event::FinalClaimed { candidate, phase: number })?;
        }
        let phase = self.task.phases.get(&PhaseName::Score);
        let phase = phase.ok_or_else(|| RunError::Options("the task has no phase `score`".into()))?.clone();
        let metric = self.task.metric.metric.clone();
        match self.grade(names::SCORE, &phase, &sealed, &metric, None).await? {
            Ok(scoring) => {
                let Scoring { phase, tally, verdict, .. } = scoring;
                let (score, counts) = (tally.score, tally.counts);
                self.append(Event::Verdict { phase, candidate, score, counts, verdict })
            }
            // The host's failure: nothing of the candidate was looked at. `next` tries once more.
            Err(_) => Ok(()),
        }
    }
}

/// Why a scorer's word does not count, whatever it said: it did not end as one that is done.
fn ended_badly(ended: &Ended, in_process: bool) -> Option<String> {
    match (ended.reason, ended.exit_code) {
        (Reason::Exited, Some(0)) => None,
        // Harbor's verifier takes the reward file of a failing test.sh too.
        (Reason::Exited, Some(_)) if in_process => None,
        (Reason::Exited, Some(code)) => Some(format!("the scorer ended with status {code}")),
        (Reason::WallTimeout, _) => Some("the scorer did not end in time".into()),
        (Reason::Oom, _) => Some("the scorer had not enough memory".into()),
        _ => Some("the scorer was ended by a signal".into()),
    }
}

/// An error with what caused it.
fn words(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), RunError> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| call("making a pipe")(error.into()))
}
