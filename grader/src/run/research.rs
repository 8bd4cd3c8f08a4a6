//! The research phase: the agent, its socket, its clock, and its choice.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use airlock_policy::Mount;
use airlock_runtime::report::Reason;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::clock::Deadline;
use super::directory::{at, fresh_directory, make_directory};
use super::error::{RunError, call, tree};
use super::phase::{PhaseRequest, RunningPhase, Sources, Start, read_only};
use super::state::{Next, TRIES, names};
use super::stillness::{Looks, Stillness};
use super::{Supervisor, blocking};
use crate::Digest;
use crate::journal::{Event, Moment};
use crate::seal::Sealed;
use crate::task::{Lifecycle, PhaseName, RunSource};

/// Where the agent's own files are mounted.
pub(crate) const AGENT: &str = "/opt/agent";
/// Where the client and its scripts are mounted.
const HARNESS: &str = "/opt/harness";
/// Where what validations return is mounted.
const FEEDBACK: &str = "/run/airlock/feedback";
/// Time for the acknowledgement of the choice to arrive before everything in research is killed.
const FAREWELL: Duration = Duration::from_millis(200);
/// A monitor ends research by itself, where its supervisor does not: that much later.
const SLACK: Duration = Duration::from_secs(60);

/// What the parts of a research phase share.
pub(crate) struct Room {
    /// Candidates that were sealed for validation.
    pub(crate) sealed: RefCell<BTreeSet<Digest>>,
    /// Told when research has made its choice.
    pub(crate) chosen: Notify,
    /// Told when the queue of validations has changed.
    pub(crate) queue: Notify,
    /// Candidates that are being sealed.
    pub(crate) sealing: Cell<usize>,
    /// Stops research while its clock stands.
    pub(crate) stillness: Rc<Stillness>,
    /// Told when research has ended.
    pub(crate) over: Notify,
}

impl Supervisor {
    /// Begins research, or goes on with it, until it has ended.
    pub(crate) async fn research(self: &Rc<Self>) -> Result<(), RunError> {
        let boot = Moment::now().map_err(call("reading the clock"))?.boot_id;
        let other_boot = self.state().research.as_ref().is_some_and(|research| research.boot_id != boot);
        if other_boot {
            let cause =
                "the machine was started anew during research; how long it was down counts for nothing";
            return self.append(Event::Interrupted { cause: cause.into() });
        }
        if self.state().tries(names::EXPLORE) >= TRIES {
            return self.give_up(names::EXPLORE);
        }
        if self.research_left().is_zero() {
            return self.capture().await;
        }
        self.prepare_workspace().await?;
        let grader = self.open_grader()?;
        let acts = grader.start(self).await?;
        let explore = match self.explore(&grader).await? {
            Start::Running(phase) => phase,
            // Where it is tried again, the grader process is too.
            Start::Failed(_) => return acts.end(self).await,
        };
        let (stillness, looks) = Stillness::new();
        let room = Rc::new(Room {
            sealed: RefCell::default(),
            chosen: Notify::new(),
            queue: Notify::new(),
            sealing: Cell::new(0),
            stillness,
            over: Notify::new(),
        });
        room.sealed.borrow_mut().extend(self.state().tickets.values().map(|ticket| ticket.candidate));
        let mut tasks = JoinSet::new();
        for _ in 0..self.validations_at_once.max(1) {
            let (supervisor, room) = (Rc::clone(self), Rc::clone(&room));
            tasks.spawn_local(supervisor.validate_all(room));
        }
        let (supervisor, shared) = (Rc::clone(self), Rc::clone(&room));
        let attended = tokio::task::spawn_local(supervisor.attend(grader, acts, shared));
        let ended = self.attend_to(explore, &room, looks, &mut tasks, attended).await;
        ended?;
        // Those at work come to their ends, which are journaled like any other.
        self.research_over.send_replace(true);
        while let Some(task) = tasks.join_next().await {
            joined(task)?;
        }
        self.research_over.send_replace(false);
        self.end_leftovers().await
    }

    /// Watches over the agent until it ends, has made its choice, or its time is over.
    async fn attend_to(
        self: &Rc<Self>,
        explore: Box<RunningPhase>,
        room: &Room,
        mut looks: Looks,
        validating: &mut JoinSet<Result<(), RunError>>,
        mut attended: JoinHandle<Result<(), RunError>>,
    ) -> Result<(), RunError> {
        if !self.keep_in_step(&explore, &room.stillness).await? {
            // Validations of an earlier supervisor are open.
            return Err(RunError::NotFrozen);
        }
        let reason = loop {
            // While the clock stands still, the time that is left stays the same.
            let left = self.research_left().max(Duration::from_millis(1));
            let late = Deadline::new(&Moment::now().map_err(call("reading the clock"))?, left);
            tokio::select! {
                ended = self.watch(&explore) => {
                    ended?;
                    break None;
                }
                () = room.chosen.notified() => {
                    tokio::time::sleep(FAREWELL).await;
                    explore.kill()?;
                    break None;
                }
                Some(look) = looks.recv() => {
                    // Whoever asked may be gone.
                    let _ = look.send(self.keep_in_step(&explore, &room.stillness).await?);
                }
                Some(task) = validating.join_next() => joined(task)?,
                task = &mut attended => joined(task)?,
                waited = late.wait() => {
                    waited?;
                    if self.research_left().is_zero() {
                        self.end_gently(&explore).await?;
                        break Some(Reason::WallTimeout);
                    }
                }
            }
        };
        self.end(explore, reason).await?;
        room.over.notify_one();
        joined(attended.await)
    }

