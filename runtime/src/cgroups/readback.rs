//! Limits read back from the kernel.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::facts::Controller;
use super::limits::LimitWrite;

/// A limit as the kernel tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReading {
    /// The control file.
    pub path: PathBuf,
    /// What was written to it.
    pub wanted: String,
    /// What it reads.
    pub found: String,
    /// Both say the same: the kernel may only have rounded down to a page or renamed "no limit".
    pub holds: bool,
}

impl LimitReading {
    pub(super) fn new(path: PathBuf, write: &LimitWrite, found: &str) -> Self {
        let found = found.trim();
        Self { path, wanted: write.value.clone(), found: found.into(), holds: holds(write, found) }
    }
}

/// Largest page that a size is rounded down to (arm64 and ppc64 have 64 KiB).
const LARGEST_PAGE: u64 = 64 * 1024;

fn holds(write: &LimitWrite, found: &str) -> bool {
    let wanted = write.value.trim();
    if wanted == found {
        return true;
    }
    match write.controller {
        Controller::Memory | Controller::HugeTlb => match (wanted.parse::<u64>(), found.parse::<u64>()) {
            (Ok(wanted), Ok(found)) => found <= wanted && wanted - found < LARGEST_PAGE,
            // v1 shows "no limit" as the largest page-aligned number.
            (Err(_), Ok(found)) => matches!(wanted, "-1" | "max") && found > (1 << 63) - 1 - LARGEST_PAGE,
            // `memory.oom_control` is a table.
            _ => {
                write.file == "memory.oom_control"
                    && found.starts_with(&format!("oom_kill_disable {wanted}\n"))
            }
        },
        Controller::CpuSet => match (id_set(wanted), id_set(found)) {
            (Some(wanted), Some(found)) => wanted == found,
            _ => false,
        },
        Controller::Io => {
            let mut wanted = wanted.split_ascii_whitespace();
            let device = wanted.next();
            found.lines().any(|line| {
                let mut fields = line.split_ascii_whitespace();
                fields.next() == device
                    && wanted.clone().all(|word| fields.clone().any(|field| field == word))
            })
        }
        _ => false,
    }
}

/// `0-2,4` as a set (cpuset(7), "List format").
fn id_set(text: &str) -> Option<BTreeSet<u32>> {
    const HIGHEST: u32 = 1 << 16;
    let mut ids = BTreeSet::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: u32 = last.parse().ok().filter(|&last| last < HIGHEST)?;
        ids.extend(first.parse().ok()?..=last);
    }
    Some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_holds_if_only_its_form_differs() {
        let holds = |controller, value: &str, found: &str| {
            let write = LimitWrite { controller, file: "x".into(), value: value.into(), implied: false };
            LimitReading::new("/x".into(), &write, found).holds
        };
        use Controller::{Cpu, CpuSet, Io, Memory};
        assert!(holds(Memory, "1000000", "999424\n"), "rounded down to a page");
        assert!(!holds(Memory, "1000000", "1003520"), "more than was asked");
        assert!(!holds(Memory, "1000000", "500000"), "much less");
        assert!(holds(Memory, "-1", "9223372036854771712"));
        assert!(!holds(Memory, "-1", "4096"));
        assert!(holds(CpuSet, "0,1,2", "0-2"));
        assert!(!holds(CpuSet, "0,1", "0-2"));
        assert!(holds(Io, "8:0 wbps=5", "8:16 rbps=1\n8:0 rbps=max wbps=5 riops=max wiops=max"));
        assert!(!holds(Io, "8:0 wbps=5", "8:0 rbps=max wbps=50"));
        assert!(!holds(Cpu, "5000", "max"));
    }
}
