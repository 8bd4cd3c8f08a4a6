//! Scoring one candidate: the scorer's sandbox, beside it the candidate's own where the task has one, and the verdict.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use airlock_runtime::report::Reason;
use tokio::task::JoinHandle;

use super::candidate::small_file;
use super::directory::{at, fresh_directory, make_directory, remove_directory, write_file};
use super::drain::{ReadError, read_capped};
use super::error::{RunError, call, tree};
use super::phase::{Ended, PhaseRequest, RunningPhase, Sources, Start, read_only};
use super::relay::{Relay, RelayEnd, RelayLimits};
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

/// How long the ends of a scorer's channels may take to be seen.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a scorer speaks through, on the supervisor's side.
struct Channels {
    verdict: Option<JoinHandle<Result<Vec<u8>, ReadError>>>,
    relay: Option<JoinHandle<RelayEnd>>,
    /// The candidate's end of the socket.
    candidate: Option<OwnedFd>,
}

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
    /// Scores a candidate by `phase`, under `name`, over the items of `metric`. An error in words is the host's: it could
    /// not set a sandbox up, or lost one. The ends of the phases tell which.
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
        let (channels, pass) = self.open_channels(phase)?;
        let mut mounts = Vec::new();
        if let Some(items) = items {
            let list = work.join("items");
            write_file(&list, (items.join("\n") + "\n").as_bytes())?;
            fs::set_permissions(&list, PermissionsExt::from_mode(0o644))
                .map_err(at("setting the mode of", &list))?;
            mounts.push(read_only(&list, ITEMS, false));
        }
        let command = phase.command.clone();
        let (deadline_ns, wall) = (None, None);
        let request =
            PhaseRequest { name, phase, command, sources: sources.clone(), mounts, pass, deadline_ns, wall };
        let scorer = match self.start(request).await? {
            Start::Running(scorer) => scorer,
            Start::Failed(ended) => return Ok(Err(ended.error.unwrap_or_default())),
        };
        let number = scorer.number();
        let (ended, verdict) = match self.judge(scorer, channels, sources).await? {
            Ok((ended, verdict)) => (ended, verdict),
            Err(cause) => return Ok(Err(cause)),
        };
        let verdict = match verdict {
            Some(bytes) => bytes.and_then(|bytes| Verdict::parse(&bytes).map_err(|error| words(&error))),
            None => reward(&work.join("reward"), ended.wall),
        };
        let good = ended_badly(&ended, phase.in_process()).map_or(Ok(()), Err);
        let checked = good.and(verdict).and_then(|mut verdict| {
            verdict.tally(metric).map_err(|error| words(&error))?;
            if let Some(items) = items {
                verdict.items.retain(|result| items.contains(&result.id));
            }
            Ok(verdict)
        });
        let (verdict, fault) = match checked {
            Ok(verdict) => (verdict, None),
            Err(fault) => (Verdict::default(), Some(fault)),
        };
        let only = items.and_then(|items| metric.only(items));
        let tally = only.as_ref().unwrap_or(metric).tally(&verdict.items);
        let tally = tally.map_err(|error| RunError::Options(error.to_string()))?;
        let dir = self.directory.phase(number, name);
        let digest = write_file(&dir.join("verdict.json"), &verdict.to_json()?)?;
        if let Some(fault) = &fault {
            write_file(&dir.join("fault.txt"), fault.as_bytes())?;
        }
        let trajectories = self.keep_trajectories(work.join("trajectories"), dir).await?;
        Ok(Ok(Scoring { phase: number, ended, verdict: digest, tally, fault, trajectories }))
    }

    /// Opens what a scorer speaks through: the descriptor for its verdict unless it leaves a file, and the socket to
    /// the candidate where the task has one.
    fn open_channels(&self, phase: &Phase) -> Result<(Channels, Vec<(OwnedFd, i32)>), RunError> {
        let (mut channels, mut pass) = (Channels { verdict: None, relay: None, candidate: None }, Vec::new());
        if !phase.in_process() {
            let (read, write) = pipe()?;
            pass.push((write, VERDICT));
            channels.verdict = Some(tokio::task::spawn_local(read_capped(read, VERDICT_CAP)));
        }
        // The frozen validation of a checkpoint gives no verdict either, and executes nothing.
        if phase.verdict.is_some() && self.task.phases.contains_key(&PhaseName::Candidate) {
            let (scorer, candidate, relay) =
                Relay::start(RelayLimits::default()).map_err(call("joining scorer and candidate"))?;
            pass.push((scorer, CANDIDATE));
            channels.candidate = Some(candidate);
            channels.relay = Some(tokio::task::spawn_local(relay.run()));
        }
        Ok((channels, pass))
    }

    /// Lets the scorer that runs come to its end, beside the candidate's own sandbox if there is one.
    async fn judge(
        &self,
        scorer: Box<RunningPhase>,
        channels: Channels,
        sources: Sources,
    ) -> Result<Result<(Ended, Option<Result<Vec<u8>, String>>), String>, RunError> {
        let mut beside = None;
        if let (Some(phase), Some(end)) = (self.task.phases.get(&PhaseName::Candidate), channels.candidate) {
            match self.serve(phase, sources, end).await? {
                Start::Running(running) => beside = Some(running),
                // The candidate has not brought what it is to be run by; the scorer sees the end of the socket.
                Start::Failed(ended) if ended.no_program && runs_own_program(phase) => {}
                Start::Failed(ended) => {
                    scorer.kill()?;
                    self.end(scorer, Some(ended.reason)).await?;
                    return Ok(Err(ended.error.unwrap_or_default()));
                }
            }
        }
        let number = scorer.number();
        let ended = self.end(scorer, None).await?;
        let beside = match beside {
            Some(beside) => {
                beside.kill()?;
                Some(self.end(beside, None).await?)
            }
            None => None,
        };
        let lost = beside.filter(|beside| beside.reason == Reason::SupervisorLost);
        if let Some(lost) = lost {
            return Ok(Err(lost.error.unwrap_or_default()));
        }
        if matches!(ended.reason, Reason::SetupFailed | Reason::SupervisorLost) {
            return Ok(Err(ended.error.unwrap_or_default()));
        }
        if let Some(relay) = channels.relay {
            let end = in_time(relay, "the relay between scorer and candidate").await?;
            for (flow, side) in [(end.from_scorer, "scorer"), (end.from_candidate, "candidate")] {
                if flow.end.is_fault() {
                    tracing::warn!(phase = number, side, end = ?flow.end, "the relay was cut");
                }
            }
        }
        let verdict = match channels.verdict {
            Some(reader) => {
                let bytes = in_time(reader, "the verdict").await?;
                Some(bytes.map_err(|error| error.to_string()))
            }
            None => None,
        };
        Ok(Ok((ended, verdict)))
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
            // The host's failure. Where nothing has run, `next` tries once more; else it is cut off.
            Err(_) => Ok(()),
        }
    }
}

