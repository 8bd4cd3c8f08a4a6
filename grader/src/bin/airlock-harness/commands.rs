//! Performing a command.

use std::io::{self, Write};
use std::time::Duration;

use airlock_grader::protocol::client::{Client, ClientError};
use airlock_grader::protocol::messages::{
    Accepted, Cancel, Hello, Outcome, Queued, Request, ResultOf, Status, TicketState,
};
use airlock_grader::protocol::names::Ticket;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;

use crate::args::{Command, Options};
use crate::export::{self, ExportError};
use crate::{mcp, text};

/// First and longest pause between two looks at a validation.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Why a command failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0} {1}")]
    Ended(Ticket, &'static str),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("writing to the standard output: {0}")]
    Output(#[source] io::Error),
    #[error("reading from the standard input: {0}")]
    Input(#[source] io::Error),
}

pub(crate) fn perform(options: &Options, command: Command) -> Result<(), Failure> {
    let client = Client::new(&options.socket, options.within);
    let show = Show { client: &client, json: options.json };
    match command {
        Command::Ask(request) => show.ask(&request),
        Command::Wait(Request::Validate(request)) => {
            let (_, queued): (_, Queued) = client.ask(&Request::Validate(request))?;
            show.outcome(&wait(&client, queued.ticket, None)?)
        }
        Command::Wait(Request::Result(request)) => show.outcome(&wait(&client, request.ticket, None)?),
        Command::Wait(request) => show.ask(&request),
        Command::Timer => {
            let (_, status): (_, Status) = client.ask(&Request::Status)?;
            let times = json!({ "elapsed_ms": status.elapsed_ms, "remaining_ms": status.remaining_ms });
            show.print(&times, &text::timer(&status))
        }
        Command::Export { source, destination } => {
            let copied = export::export(&source, &destination, &export::Bounds::default())?;
            show.print(&json!({ "files": copied.files, "bytes": copied.bytes }), &text::copied(&copied))
        }
        Command::Mcp => mcp::serve(&client, io::stdin().lock(), io::stdout().lock()),
    }
}

struct Show<'a> {
    client: &'a Client,
    json: bool,
}

impl Show<'_> {
    fn ask(&self, request: &Request) -> Result<(), Failure> {
        match request {
            Request::Hello => self.reply(request, |hello: &Hello| text::hello(hello)),
            Request::Status => self.reply(request, |status: &Status| text::status(status)),
            Request::Validate(_) => self.reply(request, |queued: &Queued| text::queued(queued)),
            Request::Result(request) => self.outcome(&outcome(self.client, request.ticket)?),
            Request::Cancel(_) => {
                self.reply(request, |done: &Cancel| format!("{} is cancelled\n", done.ticket))
            }
            Request::Submit(_) | Request::NoCandidate(_) => {
                self.reply(request, |_: &Accepted| "accepted\n".to_owned())
            }
        }
    }

    fn reply<T: DeserializeOwned>(
        &self,
        request: &Request,
        text: impl Fn(&T) -> String,
    ) -> Result<(), Failure> {
        let (reply, typed) = self.client.ask(request)?;
        self.print(&reply, &text(&typed))
    }

    fn outcome(&self, outcome: &Outcome) -> Result<(), Failure> {
        self.print(&json!(outcome), &text::outcome(outcome))?;
        match outcome.state {
            TicketState::Failed => Err(Failure::Ended(outcome.ticket, "failed")),
            TicketState::Cancelled => Err(Failure::Ended(outcome.ticket, "is cancelled")),
            TicketState::Queued | TicketState::Running | TicketState::Done => Ok(()),
        }
    }

    fn print(&self, reply: &Value, text: &str) -> Result<(), Failure> {
        let mut output = io::stdout().lock();
        let written = if self.json { writeln!(output, "{reply}") } else { output.write_all(text.as_bytes()) };
        written.and_then(|()| output.flush()).map_err(Failure::Output)
    }
}

/// The state of a validation, its feedback whole.
fn outcome(client: &Client, ticket: Ticket) -> Result<Outcome, ClientError> {
    let page = |from| client.ask(&Request::Result(ResultOf { ticket, from })).map(|(_, page)| page);
    let mut outcome: Outcome = page(0)?;
    while let Some(feedback) = &mut outcome.feedback
        && let Some(from) = feedback.next
    {
        let next: Outcome = page(from)?;
        match next.feedback {
            // A page that leads back would have no end.
            Some(more) if more.next.is_none_or(|next| next > from) => {
                feedback.items.extend(more.items);
                feedback.next = more.next;
            }
            _ => feedback.next = None,
        }
    }
    Ok(outcome)
}

/// The outcome of a validation when it has ended, or as it is after this time.
pub(crate) fn wait(
    client: &Client,
    ticket: Ticket,
    longest: Option<Duration>,
) -> Result<Outcome, ClientError> {
    let start = std::time::Instant::now();
    let mut pause = PAUSES.0;
    loop {
        let outcome = outcome(client, ticket)?;
        let open = matches!(outcome.state, TicketState::Queued | TicketState::Running);
        let left = longest.map(|longest| longest.saturating_sub(start.elapsed()));
        if !open || left == Some(Duration::ZERO) {
            return Ok(outcome);
        }
        std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
        pause = (pause * 2).min(PAUSES.1);
    }
}
