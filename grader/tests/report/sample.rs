//! Runs to be shown.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use airlock_grader::Digest;
use airlock_grader::journal::{CandidateKind, Event, Head, Outcome, Record, SealedFor};
use airlock_grader::report::{GateWords, Graded, PhaseReport, ReceiptFacts, ReportInput, ReportTask};
use airlock_grader::score::{
    Aggregate, Attempt, Decimal, Direction, FailedItem, ItemResult, Ladder, Metric, Score, Status,
};
use airlock_grader::task::{Lifecycle, NamedMetric};
use airlock_runtime::report::{EndReport, Evidence, EvidenceKind, Reason};

/// Texts that try to be more than text.
pub(crate) const HOSTILE: [&str; 6] = [
    "<script>document.title='owned'</script>",
    "\"onload=\"document.title='owned'",
    "</style></title><img src=x onerror=\"document.title='owned'\">",
    "a\u{202e}gpj.exe\u{2066}",
    "]]>--><svg onload=alert(1)>",
    "&lt;b&gt;&#x41;",
];

/// What a report is made of.
pub(crate) struct Run {
    pub(crate) run_id: String,
    pub(crate) title: String,
    pub(crate) metric: NamedMetric,
    pub(crate) proxy: NamedMetric,
    pub(crate) ladder: Option<Ladder>,
    pub(crate) overrides: Vec<String>,
    pub(crate) records: Vec<Record>,
    pub(crate) graded: Vec<Graded>,
    pub(crate) gates: Vec<GateWords>,
    pub(crate) phases: Vec<PhaseReport>,
    pub(crate) receipt: Option<ReceiptFacts>,
}

impl Run {
    /// A run of which nothing is known but its task.
    pub(crate) fn new(items: usize, k: u32) -> Run {
        let aggregate = if k > 1 { Aggregate::AvgAtK } else { Aggregate::Mean };
        Run {
            run_id: "digits-soup-20261129-7f3a".into(),
            title: "A soup of softmax models on the digits".into(),
            metric: metric("test-accuracy", aggregate, k, items),
            proxy: metric("validation-accuracy", Aggregate::Mean, 1, 297),
            ladder: Some("phi=identity,uninformative=0.1,baseline=0.7333,optimum=1".parse().unwrap()),
            overrides: Vec::new(),
            records: Vec::new(),
            graded: Vec::new(),
            gates: Vec::new(),
            phases: Vec::new(),
            receipt: None,
        }
    }

