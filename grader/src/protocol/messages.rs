//! Requests and replies. Times are milliseconds of the host's clock.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::names::{CandidateName, ItemName, Label, Reason, Ticket};
use super::refusal::ErrorCode;
use crate::Digest;
use crate::score;

/// A checked request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Which run, which phase, which limits.
    Hello,
    /// Time and open tickets.
    Status,
    /// Seal a candidate and queue its validation.
    Validate(Validate),
    /// State and outcome of a validation.
    Result(ResultOf),
    /// Drop a queued validation.
    Cancel(Cancel),
    /// The final choice.
    Submit(Submit),
    /// The end without a candidate.
    NoCandidate(NoCandidate),
}

/// The methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each has the name of its request")]
pub enum Method {
    Hello,
    Status,
    Validate,
    Result,
    Cancel,
    Submit,
    NoCandidate,
}

/// Parameters of `validate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Validate {
    /// Where it lies.
    pub candidate: CandidateName,
    /// Only these items, each once. Their number is then the planned number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Subset>,
}

/// Parameters of `result`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultOf {
    /// The validation.
    pub ticket: Ticket,
    /// Number of the first item wanted.
    #[serde(default)]
    pub from: u32,
}

/// Parameters of `cancel`, and its reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The validation.
    pub ticket: Ticket,
}

/// Parameters of `submit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submit {
    /// Where it lies. It is sealed after everything in the sandbox was killed.
    pub candidate: CandidateName,
}

/// Parameters of `no_candidate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoCandidate {
    /// Why.
    pub reason: Reason,
}

/// Some of an evaluation's items: at least one, none twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<ItemName>", into = "Vec<ItemName>")]
pub struct Subset(Vec<ItemName>);

impl Subset {
    /// The items in the order of the request.
    pub fn items(&self) -> &[ItemName] {
        &self.0
    }
}

impl From<Subset> for Vec<ItemName> {
    fn from(subset: Subset) -> Vec<ItemName> {
        subset.0
    }
}

impl TryFrom<Vec<ItemName>> for Subset {
    type Error = &'static str;

    fn try_from(items: Vec<ItemName>) -> Result<Subset, &'static str> {
        let distinct: std::collections::BTreeSet<_> = items.iter().collect();
        match distinct.len() {
            0 => Err("there is no item"),
            number if number < items.len() => Err("an item is named twice"),
            _ => Ok(Subset(items)),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl Request {
    /// Decodes the parameters of a method.
    pub fn decode(method: &str, params: Map<String, Value>) -> Result<Request, ErrorCode> {
        fn typed<T: DeserializeOwned>(params: Map<String, Value>) -> Result<T, ErrorCode> {
            serde_json::from_value(Value::Object(params)).map_err(|_| ErrorCode::InvalidParams)
        }
        match method {
            "hello" => typed(params).map(|Nothing {}| Request::Hello),
            "status" => typed(params).map(|Nothing {}| Request::Status),
            "validate" => typed(params).map(Request::Validate),
            "result" => typed(params).map(Request::Result),
            "cancel" => typed(params).map(Request::Cancel),
            "submit" => typed(params).map(Request::Submit),
            "no_candidate" => typed(params).map(Request::NoCandidate),
            _ => Err(ErrorCode::UnknownMethod),
        }
    }

    /// The method's name and its parameters.
    pub fn encode(&self) -> (&'static str, Value) {
        match self {
            Request::Hello => ("hello", json!({})),
            Request::Status => ("status", json!({})),
            Request::Validate(params) => ("validate", json!(params)),
            Request::Result(params) => ("result", json!(params)),
            Request::Cancel(params) => ("cancel", json!(params)),
            Request::Submit(params) => ("submit", json!(params)),
            Request::NoCandidate(params) => ("no_candidate", json!(params)),
        }
    }
}

/// What the caller is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Exploration that ends in a changeset; no validation.
    Explore,
    /// Research with validation.
    Research,
    /// The final choice was made.
    Ended,
}

/// What `hello` says of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFacts {
    /// The run.
    pub run: Label,
    /// Its task.
    pub task: Label,
    /// The phase.
    pub phase: Phase,
    /// The methods that the phase has.
    pub methods: Vec<Method>,
    /// The budget of the phase.
    pub budget_ms: u64,
    /// Most validations that are open at a time.
    pub open_tickets: u32,
}

