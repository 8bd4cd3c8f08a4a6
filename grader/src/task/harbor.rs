//! The keys of `task.toml` that are Harbor's. What is unknown among them is no error, as it is none for Harbor;
//! it is listed, since a key that is ignored silently can change what a task means.

use airlock_policy::embed::{At, Fault, Source};
use airlock_policy::{Duration, Gpu, Place, Policy, Size};
use schemars::JsonSchema;
use serde::Deserialize;
use toml::de::{DeTable, DeValue};

use super::schema::AirlockTable;

/// A task's `task.toml`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct TaskFile {
    /// Airlock's own table. Without it the task is one research phase, then `tests/test.sh`.
    pub(crate) airlock: Option<At<AirlockTable>>,
    /// Harbor's limits of the agent; used without `[airlock]`.
    #[serde(default)]
    pub(crate) agent: TimeoutTable,
    /// Harbor's limits of the tests; used without `[airlock]`.
    #[serde(default)]
    pub(crate) verifier: TimeoutTable,
    /// Harbor's sandbox: the defaults of all phases.
    #[serde(default)]
    pub(crate) environment: EnvironmentTable,
    /// Harbor's tasks of several steps, which are refused.
    #[schemars(skip)]
    pub(crate) steps: Option<At<toml::Value>>,
}

/// Limits of an agent or of tests.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct TimeoutTable {
    /// Wall-clock time in seconds.
    pub(crate) timeout_sec: Option<At<f64>>,
}

/// Harbor's sandbox.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct EnvironmentTable {
    /// CPUs' worth of time.
    pub(crate) cpus: Option<At<f64>>,
    /// Memory in MiB.
    pub(crate) memory_mb: Option<At<i64>>,
    /// Size of a candidate in MiB.
    pub(crate) storage_mb: Option<At<i64>>,
    /// How many GPUs.
    pub(crate) gpus: Option<At<i64>>,
    /// The old form of `memory_mb`: `2G`.
    pub(crate) memory: Option<At<String>>,
    /// The old form of `storage_mb`.
    pub(crate) storage: Option<At<String>>,
}

/// What of Harbor's keys holds for every phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Resources {
    pub(crate) cpus: Option<f64>,
    pub(crate) memory: Option<Size>,
    pub(crate) storage: Option<Size>,
    pub(crate) gpus: Option<u32>,
}

/// Longest time that a task may take, in seconds: a year.
const LONGEST: f64 = 31_536_000.0;

impl Resources {
    /// Reads the table; mistakes go to `fault`.
    pub(crate) fn read(
        table: &EnvironmentTable,
        mut fault: impl FnMut(std::ops::Range<usize>, Fault),
    ) -> Self {
        let mut resources = Resources::default();
        if let Some(cpus) = &table.cpus {
            match **cpus {
                number if (0.01..=100_000.0).contains(&number) => resources.cpus = Some(number),
                number => fault(cpus.span(), Fault::new(format!("{number} is not a number of CPUs"))),
            }
        }
        let mut size = |mib: &Option<At<i64>>, text: &Option<At<String>>| match (mib, text) {
            (Some(mib), _) => {
                let size = mebibytes(**mib);
                size.map_err(|wrong| fault(mib.span(), wrong)).ok()
            }
            (None, Some(text)) => old_size(text).map_err(|wrong| fault(text.span(), wrong)).ok(),
            (None, None) => None,
        };
        resources.memory = size(&table.memory_mb, &table.memory);
        resources.storage = size(&table.storage_mb, &table.storage);
        if let Some(gpus) = &table.gpus {
            match u32::try_from(**gpus) {
                Ok(count) if count <= 256 => resources.gpus = Some(count).filter(|count| *count > 0),
                _ => fault(gpus.span(), Fault::new(format!("{} is not a number of GPUs", **gpus))),
            }
        }
        resources
    }

    /// Lays what is stated over a policy.
    pub(crate) fn apply(&self, policy: &mut Policy) {
        if self.cpus.is_some() {
            policy.limits.cpus = self.cpus;
        }
        if self.memory.is_some() {
            policy.limits.memory = self.memory;
        }
        if let Some(count) = self.gpus {
            policy.gpu = Some(Gpu { count: Some(count), ..policy.gpu.take().unwrap_or_default() });
        }
    }
}

/// Seconds as Harbor writes them.
pub(crate) fn seconds(seconds: f64) -> Result<Duration, Fault> {
    if !(0.001..=LONGEST).contains(&seconds) {
        return Err(Fault::new(format!("{seconds} is not a time")).help("seconds, more than 0"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
    Ok(Duration((seconds * 1000.0).round() as u64))
}

fn mebibytes(count: i64) -> Result<Size, Fault> {
    let bytes = u64::try_from(count).ok().filter(|count| (1..1 << 40).contains(count));
    bytes.map(|count| Size(count << 20)).ok_or_else(|| Fault::new(format!("{count} is not a number of MiB")))
}

/// `2G`, `512M` or `1024K`, powers of 1024.
fn old_size(text: &str) -> Result<Size, Fault> {
    let shift = |unit| match unit {
        'K' => Some(10),
        'M' => Some(20),
        'G' => Some(30),
        _ => None,
    };
    let size = (|| {
        let unit = text.chars().last()?;
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(1 << shift(unit.to_ascii_uppercase())?).filter(|size| *size > 0)
    })();
    size.map(Size).ok_or_else(|| {
        Fault::new(format!("`{text}` is not a size"))
            .help("a number and K, M or G; newer tasks say `memory_mb`")
    })
}

/// A key that Airlock makes no use of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    /// Where it stands.
    pub place: Place,
    /// Its dotted name.
    pub key: String,
}

/// Keys that count only where there is no `[airlock]`, which has its own.
const WITHOUT_TABLE: [&str; 2] = ["agent.timeout_sec", "verifier.timeout_sec"];

/// Keys that are used, or that hold nothing but words for people.
const KNOWN: [&str; 15] = [
    "airlock",
    "version",
    "schema_version",
    "metadata",
    "task",
    "source",
    "steps",
    "environment.build_timeout_sec",
    "environment.cpus",
    "environment.memory_mb",
    "environment.storage_mb",
    "environment.gpus",
    "environment.memory",
    "environment.storage",
    "environment.allow_internet",
];

/// The keys outside of `[airlock]` that Airlock makes no use of.
pub(crate) fn unused(source: &Source, text: &str) -> Vec<Unused> {
    let mut unused = Vec::new();
    if let Ok(table) = DeTable::parse(text) {
        let mut known = KNOWN.to_vec();
        if !table.get_ref().contains_key("airlock") {
            known.extend(WITHOUT_TABLE);
        }
        list(source, "", table.get_ref(), &known, &mut unused);
    }
    unused.sort_by_key(|unused| (unused.place.line, unused.place.column));
    unused
}

fn list(source: &Source, prefix: &str, table: &DeTable<'_>, known: &[&str], unused: &mut Vec<Unused>) {
    for (name, value) in table {
        let key = format!("{prefix}{}", name.get_ref());
        if known.contains(&key.as_str()) {
            continue;
        }
        match value.get_ref() {
            DeValue::Table(inner) if ["agent", "verifier", "environment"].contains(&key.as_str()) => {
                list(source, &format!("{key}."), inner, known, unused);
            }
            _ => unused.push(Unused { place: source.place(name.span()), key }),
        }
    }
}