    pub(crate) fn input(&self) -> ReportInput<'_> {
        ReportInput {
            run_id: &self.run_id,
            task: ReportTask {
                id: "digits-soup",
                title: Some(&self.title),
                lifecycle: Lifecycle::Replay,
                metric: &self.metric,
                proxy: Some(&self.proxy),
                ladder: self.ladder.as_ref(),
                explore_ms: 600_000,
                in_process: false,
                baseline: false,
                overrides: &self.overrides,
            },
            records: &self.records,
            graded: &self.graded,
            gates: &self.gates,
            phases: &self.phases,
            receipt: self.receipt.as_ref(),
        }
    }

    /// An event so many seconds after the start of the run.
    pub(crate) fn at(&mut self, seconds: f64, event: Event) {
        let ns = u64::try_from(Duration::from_secs_f64(seconds).as_nanos()).unwrap();
        self.records.push(Record {
            seq: self.records.len() as u64,
            prev: digest("before"),
            boot_id: "0b9d3c39-2f0a-4d0e-9d5f-0a4c3f5e7f10".into(),
            boot_ns: 5_000_000_000 + ns,
            wall_ms: 1_795_975_200_000 + ns / 1_000_000,
            event,
        });
    }

    fn starts(&mut self, seconds: f64, phase: u32, name: &str, deadline: Option<u64>) {
        let deadline_ns = deadline.map(|after| 5_000_000_000 + after * 1_000_000_000);
        self.at(seconds, Event::PhaseStarted { phase, name: name.into(), spec: digest("spec"), deadline_ns });
    }

    fn ends(&mut self, seconds: f64, phase: u32, name: &str, end: EndReport) {
        let (reason, exit_code, signal) = (end.reason, end.exit_code, end.signal);
        self.phases.push(PhaseReport { phase, name: name.into(), end });
        self.at(seconds, Event::PhaseEnded { phase, reason, exit_code, signal, report: digest("end") });
    }

    fn seals(&mut self, seconds: f64, name: &str, kind: CandidateKind, sealed_for: SealedFor) {
        let candidate = digest(name);
        self.at(seconds, Event::CandidateSealed { candidate, kind, sealed_for, files: 3, bytes: 18_204 });
    }

    /// A request for a validation and its result: so many of 297, or nothing.
    fn validates(&mut self, from: f64, to: f64, ticket: u64, phase: u32, right: Option<usize>) {
        let name = format!("try {ticket}");
        self.seals(from, &name, CandidateKind::Patch, SealedFor::Validation);
        self.at(from, Event::ValidationRequested { ticket, candidate: digest(&name), items: None });
        self.starts(from + 0.2, phase, "validate", None);
        let Some(right) = right else {
            self.ends(
                to,
                phase,
                "validate",
                EndReport { error: None, ..end("scorer", Reason::WallTimeout, None) },
            );
            let cause = "the scorer gave no verdict in its 30 s".into();
            return self.at(to, Event::ValidationFailed { ticket, phase: Some(phase), cause });
        };
        self.ends(to, phase, "validate", end("scorer", Reason::Exited, Some(0)));
        let results = results(&self.proxy.metric, &[(Status::Ok, right), (Status::Wrong, 297)]);
        let tally = self.proxy.metric.tally(&results).unwrap();
        let verdict = digest("verdict");
        self.at(
            to,
            Event::ValidationResult { ticket, phase, score: tally.score, counts: tally.counts, verdict },
        );
    }

    /// A final scoring of a checkpoint with these numbers of items, the rest missing.
    fn scores(&mut self, from: f64, phase: u32, name: &str, fates: &[(Status, usize)]) -> Option<Score> {
        self.at(from, Event::FinalClaimed { candidate: digest(name), phase });
        self.starts(from, phase, "score", None);
        self.ends(from + 0.9, phase, "score", end("scorer", Reason::Exited, Some(0)));
        let items = results(&self.metric.metric, fates);
        let tally = self.metric.metric.tally(&items).unwrap();
        self.at(
            from + 1.0,
            Event::Verdict {
                phase,
                candidate: digest(name),
                score: tally.score,
                counts: tally.counts,
                verdict: digest("verdict"),
            },
        );
        let loss = "0.51283".parse().unwrap();
        self.graded.push(Graded {
            phase,
            items,
            auxiliary: BTreeMap::from([("log-loss".into(), loss)]),
            trajectories: Some(format!("phases/{phase}-score/trajectories")),
        });
        tally.score
    }

    fn created(&mut self) {
        let event = Event::RunCreated { run_id: self.run_id.clone(), run: digest("run.json") };
        self.at(0.0, event);
    }

    fn closes(&mut self, seconds: f64, outcome: Outcome, weaker: &[&str]) {
        self.at(seconds, Event::Closed { outcome });
        self.receipt = Some(ReceiptFacts {
            airlock: "0.1.0".into(),
            key: digest("key"),
            task: digest("task"),
            journal: Head { lines: self.records.len() as u64, bytes: 21_877, digest: digest("head") },
            subjects: 31,
            weaker: weaker.iter().map(|text| (*text).to_owned()).collect(),
        });
    }
}

