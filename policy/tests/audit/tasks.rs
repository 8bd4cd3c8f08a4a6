//! Tasks, as policies and mounts of three phases.

use std::fs;
use std::path::Path;

use airlock_policy::audit::{Finding, PhaseFacts, PhaseSource, Role, TaskFacts, TaskMount};
use airlock_policy::{Overrides, Policy};

/// What differs between tasks.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// In the policy of `explore`.
    pub(crate) explore: &'static str,
    /// In the policy of `score`.
    pub(crate) score: &'static str,
    /// The scorer's mount of the candidate runs programs.
    pub(crate) exec: bool,
    /// Assets whose rows are gated.
    pub(crate) gated: bool,
    /// Where the task lies.
    pub(crate) at: &'static str,
}

/// A task in order.
pub(crate) const SOUND: Sample = Sample { explore: "", score: "", exec: false, gated: true, at: "/task" };

/// Rule; a task that trips it; the nearest one that does not.
pub(crate) const PAIRS: &[(&str, Sample, Sample)] = &[
    ("AL130", Sample { explore: ANSWERS, ..SOUND }, SOUND),
    ("AL130", Sample { at: "/opt/task", ..SOUND }, Sample { at: "/optional/task", ..SOUND }),
    (
        "AL130",
        Sample { at: "/srv/image/task", explore: IMAGE, ..SOUND },
        Sample { at: "/opt/task", explore: IMAGE, ..SOUND },
    ),
    ("AL131", Sample { exec: true, ..SOUND }, SOUND),
    (
        "AL132",
        Sample { score: "[root]\nwritable = \"./kept\"", ..SOUND },
        Sample { score: "[root]\nwritable = \"tmpfs\"", ..SOUND },
    ),
    (
        "AL133",
        Sample { explore: SHARED_WRITABLE, score: SHARED, ..SOUND },
        Sample { explore: SHARED, score: SHARED, ..SOUND },
    ),
    ("AL134", Sample { score: "[network]\nmode = \"loopback\"", ..SOUND }, SOUND),
    ("AL135", Sample { score: "[limits]\nwall = \"unlimited\"", ..SOUND }, SOUND),
    ("AL136", Sample { gated: false, ..SOUND }, SOUND),
];

const ANSWERS: &str = "[[mount]]\nsource = \"/task\"\ntarget = \"/data\"";
const IMAGE: &str = "[root]\nkind = \"dir\"\npath = \"/srv/image\"";
const SHARED: &str = "[[mount]]\nsource = \"/srv/shared/a\"\ntarget = \"/a\"";
const SHARED_WRITABLE: &str = "[[mount]]\nsource = \"/srv/shared\"\ntarget = \"/a\"\nmode = \"rw\"";

const TEXT: &str =
    "[[airlock.phase]]\nname = \"explore\"\n[[airlock.phase]]\nname = \"score\"\n[airlock.gates]\n";

/// What is found in this task.
pub(crate) fn findings(sample: &Sample) -> Vec<Finding> {
    let candidate = TaskMount {
        source: PhaseSource::Candidate,
        target: "/candidate".into(),
        writable: false,
        exec: sample.exec,
    };
    let explore = phase("explore", Role::Untrusted, "research", sample.explore, Vec::new());
    let score = phase("score", Role::Scorer, "scorer", sample.score, vec![candidate]);
    let mut task = TaskFacts::new("task.toml", TEXT, vec![explore, score]);
    task.answers = vec![("asset `rows`".into(), Path::new(sample.at).join("assets/rows.csv"))];
    task.closed = vec!["rows".into()];
    task.gated = if sample.gated { vec!["rows".into()] } else { Vec::new() };
    task.findings()
}

fn phase(name: &str, role: Role, extends: &str, text: &str, mounts: Vec<TaskMount>) -> PhaseFacts {
    let directory = tempfile::tempdir().unwrap();
    let head = format!("version = 1\nextends = \"{extends}\"\n");
    fs::write(directory.path().join("p.toml"), format!("{head}{text}\n")).unwrap();
    let policy = Policy::load("./p.toml", &Overrides::default(), directory.path()).unwrap();
    PhaseFacts { name: name.into(), role, policy, mounts, in_process: false }
}

#[test]
fn a_phase_is_named_where_it_stands() {
    let found = findings(&Sample { score: "[network]\nmode = \"loopback\"", ..SOUND });
    assert_eq!((found[0].rule, &*found[0].clause, found[0].line), ("AL134", "airlock.phase.1", 4));
}
