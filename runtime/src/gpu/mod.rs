//! GPUs: what there is, what a sandbox gets, and who holds it.

mod discover;
pub mod facts;
mod helper;
pub mod lease;
mod render;
mod report;
mod select;
mod table;
mod tenancy;
pub mod wire;

pub use discover::{DiscoverError, Discovery, Watch, discover};
pub use facts::{Chosen, Inventory, Selection};
pub use helper::HelperError;
pub use report::{Counters, DeviceReport, GpuReport};
pub use select::{Held, SelectError, Wish, select};
pub use table::Table;
pub use tenancy::{Tenancy, TenancyError, lease_directory};
