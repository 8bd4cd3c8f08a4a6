//! Device nodes and the links beside them.

use std::path::Path;

use super::{Compiler, Known, target_error};
use crate::plan::{Action, Entry, ExpectedMount, FileSystem, MountFlags, MountId, PlanError, step};

impl Compiler<'_> {
    /// The sandbox's device nodes: made by root, bound from the host by an ordinary user.
    pub(super) fn devices(&mut self) -> Result<(), PlanError> {
        let linux = self.spec.oci.linux().as_ref();
        for device in linux.and_then(|linux| linux.devices().as_ref()).into_iter().flatten() {
            let target = device.path();
            let clause = self.spec.airlock.origins.get(target).map_or("devices", String::as_str);
            let (major, minor) = (
                u32::try_from(device.major())
                    .map_err(|_| target_error(clause, target, "negative major number"))?,
                u32::try_from(device.minor())
                    .map_err(|_| target_error(clause, target, "negative minor number"))?,
            );
            if self.identity.root {
                self.mount_point(clause, target, Entry::Device { major, minor })?;
            } else {
                let flags = MountFlags { no_exec: true, ..MountFlags::default() };
                let mount = self.id();
                let source = target.clone();
                let clone = Action::CloneDevice { mount, source, major, minor };
                self.layout.brought.push(step(clause, clone));
                self.layout.handed_over.push(mount);
                self.mount_point(clause, target, Entry::File { mode: 0o644, content: Vec::new() })?;
                self.layout.attach.push(step(clause, Action::Attach { mount, target: target.clone() }));
                self.layout.expected.push(ExpectedMount {
                    clause: clause.into(),
                    target: target.clone(),
                    flags,
                    file_system: FileSystem::Device,
                });
            }
        }
        Ok(())
    }

    /// The links that the OCI runtime specification wants in /dev.
    pub(super) fn device_links(&mut self) -> Result<(), PlanError> {
        if !matches!(self.known.get(Path::new("/dev")), Some(Known::Ours { inner, .. }) if inner.as_os_str().is_empty())
        {
            return Ok(());
        }
        let links = [
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
            ("/dev/ptmx", "pts/ptmx"),
        ];
        links.iter().try_for_each(|(path, target)| {
            self.mount_point("root", Path::new(path), Entry::Link { target: target.into() })
        })
    }

    /// Device nodes can be made by root of the host alone, on a mount of its own.
    pub(super) fn holds_devices(&self, target: &Path) -> bool {
        let devices = self.spec.oci.linux().as_ref().and_then(|linux| linux.devices().as_ref());
        self.identity.root
            && devices.into_iter().flatten().any(|device| device.path().parent() == Some(target))
    }

    pub(super) fn device_tmpfs(&mut self, clause: &str, size: u64, mode: u32, flags: MountFlags) -> MountId {
        let mount = self.id();
        let (owner, flags) = (self.identity.host_root, MountFlags { read_only: false, ..flags });
        self.layout.brought.push(step(clause, Action::NewTmpfs { mount, size, mode, owner, flags }));
        self.layout.handed_over.push(mount);
        self.devices = Some(mount);
        mount
    }
}
