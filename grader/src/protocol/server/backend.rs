//! What a request is turned into.

use crate::protocol::messages::{
    Cancel, NoCandidate, Outcome, Queued, ResultOf, RunFacts, Status, Submit, Validate,
};
use crate::protocol::refusal::Refusal;

/// Performs checked requests.
///
/// A call whose deadline passes or whose connection ends is dropped, whatever came of it: what was
/// acknowledged to the journal stays, and `status` tells.
pub trait Backend {
    /// The run and its phase.
    fn hello(&self) -> impl Future<Output = Result<RunFacts, Refusal>>;

    /// Time and open tickets.
    fn status(&self) -> impl Future<Output = Result<Status, Refusal>>;

    /// Seals a candidate and queues its validation.
    fn validate(&self, request: Validate) -> impl Future<Output = Result<Queued, Refusal>>;

    /// State and outcome of a validation. The outcome is one [`page`](crate::protocol::messages::page).
    fn result(&self, request: ResultOf) -> impl Future<Output = Result<Outcome, Refusal>>;

    /// Drops a queued validation.
    fn cancel(&self, request: Cancel) -> impl Future<Output = Result<(), Refusal>>;

    /// Journals the final choice; it is acknowledged when this is done.
    fn submit(&self, request: Submit) -> impl Future<Output = Result<(), Refusal>>;

    /// Journals that there is no candidate; acknowledged when this is done.
    fn no_candidate(&self, request: NoCandidate) -> impl Future<Output = Result<(), Refusal>>;
}
