//! `airlock policy`.

mod explain;

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::args::{PolicyArgs, PolicyCommand};
use crate::output;

pub(crate) fn policy(args: PolicyArgs) -> Result<ExitCode> {
    let cwd = std::env::current_dir().context("the working directory")?;
    match args.command {
        PolicyCommand::List(format) if format.json => {
            let policies: std::collections::BTreeMap<_, _> = airlock_policy::list().collect();
            output::json(&policies)?;
        }
        PolicyCommand::List(_) => {
            for (name, summary) in airlock_policy::list() {
                output::print(&format!("{name:<10} {summary}\n"))?;
            }
        }
        PolicyCommand::Show { policy } => {
            output::print(&output::escape(&airlock_policy::show(&policy, &cwd)?))?
        }
        PolicyCommand::Check { policies } => {
            let mut failed = false;
            for policy in policies {
                match airlock_policy::check(&policy, &cwd) {
                    Ok(()) => output::print(&format!("{}: ok\n", output::escape(&policy)))?,
                    Err(error) => {
                        failed = true;
                        output::error(&error.into());
                    }
                }
            }
            if failed {
                return Ok(ExitCode::from(crate::OWN_FAILURE));
            }
        }
        PolicyCommand::Diff { before, after, format } => return explain::diff(&before, &after, &format),
        PolicyCommand::Explain(args) => return explain::explain(*args),
        PolicyCommand::Schema => output::json(&airlock_policy::json_schema())?,
    }
    Ok(ExitCode::SUCCESS)
}
