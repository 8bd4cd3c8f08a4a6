//! Device nodes, GPUs among them.

use crate::probe::Clause::*;
use crate::probe::Probe;

/// A node that the policy does not list. Opening it does nothing.
const fn node(id: &'static str, title: &'static str, action: &'static [&'static str]) -> Probe {
    Probe::new(id, title, action, &[DeviceNodes]).of_some_hosts().host_may_refuse()
}

#[rustfmt::skip]
pub(super) const PROBES: &[Probe] = &[
    Probe::new("device.witness", "open a device node that the policy does not list", &["open", "$DEVICE", "r"], &[DeviceNodes, DeviceFilter]).of_some_hosts(),
    Probe::new("device.on-mount", "open a device node that lies in a mount", &["open", "$DATA/null", "r"], &[NoDevices]).needs_root(),
    Probe::new("device.filtered-on-mount", "open an unlisted device's node that lies in a mount", &["open", "$DATA/device", "r"], &[NoDevices, DeviceFilter]).needs_root().of_some_hosts(),
    Probe::new("device.make", "make a device node", &["mknod", "/tmp", "1", "3"], &[UserNamespace]).needs_root(),
    Probe::new("device.make-whiteout", "make a whiteout, which hides files of an overlay", &["mknod", "/tmp", "0", "0"], &[Landlock]),
    Probe::new("device.zero", "read /dev/zero", &["read", "/dev/zero"], &[]),
    Probe::new("device.null", "write to /dev/null", &["open", "/dev/null", "w"], &[]),
    Probe::new("device.random", "read random bytes", &["read", "/dev/urandom"], &[]),
    node("device.memory", "open physical memory", &["open", "/dev/mem", "r"]),
    node("device.port", "open the I/O ports", &["open", "/dev/port", "r"]),
    node("device.messages", "open the kernel's messages", &["open", "/dev/kmsg", "r"]),
    node("device.disk-vda", "open a disk of the host (vda)", &["open", "/dev/vda", "r"]),
    node("device.disk-sda", "open a disk of the host (sda)", &["open", "/dev/sda", "r"]),
    node("device.disk-nvme", "open a disk of the host (nvme0n1)", &["open", "/dev/nvme0n1", "r"]),
    node("device.loop", "open the control of loop devices", &["open", "/dev/loop-control", "r"]),
    node("device.mapper", "open the control of the device mapper", &["open", "/dev/mapper/control", "r"]),
    node("device.btrfs", "open the control of btrfs", &["open", "/dev/btrfs-control", "r"]),
    node("device.fuse", "open /dev/fuse", &["open", "/dev/fuse", "r"]),
    node("device.tun", "open /dev/net/tun", &["open", "/dev/net/tun", "r"]),
    node("device.kvm", "open /dev/kvm", &["open", "/dev/kvm", "r"]),
    node("device.vhost-net", "open /dev/vhost-net", &["open", "/dev/vhost-net", "r"]),
    node("device.vsock", "open /dev/vsock", &["open", "/dev/vsock", "r"]),
    node("device.userfaultfd", "open /dev/userfaultfd", &["open", "/dev/userfaultfd", "r"]),
    node("device.console", "open the host's console", &["open", "/dev/console", "r"]),
    node("device.terminal", "open a terminal of the host", &["open", "/dev/tty0", "r"]),
    node("device.input", "list the input devices", &["list", "/dev/input"]),
    node("device.sound", "list the sound devices", &["list", "/dev/snd"]),
    node("device.infiniband", "list the InfiniBand devices", &["list", "/dev/infiniband"]),
    node("gpu.control", "open the NVIDIA driver's control node", &["open", "/dev/nvidiactl", "r"]),
    node("gpu.first", "open the first NVIDIA GPU", &["open", "/dev/nvidia0", "r"]),
    node("gpu.second", "open the second NVIDIA GPU", &["open", "/dev/nvidia1", "r"]),
    node("gpu.memory", "open NVIDIA's unified memory", &["open", "/dev/nvidia-uvm", "r"]),
    node("gpu.modeset", "open NVIDIA's mode setting", &["open", "/dev/nvidia-modeset", "r"]),
    node("gpu.instances", "list NVIDIA's MIG capabilities", &["list", "/dev/nvidia-caps"]),
    node("gpu.render", "list the direct rendering nodes", &["list", "/dev/dri"]),
    node("gpu.amd", "open AMD's compute node", &["open", "/dev/kfd", "r"]),
];
