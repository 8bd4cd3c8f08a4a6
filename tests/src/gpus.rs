//! A host with NVIDIA GPUs, as far as a test needs one: the stand-in for NVIDIA's library (`tests/fakes/nvml`), driver
//! libraries, `/proc/driver/nvidia` and device nodes with the numbers that the real ones have, in a mount namespace of a
//! test's own. Nothing answers behind the nodes: opening one that is allowed gives ENXIO, one that is denied EPERM.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::Value;

/// Where the loader looks, and where the stand-in finds its scenario.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
/// Of `nvidia` and `nvidiactl`: assigned (devices.txt).
const MAJOR: u64 = 195;
const VERSION: &str = "550.54.15";

/// The host's files.
#[derive(Debug)]
pub struct Gpus {
    folder: tempfile::TempDir,
    script: String,
    uvm: u64,
    caps: u64,
}

impl Gpus {
    /// A host as `tests/fakes/nvml/scenarios/NAME.json` has it; why there is none, if the tests cannot make one.
    pub fn new(scenario: &str) -> Result<Gpus, String> {
        if !crate::is_root() {
            return Err("only root can put a stand-in into the loader's path and make device nodes".into());
        }
        if !Path::new(LIBRARIES).is_dir() {
            return Err(format!("the stand-in's place {LIBRARIES} is a Debian's"));
        }
        let folder =
            tempfile::Builder::new().prefix("airlock-gpus-").tempdir_in("/tmp").expect("a directory");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
        let [uvm, caps] = free_majors();
        let mut gpus = Gpus { folder, script: String::new(), uvm, caps };
        for name in
            ["lib/airlock-fake-nvml", "scenario", "dev/nvidia-caps", "proc/nvidia/gpus", "proc/nvidia-caps"]
        {
            fs::create_dir_all(gpus.path(name)).expect("own directory");
        }
        fs::create_dir(gpus.path("leases")).expect("own directory");
        fs::set_permissions(gpus.path("leases"), fs::Permissions::from_mode(0o700)).expect("own directory");
        gpus.libraries();
        gpus.become_(scenario);
        gpus.nodes().map_err(|error| format!("device nodes cannot be made here: {error}"))?;
        gpus.proc();
        gpus.cache();
        let driver = [
            format!("mount --bind {} /proc/driver", gpus.path("proc").display()),
            format!("mount --bind {} /proc/devices", gpus.path("devices").display()),
            // The GPUs of every test have the same names; leases of one test are no other's.
            format!(
                "mkdir -p -m 700 /run/airlock/gpus\nmount --bind {} /run/airlock/gpus",
                gpus.path("leases").display()
            ),
        ];
        gpus.script = format!("{}\n{}", gpus.library_script(), driver.join("\n"));
        let dev = gpus.path("dev").display().to_string();
        let _ = write!(
            gpus.script,
            "\nmkdir -p {dev}/pts {dev}/shm\nmount -t overlay -o ro,lowerdir={dev}:/dev overlay {dev}\n\
             for place in pts shm; do mount --rbind /dev/$place {dev}/$place; done\nmount --rbind {dev} /dev",
        );
        Ok(gpus)
    }

    /// What makes a mount namespace this host's; for [`crate::Run::where_root_did`].
    pub fn script(&self) -> &str {
        &self.script
    }

    /// The same with the library alone. A kernel refuses a user's new `/proc` where anything covers a part of the old.
    pub fn library_script(&self) -> String {
        let path = |name: &str| self.path(name).display().to_string();
        format!(
            "mount -t overlay -o ro,lowerdir={}:{LIBRARIES} overlay {LIBRARIES}\n\
             mount --bind {} {LIBRARIES}/airlock-fake-nvml\nmount --bind {} /etc/ld.so.cache",
            path("lib"),
            path("scenario"),
            path("ld.so.cache"),
        )
    }

    /// Lets the host be another one from now on, for the library.
    pub fn become_(&self, scenario: &str) {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("fakes/nvml/scenarios");
        self.put(&fs::read_to_string(place.join(format!("{scenario}.json"))).expect("a scenario"));
    }

