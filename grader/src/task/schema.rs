//! The `[airlock]` table of a task's `task.toml`, as it is written.

use std::collections::BTreeMap;
use std::fmt;

use airlock_policy::embed::{At, EnvTable, LimitsTable, Quantity};
use airlock_policy::{MountMode, NetworkMode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::gate::Pickles;
use crate::score::{Aggregate, Below, Direction, FailedItem, Phi};

/// How a candidate comes to its final score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Lifecycle {
    /// Explore, hand in a patch, run it from scratch, score the checkpoints.
    Replay,
    /// Research with validation, select one candidate, score it.
    Direct,
}

/// What a candidate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Submission {
    /// What changed of the frozen source.
    Patch,
    /// The whole workspace, trained weights included.
    Tree,
}

/// One sandboxed step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseName {
    /// The agent and its training.
    Explore,
    /// The patch applied to the frozen source and run from scratch.
    Replay,
    /// The scorer over the proxy metric, as often as the agent asks.
    Validate,
    /// The scorer over the final metric, once.
    Score,
    /// What `validate` and `score` execute of a candidate, in a sandbox of its own beside the scorer.
    Candidate,
}

/// How a scorer hands over its verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Handover {
    /// One JSON document on descriptor 3.
    #[default]
    Descriptor,
    /// `reward.json` or `reward.txt` in `run:reward`, as Harbor's tests write it. Such tests run inside the
    /// candidate's environment, and the receipt says so.
    RewardFile,
}

/// Who may see an asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Visibility {
    /// Every phase.
    Open,
    /// The scorer, in `validate` and `score`.
    Validation,
    /// The scorer, in `score` alone.
    Hidden,
}

/// What Airlock needs to know beyond Harbor's keys.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AirlockTable {
    /// Version of this table: 1.
    pub(crate) version: At<i64>,
    /// Name of the task; default: the directory's name.
    pub(crate) id: Option<At<String>>,
    /// One line for people.
    pub(crate) title: Option<String>,
    /// How a candidate comes to its final score.
    pub(crate) lifecycle: At<Lifecycle>,
    /// What a candidate is.
    pub(crate) submission: At<Submission>,
    /// What of the frozen source (`environment/`) a candidate may change.
    pub(crate) editable: At<EditableTable>,
    /// The clock.
    pub(crate) budget: At<BudgetTable>,
    /// The sandboxes of the task.
    #[serde(default)]
    pub(crate) phase: Vec<At<PhaseTable>>,
    /// Data and models that phases mount.
    #[serde(default)]
    pub(crate) asset: Vec<At<AssetTable>>,
    /// What a replay leaves behind; for lifecycle `replay`.
    pub(crate) checkpoints: Option<At<CheckpointsTable>>,
    /// What the agent may measure.
    pub(crate) proxy: Option<At<MetricTable>>,
    /// What the final score is.
    pub(crate) metric: At<MetricTable>,
    /// From the final score to a number between 0 and 1.
    pub(crate) ladder: Option<At<LadderTable>>,
    /// What a candidate must satisfy before anything of it runs.
    #[serde(default)]
    pub(crate) gates: GatesTable,
    /// Known scores, by name; `paper_value` is the ladder's baseline where there is one.
    #[serde(default)]
    pub(crate) references: BTreeMap<At<String>, At<Number>>,
}

/// Globs of paths below `environment/`; `*` stays within a directory, `**` does not.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditableTable {
    /// Files may be added where the globs match. Default: true.
    pub(crate) allow_create: Option<bool>,
    /// The training data.
    #[serde(default)]
    pub(crate) data: Vec<At<String>>,
    /// The training algorithm.
    #[serde(default)]
    pub(crate) trainer: Vec<At<String>>,
    /// The program around the model at inference.
    #[serde(default)]
    pub(crate) harness: Vec<At<String>>,
    /// What is never part of a candidate, nor a change. Default: `["**/__pycache__"]`.
    pub(crate) ignore: Option<Vec<At<String>>>,
}

