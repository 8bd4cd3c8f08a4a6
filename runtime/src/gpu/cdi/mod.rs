//! The Container Device Interface: what a device needs in a container, as a document.
//!
//! [`ContainerEdits`] is also the form in which Airlock says for itself what a GPU needs, so that a document of the
//! host, NVIDIA's driver and an OCI front end all end at [`apply()`](apply::apply). The format is CNCF's
//! `container-device-interface` (SPEC.md).

mod apply;
mod model;
mod read;

pub use apply::{ApplyError, apply};
pub use model::{ContainerEdits, Device, DeviceNode, Document, Hook, Mount, Name, NameError};
pub use read::{CdiError, DIRECTORIES, Found, Library};
