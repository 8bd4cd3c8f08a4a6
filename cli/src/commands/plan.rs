//! `airlock plan`.

use std::process::ExitCode;

use airlock_runtime::Spec;
use airlock_runtime::cgroups::CgroupPath;
use airlock_runtime::gpu::provided;
use airlock_runtime::host::{HostFacts, is_root};
use airlock_runtime::ids::HostIds;
use airlock_runtime::plan::{Placement, Plan, PlanError, plan as compile};
use anyhow::Result;

use crate::args::PlanArgs;
use crate::output;

pub(crate) fn plan(args: PlanArgs) -> Result<ExitCode> {
    let spec = super::spec(&args.policy, args.overrides.into(), args.command)?;
    let cgroup_parent = args.cgroup_parent.as_deref().map(super::cgroup_parent).transpose()?;
    let plan = shown(&spec, cgroup_parent)?;
    if args.format.json {
        output::json(&plan)?;
    } else {
        output::print(&output::escape(&plan.to_string()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The plan as it would be launched, but that no range of ids is taken: it has the pool's first.
pub(crate) fn shown(spec: &Spec, cgroup_parent: Option<CgroupPath>) -> Result<Plan> {
    let facts = facts(spec, cgroup_parent.as_ref())?;
    Ok(compile(spec, &facts, &Placement { id: "ID".into(), cgroup_parent })?)
}

/// The same, and the spec with all that its GPUs bring.
pub(crate) fn explained(spec: Spec) -> Result<(Spec, Plan)> {
    let facts = facts(&spec, None)?;
    let plan = compile(&spec, &facts, &Placement { id: "ID".into(), cgroup_parent: None })?;
    Ok((provided(&spec, &facts).map_err(PlanError::from)?.unwrap_or(spec), plan))
}

fn facts(spec: &Spec, cgroup_parent: Option<&CgroupPath>) -> Result<HostFacts> {
    let ids = HostIds::planned(is_root(), spec.airlock.ids)?;
    let facts = HostFacts::read(spec, ids)?.settle(cgroup_parent)?;
    Ok(facts.with_gpu(spec, super::gpu::selection(spec)?)?)
}