/// The clock.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BudgetTable {
    /// Wall-clock time of `explore`, with a unit.
    pub(crate) explore: At<Quantity>,
    /// Wall-clock time of `replay`, with a unit.
    pub(crate) replay: Option<At<Quantity>>,
    /// From the request to end to the end by force. Default: 10s.
    pub(crate) grace: Option<At<Quantity>>,
    /// Waiting for a validation and running it takes from `explore`. Otherwise the clock stands meanwhile, and research is
    /// frozen. Default: true.
    pub(crate) validation_counts: Option<bool>,
}

/// A sandbox of the task.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhaseTable {
    /// Which.
    pub(crate) name: At<PhaseName>,
    /// Program and arguments. In `explore` the operator names the agent.
    pub(crate) command: Option<At<Vec<String>>>,
    /// A built-in policy or a file of the task. Default: `research`, `replay`, `scorer`, `scorer`, `candidate`.
    pub(crate) policy: Option<At<String>>,
    /// What is mounted beside what each phase has anyway.
    #[serde(default)]
    pub(crate) mounts: Vec<At<PhaseMountTable>>,
    /// What the network namespace contains. Default: the policy's.
    pub(crate) network: Option<At<NetworkMode>>,
    /// Limits over the policy's; the wall-clock time of `explore` and `replay` stands in `[airlock.budget]`.
    #[serde(default)]
    pub(crate) limits: LimitsTable,
    /// How many GPUs. Default: none.
    pub(crate) gpus: Option<At<i64>>,
    /// Environment over the policy's.
    #[serde(default)]
    pub(crate) env: EnvTable,
    /// Working directory. Default: the workspace, or `/tmp`.
    pub(crate) cwd: Option<At<String>>,
    /// How the scorer hands over its verdict; for `validate` and `score`.
    pub(crate) verdict: Option<At<Handover>>,
}

/// A mount of a phase.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhaseMountTable {
    /// `asset:NAME`, `run:NAME` or `task:PATH`.
    pub(crate) source: At<String>,
    /// Absolute path inside.
    pub(crate) target: At<String>,
    /// Default: `rw` for what a run writes, else `ro`.
    pub(crate) mode: Option<At<MountMode>>,
    /// Programs may be run from it. Default: true for workspaces and candidates that are executed.
    pub(crate) exec: Option<bool>,
}

/// Data or a model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssetTable {
    /// What mounts call it.
    pub(crate) name: At<String>,
    /// Path in the task directory. Left out: the operator supplies it for each run.
    pub(crate) path: Option<At<String>>,
    /// Who may see it.
    pub(crate) visibility: At<Visibility>,
    /// What it must be, as `sha256:…`.
    pub(crate) digest: Option<At<String>>,
}

/// What a replay leaves behind.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointsTable {
    /// How many are scored at most: the valid ones with the greatest progress. Default: 3.
    pub(crate) limit: Option<At<i64>>,
    /// Name of the directories in `run:output`, `{progress}` standing for a whole number: `step-{progress}`.
    pub(crate) name: At<String>,
    /// Globs of the files in it that are taken; each must match one at least. Default: all.
    pub(crate) payload: Option<At<Vec<At<String>>>>,
    /// The frozen validation: run like `score` over one checkpoint, without the hidden assets; exit status 0
    /// says that it is valid. Left out: the gates decide.
    pub(crate) command: Option<At<Vec<String>>>,
}

/// What is measured, and over what.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricTable {
    /// What it is called.
    pub(crate) name: At<String>,
    /// Which scores are better.
    pub(crate) direction: At<Direction>,
    /// How item scores become one. Default: `mean`.
    pub(crate) aggregate: Option<At<Aggregate>>,
    /// Planned attempts at each item. Default: 1.
    pub(crate) k: Option<At<i64>>,
    /// What a failed item counts. Default: `zero` under the direction `max`, `void` under `min`.
    pub(crate) failed_item: Option<At<FailedItem>>,
    /// The planned items.
    pub(crate) items: At<Items>,
    /// For the proxy: program and arguments that `fast_eval.sh` runs in the research sandbox.
    pub(crate) command: Option<At<Vec<String>>>,
}

