//! The grader process of a run: the one process that decodes what its sandboxes send.
//!
//! The supervisor starts it in a sandbox of policy `grader`, with the listening socket as descriptor 3 and the
//! supervisor link as descriptor 4. It ends with the link.

mod confine;
mod descriptors;
mod log;

use std::process::ExitCode;

use airlock_grader::protocol::link::{Link, LinkError, LinkLimits};
use airlock_grader::protocol::process::{LINK, LISTENER};
use airlock_grader::protocol::server::{Limits, ServeError, serve};
use airlock_runtime::seccomp::SeccompError;
use thiserror::Error;

use descriptors::Unfit;

/// Why it does not serve.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Descriptor(#[from] Unfit),
    #[error("starting the event loop: {0}")]
    Runtime(#[source] std::io::Error),
    #[error("{error}{}", because(error))]
    Confine {
        #[from]
        error: SeccompError,
    },
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

fn because(error: &dyn std::error::Error) -> String {
    error.source().map(|source| format!(": {source}")).unwrap_or_default()
}

fn main() -> ExitCode {
    log::start();
    confine::keep_one_arena();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let listener = descriptors::listener(LISTENER)?;
    let link = descriptors::link(LINK)?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_io().enable_time().build().map_err(Failure::Runtime)?;
    runtime.block_on(async {
        // Before the first byte of anyone else is read, and on the one thread there is.
        confine::confine()?;
        let link = Link::start(link, LinkLimits::default())?;
        let broken = link.broken();
        tracing::info!("serving");
        serve(listener, link, Limits::default(), broken).await?;
        tracing::info!("the supervisor has let go");
        Ok(())
    })
}
