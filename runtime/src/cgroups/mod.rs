//! Control groups: layout, creation, limits, device filter, statistics, kill and removal.
//!
//! [`CgroupFacts`] says what the host has, [`CgroupTarget`] (pure) says which directories one sandbox gets,
//! [`Cgroup`] makes them and is the only type that touches them. A limit is one file and one value
//! ([`LimitWrite`]), so what was written can be read back. A process joins by writing `0` to the
//! [`Cgroup::join_descriptors`] (v1), or is born inside by `clone3(CLONE_INTO_CGROUP)` with
//! [`Cgroup::clone_into`] (v2).
//!
//! On a hybrid host the limits live in the v1 trees, and a directory of the v2 tree, although it has no
//! controllers, kills, freezes, counts CPU time and carries the BPF device program.
//!
//! Where systemd runs on cgroup v2, [`CgroupFacts::settle`] moves the process into a transient scope that is delegated to
//! it, unless its own cgroup is so already ([`Manager`]).
//!
//! Sources: the kernel's `admin-guide/cgroup-v1/`, `admin-guide/cgroup-v2.rst`, OCI runtime-spec
//! `config-linux.md`.

mod bpf;
mod bus;
mod devices;
mod end;
mod error;
mod facts;
mod group;
mod limits;
mod manager;
mod readback;
mod record;
mod scope;
mod stats;
mod target;
mod tree;
mod v2;

pub use bpf::{BpfInsn, device_program};
pub use devices::{Access, DeviceFilter, DeviceKind, DeviceReadback, DeviceRule, DeviceSet, Devices};
pub use error::CgroupError;
pub use facts::{CgroupFacts, Controller, Layout, V1Tree, V2Tree, Version};
pub use group::Cgroup;
pub use limits::LimitWrite;
pub use manager::Manager;
pub use readback::LimitReading;
pub use record::{CgroupRecord, TreeRecord};
pub use scope::{ScopeError, ScopeStep};
pub use stats::CgroupStats;
pub use target::{CgroupPath, CgroupTarget, Needs, TreeTarget};
