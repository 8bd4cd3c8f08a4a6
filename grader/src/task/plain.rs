//! Tasks that say nothing beyond Harbor's keys: one research phase, then `tests/test.sh` over a copy of what it left,
//! in a sandbox of its own.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use airlock_policy::embed::{At, EnvTable, Fault, LimitsTable};
use airlock_policy::{Duration, Writable};

use super::draft::Draft;
use super::harbor::Resources;
use super::load::{GRACE, directory_name};
use super::mounts::Context;
use super::resolved::{Budget, Editable, Gates, NamedMetric, Task};
use super::reward::REWARD_ITEM;
use super::schema::{Handover, Lifecycle, PhaseName, PhaseTable, Submission};
use crate::gate::{ArtifactRules, PatchRules};
use crate::score::{Aggregate, Direction, FailedItem, Metric};

/// Where Harbor's images have their workspace, as a rule.
const WORKSPACE: &str = "/app";
/// For an agent without a time of its own, as the policy `research` has it.
const AGENT: Duration = Duration(4 * 3_600_000);
/// For tests without a time of their own, as Harbor has it.
const TESTS: Duration = Duration(600_000);

impl Draft<'_> {
    pub(super) fn plain(
        &mut self,
        agent: Option<Duration>,
        tests: Option<Duration>,
        resources: &Resources,
    ) -> Option<Task> {
        let (lifecycle, submission) = (Lifecycle::Direct, Submission::Tree);
        let budget =
            Budget { explore: agent.unwrap_or(AGENT), replay: None, grace: GRACE, validation_counts: true };
        let assets = BTreeMap::new();
        let context = Context { lifecycle, assets: &assets, workspace: WORKSPACE, has_tests: true };
        let tables = vec![table(PhaseName::Explore), table(PhaseName::Score)];
        let mut phases = self.phases(0..0, tables, Some(&budget), resources, &context);
        let policy = &mut phases.get_mut(&PhaseName::Score)?.policy;
        policy.limits.wall = Some(tests.unwrap_or(TESTS));
        // Tests install what they need where they like.
        policy.root.writable = Writable::Tmpfs;
        let editable = Editable {
            allow_create: true,
            data: Vec::new(),
            trainer: vec!["**".to_owned()],
            harness: Vec::new(),
            ignore: Vec::new(),
        };
        let items = vec![REWARD_ITEM.to_owned()];
        let metric = Metric::new(Direction::Max, Aggregate::Mean, NonZeroU32::MIN, FailedItem::Zero, items);
        let metric = metric.map_err(|error| self.fault(0..0, Fault::new(error.to_string()))).ok()?;
        let patch = PatchRules { editable: vec!["**".to_owned()], ..PatchRules::default() };
        let artifact = ArtifactRules { code: Vec::new(), ..ArtifactRules::default() };
        Some(Task {
            dir: self.dir.to_owned(),
            id: directory_name(self.dir),
            title: None,
            lifecycle,
            submission,
            editable,
            budget,
            storage: resources.storage,
            phases,
            assets,
            checkpoints: None,
            proxy: None,
            metric: NamedMetric { name: REWARD_ITEM.to_owned(), metric },
            ladder: None,
            gates: Gates { rows: Vec::new(), patch, artifact },
            references: BTreeMap::new(),
            unused: Vec::new(),
        })
    }
}

/// A phase as such a task would write it.
fn table(name: PhaseName) -> At<PhaseTable> {
    fn at<T>(value: T) -> At<T> {
        At::new(0..0, value)
    }
    let scores = name == PhaseName::Score;
    let words = || ["/bin/bash", "/tests/test.sh"].map(str::to_owned).to_vec();
    at(PhaseTable {
        name: at(name),
        command: scores.then(|| at(words())),
        policy: scores.then(|| at("candidate".to_owned())),
        mounts: Vec::new(),
        network: None,
        limits: LimitsTable::default(),
        gpus: None,
        env: EnvTable::default(),
        cwd: None,
        verdict: scores.then(|| at(Handover::RewardFile)),
    })
}
