//! GPUs: what there is, what a sandbox gets, and who holds it.

mod discover;
pub mod facts;
mod helper;
mod render;
mod table;
pub mod wire;

pub use discover::{DiscoverError, Discovery, Watch, discover};
pub use facts::{Chosen, Inventory, Selection};
pub use helper::HelperError;
pub use table::Table;
