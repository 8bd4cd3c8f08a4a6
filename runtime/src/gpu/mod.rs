//! GPUs: what there is, what a sandbox gets, and who holds it.

pub mod cdi;
mod discover;
pub mod facts;
mod guard;
mod helper;
pub mod host;
pub mod ldcache;
pub mod lease;
pub mod nvidia;
mod provide;
mod render;
mod report;
mod select;
mod table;
mod tenancy;
pub mod wire;

pub use discover::{DiscoverError, Discovery, Watch, discover};
pub use facts::{Chosen, Inventory, Selection};
pub use helper::HelperError;
pub use host::GpuHost;
pub(crate) use provide::provided;
pub use provide::{GpuError, Provision};
pub use report::{Counters, DeviceReport, GpuReport};
pub use select::{DRIVER_REMEDY, Held, SelectError, Wish, select};
pub use table::Table;
pub use tenancy::{Tenancy, TenancyError, lease_directory};