/// The planned items.
#[derive(Clone, Debug)]
pub(crate) enum Items {
    /// Their names.
    Named(Vec<At<String>>),
    /// A file or a count.
    Table(ItemsTable),
}

/// Many planned items.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ItemsTable {
    /// A file of the task with one name a line.
    pub(crate) file: Option<At<String>>,
    /// How many; they are named by `prefix` and a number from 0.
    pub(crate) count: Option<At<i64>>,
    /// Default: `item-`.
    pub(crate) prefix: Option<At<String>>,
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Items;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names, { file = \"…\" }, or { count = N, prefix = \"…\" }")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, names: A) -> Result<Items, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(names)).map(Items::Named)
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Items, A::Error> {
                ItemsTable::deserialize(MapAccessDeserializer::new(table)).map(Items::Table)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Items {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Items".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names = generator.subschema_for::<Vec<String>>();
        let table = generator.subschema_for::<ItemsTable>();
        json_schema!({ "description": "The planned items.", "anyOf": [names, table] })
    }
}

/// From the final score to a number between 0 and 1.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LadderTable {
    /// What makes a score a quality.
    pub(crate) phi: At<Phi>,
    /// What an uninformed model scores; may be `inf` or `-inf`.
    pub(crate) uninformative: At<Number>,
    /// What the frozen source scores.
    pub(crate) baseline: At<Number>,
    /// The best that can be reached.
    pub(crate) optimum: At<Number>,
    /// The rule below the baseline. Default: `ratio` where `uninformative` is infinite, else `linear`.
    pub(crate) below: Option<At<Below>>,
}

/// What a candidate must satisfy before anything of it runs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GatesTable {
    /// Assets whose rows must not occur in what a candidate changes.
    #[serde(default)]
    pub(crate) rows: Vec<At<String>>,
    /// What a changeset may hold.
    #[serde(default)]
    pub(crate) patch: PatchTable,
    /// What a checkpoint or a tree may hold.
    #[serde(default)]
    pub(crate) artifact: ArtifactTable,
}

/// What a changeset may hold. A count of 0 turns the rule off.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PatchTable {
    /// Executable bits may change. Default: false.
    pub(crate) allow_executable: Option<bool>,
    /// Size of one changed file, with a unit. Default: 4MiB.
    pub(crate) max_file: Option<At<Quantity>>,
    /// Size of all changed files, with a unit. Default: 16MiB.
    pub(crate) max_total: Option<At<Quantity>>,
    /// Changed files. Default: 1000.
    pub(crate) max_files: Option<At<i64>>,
    /// Length of one added line, with a unit. Default: 16KiB.
    pub(crate) max_line: Option<At<Quantity>>,
    /// Characters that look encoded, in a row. Default: 2048.
    pub(crate) max_encoded: Option<At<i64>>,
    /// Consecutive added lines that look like rows of data. Default: 15.
    pub(crate) max_data_rows: Option<At<i64>>,
    /// Numbers in all added lines. Default: 8192.
    pub(crate) max_numbers: Option<At<i64>>,
    /// Suffixes of weights that are refused, without the dot. Default: the known ones.
    pub(crate) weights: Option<Vec<String>>,
}

/// What a checkpoint or a tree may hold.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArtifactTable {
    /// Code is allowed in it, for candidates that are executed in a sandbox of their own. Default: true for a
    /// tree submission, else false.
    pub(crate) allow_code: Option<bool>,
    /// What to do about pickles. Default: `refuse`.
    #[schemars(with = "Option<String>")]
    pub(crate) pickles: Option<At<Pickles>>,
    /// Digests of chat templates that are allowed, as `sha256:…`.
    #[serde(default)]
    pub(crate) chat_templates: Vec<At<String>>,
}

/// A number. What counts is its text, which is never made a binary fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number;

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl Visitor<'_> for Any {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_i64<E>(self, _: i64) -> Result<Number, E> {
                Ok(Number)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Number, E> {
                Ok(Number)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Number, E> {
                Ok(Number)
            }
        }

        deserializer.deserialize_any(Any)
    }
}

impl JsonSchema for Number {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "description": "A decimal of at most 38 digits; read exactly." })
    }
}