/// A whole run: validations, a replay, three checkpoints scored.
pub(crate) fn soup() -> Run {
    let mut run = Run::new(600, 1);
    run.created();
    run.starts(0.4, 0, "explore", Some(600));
    run.validates(31.0, 38.0, 1, 1, Some(214));
    run.validates(88.0, 93.5, 2, 2, Some(231));
    run.validates(141.0, 171.0, 3, 3, None);
    run.validates(190.0, 197.0, 4, 4, Some(249));
    run.validates(198.0, 206.0, 5, 5, Some(243));
    run.validates(262.0, 270.0, 6, 6, Some(256));
    run.validates(371.0, 379.0, 7, 7, Some(251));
    run.at(412.7, Event::Chosen { name: "solution".into() });
    run.ends(413.1, 0, "explore", end("research", Reason::Signalled, None));
    run.seals(413.2, "submission", CandidateKind::Patch, SealedFor::Submission);
    run.at(413.2, Event::Submitted { candidate: digest("submission") });
    for gate in ["patch", "rows"] {
        let candidate = digest("submission");
        run.at(413.3, Event::GateResult { gate: gate.into(), candidate, passed: true, report: digest(gate) });
    }
    run.starts(413.4, 8, "replay", None);
    run.ends(421.0, 8, "replay", end("replay", Reason::Exited, Some(0)));
    for (name, progress, valid) in
        [("soup-100", 100, true), ("soup-200", 200, true), ("soup-300", 300, true), ("soup-400", 400, false)]
    {
        run.seals(421.1, name, CandidateKind::Tree, SealedFor::Checkpoint);
        run.at(
            421.5,
            Event::CheckpointValidated { checkpoint: digest(name), name: name.into(), progress, valid },
        );
    }
    let selected = ["soup-300", "soup-200", "soup-100"].map(digest);
    run.at(421.6, Event::CheckpointsSelected { checkpoints: selected.to_vec() });
    let failed = |ok, wrong| vec![(Status::Ok, ok), (Status::Wrong, wrong)];
    let worse = [(Status::Timeout, 3), (Status::ExecFailure, 2), (Status::Infra, 1)];
    let score = run.scores(422.0, 9, "soup-300", &[failed(503, 87), worse.to_vec()].concat());
    run.scores(424.0, 10, "soup-200", &failed(498, 102));
    run.scores(426.0, 11, "soup-100", &failed(471, 129));
    let sigma = run.ladder.as_ref().map(|ladder| ladder.sigma(score).unwrap());
    run.at(427.2, Event::Scored { candidate: Some(digest("soup-300")), score, sigma });
    run.closes(
        427.3,
        Outcome::Scored,
        &["run by an ordinary user: one host uid for the whole sandbox, no device filter"],
    );
    run
}

/// The same run, if everything that has a name of its own were hostile.
pub(crate) fn hostile() -> Run {
    let mut run = soup();
    let [a, b, c, d, e, f] = HOSTILE.map(str::to_owned);
    run.title = format!("{a} {b} {d}");
    run.run_id = c.clone();
    run.metric.name = format!("{f}{}", "m".repeat(400));
    run.proxy.name = format!("{b}{}", "\u{202e}".repeat(90));
    run.overrides = vec![a.clone(), d.clone()];
    for (index, record) in run.records.iter_mut().enumerate() {
        match &mut record.event {
            Event::CheckpointValidated { name, .. } => *name = [&a, &d, &e, &f][index % 4].clone(),
            Event::ValidationFailed { cause, .. } => *cause = c.clone(),
            Event::GateResult { gate, .. } => *gate = b.clone(),
            Event::Chosen { name } => *name = e.repeat(50),
            _ => {}
        }
    }
    for phase in &mut run.phases {
        phase.name = e.clone();
        phase.end.policy = a.clone();
        phase.end.id = b.clone();
        phase.end.error = Some(c.clone());
        phase.end.left_behind = Some(d.clone());
        phase.end.policy_digest = f.clone();
        phase.end.enforced.push(Evidence {
            clause: b.clone(),
            what: c.clone(),
            evidence: EvidenceKind::StepOk,
        });
    }
    let graded = &mut run.graded[0];
    graded.auxiliary.insert(a.clone(), Decimal::ONE);
    graded.trajectories = Some(b.clone());
    let mut items = run.metric.metric.items().to_vec();
    items[..6].clone_from_slice(&HOSTILE.map(str::to_owned));
    for (item, id) in graded.items.iter_mut().zip(&items) {
        item.id.clone_from(id);
    }
    run.metric.metric = plan(Aggregate::Mean, 1, items);
    if let Some(receipt) = &mut run.receipt {
        receipt.airlock = d;
        receipt.weaker = HOSTILE.map(str::to_owned).to_vec();
    }
    run
}

/// A run in which the agent gives up, with this reason.
pub(crate) fn without_candidate(reason: &str) -> Run {
    let mut run = Run::new(600, 1);
    run.created();
    run.starts(0.4, 0, "explore", Some(600));
    run.at(95.0, Event::NoCandidate { reason: reason.into() });
    run.ends(95.5, 0, "explore", end("research", Reason::Exited, Some(0)));
    run.closes(95.6, Outcome::NoCandidate, &[]);
    run
}

