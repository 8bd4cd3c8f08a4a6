//! How the phases of a task fit together: answers, verdicts, and whose code runs where.

use std::path::Path;

use super::super::rule::{Area, Check, Rule, Severity};
use super::super::task::{PhaseFacts, PhaseSource, Role, TaskFacts};
use crate::host::{ETC, TOP};
use crate::merged::{Policy, Writable};
use crate::schema::{MountMode, NetworkMode, RootKind};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL130",
        area: Area::Grader,
        severity: Severity::High,
        title: "answers in reach of the code that is graded",
        why: "hidden assets, tests or the solution lie in a directory that the policy of an untrusted phase mounts, or in \
              one that every root of the host shows, such as /opt",
        reference: "UiPath/coder_eval#88, BenchJack (WebArena)",
        remedy: "mount a directory that holds nothing of the task's answers",
        check: Check::Task(|task, hits| {
            for phase in of(task, Role::Untrusted) {
                let shown = phase.policy.mount.iter().map(|mount| ("mounts", mount.source.as_path()));
                for (how, source) in shown.chain(root(&phase.policy).map(|path| ("has", path))) {
                    for (name, _) in task.answers.iter().filter(|(_, path)| overlap(source, path)) {
                        let source = source.display();
                        let found = format!("`{}` {how} {source}, which holds {name}", phase.name);
                        hits.member(task.phase(phase), found);
                    }
                }
            }
        }),
    },
    Rule {
        id: "AL131",
        area: Area::Grader,
        severity: Severity::Medium,
        title: "the candidate's code runs beside the answers",
        why: "tests that run inside the candidate's process, or a scorer that may execute its files, let it read the \
              answers and write its own result",
        reference: "SWE-bench#631, verifiers#2152, BenchJack (SWE-bench)",
        remedy: "run the candidate in a `candidate` phase and let the scorer ask it; receipts mark the rest `in-process`",
        check: Check::Task(|task, hits| {
            for phase in of(task, Role::Scorer) {
                let run = |source: &PhaseSource| *source == PhaseSource::Candidate;
                let executed = phase.mounts.iter().any(|mount| mount.exec && run(&mount.source));
                if phase.in_process {
                    hits.member(
                        task.phase(phase),
                        format!("`{}` runs the tests in the candidate's process", phase.name),
                    );
                } else if executed {
                    hits.member(
                        task.phase(phase),
                        format!("`{}` may execute files of the candidate", phase.name),
                    );
                }
            }
        }),
    },
    Rule {
        id: "AL132",
        area: Area::Grader,
        severity: Severity::High,
        title: "the scorer can be changed",
        why: "a scorer whose root or programs are kept writable is another program the next time",
        reference: "LambdaJudge#24, underclass#26",
        remedy: "leave the scorer's root read-only, and mount nothing of the host read-write in it",
        check: Check::Task(|task, hits| {
            for phase in of(task, Role::Scorer) {
                let kept = matches!(phase.policy.root.writable, Writable::Dir(_));
                let mounted = phase.policy.mount.iter().find(|mount| mount.mode == MountMode::Rw);
                if kept {
                    hits.member(
                        task.phase(phase),
                        format!("`{}` keeps what is written to its root", phase.name),
                    );
                } else if let Some(mount) = mounted {
                    let found = format!("`{}` mounts {} read-write", phase.name, mount.source.display());
                    hits.member(task.phase(phase), found);
                }
            }
        }),
    },
    Rule {
        id: "AL133",
        area: Area::Grader,
        severity: Severity::High,
        title: "a scorer reads what the candidate can write",
        why: "a directory of the host that an untrusted phase writes and a scorer mounts is a way to the verdict past \
              the sealed candidate",
        reference: "dawn#14, dawn#33, hud-python#526",
        remedy: "hand over by the candidate alone",
        check: Check::Task(|task, hits| {
            for phase in of(task, Role::Scorer) {
                for mount in &phase.policy.mount {
                    let written = of(task, Role::Untrusted).find(|other| {
                        let rw = other.policy.mount.iter().filter(|mount| mount.mode == MountMode::Rw);
                        rw.into_iter().any(|other| overlap(&other.source, &mount.source))
                    });
                    if let Some(other) = written {
                        let source = mount.source.display();
                        let found =
                            format!("`{}` writes {source}, which `{}` mounts", other.name, phase.name);
                        hits.member(task.phase(phase), found);
                    }
                }
            }
        }),
    },
    Rule {
        id: "AL134",
        area: Area::Grader,
        severity: Severity::Low,
        title: "a scorer with a network",
        why: "a scorer that parses what the candidate made should have nobody to talk to",
        reference: "inspect_ai changelog 0.3.255",
        remedy: "leave the network of scorers `none`",
        check: Check::Task(|task, hits| {
            for phase in of(task, Role::Scorer).filter(|phase| phase.policy.network.mode != NetworkMode::None)
            {
                hits.member(task.phase(phase), format!("`{}` has a loopback", phase.name));
            }
        }),
    },
    Rule {
        id: "AL135",
        area: Area::Grader,
        severity: Severity::Medium,
        title: "a scorer without an end",
        why: "a candidate that makes the scorer loop keeps its GPU and its verdict for as long as it likes",
        reference: "SWE-bench grading.py, ScienceIDE_Env#28",
        remedy: "`limits = { wall = … }` in the phase",
        check: Check::Task(|task, hits| {
            for phase in of(task, Role::Scorer).filter(|phase| phase.policy.limits.wall.is_none()) {
                hits.member(task.phase(phase), format!("`{}` has no limit of time", phase.name));
            }
        }),
    },
    Rule {
        id: "AL136",
        area: Area::Grader,
        severity: Severity::Low,
        title: "rows of a closed asset may enter a candidate",
        why: "without a gate a changeset that contains the benchmark's rows is trained on and scored",
        reference: "PostTrainBench, AI4AI-Bench",
        remedy: "name the asset in `[airlock.gates] rows`, if it has rows",
        check: Check::Task(|task, hits| {
            for name in task.closed.iter().filter(|name| !task.gated.contains(name)) {
                hits.member("/airlock/gates/rows", format!("no gate knows the rows of `{name}`"));
            }
        }),
    },
];

fn of(task: &TaskFacts, role: Role) -> impl Iterator<Item = &PhaseFacts> {
    task.phases.iter().filter(move |phase| phase.role == role)
}

/// What of the host a policy's root shows by itself.
fn root(policy: &Policy) -> impl Iterator<Item = &Path> {
    let host = policy.root.kind == RootKind::Host;
    let taken = TOP.iter().chain(&ETC).map(Path::new).filter(move |_| host);
    taken.chain(policy.root.path.as_deref())
}

/// One lies in the other.
fn overlap(a: &Path, b: &Path) -> bool {
    a.starts_with(b) || b.starts_with(a)
}
