//! What a phase had of GPUs, what it did with them, and how it left them.

use std::fmt::Display;

use airlock_runtime::gpu::{DeviceReport, GpuReport};

use super::html::Html;
use super::table::{Column, Row, fact, table};
use super::units::size;

const COLUMNS: [Column; 9] = [
    Column::Text("GPU"),
    Column::Text("Id"),
    Column::Number("Peak memory"),
    Column::Number("Mean use"),
    Column::Number("Energy"),
    Column::Text("Clock, MHz"),
    Column::Text("ECC corrected"),
    Column::Text("ECC uncorrected"),
    Column::Text("XID"),
];
/// Most words on the page about what was left.
const LEFT: usize = 20;

/// As [`fact`]s of the phase.
pub(super) fn facts(html: &mut Html, gpus: &GpuReport) {
    fact(html, "GPU driver", |html| {
        html.foreign(&gpus.driver);
        html.text(", CUDA ");
        html.foreign(&gpus.cuda);
    });
    if let Some(exceeded) = &gpus.exceeded {
        fact(html, "GPU limit", |html| html.foreign(exceeded));
    }
    for left in gpus.left.iter().take(LEFT) {
        fact(html, "Left on a GPU", |html| html.foreign(left));
    }
    if let Some(reset) = gpus.reset {
        fact(html, "GPUs reset", |html| html.text(if reset { "yes" } else { "no" }));
    }
}

/// One row for each GPU and slice; numbers as `before → after`.
pub(super) fn devices(html: &mut Html, gpus: &GpuReport) {
    table(html, "GPUs", &COLUMNS, |html| {
        for device in &gpus.devices {
            Row::write(html, |row| one(row, device));
        }
    });
}

fn one(row: &mut Row<'_>, device: &DeviceReport) {
    let DeviceReport { before, after, .. } = device;
    row.foreign(&device.name);
    row.cell(|html| html.element("code", &[], |html| html.foreign(&device.uuid)));
    row.number(device.memory_peak.map_or_else(String::new, size));
    row.number(device.utilisation.map_or_else(String::new, |share| format!("{share:.0}%")));
    row.number(device.energy.map_or_else(String::new, |energy| format!("{} J", energy / 1000)));
    row.text(change(before.sm_clock, after.as_ref().map(|after| after.sm_clock)));
    row.text(change(before.ecc_corrected, after.as_ref().map(|after| after.ecc_corrected)));
    row.text(change(before.ecc_uncorrected, after.as_ref().map(|after| after.ecc_uncorrected)));
    row.text(device.xids.iter().map(u64::to_string).collect::<Vec<_>>().join(", "));
}

/// Nothing where the GPU does not tell, and where the driver did not answer any more, a question mark.
fn change<T: Display>(before: Option<T>, after: Option<Option<T>>) -> String {
    let Some(before) = before else { return String::new() };
    let after = after.map_or_else(|| "?".into(), |after| after.map_or_else(String::new, |it| it.to_string()));
    format!("{before} → {after}")
}
