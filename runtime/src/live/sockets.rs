//! Sockets of a process's network namespace, from /proc/PID/net.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Descriptor, Reader};

/// State of a socket that listens, in the kernel's tables: TCP, and Unix.
const TCP_LISTEN: &str = "0A";
/// `__SO_ACCEPTCON` of proc_pid_net(5).
const UNIX_LISTEN: u32 = 0x10000;
/// How many names are listed.
const MOST: usize = 64;

/// Sockets of one protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sockets {
    /// How many there are in the namespace.
    pub count: usize,
    /// Names or addresses (hexadecimal, as the kernel's table has them) that are listened on, the first 64.
    pub listening: Vec<String>,
    /// Names or addresses of those that the process itself has open.
    pub held: Vec<String>,
}

pub(super) fn read(reader: &mut Reader, descriptors: &[Descriptor]) -> BTreeMap<&'static str, Sockets> {
    let held: Vec<u64> = descriptors.iter().filter_map(Descriptor::socket).collect();
    let mut found = BTreeMap::new();
    for protocol in ["tcp", "tcp6", "udp", "udp6", "raw", "raw6"] {
        found.insert(protocol, internet(&table(reader, protocol), &held));
    }
    found.insert("unix", unix(&table(reader, "unix"), &held));
    found
}

/// A kernel without the protocol has no table.
fn table(reader: &mut Reader, protocol: &str) -> String {
    use std::os::fd::AsFd;
    match crate::sys::read_small(reader.process.as_fd(), format!("net/{protocol}")) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            reader.miss(&format!("{protocol} sockets"), &format!("/proc/PID/net/{protocol}: {error}"));
            String::new()
        }
    }
}

fn internet(text: &str, held: &[u64]) -> Sockets {
    let mut sockets = Sockets::default();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(address), Some(state), Some(inode)) = (fields.get(1), fields.get(3), fields.get(9)) else {
            continue;
        };
        sockets.add(address, *state == TCP_LISTEN, inode.parse().is_ok_and(|inode| held.contains(&inode)));
    }
    sockets
}

fn unix(text: &str, held: &[u64]) -> Sockets {
    let mut sockets = Sockets::default();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(flags), Some(inode)) = (fields.get(3), fields.get(6)) else { continue };
        let listens = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & UNIX_LISTEN != 0);
        let name = fields.get(7).copied().unwrap_or("(without a name)");
        sockets.add(name, listens, inode.parse().is_ok_and(|inode| held.contains(&inode)));
    }
    sockets
}

impl Sockets {
    fn add(&mut self, name: &str, listens: bool, held: bool) {
        self.count += 1;
        if listens && self.listening.len() < MOST {
            self.listening.push(name.to_owned());
        }
        if held {
            self.held.push(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read() {
        let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1\n\
                   1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 78 1\n";
        let found = internet(tcp, &[78]);
        assert_eq!(
            (found.count, &found.listening[..], &found.held[..]),
            (2, &["0100007F:1F90".into()][..], &["0100007F:1F91".into()][..])
        );
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     0: 00000002 00000000 00010000 0001 01 11 /run/x\n\
                     0: 00000003 00000000 00000000 0001 03 12\n";
        let found = unix(table, &[12]);
        assert_eq!(
            (found.count, &found.listening[..], &found.held[..]),
            (2, &["/run/x".into()][..], &["(without a name)".into()][..])
        );
    }
}
