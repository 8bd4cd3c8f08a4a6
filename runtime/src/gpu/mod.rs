//! GPUs: what there is, what a sandbox gets, and who holds it.

pub mod facts;

pub use facts::{Chosen, Inventory, Selection};
