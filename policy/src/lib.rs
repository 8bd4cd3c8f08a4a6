//! Airlock's policy language.
//!
//! A policy says in TOML what a sandbox may see and do. [`Policy::load`] reads it with all that it extends,
//! lays the command line over it, and checks it; [`resolve`] turns it into a
//! [`Spec`](airlock_runtime::Spec) for this host, without touching the host.

mod apply;
mod checks;
mod diagnostic;
mod files;
mod host;
mod load;
mod merged;
mod overrides;
mod parse;
mod resolve;
mod schema;
mod seccomp_file;
mod show;
mod tables;
mod units;

pub mod audit;
pub mod builtin;
pub mod diff;
pub mod embed;
pub mod explain;

pub use diagnostic::{Diagnostic, Place, PolicyError};
pub use host::{HostEntry, HostTree};
pub use merged::{
    Capabilities, Env, Gpu, Identity, Landlock, Limits, Mount, Network, Policy, Process, Profile, Root,
    Seccomp, User, Writable,
};
pub use overrides::{MountArg, Overrides, parse_mount_arg};
pub use resolve::{ResolveInput, resolve};
pub use schema::{BestEffort, Groups, Ids, MountMode, NetworkMode, RootKind};
pub use show::{check, json_schema, list, show};
pub use units::{Duration, Energy, Percent, Size};
