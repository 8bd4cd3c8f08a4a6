//! A run: the supervisor that leads a task from research to its receipt.
//!
//! Everything that happens is an event of the journal; [`state`] says what follows from the events, and the other
//! files do it:
//!
//! | file | does |
//! | --- | --- |
//! | `create` | makes a run directory, or takes one up again |
//! | `agent_files`, `agent_program` | take what the agent brings along, and look for its program |
//! | `phase` | starts and ends the sandbox of a phase |
//! | `research` | leads the agent's phase: socket, clock, choice |
//! | `acts` | answers what the grader process asks for |
//! | `validation` | the queue of validations |
//! | `stillness` | freezes research while its clock stands |
//! | `candidate` | seals what research hands in, and asks the gates |
//! | `replay` | runs the changed source from scratch and picks its checkpoints |
//! | `scoring` | scorer, candidate sandbox, verdict |
//! | `leftovers` | ends sandboxes that were let go of |
//! | `finish` | result and receipt |
//! | `page` | the page for people |
//! | `status` | looks at a run, open or closed, and leaves it alone |
//! | `verify` | computes a closed run again from its files |

mod acts;
mod agent_files;
mod agent_program;
mod candidate;
pub mod clock;
mod create;
mod directory;
pub mod drain;
mod error;
mod finish;
mod gpus;
mod grader;
mod leftovers;
pub mod logs;
mod manifest;
mod page;
mod parts;
mod phase;
pub mod relay;
mod replay;
mod research;
mod scoring;
pub mod state;
pub mod status;
mod stillness;
mod unseen;
mod validation;
pub mod verdict;
pub mod verify;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use airlock_runtime::launcher::Launcher;
use tokio::sync::watch;

pub use create::{CreateOptions, Programs, no_watcher};
pub use directory::{DirectoryError, MAKING, RunDirectory, phase_name, remove_directory};
pub use error::RunError;
pub use manifest::{
    Agent, BudgetFacts, Created, Digests, MANIFEST_VERSION, Manifest, ManifestFault, Supplied, TaskFacts,
};
use state::{Next, State};
pub use unseen::check_place;

use crate::journal::{Event, Journal, Outcome, Record};
use crate::receipt::SecretKey;
use crate::seal::{Sealed, Store};
use crate::task::Task;

/// What a supervisor works with besides the run itself.
pub struct Means {
    /// Started before the first thread, and before the journal was opened.
    pub launcher: Launcher,
    /// Airlock's other programs.
    pub programs: Programs,
    /// Signs the receipt.
    pub key: SecretKey,
    /// Where sandboxes get their control groups; none: below the caller's own.
    pub cgroup_parent: Option<PathBuf>,
    /// Validations that run at a time.
    pub validations_at_once: usize,
    /// Is told of every event, when it is on the disk.
    pub watcher: Box<dyn Fn(&Record)>,
}

/// The supervisor of one run. It lives on one thread, in a tokio `LocalSet`.
pub struct Supervisor {
    directory: RunDirectory,
    manifest: Manifest,
    task: Task,
    store: Arc<Store>,
    frozen: Arc<Sealed>,
    launcher: Arc<Launcher>,
    /// Whether validations that are at work are wanted no more.
    research_over: watch::Sender<bool>,
    programs: Programs,
    key: SecretKey,
    cgroup_parent: Option<PathBuf>,
    validations_at_once: usize,
    watcher: Box<dyn Fn(&Record)>,
    journal: RefCell<Journal>,
    /// Whoever looks at it keeps what it was then.
    state: RefCell<Rc<State>>,
    /// Validations at work.
    running_tickets: RefCell<BTreeSet<u64>>,
    /// The logs that are being written, by phase.
    logs: RefCell<BTreeMap<u32, [logs::LogPump; 2]>>,
    /// Numbers the places where scorers work.
    scratch: Cell<u64>,
}

/// How far a supervisor has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The run is over, and has its receipt.
    Closed(Outcome),
    /// The run waits for an operator.
    Interrupted(String),
}

impl Supervisor {
    /// Leads the run to its end, or to where an operator must decide.
    ///
    /// # Errors
    /// What the host could not do. The run can be resumed.
    pub async fn drive(self: &Rc<Self>) -> Result<Ending, RunError> {
        loop {
            self.interrupt_if_cut_off()?;
            let next = self.state().next(self.task.lifecycle, self.manifest.agent.is_some());
            if matches!(next, Next::Seal | Next::Capture | Next::Close(_)) {
                self.close_validations()?;
            }
            match next {
                Next::Research => self.research().await?,
                Next::Capture => self.capture().await?,
                Next::Seal => self.seal_choice().await?,
                Next::Gate => self.gate().await?,
                Next::Replay => self.replay().await?,
                Next::Checkpoints => self.checkpoints().await?,
                Next::Score(candidate) => self.score(candidate).await?,
                Next::Conclude => self.conclude()?,
                Next::Close(outcome) => self.append(Event::Closed { outcome })?,
                Next::Decide => {
                    let cause = self.state().interrupted.clone();
                    return Ok(Ending::Interrupted(cause.unwrap_or_default()));
                }
                Next::Nothing => break,
            }
        }
        self.finish().await?;
        let outcome = self.state().closed;
        Ok(Ending::Closed(outcome.unwrap_or(Outcome::Interrupted)))
    }

    /// The run directory.
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }

    /// What the run is.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Leaves it to an operator if the state says so.
    fn interrupt_if_cut_off(&self) -> Result<(), RunError> {
        let cause = self.state().cut_off(self.task.lifecycle);
        cause.map_or(Ok(()), |cause| self.append(Event::Interrupted { cause }))
    }

    /// The state after all events so far.
    pub(crate) fn state(&self) -> Rc<State> {
        Rc::clone(&self.state.borrow())
    }

    /// Journals an event. It is on the disk when this returns.
    pub(crate) fn append(&self, event: Event) -> Result<(), RunError> {
        let record = self.journal.borrow_mut().append(event)?;
        Rc::make_mut(&mut self.state.borrow_mut()).apply(&record);
        (self.watcher)(&record);
        Ok(())
    }
}

/// Runs what blocks on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RunError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| error::call("working in the background")(std::io::Error::other(error)))
}
