//! GPUs: what there is, what a sandbox gets, and who holds it.

pub mod cdi;
pub mod facts;
pub mod host;
pub mod ldcache;
pub mod nvidia;
mod provide;

pub use facts::{Chosen, Inventory, Selection};
pub use host::GpuHost;
pub use provide::{GpuError, Provision};
pub(crate) use provide::provided;
