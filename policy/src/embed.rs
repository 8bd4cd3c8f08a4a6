//! For files that embed parts of the policy language, as those of tasks do: the same values, the same checks,
//! the same diagnostics.

use std::path::Path;

use crate::apply::{Layer, apply};
use crate::checks;
pub use crate::checks::target as mount_target;
use crate::diagnostic::Diagnostic;
pub use crate::diagnostic::{Fault, Source, did_you_mean};
pub use crate::files::read as read_file;
use crate::merged::Policy;
pub use crate::parse::parse;
pub use crate::schema::{At, EnvTable, LimitsTable, Quantity};
use crate::schema::{Document, GpuTable, NetworkMode, NetworkTable, ProcessTable};
use crate::units::{Duration, Size};

/// What another file changes of a policy.
#[derive(Debug, Default)]
pub struct Amendment {
    /// As `[limits]` of a policy.
    pub limits: LimitsTable,
    /// As `[env]` of a policy.
    pub env: EnvTable,
    /// As `network.mode` of a policy.
    pub network: Option<At<NetworkMode>>,
    /// As `gpu.count` of a policy.
    pub gpus: Option<At<i64>>,
    /// As `process.cwd` of a policy.
    pub cwd: Option<At<String>>,
}

impl Policy {
    /// Lays `amendment`, which stands in `source`, over the policy. Returns every mistake in it.
    pub fn amend(&mut self, amendment: Amendment, source: &Source) -> Vec<Diagnostic> {
        let Amendment { limits, env, network, gpus, cwd } = amendment;
        let count = |count: At<i64>| {
            let table = GpuTable { count: Some(count.clone()), ..GpuTable::default() };
            At::new(count.span(), table)
        };
        let document = Document {
            limits,
            env,
            network: NetworkTable { mode: network, allow: None },
            gpu: gpus.map(count),
            process: ProcessTable { cwd },
            ..Document::default()
        };
        let layer = Layer { source, base: Path::new("/"), extends_lists: false };
        apply(self, &layer, document)
    }
}

/// A span of time above zero.
pub fn duration(quantity: &Quantity) -> Result<Duration, Fault> {
    checks::some_time(&quantity.0)
}

/// A number of bytes above zero.
pub fn size(quantity: &Quantity) -> Result<Size, Fault> {
    checks::some_bytes(&quantity.0)
}