/// The verdict of tests that leave a reward file.
fn reward(place: &Path, wall: Duration) -> Result<Verdict, String> {
    let read = |name: &str| small_file(place, name, LONGEST_REWARD).map_err(|error| error.to_string());
    let (json, text) = (read("reward.json")?, read("reward.txt")?);
    let reward = read_reward(json.as_deref(), text.as_deref()).map_err(|error| words(&error))?;
    Ok(Verdict::of_reward(reward, wall))
}

/// What a task of the background comes to, once the sandboxes at its other ends are gone.
async fn in_time<T>(task: JoinHandle<T>, what: &'static str) -> Result<T, RunError> {
    let late = |_| std::io::Error::other(format!("{what} has no end although its sandbox is gone"));
    let joined = tokio::time::timeout(PATIENCE, task).await.map_err(late).map_err(call("waiting"))?;
    joined.map_err(|error| call("working in the background")(std::io::Error::other(error)))
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
        (Reason::GpuLimit, _) => Some("the scorer used more of a GPU than it may".into()),
        _ => Some("the scorer was ended by a signal".into()),
    }
}

/// Whether the program of the candidate's sandbox is a file of the candidate.
fn runs_own_program(phase: &Phase) -> bool {
    let own = [RunSource::Candidate, RunSource::Copy];
    let program = phase.command.first().map(Path::new);
    let mut mounts =
        phase.mounts.iter().filter(|mount| own.iter().any(|source| mount.source.is_run(*source)));
    program.is_some_and(|program| mounts.any(|mount| program.starts_with(&mount.target)))
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
