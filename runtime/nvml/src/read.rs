//! What there is.

use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{PciInfo, ProcessInfo};
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};

use crate::facts::{Clocks, Driver, Gpu, GpuProcess, Health, Instance, Inventory, ProcessKind};
use crate::{links, raw};

/// The driver, its GPUs and their connections.
pub(crate) fn inventory(nvml: &Nvml) -> Result<Inventory, NvmlError> {
    let (mut gpus, mut devices) = (Vec::new(), Vec::new());
    for index in 0..nvml.device_count()? {
        match nvml.device_by_index(index) {
            Ok(device) => {
                gpus.push(gpu(&device, index)?);
                devices.push((index, device));
            }
            Err(NvmlError::GpuLost) => gpus.push(lost(index)),
            // Counted, and not for this caller: another container's.
            Err(NvmlError::NoPermission) => {}
            Err(error) => return Err(error),
        }
    }
    devices.retain(|(index, _)| gpus.iter().all(|gpu| gpu.index != *index || !gpu.health.lost));
    let links = links::links(&devices)?;
    Ok(Inventory { driver: Some(driver(nvml)?), gpus, links, others: Vec::new() })
}

fn driver(nvml: &Nvml) -> Result<Driver, NvmlError> {
    let cuda = nvml.sys_cuda_driver_version()?;
    let number = |part: i32| u32::try_from(part).unwrap_or(0);
    Ok(Driver {
        version: nvml.sys_driver_version()?,
        cuda: (number(cuda_driver_version_major(cuda)), number(cuda_driver_version_minor(cuda))),
        nvml: nvml.sys_nvml_version()?,
    })
}

/// One GPU as it is now. That it is lost is no error.
pub(crate) fn gpu(device: &Device<'_>, index: u32) -> Result<Gpu, NvmlError> {
    match whole(device, index) {
        Err(NvmlError::GpuLost) => {
            let known = lost(index);
            Ok(Gpu {
                uuid: device.uuid().unwrap_or_default(),
                name: device.name().unwrap_or(known.name),
                pci: device.pci_info().map(|info| address(&info)).unwrap_or_default(),
                minor: device.minor_number().unwrap_or(known.minor),
                ..lost(index)
            })
        }
        gpu => gpu,
    }
}

fn lost(index: u32) -> Gpu {
    Gpu {
        index,
        uuid: String::new(),
        name: String::new(),
        pci: String::new(),
        minor: u32::MAX,
        memory_total: 0,
        memory_used: 0,
        mig: None,
        processes: Vec::new(),
        health: Health { lost: true, ..Health::default() },
        clocks: Clocks::default(),
        persistence: false,
    }
}

fn whole(device: &Device<'_>, index: u32) -> Result<Gpu, NvmlError> {
    let memory = device.memory_info()?;
    let slices = slices(device)?;
    Ok(Gpu {
        index,
        uuid: device.uuid()?,
        name: device.name()?,
        pci: address(&device.pci_info()?),
        minor: device.minor_number()?,
        memory_total: memory.total,
        memory_used: memory.used,
        processes: processes(device, slices.as_deref())?,
        mig: slices.map(|slices| slices.into_iter().map(|(_, instance)| instance).collect()),
        health: health(device)?,
        clocks: clocks(device)?,
        persistence: told(device.is_in_persistent_mode())?.unwrap_or(false),
    })
}

/// `None`: MIG is off, or the GPU has none.
fn slices<'nvml>(device: &Device<'nvml>) -> Result<Option<Vec<(Device<'nvml>, Instance)>>, NvmlError> {
    const ENABLED: u32 = 1;
    match told(device.mig_mode())? {
        Some(mode) if mode.current == ENABLED => {}
        _ => return Ok(None),
    }
    let mut slices = Vec::new();
    for number in 0..device.mig_device_count()? {
        let slice = match device.mig_device_by_index(number) {
            Err(NvmlError::NotFound) => continue,
            slice => slice?,
        };
        let (gi, ci) = raw::instance_ids(&slice)?;
        let memory = slice.memory_info()?;
        let profile = profile(&slice)?;
        let uuid = slice.uuid()?;
        let instance =
            Instance { uuid, gi, ci, profile, memory_total: memory.total, memory_used: memory.used };
        slices.push((slice, instance));
    }
    slices.sort_by_key(|(_, instance)| (instance.gi, instance.ci));
    Ok(Some(slices))
}

