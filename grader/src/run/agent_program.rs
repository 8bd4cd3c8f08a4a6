//! Whether the agent's program is there, as far as that can be told before there is a sandbox.

use std::path::{Path, PathBuf};

use airlock_policy::RootKind;

use super::error::RunError;
use super::research::AGENT;
use crate::task::{PhaseName, Task};

/// Where a name without a slash is looked for, if the policy sets no PATH of its own. All of them are the host's.
const PLACES: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Checks that there is a program to be started as the agent. What lies in the workspace or in a mount is not looked for.
pub(super) fn check(task: &Task, command: &[String], files: Option<&Path>) -> Result<(), RunError> {
    let Some(phase) = task.phases.get(&PhaseName::Explore) else { return Ok(()) };
    let policy = &phase.policy;
    let Some(program) = command.first().filter(|_| policy.root.kind == RootKind::Host) else { return Ok(()) };
    let path = Path::new(program);
    let places: Vec<PathBuf> = match (path.strip_prefix(AGENT), files) {
        (Ok(below), Some(files)) => vec![files.join(below)],
        (Ok(_), None) => Vec::new(),
        _ if !program.contains('/') && !policy.env.set.contains_key("PATH") => {
            PLACES.iter().map(|place| Path::new(place).join(program)).collect()
        }
        _ if PLACES.iter().any(|place| path.starts_with(place)) => vec![path.to_owned()],
        _ => return Ok(()),
    };
    if places.iter().any(|place| place.exists()) {
        return Ok(());
    }
    let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    let looked = if looked.is_empty() { "without --agent-files".to_owned() } else { looked.join(", ") };
    Err(RunError::Options(format!("--agent {program}: there is no such program ({looked})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_be_there_is_told() {
        let soup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks/digits-soup");
        let task = Task::load(&soup).unwrap();
        let files = soup.join("solution");
        let told = |program: &str, files: Option<&Path>| {
            let checked = check(&task, &[program.to_owned()], files);
            checked.err().map(|error| error.to_string()).unwrap_or_default()
        };
        for program in ["sh", "/bin/sh", "/opt/agent/solve.sh", "/workspace/agent", "./agent", "bin/agent"] {
            assert_eq!(told(program, Some(&files)), "");
        }
        for (program, looked) in [
            ("no-such-agent", "/usr/bin/no-such-agent"),
            ("/usr/bin/none", "/usr/bin/none"),
            ("/opt/agent/none", "none"),
        ] {
            let told = told(program, Some(&files));
            assert!(told.contains("there is no such program") && told.contains(looked), "{told}");
        }
        assert!(told("/opt/agent/solve.sh", None).contains("without --agent-files"));
    }
}
