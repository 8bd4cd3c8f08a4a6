//! The demo's agents: three runs of the same task, and what the cheating one tells.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::place::Place;

/// The agents' programs, by name.
pub(super) const SCRIPTS: [(&str, &[u8]); 2] = [
    ("honest.sh", include_bytes!("../../../demo/honest.sh")),
    ("cheat.py", include_bytes!("../../../demo/cheat.py")),
];

/// Longest log that is read, in bytes.
const LONGEST_LOG: u64 = 1 << 20;

/// Who leads research.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    /// Nobody: the unmodified source is scored.
    Baseline,
    Honest,
    Cheat,
}

/// One thing that the cheating agent tried. It says so itself: what it is worth is told by the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Attempt {
    pub(super) tried: String,
    pub(super) happened: String,
    /// It achieved nothing.
    pub(super) held: bool,
}

impl Role {
    pub(super) const ALL: [Role; 3] = [Role::Baseline, Role::Honest, Role::Cheat];

    /// The run's directory in the demo's.
    pub(super) fn name(self) -> &'static str {
        match self {
            Role::Baseline => "baseline",
            Role::Honest => "honest",
            Role::Cheat => "cheat",
        }
    }

    /// One line for people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Role::Baseline => "1  The unmodified source, scored by the procedure that everybody gets",
            Role::Honest => "2  An honest agent: measures, validates twice, submits a greedy soup",
            Role::Cheat => "3  A cheating agent, which is told where the hidden rows are",
        }
    }

    /// What the run's page shows.
    pub(super) fn page(self) -> &'static str {
        match self {
            Role::Baseline => "the page of the unmodified source",
            Role::Honest => "the page of the honest agent, for a browser",
            Role::Cheat => "the page of the cheating agent",
        }
    }

    /// The agent's program and arguments; none for the baseline.
    pub(super) fn command(self, place: &Place) -> Vec<String> {
        match self {
            Role::Baseline => Vec::new(),
            Role::Honest => ["/bin/sh", "/opt/agent/honest.sh"].map(str::to_owned).to_vec(),
            Role::Cheat => {
                let (path, row) = place.hidden();
                let row = row.iter().map(|byte| format!("{byte:02x}")).collect();
                vec!["python3".into(), "/opt/agent/cheat.py".into(), path.display().to_string(), row]
            }
        }
    }
}

/// What the cheating agent told: one JSON document a line, in what it printed.
pub(super) fn attempts(phase: &Path) -> Result<Vec<Attempt>> {
    let text = log(&phase.join("stdout.log"))?;
    let told: Result<Vec<Attempt>, _> = text.lines().map(serde_json::from_str).collect();
    match told {
        Ok(attempts) if !attempts.is_empty() => Ok(attempts),
        Ok(_) => bail!(
            "the cheating agent said nothing; it ended with: {}",
            last_line(&log(&phase.join("stderr.log"))?)
        ),
        Err(error) => Err(error).context("reading what the cheating agent said"),
    }
}

/// The last thing that an agent said on stderr.
pub(super) fn last_words(phase: &Path) -> Result<String> {
    Ok(last_line(&log(&phase.join("stderr.log"))?).to_owned())
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

fn log(path: &PathBuf) -> Result<String> {
    let failed = || format!("reading {}", path.display());
    let file = std::fs::File::open(path).with_context(failed)?;
    let mut bytes = Vec::new();
    file.take(LONGEST_LOG).read_to_end(&mut bytes).with_context(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
