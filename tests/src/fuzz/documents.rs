//! Documents that people and scorers write: policies, OCI configurations, tasks, verdicts.

use std::path::Path;

use airlock_grader::run::verdict::Verdict;
use airlock_grader::task::{Task, TaskError, read_reward};
use airlock_policy::audit::{AuditError, Audited, Kind, Subject};
use airlock_policy::{Overrides, Policy, PolicyError, parse_mount_arg, show};
use airlock_runtime::seccomp::{Architecture, FilterTable, MAX_INSTRUCTIONS, SeccompData, X32_BIT, run};

use super::{Target, assert_shown, parts, scratch};

pub(super) const POLICY: Target = Target { name: "policy", held: (4 << 20, 1024), body: policy };

pub(super) const OCI_CONFIG: Target = Target { name: "oci_config", held: (4 << 20, 1024), body: oci_config };

pub(super) const TASK: Target = Target { name: "task", held: (64 << 20, 1024), body: task };

pub(super) const VERDICT: Target = Target { name: "verdict", held: (64 << 10, 256), body: verdict };

/// Files that a policy may name, beside the policy itself.
const NAMES: [&str; 3] = ["p.toml", "q.toml", "profile.json"];

/// A policy that loads is shown as a file that says the same; one that does not is told at a place.
fn policy(data: &[u8]) {
    let directory = scratch::directory();
    let files: Vec<(&str, &[u8])> = NAMES.into_iter().zip(parts(data)).collect();
    scratch::write(directory.path(), &files);
    match load("./p.toml", directory.path()) {
        Ok(policy) => {
            let shown = show("./p.toml", directory.path()).unwrap();
            scratch::write(directory.path(), &[("shown.toml", shown.as_bytes())]);
            let again =
                load("./shown.toml", directory.path()).unwrap_or_else(|error| panic!("{error}\n{shown}"));
            assert_eq!(again.digest().unwrap(), policy.digest().unwrap(), "{shown}");
        }
        Err(PolicyError::Invalid(mistakes)) => {
            for mistake in &mistakes {
                assert!(mistake.place.line > 0 && mistake.place.column > 0);
                assert_shown(&mistake.to_string());
            }
            assert!(!mistakes.is_empty());
        }
        Err(error) => drop(error.to_string()),
    }
    let first = String::from_utf8_lossy(data.split(|byte| *byte == b'\n').next().unwrap_or_default());
    if let Ok(mount) = parse_mount_arg(&first) {
        assert!(first.starts_with(&format!("{}:{}", mount.source, mount.target)));
    }
}

fn load(arg: &str, cwd: &Path) -> Result<Policy, PolicyError> {
    Policy::load(arg, &Overrides::default(), cwd)
}

/// A configuration that is read has findings at places of its text, and its compiled filter answers as its document says.
fn oci_config(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let subject = match Subject::bundle_text("config.json", text) {
        Ok(subject) => subject,
        Err(AuditError::Policy(PolicyError::Invalid(mistakes))) => {
            let lines = text.split('\n').count();
            mistakes.iter().for_each(|mistake| {
                assert!((1..=lines).contains(&mistake.place.line), "{mistake}");
                assert_shown(&mistake.to_string());
            });
            return;
        }
        Err(error) => return drop(error.to_string()),
    };
    let findings = subject.findings();
    assert!(findings.iter().all(|found| (1..=text.split('\n').count()).contains(&found.line)));
    assert!(Audited::new("config.json".into(), Kind::Bundle, findings).exposure <= 100);
    let Some((document, program)) = subject.seccomp() else { return };
    assert!(program.instructions.len() <= MAX_INSTRUCTIONS);
    let table = FilterTable::of(document).unwrap();
    let native = Architecture::native().unwrap().audit();
    for number in (0..470).chain([X32_BIT, u32::MAX - 1, u32::MAX]) {
        for args in [[0; 6], [1; 6], [u64::MAX; 6], [1 << 32; 6], [u64::from(number); 6]] {
            let data = SeccompData { number, arch: native, instruction_pointer: 0, args };
            assert_eq!(run(program, &data), Ok(table.verdict(&data)), "{data:x?}");
        }
    }
}

/// A task's other files; only `task.toml` is fuzzed.
const TASK_FILES: [(&str, &[u8]); 6] = [
    ("instruction.md", b"Do it.\n"),
    ("environment/train.py", b"print(1)\n"),
    ("environment/data/train.csv", b"1,2\n"),
    ("assets/hidden.csv", b"3,4\n"),
    ("tests/score.py", b"print(2)\n"),
    ("tests/items.txt", b"a\nb\n"),
];

/// A task loads the same way twice, or its mistakes are told.
fn task(data: &[u8]) {
    let directory = scratch::directory();
    scratch::write(directory.path(), &TASK_FILES);
    scratch::write(directory.path(), &[("task.toml", data)]);
    match Task::load(directory.path()) {
        Ok(task) => assert_eq!(format!("{task:?}"), format!("{:?}", Task::load(directory.path()).unwrap())),
        Err(TaskError::Invalid(findings)) => {
            assert!(!findings.is_empty());
            findings.iter().for_each(|finding| assert_shown(&finding.to_string()));
        }
        Err(error) => drop(error.to_string()),
    }
}

/// A verdict is written as it was read. The first two parts are also taken for reward files.
fn verdict(data: &[u8]) {
    match Verdict::parse(data) {
        Ok(verdict) => assert_eq!(Verdict::parse(&verdict.to_json().unwrap()).unwrap(), verdict),
        Err(error) => assert_shown(&error.to_string()),
    }
    let files = parts(data);
    if let Ok(reward) = read_reward(files.first().copied(), files.get(1).copied()) {
        let text = reward.reward.to_string();
        assert_eq!(read_reward(None, Some(text.as_bytes())).unwrap().reward, reward.reward);
    }
}