/// Reply to `hello`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`super::VERSION`].
    pub protocol: u32,
    /// The run.
    #[serde(flatten)]
    pub facts: RunFacts,
    /// Longest request line in bytes.
    pub request_bytes: usize,
    /// Longest reply line in bytes.
    pub reply_bytes: usize,
    /// Most connections at a time.
    pub connections: usize,
    /// Requests per second and connection; what comes sooner waits.
    pub requests_per_second: u32,
}

/// Reply to `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The phase.
    pub phase: Phase,
    /// Since the phase began.
    pub elapsed_ms: u64,
    /// Until the budget ends.
    pub remaining_ms: u64,
    /// Validations asked for so far.
    pub validations: u32,
    /// Validations that are queued or running.
    pub open: Vec<OpenTicket>,
}

/// A validation that is queued or running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenTicket {
    /// The validation.
    pub ticket: Ticket,
    /// Its sealed candidate.
    pub candidate: Digest,
    /// Its state.
    pub state: TicketState,
}

/// Reply to `validate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queued {
    /// The validation.
    pub ticket: Ticket,
    /// The sealed candidate. The same bytes have the same digest.
    pub candidate: Digest,
    /// Validations that are before it.
    pub ahead: u32,
}

/// States of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TicketState {
    /// Waiting.
    Queued,
    /// At work.
    Running,
    /// Ended with an outcome.
    Done,
    /// Ended without one.
    Failed,
    /// Dropped by `cancel`.
    Cancelled,
}

/// Reply to `result`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The validation.
    pub ticket: Ticket,
    /// Its sealed candidate.
    pub candidate: Digest,
    /// Whether only some items were asked for.
    pub subset: bool,
    /// Its state.
    pub state: TicketState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The outcome of a validation that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<Feedback>,
}

/// Why a validation has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// It took longer than the task allows.
    Timeout,
    /// The scorer ended without a verdict.
    NoVerdict,
    /// The host failed, as the host itself found.
    Infra,
}

/// What the agent learns of a validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feedback {
    /// The aggregate over all planned items.
    pub score: Finite,
    /// The numbers of items.
    pub counts: Counts,
    /// Items from [`ResultOf::from`] on, in the task's order.
    pub items: Vec<Item>,
    /// Number of the first item that did not fit into this reply.
    pub next: Option<u32>,
    /// Directory of the trajectories below `/run/airlock/feedback`.
    pub trajectories: Option<Label>,
}

/// Numbers of items. The planned number is the denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Planned.
    pub planned: u32,
    /// With a score of their own, be it 0.
    pub graded: u32,
    /// Scored 0 because they timed out, crashed or are missing.
    pub errored: u32,
}

/// One item's attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// The item.
    pub item: ItemName,
    /// Its attempts in order.
    pub attempts: Vec<Attempt>,
}

/// One attempt at an item.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// How it ended.
    pub status: score::Status,
    /// Its score.
    pub score: Finite,
    /// How long it took.
    pub wall_ms: u64,
}

/// Reply to `submit` and `no_candidate`: it is in the journal. There is no other reply to the final choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    accepted: True,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "bool", into = "bool")]
struct True;

impl From<True> for bool {
    fn from(_: True) -> bool {
        true
    }
}

impl TryFrom<bool> for True {
    type Error = &'static str;

    fn try_from(value: bool) -> Result<True, &'static str> {
        value.then_some(True).ok_or("not true")
    }
}

/// A number that is neither infinite nor NaN. (serde_json writes those as `null`.)
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Finite(f64);

impl Finite {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl From<Finite> for f64 {
    fn from(number: Finite) -> f64 {
        number.0
    }
}

impl TryFrom<f64> for Finite {
    type Error = &'static str;

    fn try_from(number: f64) -> Result<Finite, &'static str> {
        if number.is_finite() { Ok(Finite(number)) } else { Err("the number is not finite") }
    }
}

/// Most items in one reply to `result`.
const PAGE_ITEMS: usize = 1000;

/// Most attempts in one reply to `result`, unless its first item alone has more.
const PAGE_ATTEMPTS: usize = 6000;

