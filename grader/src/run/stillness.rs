//! Research stands still while its clock does.
//!
//! Where validations do not count against the budget, the clock stands from the request for one until its end. All of
//! research is frozen for as long, or a slow scorer would be time for nothing. It is frozen before the request is in the
//! journal and thawed after the result is, so that it never runs on a clock that stands.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use airlock_runtime::cgroups::{CgroupError, CgroupFacts, CgroupPath, CgroupTarget, Needs};
use airlock_runtime::launcher::LauncherError;
use tokio::sync::{mpsc, oneshot};

use super::error::RunError;
use super::phase::RunningPhase;
use super::{Supervisor, blocking};
use crate::task::{PhaseName, Task};

/// Someone who wants it looked at whether research is to stand, and is told whether it does.
type Look = oneshot::Sender<bool>;

/// What those who stop the clock share with whoever holds the sandbox of research.
pub(crate) struct Stillness {
    /// Requests that are on their way into the journal.
    coming: Cell<usize>,
    looks: mpsc::UnboundedSender<Look>,
}

/// A request that is on its way into the journal, for which research stands. Dropped, it is there or will never be.
pub(crate) struct Coming(Rc<Stillness>);

/// The other end of a [`Stillness`].
pub(crate) type Looks = mpsc::UnboundedReceiver<Look>;

impl Stillness {
    pub(crate) fn new() -> (Rc<Stillness>, Looks) {
        let (looks, receiver) = mpsc::unbounded_channel();
        (Rc::new(Stillness { coming: Cell::new(0), looks }), receiver)
    }

    /// Has research looked at again after something has changed.
    pub(crate) fn look(&self) {
        // Research that has ended stands.
        let _ = self.looks.send(oneshot::channel().0);
    }

    /// Stops research; none if it cannot be stopped.
    pub(crate) async fn stop(self: &Rc<Stillness>) -> Option<Coming> {
        self.coming.set(self.coming.get() + 1);
        let coming = Coming(Rc::clone(self));
        let (look, answer) = oneshot::channel();
        self.looks.send(look).ok()?;
        answer.await.ok()?.then_some(coming)
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.coming.set(self.0.coming.get() - 1);
        self.0.look();
    }
}

impl Supervisor {
    /// Freezes or thaws research as its clock has it. False: it should stand, and cannot be stopped.
    pub(crate) async fn keep_in_step(
        &self,
        explore: &RunningPhase,
        stillness: &Stillness,
    ) -> Result<bool, RunError> {
        if self.manifest.budget.validation_counts {
            return Ok(true);
        }
        if stillness.coming.get() == 0 && self.state().open_tickets().next().is_none() {
            explore.thaw()?;
            return Ok(true);
        }
        let freezing = explore.freeze()?;
        match blocking(move || freezing.wait()).await? {
            Ok(()) => Ok(true),
            Err(error @ (LauncherError::Freeze(_) | LauncherError::MonitorLost)) => {
                tracing::warn!(%error, "research does not stand");
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Checks that research can be frozen here, if it will have to be.
pub(super) fn check(task: &Task, cgroup_parent: Option<&Path>) -> Result<(), RunError> {
    let validates = task.phases.contains_key(&PhaseName::Validate) && task.proxy.is_some();
    if task.budget.validation_counts || !validates {
        return Ok(());
    }
    let why = match can_freeze(cgroup_parent) {
        Ok(true) => return Ok(()),
        Ok(false) => String::new(),
        Err(error) => format!(": {error}"),
    };
    Err(RunError::Options(format!(
        "`validation_counts = false` lets the clock stand while a validation is graded, and research must be frozen \
         meanwhile, for which it needs a control group of its own that this user cannot make{why}; start airlock in a \
         delegated one (`systemd-run --user --scope -p Delegate=yes airlock ...`) or as root, or let validations count"
    )))
}

fn can_freeze(parent: Option<&Path>) -> Result<bool, CgroupError> {
    let parent = parent.map(CgroupPath::new).transpose()?;
    let needs = Needs { control: true, ..Needs::default() };
    Ok(CgroupTarget::new(&CgroupFacts::read()?, parent.as_ref(), "research", &needs)?.can_freeze())
}
