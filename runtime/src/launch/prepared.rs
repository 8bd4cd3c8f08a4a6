//! What a launch needs and need not make anew each time.

use std::io;
use std::rc::Rc;

use super::error::LaunchError;
use crate::cgroups::DeviceFilter;
use crate::host::HostFacts;
use crate::seccomp::{Cache, Program, own};
use crate::spec::Spec;

/// What a launch needs besides the spec and its options.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The host's facts, as far as they hold for every spec.
    pub(super) facts: HostFacts,
    /// The fixed filter of init itself.
    pub(super) own_filter: Program,
    /// The spec's seccomp filter, if it has been compiled before.
    pub(super) filter: Option<Rc<Program>>,
}

/// Keeps what one launch can leave to the next.
#[derive(Debug)]
pub(crate) struct Stock {
    facts: HostFacts,
    own_filter: Program,
    filters: Cache,
}

impl Prepared {
    /// Prepares a single launch.
    pub(crate) fn once() -> Result<Prepared, LaunchError> {
        Ok(Prepared { facts: HostFacts::without_spec()?, own_filter: own_filter()?, filter: None })
    }
}

impl Stock {
    /// Reads the host's facts. They hold as long as this process stays in its control group.
    pub(crate) fn new() -> Result<Stock, LaunchError> {
        let Prepared { facts, own_filter, .. } = Prepared::once()?;
        Ok(Stock { facts, own_filter, filters: Cache::default() })
    }

    /// Moves this process to where it may make cgroups, once and for all (see [`HostFacts::settle`]).
    pub(crate) fn settle(&mut self) -> Result<(), LaunchError> {
        self.facts = self.facts.clone().settle(None)?;
        Ok(())
    }

    /// Takes out, or makes and keeps, what a launch of `spec` needs.
    ///
    /// What cannot be made is left to the launch itself, whose error names the clause.
    pub(crate) fn prepare(&mut self, spec: &Spec) -> Prepared {
        let linux = spec.oci.linux().as_ref();
        let seccomp = linux.and_then(|linux| linux.seccomp().as_ref());
        let devices = linux.and_then(|linux| linux.resources().as_ref()?.devices().as_ref());
        let filters_by_program = rustix::process::geteuid().is_root() && self.facts.cgroups.v2.is_some();
        let filter =
            devices.filter(|_| filters_by_program).and_then(|rules| DeviceFilter::from_oci(rules).ok());
        if let Some(filter) = filter {
            // Forks inherit the program.
            let _ = filter.load();
        }
        Prepared {
            facts: self.facts.clone(),
            own_filter: self.own_filter.clone(),
            filter: seccomp.and_then(|document| self.filters.program(document).ok()),
        }
    }
}

fn own_filter() -> Result<Program, LaunchError> {
    own::init_filter().map_err(|error| LaunchError::Call {
        what: "compiling init's filter",
        source: io::Error::other(error),
    })
}
