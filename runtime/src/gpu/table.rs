//! GPUs as text.

use std::fmt;

use super::facts::{Gpu, Inventory, Link, PciPath, Vendor};
use super::select::Held;

/// Shows GPUs, slices, who holds them, and connections as aligned lines.
pub struct Table<'a>(pub &'a Inventory, pub Option<&'a Held>);

const GIB: u64 = 1 << 30;

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inventory { driver, gpus, links, others } = self.0;
        if let Some(driver) = driver {
            let (major, minor) = driver.cuda;
            writeln!(f, "NVIDIA driver {}, CUDA {major}.{minor}, NVML {}", driver.version, driver.nvml)?;
            if gpus.is_empty() {
                writeln!(f, "no GPU that the caller may use")?;
            }
        }
        if !gpus.is_empty() {
            writeln!(f)?;
            aligned(f, &rows(gpus, self.1))?;
        }
        if gpus.len() > 1 && !links.is_empty() {
            writeln!(f)?;
            aligned(f, &matrix(gpus, links))?;
            writeln!(f, "\nNV n: n NVLinks; else the nearest common place on the bus.")?;
        }
        for device in others {
            let vendor = match device.vendor {
                Vendor::Amd => "AMD",
                Vendor::Intel => "Intel",
            };
            let nodes: Vec<String> =
                device.nodes.iter().map(|node| node.path.display().to_string()).collect();
            writeln!(f, "{vendor} {}  {}  {}", device.device, device.pci, nodes.join(" "))?;
        }
        Ok(())
    }
}

fn rows(gpus: &[Gpu], held: Option<&Held>) -> Vec<Vec<String>> {
    let holder = |uuid: &str| match held {
        Some(held) => held.get(uuid).map_or("-", String::as_str).to_owned(),
        None => "?".to_owned(),
    };
    let heads = ["GPU", "name", "PCI address", "memory", "processes", "UUID", "health", "held by"];
    let mut rows = vec![heads.map(String::from).to_vec()];
    for gpu in gpus {
        rows.push(vec![
            gpu.index.to_string(),
            or_unknown(&gpu.name),
            or_unknown(&gpu.pci),
            memory(gpu.memory_used, gpu.memory_total),
            processes(gpu, None),
            or_unknown(&gpu.uuid),
            health(gpu),
            holder(&gpu.uuid),
        ]);
        for (number, slice) in gpu.mig.iter().flatten().enumerate() {
            rows.push(vec![
                format!("{}:{number}", gpu.index),
                format!("  slice {}", slice.profile),
                format!("gi {} ci {}", slice.gi, slice.ci),
                memory(slice.memory_used, slice.memory_total),
                processes(gpu, Some(slice.gi)),
                slice.uuid.clone(),
                String::new(),
                holder(&slice.uuid),
            ]);
        }
    }
    rows
}

fn or_unknown(text: &str) -> String {
    if text.is_empty() { "?".into() } else { text.into() }
}

fn memory(used: u64, total: u64) -> String {
    if total == 0 { "?".into() } else { format!("{} of {} GiB", used.div_ceil(GIB), total / GIB) }
}

fn processes(gpu: &Gpu, gi: Option<u32>) -> String {
    let pids: Vec<String> = gpu
        .processes
        .iter()
        .filter(|process| gi.is_none() || process.gi == gi)
        .map(|process| process.pid.to_string())
        .collect();
    if pids.is_empty() { "-".into() } else { pids.join(" ") }
}

fn health(gpu: &Gpu) -> String {
    gpu.health.fault().unwrap_or_else(|| "ok".into())
}

fn matrix(gpus: &[Gpu], links: &[Link]) -> Vec<Vec<String>> {
    let mut rows =
        vec![[String::new()].into_iter().chain(gpus.iter().map(|gpu| gpu.index.to_string())).collect()];
    for one in gpus {
        let mut row = vec![one.index.to_string()];
        for other in gpus {
            let pair = (one.index.min(other.index), one.index.max(other.index));
            let link = links.iter().find(|link| (link.a, link.b) == pair);
            row.push(match link {
                _ if one.index == other.index => "-".into(),
                None => "?".into(),
                Some(Link { nvlinks: count @ 1.., .. }) => format!("NV {count}"),
                Some(link) => name(link.path).into(),
            });
        }
        rows.push(row);
    }
    rows
}

fn name(path: PciPath) -> &'static str {
    match path {
        PciPath::Board => "board",
        PciPath::Switch => "switch",
        PciPath::Switches => "switches",
        PciPath::Bridge => "bridge",
        PciPath::Node => "node",
        PciPath::System => "system",
    }
}

fn aligned(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths = vec![0; columns];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}
