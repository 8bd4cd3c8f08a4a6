//! The one conversation with systemd over D-Bus. To be had in a process of its own, which ends with it.

use std::pin::Pin;

use zbus::export::futures_core::Stream;
use zbus::{
    Connection, MatchRule, Message, MessageStream, ObjectPath, Variant, block_on, connection, message,
};

use super::scope::{Scope, ScopeError, ScopeStep};

const SYSTEMD: &str = "org.freedesktop.systemd1";
const OBJECT: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// Any unit of that name is an error, so that no other one is ever changed (org.freedesktop.systemd1(5)).
const MODE: &str = "fail";

/// Has a scope started, and waits until it is. `doing` is told of each step before it is done.
pub(super) fn start(scope: &Scope, mut doing: impl FnMut(ScopeStep)) -> Result<(), ScopeError> {
    let failed = |step| {
        move |error: zbus::Error| ScopeError::Step { step, bus: scope.bus.clone(), why: error.to_string() }
    };
    block_on(async {
        doing(ScopeStep::Connect);
        let bus = connection::Builder::address(scope.bus.as_str()).build().await;
        let bus = bus.map_err(failed(ScopeStep::Connect))?;
        // Before the job can end.
        doing(ScopeStep::Watch);
        let mut ends = watch(&bus, scope).await.map_err(failed(ScopeStep::Watch))?;
        doing(ScopeStep::Start);
        let auxiliary: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
        let order = (scope.name.as_str(), MODE, properties(scope), auxiliary);
        let job = bus.call_method(Some(SYSTEMD), OBJECT, Some(MANAGER), "StartTransientUnit", &order).await;
        job.map_err(failed(ScopeStep::Start))?;
        doing(ScopeStep::Job);
        let result = match next(&mut ends).await {
            Some(end) => end.and_then(|end| result(&end)).map_err(failed(ScopeStep::Job))?,
            None => "the bus was closed".into(),
        };
        if result == "done" { Ok(()) } else { Err(ScopeError::Job { scope: scope.name.clone(), result }) }
    })
}

/// The signal that says how the scope's job ended.
async fn watch(bus: &Connection, scope: &Scope) -> zbus::Result<MessageStream> {
    let rule = MatchRule::builder()
        .msg_type(message::Type::Signal)
        .sender(SYSTEMD)
        .interface(MANAGER)
        .member("JobRemoved")
        .arg(2, scope.name.as_str())
        .build()?;
    MessageStream::for_match_rule(rule, bus, None).await
}

/// systemd.resource-control(5), systemd.scope(5).
fn properties(scope: &Scope) -> Vec<(&'static str, Variant<'static>)> {
    vec![
        ("Description", "Sandboxes of Airlock".into()),
        ("Slice", scope.slice.into()),
        // Every controller that the manager has itself.
        ("Delegate", true.into()),
        // Each sandbox has a limit of its own, which the manager's default for units would cut short.
        ("TasksMax", u64::MAX.into()),
        ("CollectMode", "inactive-or-failed".into()),
        ("PIDs", vec![scope.pid].into()),
    ]
}

async fn next(stream: &mut MessageStream) -> Option<zbus::Result<Message>> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

fn result(end: &Message) -> zbus::Result<String> {
    let body = end.body();
    let (_, _, _, result): (u32, ObjectPath<'_>, &str, &str) = body.deserialize()?;
    Ok(result.to_owned())
}