    /// Changes what the library says from now on.
    pub fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut value = self.scenario();
        change(&mut value);
        self.put(&value.to_string());
    }

    /// Number of `nvidia-uvm`, which a kernel gives out when the module is loaded.
    pub fn uvm_major(&self) -> u64 {
        self.uvm
    }

    /// Number of `nvidia-caps`, likewise.
    pub fn caps_major(&self) -> u64 {
        self.caps
    }

    /// What stands for `/proc/devices`.
    pub fn devices(&self) -> PathBuf {
        self.path("devices")
    }

    /// A program that says which GPUs the library shows to it.
    pub fn count() -> &'static Path {
        Path::new(concat!(env!("OUT_DIR"), "/nvml-count"))
    }

    /// A node of that host, by its name in `/dev`.
    pub fn node(&self, name: &str) -> PathBuf {
        self.path("dev").join(name)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn scenario(&self) -> Value {
        let text = fs::read_to_string(self.path("scenario/scenario.json")).expect("own file");
        serde_json::from_str(&text).expect("a scenario")
    }

    /// At once: the library may be reading.
    fn put(&self, text: &str) {
        fs::write(self.path("scenario/new"), text).expect("own file");
        fs::rename(self.path("scenario/new"), self.path("scenario/scenario.json")).expect("own file");
    }

    fn libraries(&self) {
        let names = ["libnvidia-ml", "libcuda", "libnvidia-ptxjitcompiler", "libnvidia-glcore"];
        for name in names {
            let built = Path::new(env!("OUT_DIR")).join(format!("{name}.so.1"));
            fs::copy(built, self.path(&format!("lib/{name}.so.{VERSION}"))).expect("own file");
            symlink(format!("{name}.so.{VERSION}"), self.path(&format!("lib/{name}.so.1")))
                .expect("own file");
        }
    }

    /// The loader's cache with the driver's libraries in it.
    fn cache(&self) {
        let cache = self.path("ld.so.cache").display().to_string();
        fs::copy("/etc/ld.so.cache", &cache).expect("own file");
        let script = format!("{}\n/sbin/ldconfig -X -C {cache}.new", self.library_script());
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "bash", "-ec", &script]);
        assert!(command.status().expect("unshare").success(), "making a loader's cache");
        fs::rename(format!("{cache}.new"), cache).expect("own file");
    }

    fn nodes(&self) -> nix::Result<()> {
        let node = |name: &str, major, minor| {
            let path = self.path("dev").join(name);
            mknod(&path, SFlag::S_IFCHR, Mode::empty(), makedev(major, minor))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("own file");
            Ok::<(), nix::Error>(())
        };
        node("nvidiactl", MAJOR, 255)?;
        node("nvidia-modeset", MAJOR, 254)?;
        node("nvidia-uvm", self.uvm, 0)?;
        node("nvidia-uvm-tools", self.uvm, 1)?;
        for (index, gpu) in list(&self.scenario(), "gpus").iter().enumerate() {
            node(&format!("nvidia{index}"), MAJOR, index as u64)?;
            for (_, minor) in capabilities(index as u64, gpu) {
                node(&format!("nvidia-caps/nvidia-cap{minor}"), self.caps, minor)?;
            }
        }
        Ok(())
    }

    fn proc(&self) {
        let write = |name: &str, text: &str| fs::write(self.path("proc").join(name), text).expect("own file");
        write(
            "nvidia/version",
            &format!(
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  Tue Mar  5 22:23:56 UTC 2024\n\
                 GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
            ),
        );
        write(
            "nvidia/params",
            "ResmanDebugLevel: 4294967295\nRmLogonRC: 1\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\n\
             DeviceFileMode: 438\nRegistryDwords: \"\"\n",
        );
        write("nvidia/registry", "Binary: \"\"\n");
        let mut minors = String::from("config 1\nmonitor 2\n");
        for (index, gpu) in list(&self.scenario(), "gpus").iter().enumerate() {
            let text = |key: &str| gpu[key].as_str().unwrap_or_default();
            fs::create_dir_all(self.path("proc/nvidia/gpus").join(text("pci"))).expect("own directory");
            write(
                &format!("nvidia/gpus/{}/information", text("pci")),
                &format!(
                    "Model: \t\t {}\nIRQ:   \t\t 100\nGPU UUID: \t {}\nVideo BIOS: \t 96.00.74.00.01\nBus Type: \t PCIe\n\
                     DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t {}\nDevice Minor: \t {index}\n\
                     GPU Excluded:\t No\n",
                    text("name"),
                    text("uuid"),
                    text("pci"),
                ),
            );
            for (place, minor) in capabilities(index as u64, gpu) {
                let (folder, below) = place.split_once('/').expect("two parts");
                let folder = format!("nvidia/capabilities/{folder}/mig/{below}");
                fs::create_dir_all(self.path("proc").join(&folder)).expect("own directory");
                write(
                    &format!("{folder}/access"),
                    &format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"),
                );
                let _ = writeln!(minors, "{place}/access {minor}");
            }
        }
        write("nvidia-caps/mig-minors", &minors);
        let devices = fs::read_to_string("/proc/devices").expect("/proc/devices");
        let ours = format!(
            "Character devices:\n{MAJOR} nvidia\n{MAJOR} nvidia-modeset\n{MAJOR} nvidiactl\n{} nvidia-uvm\n{} nvidia-caps\n",
            self.uvm, self.caps
        );
        fs::write(self.path("devices"), devices.replacen("Character devices:\n", &ours, 1))
            .expect("own file");
    }
}

/// The capabilities of a GPU's slices and their numbers, as the driver counts them.
fn capabilities(index: u64, gpu: &Value) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for slice in list(gpu, "mig") {
        let (gi, ci) = (slice["gi"].as_u64().unwrap_or(0), slice["ci"].as_u64().unwrap_or(0));
        let first = 3 + index * 135 + gi * 9;
        all.push((format!("gpu{index}/gi{gi}"), first));
        all.push((format!("gpu{index}/gi{gi}/ci{ci}"), first + 1 + ci));
    }
    all
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Two numbers of character devices behind which this kernel has nothing.
fn free_majors() -> [u64; 2] {
    let devices = fs::read_to_string("/proc/devices").unwrap_or_default();
    let taken =
        |major: &u64| devices.lines().any(|line| line.split_whitespace().next() == Some(&major.to_string()));
    let mut free = (384..=511).rev().filter(|major| !taken(major));
    [free.next().expect("a free number"), free.next().expect("a free number")]
}