/// The items of one reply, from number `from` on, and the number of the first that does not fit any more.
/// Such a page stays below [`super::REPLY_CAP`].
pub fn page(items: &[Item], from: u32) -> (Vec<Item>, Option<u32>) {
    let rest = usize::try_from(from).ok().and_then(|from| items.get(from..)).unwrap_or_default();
    let mut attempts = 0;
    let fitting = rest.iter().take(PAGE_ITEMS).enumerate().take_while(|(number, item)| {
        attempts += item.attempts.len();
        *number == 0 || attempts <= PAGE_ATTEMPTS
    });
    let page: Vec<Item> = fitting.map(|(_, item)| item.clone()).collect();
    let next = (page.len() < rest.len())
        .then(|| u32::try_from(page.len()).ok().and_then(|length| from.checked_add(length)))
        .flatten();
    (page, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(method: &str, params: Value) -> Result<Request, ErrorCode> {
        let Value::Object(params) = params else { panic!("no object") };
        Request::decode(method, params)
    }

    #[test]
    fn requests_come_back_as_they_were() {
        let subset = Subset::try_from(vec!["a".parse().unwrap(), "b".parse().unwrap()]).unwrap();
        for request in [
            Request::Hello,
            Request::Status,
            Request::Validate(Validate { candidate: "out/m".parse().unwrap(), items: Some(subset) }),
            Request::Result(ResultOf { ticket: Ticket(3), from: 7 }),
            Request::Cancel(Cancel { ticket: Ticket(3) }),
            Request::Submit(Submit { candidate: ".".parse().unwrap() }),
            Request::NoCandidate(NoCandidate { reason: "none".parse().unwrap() }),
        ] {
            let (method, params) = request.encode();
            assert_eq!(decode(method, params), Ok(request));
        }
    }

    #[test]
    fn parameters_are_exactly_those_of_the_method() {
        for (method, params) in [
            ("hello", json!({"x": 1})),
            ("status", json!({"verbose": true})),
            ("validate", json!({})),
            ("validate", json!({"candidate": "../x"})),
            ("validate", json!({"candidate": "/x"})),
            ("validate", json!({"candidate": ["x"]})),
            ("validate", json!({"candidate": "x", "items": []})),
            ("validate", json!({"candidate": "x", "items": ["a", "a"]})),
            ("validate", json!({"candidate": "x", "split": "test"})),
            ("result", json!({"ticket": "v-01"})),
            ("result", json!({"ticket": 1})),
            ("result", json!({"ticket": "v-1", "from": -1})),
            ("result", json!({"ticket": "v-1", "from": 0.5})),
            ("cancel", json!({"ticket": "v-1", "from": 0})),
            ("submit", json!({"candidate": "a", "final": true})),
            ("no_candidate", json!({"reason": ""})),
            ("no_candidate", json!({"reason": "\u{1b}]0;x"})),
        ] {
            assert_eq!(decode(method, params.clone()), Err(ErrorCode::InvalidParams), "{method} {params}");
        }
        assert_eq!(decode("score", json!({})), Err(ErrorCode::UnknownMethod));
        assert_eq!(decode("Hello", json!({})), Err(ErrorCode::UnknownMethod));
    }

    #[test]
    fn numbers_are_finite() {
        assert!(Finite::try_from(f64::NAN).is_err());
        assert!(Finite::try_from(f64::INFINITY).is_err());
        assert!(serde_json::from_str::<Finite>("null").is_err());
        assert_eq!(serde_json::to_string(&Accepted::default()).unwrap(), r#"{"accepted":true}"#);
        assert!(serde_json::from_str::<Accepted>(r#"{"accepted":false}"#).is_err());
    }

    #[test]
    fn pages_cover_all_items_and_fit_a_reply() {
        let attempt = Attempt {
            status: score::Status::ExecFailure,
            score: Finite::try_from(-f64::MIN_POSITIVE).unwrap(),
            wall_ms: (1 << 53) - 1,
        };
        let item =
            |attempts| Item { item: "\"".repeat(128).parse().unwrap(), attempts: vec![attempt; attempts] };
        for (number, attempts) in [(2500, 6), (2500, 0), (3, 5000), (1, 6000), (0, 0)] {
            let items = vec![item(attempts); number];
            let (mut from, mut seen) = (Some(0), 0);
            while let Some(start) = from {
                let (some, next) = page(&items, start);
                seen += some.len();
                assert!(json!(some).to_string().len() < crate::protocol::REPLY_CAP - 4096);
                from = next;
            }
            assert_eq!(seen, number);
        }
        assert_eq!(page(&[item(1)], 5), (Vec::new(), None));
    }
}
