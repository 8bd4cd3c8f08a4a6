//! Networks, families of sockets, and objects that processes share by name.

use super::{NO_ADDRESS, NO_FAMILY, NO_KEY};
use crate::probe::Clause::*;
use crate::probe::Probe;

/// A family or protocol that loads code of the kernel's by a mere socket call.
const fn rare(id: &'static str, title: &'static str, action: &'static [&'static str]) -> Probe {
    Probe::new(id, title, action, &[]).of_some_hosts().host_may_refuse()
}

#[rustfmt::skip]
pub(super) const PROBES: &[Probe] = &[
    Probe::new("network.connect", "connect to a service of the host by TCP", &["connect-tcp", "$PORT"], &[NetworkNamespace]).also(NO_ADDRESS),
    Probe::new("network.abstract", "connect to a service of the host by an abstract name", &["connect-unix", "@$NAME"], &[NetworkNamespace, Landlock]).also(NO_ADDRESS),
    Probe::new("network.interfaces", "see an interface of the host", &["interfaces"], &[NetworkNamespace]).of_some_hosts(),
    Probe::new("network.low-port", "listen on a port below 1024", &["listen-tcp", "1023"], &[Capabilities]).capability(10).host_may_refuse(),
    Probe::new("network.listen", "listen on a port of its own", &["listen-tcp", "0"], &[]),
    Probe::new("network.unix", "make a Unix socket", &["socket", "1", "1", "0"], &[]),
    Probe::new("network.tcp", "make a TCP socket", &["socket", "2", "1", "0"], &[]),
    Probe::new("network.udp", "make a UDP socket", &["socket", "2", "2", "0"], &[]),
    Probe::new("network.tcp6", "make a TCP socket of IPv6", &["socket", "10", "1", "0"], &[]).of_some_hosts(),
    Probe::new("network.raw", "make a raw socket", &["socket", "2", "3", "1"], &[Capabilities]).capability(13).needs_root(),
    Probe::new("network.packet", "make a packet socket", &["socket", "17", "3", "0"], &[Capabilities]).capability(13).needs_root().of_some_hosts(),
    Probe::new("network.route", "make a route socket of netlink", &["socket", "16", "3", "0"], &[]).also(NO_FAMILY),
    Probe::new("network.audit", "make an audit socket of netlink", &["socket", "16", "3", "9"], &[]).also(NO_FAMILY).of_some_hosts(),
    Probe::new("network.uevent", "make a uevent socket of netlink", &["socket", "16", "3", "15"], &[]).also(NO_FAMILY).of_some_hosts(),
    Probe::new("network.netfilter", "make a netfilter socket of netlink", &["socket", "16", "3", "12"], &[]).also(NO_FAMILY).of_some_hosts(),
    rare("network.crypto", "use the kernel's cryptography (AF_ALG)", &["socket", "38", "5", "0"]),
    rare("network.vsock", "reach the hypervisor (AF_VSOCK)", &["socket", "40", "1", "0"]),
    rare("network.bluetooth", "make a Bluetooth socket", &["socket", "31", "3", "1"]),
    rare("network.can", "make a CAN socket", &["socket", "29", "3", "1"]),
    rare("network.tipc", "make a TIPC socket", &["socket", "30", "1", "0"]),
    rare("network.x25", "make an X.25 socket", &["socket", "9", "5", "0"]),
    rare("network.rds", "make an RDS socket", &["socket", "21", "5", "0"]),
    rare("network.ipsec", "make an IPsec socket (AF_KEY)", &["socket", "15", "3", "2"]),
    rare("network.kcm", "make a KCM socket", &["socket", "41", "5", "0"]),
    rare("network.smc", "make an SMC socket", &["socket", "43", "1", "0"]),
    rare("network.qrtr", "make a Qualcomm router socket", &["socket", "42", "2", "0"]),
    rare("network.xdp", "make an XDP socket", &["socket", "44", "3", "0"]),
    rare("network.nfc", "make an NFC socket", &["socket", "39", "5", "1"]),
    rare("network.sctp", "make an SCTP socket", &["socket", "2", "1", "132"]),
    rare("network.mptcp", "make an MPTCP socket", &["socket", "2", "1", "262"]),
    rare("network.udplite", "make a UDP-Lite socket", &["socket", "2", "2", "136"]),
    rare("network.l2tp", "make an L2TP socket", &["socket", "2", "2", "115"]),
    Probe::new("ipc.segment", "find a System V segment of the host", &["find-segment", "$SEGMENT"], &[IpcNamespace]),
    Probe::new("ipc.queue", "find a POSIX queue of the host", &["find-queue", "$NAME"], &[IpcNamespace, Landlock]).of_some_hosts(),
    Probe::new("ipc.key", "find a key of the caller's session", &["find-key", "$NAME"], &[Session]).also(NO_KEY).of_some_hosts(),
    Probe::new("ipc.keyring", "name the session keyring", &["call", "keyctl", "0", "-3", "0"], &[]),
    Probe::new("ipc.add-key", "add a key to its process keyring", &["call", "add_key", "=user", "=airlock-probe", "page:", "1", "-2"], &[]),
    Probe::new("ipc.request-key", "request a key of the host's helper", &["call", "request_key", "=user", "=airlock-probe-none", "0", "0"], &[]),
];
