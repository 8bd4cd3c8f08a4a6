//! What a sandbox used, as its cgroup counted it.

use super::error::CgroupError;
use super::facts::{Controller, Version};
use super::group::Cgroup;
use super::tree::Tree;

/// Counters since the cgroup was made; absent where the kernel does not tell, or the tree is not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupStats {
    /// Highest memory use in bytes, page cache included (v2: Linux 5.19).
    pub memory_peak: Option<u64>,
    /// Processes killed because the memory limit was reached. v1 counts this directory only.
    pub oom_kills: Option<u64>,
    /// Times the memory limit was reached and reclaim failed (v2 only).
    pub oom_events: Option<u64>,
    /// Highest number of tasks at once (Linux 6.1).
    pub pids_peak: Option<u64>,
    /// Forks refused by the pids limit.
    pub pids_max_events: Option<u64>,
    /// CPU time in nanoseconds.
    pub cpu_usage_ns: Option<u64>,
    /// CPU time in user mode, in nanoseconds.
    pub cpu_user_ns: Option<u64>,
    /// CPU time in the kernel, in nanoseconds.
    pub cpu_system_ns: Option<u64>,
    /// Bytes read from block devices.
    pub io_read_bytes: Option<u64>,
    /// Bytes written to block devices.
    pub io_written_bytes: Option<u64>,
}

impl Cgroup {
    /// Reads each counter in the one tree that keeps it; to be called before [`Cgroup::remove`].
    pub fn stats(&self) -> Result<CgroupStats, CgroupError> {
        let mut stats = CgroupStats::default();
        for tree in &self.trees {
            let v2 = tree.version == Version::V2;
            for controller in &tree.controllers {
                match (controller, tree.version) {
                    (Controller::Memory, Version::V1) => {
                        stats.memory_peak = number(tree, "memory.max_usage_in_bytes")?;
                        stats.oom_kills = keyed(tree, "memory.oom_control", ["oom_kill"])?[0];
                    }
                    (Controller::Memory, Version::V2) => {
                        stats.memory_peak = number(tree, "memory.peak")?;
                        [stats.oom_kills, stats.oom_events] =
                            keyed(tree, "memory.events", ["oom_kill", "oom"])?;
                    }
                    (Controller::Pids, _) => {
                        stats.pids_peak = number(tree, "pids.peak")?;
                        stats.pids_max_events = keyed(tree, "pids.events", ["max"])?[0];
                    }
                    (Controller::CpuAcct, Version::V1) => {
                        stats.cpu_usage_ns = number(tree, "cpuacct.usage")?;
                        stats.cpu_user_ns = number(tree, "cpuacct.usage_user")?;
                        stats.cpu_system_ns = number(tree, "cpuacct.usage_sys")?;
                    }
                    (Controller::Io, _) => {
                        let file = if v2 { "io.stat" } else { "blkio.throttle.io_service_bytes_recursive" };
                        let (read, written) = io_bytes(&optional(tree, file)?.unwrap_or_default());
                        (stats.io_read_bytes, stats.io_written_bytes) = (Some(read), Some(written));
                    }
                    _ => {}
                }
            }
            if v2 {
                // The v2 core keeps CPU time without any controller, on hybrid hosts too.
                let times = keyed(tree, "cpu.stat", ["usage_usec", "user_usec", "system_usec"])?;
                [stats.cpu_usage_ns, stats.cpu_user_ns, stats.cpu_system_ns] =
                    times.map(|time| time.map(|usec| usec.saturating_mul(1000)));
            }
        }
        Ok(stats)
    }
}

/// A file's text, or none if this kernel has no such file.
fn optional(tree: &Tree, file: &str) -> Result<Option<String>, CgroupError> {
    match tree.read(file) {
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
        text => text.map(Some),
    }
}

fn number(tree: &Tree, file: &str) -> Result<Option<u64>, CgroupError> {
    Ok(optional(tree, file)?.and_then(|text| text.trim().parse().ok()))
}

fn keyed<const N: usize>(tree: &Tree, file: &str, keys: [&str; N]) -> Result<[Option<u64>; N], CgroupError> {
    let text = optional(tree, file)?.unwrap_or_default();
    Ok(keys.map(|key| value_of(&text, key)))
}

/// The number after `key` in a flat keyed file.
fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Bytes read and written over all devices, from `8:0 Read 4096` (v1) or `8:0 rbytes=4096 wbytes=0 …` (v2).
fn io_bytes(text: &str) -> (u64, u64) {
    let (mut read, mut written) = (0_u64, 0_u64);
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        for (index, word) in words.iter().enumerate() {
            let number = |text: Option<&&str>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
            match word.split_once('=') {
                Some(("rbytes", bytes)) => read = read.saturating_add(number(Some(&bytes))),
                Some(("wbytes", bytes)) => written = written.saturating_add(number(Some(&bytes))),
                None if *word == "Read" => read = read.saturating_add(number(words.get(index + 1))),
                None if *word == "Write" => written = written.saturating_add(number(words.get(index + 1))),
                _ => {}
            }
        }
    }
    (read, written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_is_summed_over_devices_in_both_forms() {
        let v1 = "8:0 Read 4096\n8:0 Write 10\n8:0 Sync 1\n8:0 Total 4106\n8:16 Read 4\nTotal 4110\n";
        assert_eq!(io_bytes(v1), (4100, 10));
        assert_eq!(io_bytes("8:0 rbytes=1 wbytes=2 rios=9\n8:16 rbytes=3 wbytes=4\n"), (4, 6));
        assert_eq!(io_bytes("8:0\nRead\nx rbytes= Write -1\n"), (0, 0));
    }

    #[test]
    fn keys_are_whole_words() {
        let text = "oom 1\noom_kill 2\noom_group_kill 3\n";
        assert_eq!(value_of(text, "oom"), Some(1));
        assert_eq!(value_of(text, "oom_kill"), Some(2));
        assert_eq!(value_of(text, "oom_k"), None);
    }
}
