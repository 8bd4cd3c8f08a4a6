//! GPUs: what there is, what a sandbox gets, and who holds it.

pub mod cdi;
mod discover;
pub mod facts;
mod grant;
mod guard;
mod held;
mod helper;
mod holder;
pub mod host;
pub mod ldcache;
pub mod lease;
pub mod nvidia;
mod program;
mod provide;
mod render;
mod report;
mod reset;
mod select;
mod table;
mod tenancy;
pub mod wire;

pub use discover::{DiscoverError, Discovery, discover};
pub use facts::{Chosen, Inventory, Selection};
pub use grant::Grant;
pub use held::held;
pub use helper::HelperError;
pub(crate) use holder::add_sandbox;
pub use host::GpuHost;
pub use provide::{GpuError, NamedError, Provision, check_named, provided};
pub use report::{Counters, DeviceReport, GpuReport};
pub use reset::{ResetError, check_reset};
pub use select::{DRIVER_REMEDY, Held, SelectError, Wish, candidates, select};
pub use table::Table;
pub use tenancy::{Tenancy, TenancyError, lease_directory};
