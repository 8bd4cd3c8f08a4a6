//! Running the probes: in a sandbox of a spec, or under any command that starts the probe program.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};

use super::clause::Clause;
use super::expect::{Setting, shorten};
use super::kit::{Kit, KitError};
use super::{Answer, Outcome, Probe, Verdict, table};
use crate::cgroups::CgroupPath;
use crate::gpu::{Grant, Selection};
use crate::launcher::{Launcher, LauncherError, Request};
use crate::plan::Placement;
use crate::report::{EndReport, Reason};
use crate::spec::Spec;

/// Probes could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kit could not be laid out.
    #[error(transparent)]
    Kit(#[from] KitError),
    /// The facts of the host could not be read.
    #[error(transparent)]
    Host(#[from] crate::host::HostError),
    /// The ids.
    #[error(transparent)]
    Ids(#[from] crate::ids::IdError),
    /// The spec cannot be built here.
    #[error(transparent)]
    Plan(#[from] crate::plan::PlanError),
    /// Its filter cannot be compiled.
    #[error(transparent)]
    Seccomp(#[from] crate::seccomp::SeccompError),
    /// The sandbox could not be started.
    #[error(transparent)]
    Launch(#[from] LauncherError),
    /// The group to work below is none.
    #[error(transparent)]
    Cgroup(#[from] crate::cgroups::CgroupError),
    /// The probe program could not be started or read.
    #[error("probes: {what}: {source}")]
    Call {
        /// What was done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The probe program did not do its work.
    #[error("probes: the program said {said:?}, and ended with {ended}")]
    Program {
        /// What it said on stderr.
        said: String,
        /// How it ended.
        ended: String,
    },
}

/// Runs probes. Dropping it takes the kit away.
#[derive(Debug)]
pub struct Runner {
    kit: Kit,
    launcher: Launcher,
    cgroup_parent: Option<PathBuf>,
    placement: Placement,
}

impl Runner {
    /// Starts the launcher and lays the kit out. The caller must have one thread.
    ///
    /// # Errors
    /// What could not be made.
    pub fn new(program: &std::path::Path, cgroup_parent: Option<PathBuf>) -> Result<Runner, ProbeError> {
        let launcher = Launcher::start()?;
        let kit = Kit::new(program)?;
        let parent = cgroup_parent.as_deref().map(CgroupPath::new).transpose()?;
        let placement = Placement { id: "probe".into(), cgroup_parent: parent };
        Ok(Runner { kit, launcher, cgroup_parent, placement })
    }

    /// The kit.
    pub fn kit(&self) -> &Kit {
        &self.kit
    }

    /// A policy's spec, made ready. `gpu` is what was chosen for it, which the caller holds leases of.
    ///
    /// # Errors
    /// The plan's, if this host cannot build it.
    pub fn setting(&self, spec: Spec, gpu: Option<Selection>) -> Result<Setting, ProbeError> {
        Setting::of(spec, gpu, &self.kit, &self.placement)
    }

    /// A setting without some clauses.
    pub(super) fn without(
        &self,
        setting: &Setting,
        clauses: impl IntoIterator<Item = Clause>,
    ) -> Result<Setting, ProbeError> {
        setting.without(clauses, &self.kit, &self.placement)
    }

    /// What becomes of each probe in a sandbox.
    ///
    /// # Errors
    /// The launch's; or the program did not answer.
    pub fn run(&self, setting: &Setting) -> Result<BTreeMap<&'static str, Outcome>, ProbeError> {
        let (waiting, others): (Vec<_>, Vec<_>) =
            table().filter(|probe| setting.tries(probe)).partition(|probe| waits(probe));
        let (_, mut outcomes) = self.launch(setting.spec.clone(), setting.gpu.clone(), &others)?;
        for probe in waiting {
            let mut spec = setting.spec.clone();
            shorten(&mut spec, probe);
            let (end, mut found) = self.launch(spec, setting.gpu.clone(), &[probe])?;
            if end.reason == Reason::WallTimeout {
                found.insert(probe.id, Outcome::Killed(libc::SIGKILL));
            }
            outcomes.extend(found);
        }
        Ok(outcomes)
    }

    fn launch(
        &self,
        mut spec: Spec,
        gpu: Option<Selection>,
        probes: &[&'static Probe],
    ) -> Result<(EndReport, BTreeMap<&'static str, Outcome>), ProbeError> {
        if let Some(process) = spec.oci.process_mut() {
            let orders = probes.iter().map(|probe| self.kit.order(probe));
            let program = self.kit.program().display().to_string();
            process.set_args(Some(std::iter::once(program).chain(orders).collect()));
        }
        let memory = || Ok(File::from(memfd_create("probes", MemfdFlags::CLOEXEC)?));
        let (mut out, mut err) = (memory().map_err(call("memfd"))?, memory().map_err(call("memfd"))?);
        let null = File::open("/dev/null").map_err(call("/dev/null"))?;
        let stream = |file: &File| file.try_clone().map_err(call("dup"));
        let request = Request {
            stdio: Some([null.into(), stream(&out)?.into(), stream(&err)?.into()]),
            cgroup_parent: self.cgroup_parent.clone(),
            gpu: gpu.map(Grant::from),
            ..Request::default()
        };
        let end = self.launcher.launch(&spec, request)?.wait()?;
        let mut said = [String::new(), String::new()];
        for (file, said) in [&mut out, &mut err].into_iter().zip(&mut said) {
            file.rewind().and_then(|()| file.read_to_string(said)).map_err(call("reading the answers"))?;
        }
        let [out, err] = said;
        let ended_by_clock = end.reason == Reason::WallTimeout;
        if end.exit_code != Some(0) && !ended_by_clock && end.reason != Reason::Oom {
            return Err(ProbeError::Program { said: err, ended: format!("{:?}", end.reason) });
        }
        Ok((end, answers(&out)))
    }

    /// What becomes of each probe outside of any sandbox, as the caller.
    ///
    /// # Errors
    /// The program could not be started, or did not answer.
    pub fn outside(&self) -> Result<BTreeMap<&'static str, Outcome>, ProbeError> {
        let mut command = Command::new(self.kit.program());
        command.env_clear().env(self.kit.variable(), "1");
        self.under(command)
    }

    /// What becomes of each probe under a command that ends in the path of the probe program; the orders are added.
    ///
    /// # Errors
    /// The command could not be started, or did not answer.
    pub fn under(&self, mut command: Command) -> Result<BTreeMap<&'static str, Outcome>, ProbeError> {
        command.args(unlimited().map(|probe| self.kit.order(probe))).stdin(Stdio::null());
        let name = command.get_program().display().to_string();
        let ended = command.output().map_err(call(&name))?;
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            return Err(ProbeError::Program { said, ended: ended.status.to_string() });
        }
        Ok(answers(&String::from_utf8_lossy(&ended.stdout)))
    }
}

/// Probes that are tried without Airlock: all but those of time, which a loaded machine stops as a limit does.
pub fn unlimited() -> impl Iterator<Item = &'static Probe> {
    table().filter(|probe| !waits(probe))
}

/// It is for a launch of its own, whose limits of time are lower.
pub(super) fn waits(probe: &Probe) -> bool {
    probe.clauses == [Clause::WallClock] || probe.clauses == [Clause::Cpus]
}

/// Reads what the probe program printed. A probe without an answer is broken.
pub fn answers(text: &str) -> BTreeMap<&'static str, Outcome> {
    let said: BTreeMap<String, Outcome> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Answer>(line).ok())
        .map(|answer| (answer.id, answer.outcome))
        .collect();
    let known = table().map(|probe| probe.id);
    known.filter_map(|id| said.get(id).map(|outcome| (id, outcome.clone()))).collect()
}

/// What an outcome of [`Runner::run`] means; a missing one is broken.
pub fn judged(probe: &Probe, outcomes: &BTreeMap<&'static str, Outcome>) -> Verdict {
    outcomes.get(probe.id).map_or(Verdict::Broken, |outcome| probe.judge(outcome))
}

fn call(what: &str) -> impl Fn(std::io::Error) -> ProbeError {
    move |source| ProbeError::Call { what: what.to_owned(), source }
}