/// A run whose one candidate was scored over this many items with k attempts each, all that came of it `ok`.
pub(crate) fn large(items: usize, k: u32) -> Run {
    let mut run = Run::new(items, k);
    run.created();
    run.seals(1.0, "submission", CandidateKind::Tree, SealedFor::Submission);
    let score = run.scores(2.0, 0, "submission", &[(Status::Wrong, 40), (Status::Ok, items - 50)]);
    run.at(4.0, Event::Scored { candidate: Some(digest("submission")), score, sigma: None });
    run.closes(4.1, Outcome::Scored, &[]);
    run
}

pub(crate) fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

fn metric(name: &str, aggregate: Aggregate, k: u32, items: usize) -> NamedMetric {
    let items = (0..items).map(|index| format!("row-{index}")).collect();
    NamedMetric { name: name.into(), metric: plan(aggregate, k, items) }
}

fn plan(aggregate: Aggregate, k: u32, items: Vec<String>) -> Metric {
    Metric::new(Direction::Max, aggregate, NonZeroU32::new(k).unwrap(), FailedItem::Zero, items).unwrap()
}

/// Results of the planned items in order, so many of each status, until there are no items left.
fn results(metric: &Metric, fates: &[(Status, usize)]) -> Vec<ItemResult> {
    let fates = fates.iter().flat_map(|(status, number)| std::iter::repeat_n(*status, *number));
    let attempt = |status, wall_ms| Attempt {
        status,
        score: if status == Status::Ok { Decimal::ONE } else { Decimal::ZERO },
        wall_ms,
    };
    let items = metric.items().iter().zip(fates).enumerate();
    items
        .map(|(index, (id, status))| ItemResult {
            id: id.clone(),
            attempts: (0..metric.k().get()).map(|_| attempt(status, 3 + (index as u64 * 37) % 50)).collect(),
        })
        .collect()
}

fn end(policy: &str, reason: Reason, exit_code: Option<i32>) -> EndReport {
    use EvidenceKind::{ChildProbe, KernelRead, StepOk};
    let evidence = [
        ("identity.ids", "uid_map: 0 -> 1879048192, 65536", KernelRead),
        ("identity.user", "uids on the host: 1879049192 1879049192 1879049192 1879049192", KernelRead),
        ("namespaces", "own user namespace: user:[4026532177]", KernelRead),
        ("namespaces", "own net namespace: net:[4026532182]", KernelRead),
        ("limits", "/sys/fs/cgroup/pids/9babbaafc3d9/pids.max is 4096", KernelRead),
        (
            "limits",
            "/sys/fs/cgroup/memory/9babbaafc3d9/memory.memsw.limit_in_bytes is 68719476736",
            KernelRead,
        ),
        (
            "devices",
            "v1 list: c 1:3 rw, c 1:5 rw, c 1:7 rw, c 1:8 rw, c 1:9 rw, c 5:0 rw, c 5:2 rw, c 136:* rw",
            KernelRead,
        ),
        ("capabilities.keep", "CapEff: 0000000000000000", KernelRead),
        ("process", "NoNewPrivs: 1", KernelRead),
        ("seccomp.profile", "Seccomp mode: 2", KernelRead),
        ("root.writable", "/ mounted ro,nosuid,nodev,relatime", KernelRead),
        ("network.mode", "interfaces: lo", KernelRead),
        ("landlock", "opening the host's / was possible before the restriction, EACCES after it", ChildProbe),
        ("seccomp.profile", "unshare(0), which does nothing, gives errno 1", ChildProbe),
        ("process", "inherited descriptors are closed on exec", StepOk),
        ("nesting", "no user namespace can be made inside", StepOk),
    ];
    EndReport {
        policy: policy.into(),
        policy_digest: digest(policy).to_string(),
        spec_digest: digest("spec").to_string(),
        exit_code,
        signal: (reason == Reason::Signalled).then_some(15),
        error: None,
        wall_ms: 7_613,
        user_ms: Some(6_911),
        sys_ms: Some(204),
        memory_peak: Some(51_675_136),
        pids_peak: Some(4),
        enforced: evidence
            .iter()
            .map(|(clause, what, evidence)| Evidence {
                clause: (*clause).into(),
                what: (*what).into(),
                evidence: *evidence,
            })
            .collect(),
        ..EndReport::without_run("9babbaafc3d9", reason, "")
    }
}
