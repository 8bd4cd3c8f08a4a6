//! `airlock plan`.

use std::process::ExitCode;

use airlock_runtime::host::{HostFacts, is_root};
use airlock_runtime::ids::{HostIds, POOL_START};
use airlock_runtime::plan::{Placement, plan as compile};
use anyhow::Result;

use crate::args::PlanArgs;
use crate::output;

pub(crate) fn plan(args: PlanArgs) -> Result<ExitCode> {
    let spec = super::spec(&args.policy, args.overrides.into(), args.command)?;
    // No range is taken: the plan is shown with the pool's first.
    let ids = if is_root() { HostIds::Range { base: POOL_START } } else { HostIds::Caller };
    let facts = HostFacts::read(&spec, ids)?;
    let cgroup_parent = args.cgroup_parent.as_deref().map(super::cgroup_parent).transpose()?;
    let plan = compile(&spec, &facts, &Placement { id: "ID".into(), cgroup_parent })?;
    if args.format.json {
        output::json(&plan)?;
    } else {
        output::print(&output::escape(&plan.to_string()))?;
    }
    Ok(ExitCode::SUCCESS)
}