    /// TERM, the task's grace, KILL.
    async fn end_gently(&self, explore: &RunningPhase) -> Result<(), RunError> {
        explore.thaw()?;
        explore.signal(rustix::process::Signal::TERM.as_raw())?;
        let grace = Duration::from_millis(self.manifest.budget.grace_ms);
        match tokio::time::timeout(grace, explore.ended()).await {
            Ok(ended) => ended,
            Err(_) => explore.kill(),
        }
    }

    async fn explore(self: &Rc<Self>, grader: &super::grader::Grader) -> Result<Start, RunError> {
        let phase = self.task.phases.get(&PhaseName::Explore);
        let phase = phase.ok_or_else(|| RunError::Options("the task has no phase `explore`".into()))?;
        let agent = self.manifest.agent.as_ref();
        let agent = agent.ok_or_else(|| RunError::Options("the run has no agent".into()))?;
        let mut mounts = vec![
            read_only(&self.directory.join("harness"), HARNESS, true),
            read_only(&self.directory.join("feedback"), FEEDBACK, false),
            Mount { socket: true, ..read_only(grader.socket(), crate::protocol::SOCKET, false) },
        ];
        if let Some(files) = &agent.files {
            let copy = self.scored_tree(files.digest).await?;
            mounts.push(read_only(copy.path(), AGENT, true));
        }
        let work = self.directory.join("work");
        let sources = Sources::default()
            .with(RunSource::Workspace, work.join("workspace"))
            .with(RunSource::Output, work.join("output"))
            .with(RunSource::Frozen, self.frozen.path());
        let left = self.research_left();
        let counts = self.manifest.budget.validation_counts;
        let grace = Duration::from_millis(self.manifest.budget.grace_ms);
        let wall = counts.then(|| {
            let whole = left + grace + SLACK;
            airlock_policy::Duration(u64::try_from(whole.as_millis()).unwrap_or(u64::MAX))
        });
        let now = Moment::now().map_err(call("reading the clock"))?;
        let deadline = Deadline::new(&now, left);
        self.start(PhaseRequest {
            name: names::EXPLORE,
            phase,
            command: agent.command.clone(),
            sources,
            mounts,
            pass: Vec::new(),
            deadline_ns: Some(deadline.due_ns()),
            wall: Some(wall),
        })
        .await
    }

    /// A fresh copy of the frozen source, unless an earlier supervisor has made it.
    async fn prepare_workspace(&self) -> Result<(), RunError> {
        let work = self.directory.join("work");
        let (workspace, output) = (work.join("workspace"), work.join("output"));
        if !output.exists() {
            make_directory(&output, 0o755)?;
        }
        if workspace.exists() {
            return Ok(());
        }
        let new = work.join("workspace.new");
        fresh_directory(&new, 0o755)?;
        copy_tree(&self.frozen, new.clone()).await?;
        fs::rename(&new, &workspace).map_err(at("naming", &workspace))?;
        Ok(())
    }

    /// The time that research has left.
    pub(crate) fn research_left(&self) -> Duration {
        let budget = self.manifest.budget;
        let now = Moment::now().map(|moment| moment.boot_ns).unwrap_or(u64::MAX);
        let left = self.state().research_left_ns(now, budget.explore_ms, budget.validation_counts);
        Duration::from_nanos(left)
    }

    /// Where candidates for validation lie: checkpoints where a replay makes them, else the workspace.
    pub(crate) fn candidates(&self) -> PathBuf {
        self.directory.join(match self.task.lifecycle {
            Lifecycle::Replay => "work/output",
            Lifecycle::Direct => "work/workspace",
        })
    }

    /// Whether research has not ended yet.
    pub(crate) fn in_research(&self) -> bool {
        let state = self.state();
        state.next(self.task.lifecycle, self.manifest.agent.is_some()) == Next::Research
    }
}

/// What a task of the background came to.
fn joined(task: Result<Result<(), RunError>, JoinError>) -> Result<(), RunError> {
    task.map_err(|error| call("working in the background")(io::Error::other(error)))?
}

/// Writes a sealed tree into an empty directory.
pub(crate) async fn copy_tree(sealed: &Arc<Sealed>, target: PathBuf) -> Result<(), RunError> {
    let sealed = Arc::clone(sealed);
    blocking(move || {
        let directory = fs::File::open(&target).map_err(at("opening", &target))?;
        sealed.copy_to(directory.as_fd()).map_err(tree("copying the frozen source"))
    })
    .await?
}