/// A slice's name ends in `MIG 1g.10gb`; with drivers before 510 it is the GPU's own name.
fn profile(slice: &Device<'_>) -> Result<String, NvmlError> {
    let name = slice.name()?;
    if let Some((_, profile)) = name.rsplit_once("MIG ") {
        return Ok(profile.to_owned());
    }
    let attributes = slice.attributes()?;
    let gigabytes = attributes.memory_size_mb.div_ceil(1024);
    Ok(format!("{}g.{gigabytes}gb", attributes.gpu_instance_slice_count))
}

fn processes(
    device: &Device<'_>,
    slices: Option<&[(Device<'_>, Instance)]>,
) -> Result<Vec<GpuProcess>, NvmlError> {
    let mut found = processes_of(device);
    if let (Err(NvmlError::NoPermission), Some(slices)) = (&found, slices) {
        // Only root sees those of all slices at once.
        let each: Result<Vec<_>, _> = slices.iter().map(|(slice, _)| processes_of(slice)).collect();
        found = each.map(|lists| lists.concat());
    }
    let mut found = found?;
    found.sort_by_key(|process| process.pid);
    Ok(found)
}

fn processes_of(device: &Device<'_>) -> Result<Vec<GpuProcess>, NvmlError> {
    let process = |kind| {
        move |info: ProcessInfo| GpuProcess {
            pid: info.pid,
            memory: match info.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
            kind,
            gi: info.gpu_instance_id,
        }
    };
    let compute = told(device.running_compute_processes())?.unwrap_or_default();
    let graphics = told(device.running_graphics_processes())?.unwrap_or_default();
    let compute = compute.into_iter().map(process(ProcessKind::Compute));
    Ok(compute.chain(graphics.into_iter().map(process(ProcessKind::Graphics))).collect())
}

fn health(device: &Device<'_>) -> Result<Health, NvmlError> {
    let errors = |kind, counter| told(device.total_ecc_errors(kind, counter));
    let rows = told(raw::remapped_rows(device))?.unwrap_or_default();
    let pages = told(device.are_pages_pending_retired())?.unwrap_or(false);
    Ok(Health {
        lost: false,
        ecc: told(device.is_ecc_enabled())?.map(|mode| mode.currently_enabled),
        ecc_corrected: errors(MemoryError::Corrected, EccCounter::Volatile)?,
        ecc_uncorrected: errors(MemoryError::Uncorrected, EccCounter::Volatile)?,
        ecc_uncorrected_total: errors(MemoryError::Uncorrected, EccCounter::Aggregate)?,
        repair_pending: rows.pending || pages,
        repair_failed: rows.failed,
        xid: None,
    })
}

fn clocks(device: &Device<'_>) -> Result<Clocks, NvmlError> {
    Ok(Clocks {
        sm: told(device.clock_info(Clock::SM))?,
        sm_max: told(device.max_clock_info(Clock::SM))?,
        memory: told(device.clock_info(Clock::Memory))?,
        temperature: told(device.temperature(TemperatureSensor::Gpu))?,
        power: told(device.power_usage())?,
        power_limit: told(device.enforced_power_limit())?,
    })
}

/// What not every GPU, driver or caller can have is `None`.
pub(crate) fn told<T>(result: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(
            NvmlError::NotSupported
            | NvmlError::NoPermission
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::UnexpectedVariant(_),
        ) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The library writes the domain with eight digits; the kernel, with four.
pub(crate) fn address(info: &PciInfo) -> String {
    format!("{:04x}:{:02x}:{:02x}.0", info.domain, info.bus, info.device)
}
