//! What a sandbox with GPUs gets, to the last node, on a host with eight of them that is described here.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::*;
use crate::gpu::cdi::{Document, Found, Library};
use crate::gpu::facts::{Clocks, Driver, Gpu, Health, Instance};
use crate::gpu::ldcache::{Entry as Cached, NATIVE};
use crate::gpu::{Chosen, GpuHost, Selection};

const VERSION: &str = "550.54.15";

/// The GPU with this index. Minor numbers run the other way than indices, as they may.
fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        uuid: format!("GPU-{index:08x}-0000-0000-0000-000000000000"),
        name: "NVIDIA H100 80GB HBM3".into(),
        pci: pci(index),
        minor: 7 - index,
        memory_total: 85_520_809_984,
        memory_used: 0,
        mig: None,
        processes: Vec::new(),
        health: Health::default(),
        clocks: Clocks::default(),
        persistence: true,
    }
}

fn pci(index: u32) -> String {
    format!("0000:{:02x}:00.0", 0x18 + 0x10 * index)
}

fn slice(gi: u32, ci: u32) -> Instance {
    Instance {
        uuid: format!("MIG-{gi:04}{ci:04}-0000-0000-0000-000000000000"),
        gi,
        ci,
        profile: "1g.10gb".into(),
        memory_total: 10 << 30,
        memory_used: 0,
    }
}

fn selection(gpus: impl IntoIterator<Item = (u32, Option<Instance>)>) -> Selection {
    let driver = Driver { version: VERSION.into(), cuda: (12, 4), nvml: format!("12.{VERSION}") };
    let chosen = |(index, instance)| Chosen { gpu: gpu(index), instance };
    Selection { driver, gpus: gpus.into_iter().map(chosen).collect() }
}

/// A host with eight GPUs, two of them cut into slices, and every part of the driver that there is.
fn gpu_host() -> GpuHost {
    let mut host = GpuHost::default();
    let majors = [
        ("nvidia", 195),
        ("nvidia-uvm", 508),
        ("nvidia-caps", 510),
        ("nvidia-fs", 505),
        ("gdrdrv", 504),
        ("nvidia-caps-imex-channels", 503),
        ("kfd", 502),
        ("drm", 226),
    ];
    host.majors = majors.map(|(driver, major)| (driver.into(), major)).into();
    let mut node = |path: String, major, minor| {
        host.nodes.insert(path.into(), (major, minor));
    };
    for minor in 0..8 {
        node(format!("/dev/nvidia{minor}"), 195, minor);
        node(format!("/dev/dri/renderD{}", 128 + minor), 226, 128 + minor);
        node(format!("/dev/dri/card{minor}"), 226, minor);
    }
    for (name, major, minor) in [
        ("nvidiactl", 195, 255),
        ("nvidia-modeset", 195, 254),
        ("nvidia-uvm", 508, 0),
        ("nvidia-uvm-tools", 508, 1),
        ("nvidia-fs0", 505, 0),
        ("nvidia-fs1", 505, 1),
        ("gdrdrv", 504, 0),
        ("nvidia-caps-imex-channels/channel0", 503, 0),
        ("nvidia-caps-imex-channels/channel1", 503, 1),
        ("kfd", 502, 0),
    ] {
        node(format!("/dev/{name}"), major, minor);
    }
    (1..40).for_each(|minor| node(format!("/dev/nvidia-caps/nvidia-cap{minor}"), 510, minor));
    let mut text = |path: String, text: String| {
        host.texts.insert(path.into(), text);
    };
    let driver = "/proc/driver/nvidia";
    text(format!("{driver}/params"), "ModifyDeviceFiles: 1\nDeviceFileMode: 438\n".into());
    text(format!("{driver}/version"), format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}\n"));
    text(format!("{driver}/registry"), "Binary: \"\"\n".into());
    text("/sys/module/nvidia/version".into(), format!("{VERSION}\n"));
    let mut minors = String::from("config 1\nmonitor 2\n");
    for index in 0..8 {
        let (minor, pci) = (7 - index, pci(index));
        let said = format!("Model: \t\t NVIDIA H100\nBus Location: \t {pci}\nDevice Minor: \t {minor}\n");
        text(format!("{driver}/gpus/{pci}/information"), said);
        let root = format!("/sys/devices/pci0000:{:02x}", 0x10 + 0x10 * index);
        let bridge = format!("{root}/0000:{:02x}:01.0", 0x10 + 0x10 * index);
        for place in [bridge.clone(), format!("{bridge}/{pci}")] {
            text(format!("{place}/class"), "0x030200\n".into());
            text(format!("{place}/numa_node"), format!("{}\n", index / 4));
        }
        text(format!("/sys/devices/system/node/node{}/cpumap", index / 4), "ff\n".into());
        let link = format!("/sys/bus/pci/devices/{pci}");
        text(format!("{link}/drm/renderD{}/dev", 128 + index), format!("226:{}\n", 128 + index));
        host.links.insert(link.into(), format!("{bridge}/{pci}").into());
        let bus = pci.rsplit_once(':').unwrap().0;
        text(format!("{bridge}/pci_bus/{bus}/cpuaffinity"), "ff\n".into());
        host.links
            .insert(format!("/sys/class/pci_bus/{bus}").into(), format!("{bridge}/pci_bus/{bus}").into());
        if index > 1 {
            continue;
        }
        let card = format!("{driver}/capabilities/gpu{minor}/mig");
        for (gi, first) in [(1, 10), (2, 13)] {
            for (place, capability) in
                [(String::new(), first), ("/ci0".into(), first + 1), ("/ci1".into(), first + 2)]
            {
                let capability = capability + 10 * index;
                let _ = writeln!(minors, "gpu{minor}/gi{gi}{place}/access {capability}");
                let said =
                    format!("DeviceFileMinor: {capability}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
                text(format!("{card}/gi{gi}{place}/access"), said);
            }
        }
    }
    text("/proc/driver/nvidia-caps/mig-minors".into(), minors);
    for (stem, soname) in [
        ("libcuda", "libcuda.so.1"),
        ("libcuda", "libcuda.so"),
        ("libnvidia-ml", "libnvidia-ml.so.1"),
        ("libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1"),
        ("libGLX_nvidia", "libGLX_nvidia.so.0"),
        ("libnvidia-encode", "libnvidia-encode.so.1"),
    ] {
        let path = format!("/lib/x86_64-linux-gnu/{soname}");
        let file = format!("/usr/lib/x86_64-linux-gnu/{stem}.so.{VERSION}");
        host.files.insert((&path).into(), file.into());
        host.cache.push(Cached { soname: soname.into(), path, flags: NATIVE, hwcap: 0 });
    }
    for file in ["/usr/bin/nvidia-smi", "/usr/bin/nvidia-cuda-mps-control"] {
        host.files.insert(file.into(), file.into());
    }
    let gsp = format!("/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin");
    host.files.insert((&gsp).into(), format!("/usr{gsp}").into());
    host.root_cache =
        vec![Cached { soname: "libc.so.6".into(), path: "/lib/libc.so.6".into(), flags: NATIVE, hwcap: 0 }];
    host.sockets =
        ["/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket", "/run/vendor.sock"]
            .map(PathBuf::from)
            .into();
    host.cdi = cdi();
    host
}

/// What a toolkit writes for the host, hooks and a service's socket included.
fn cdi() -> Library {
    let document = json!({
        "cdiVersion": "0.5.0",
        "kind": "vendor.com/gpu",
        "containerEdits": {
            "env": ["VENDOR_VISIBLE_DEVICES=void"],
            "deviceNodes": [{ "path": "/dev/nvidiactl" }],
            "mounts": [
                { "hostPath": "/usr/lib/libvendor.so.1", "containerPath": "/usr/lib/libvendor.so.1", "options": ["ro", "nosuid", "rbind"] },
                { "hostPath": "/srv/vendor", "containerPath": "/vendor", "options": ["ro"] },
                { "hostPath": "/run/vendor.sock", "containerPath": "/run/vendor.sock", "options": ["ro"] },
            ],
            "hooks": [{ "hookName": "createContainer", "path": "/usr/bin/vendor-hook", "args": ["vendor-hook", "ldcache"] }],
        },
        "devices": [
            { "name": "0", "containerEdits": { "deviceNodes": [{ "path": "/dev/nvidia0", "major": 195, "minor": 0 }] } },
            { "name": "wrong", "containerEdits": { "deviceNodes": [{ "path": "/dev/nvidia0", "major": 195, "minor": 1 }] } },
        ],
    });
    let document: Document = serde_json::from_value(document).unwrap();
    Library { documents: vec![Found { path: "/etc/cdi/vendor.json".into(), priority: 0, document }] }
}

/// Facts of a caller on that host, with this choice.
fn chosen(facts: HostFacts, selection: Option<Selection>) -> HostFacts {
    let mut facts = HostFacts { gpu: selection, gpu_host: Some(gpu_host()), ..facts };
    let firmware = format!("/usr/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin");
    let host = gpu_host();
    let files = host.files.values().map(|path| path.to_str().unwrap());
    for path in files.chain([firmware.as_str(), "/srv/vendor"]) {
        facts = having(facts, path, SourceFacts { uid: 0, gid: 0, ..file(FileKind::File) });
    }
    for path in &host.sockets {
        facts =
            having(facts, path.to_str().unwrap(), SourceFacts { uid: 0, gid: 0, ..file(FileKind::Socket) });
    }
    having(facts, "/image", directory((0, 0)))
}

/// A spec that asks for GPUs so; `root` is the kind of its root.
fn asking(root: &Value, gpu: &Value) -> Spec {
    spec(|spec| {
        spec["airlock"]["gpu"] = gpu.clone();
        spec["airlock"]["root"] = root.clone();
        spec["oci"]["process"]["env"] = json!(["PATH=/usr/bin:/bin"]);
        let run = mount("tmpfs", "/run", &["nosuid", "nodev", "mode=755"]);
        spec["oci"]["mounts"].as_array_mut().unwrap().push(run);
        if root["kind"] == "dir" {
            spec["airlock"]["skeleton"] = json!([]);
            let mounts = spec["oci"]["mounts"].as_array_mut().unwrap();
            mounts.retain(|mount| mount["destination"] != "/usr");
        }
    })
}

/// What a plan gives beyond that of the same spec without GPUs: nodes, mounts, files, variables, filter and Landlock.
fn gives(spec: &Spec, facts: &HostFacts) -> String {
    let mut without = spec.clone();
    without.airlock.gpu = None;
    let (before, after) = (planned(&without, facts), planned(spec, facts));
    // Numbers of mounts depend on what else there is.
    let lines = |plan: &Plan| -> Vec<String> {
        let steps = plan.host.iter().chain(&plan.child).filter(|step| {
            !matches!(step.action, Action::HandOver { .. } | Action::Receive { .. } | Action::Seal { .. })
        });
        steps.map(|step| step.to_string()).collect()
    };
    let old: BTreeSet<String> = lines(&before).into_iter().collect();
    let mut shown = String::new();
    for line in lines(&after).into_iter().filter(|line| !old.contains(line)) {
        let _ = writeln!(shown, "{line}");
    }
    for variable in after.payload.env.iter().filter(|variable| !before.payload.env.contains(variable)) {
        let _ = writeln!(shown, "env {variable}");
    }
    let mounts = after.expect.mounts.iter().filter(|mount| !before.expect.mounts.contains(mount));
    for mount in mounts {
        let _ = writeln!(shown, "expected {}{} {:?}", mount.target.display(), mount.flags, mount.file_system);
    }
    shown
}

/// Compares with the file of this name; with `AIRLOCK_BLESS` set the file is written.
fn snapshot(name: &str, shown: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/plan/tests/gpu/{name}.txt"));
    if std::env::var_os("AIRLOCK_BLESS").is_some() {
        std::fs::write(&file, shown).unwrap();
    }
    assert_eq!(shown, std::fs::read_to_string(&file).unwrap_or_default(), "\n{shown}");
}

fn host_root() -> Value {
    json!({ "kind": "host" })
}

fn two() -> Selection {
    selection([(2, None), (5, None)])
}

#[test]
fn two_whole_gpus_under_the_hosts_programs() {
    let spec = asking(&host_root(), &json!({ "count": 2 }));
    snapshot("two.root", &gives(&spec, &chosen(root(), Some(two()))));
    snapshot("two.user", &gives(&spec, &chosen(user(), Some(two()))));
}

/// An image has no driver: libraries, tools and firmware come in, with the links and the loader's cache that the host
/// makes.
#[test]
fn a_gpu_in_a_root_that_is_a_directory() {
    let spec = asking(&json!({ "kind": "dir", "path": "/image" }), &json!({ "count": 1 }));
    let facts = chosen(root(), Some(selection([(0, None)])));
    snapshot("directory", &gives(&spec, &facts));
    let plan = planned(&spec, &facts);
    let cache = plan.child.iter().find_map(|step| match &step.action {
        Action::Make { path, entry: Entry::File { content, .. }, .. } if path.ends_with("ld.so.cache") => {
            Some(content)
        }
        _ => None,
    });
    let entries = crate::gpu::ldcache::parse(cache.unwrap()).unwrap();
    let found =
        |soname: &str| entries.iter().find(|entry| entry.soname == soname).map(|entry| entry.path.as_str());
    assert_eq!(found("libcuda.so.1"), Some("/usr/local/nvidia/lib64/libcuda.so.1"));
    assert_eq!(found("libc.so.6"), Some("/lib/libc.so.6"), "what the root has stays");
}

/// Both capabilities of each slice, and of no other (dra-driver#787).
#[test]
fn slices_of_one_gpu() {
    let spec = asking(&host_root(), &json!({ "devices": ["MIG-1", "MIG-2"] }));
    let slices = selection([(0, Some(slice(1, 0))), (0, Some(slice(1, 1)))]);
    snapshot("slices", &gives(&spec, &chosen(root(), Some(slices))));
}

#[test]
fn graphics_and_every_feature_on_request() {
    let gpu = json!({
        "count": 1,
        "capabilities": ["compute", "utility", "graphics", "video"],
        "features": ["gdrcopy", "gds", "imex", "persistenced", "fabricmanager"],
    });
    snapshot(
        "everything",
        &gives(&asking(&host_root(), &gpu), &chosen(root(), Some(selection([(3, None)])))),
    );
}

#[test]
fn render_nodes_of_other_vendors() {
    let spec = asking(&host_root(), &json!({ "nodes": ["/dev/kfd", "/dev/dri/renderD129"] }));
    snapshot("render", &gives(&spec, &chosen(root(), None)));
    for node in
        ["/dev/dri/card0", "/dev/nvidia0", "/dev/mem", "/dev/dri/renderD1", "/dev/dri/renderD128/../card0"]
    {
        let spec = asking(&host_root(), &json!({ "nodes": [node] }));
        assert!(refusal(&spec, &chosen(root(), None)).contains("is not a render node"), "{node}");
    }
}

/// A render node is a way to a GPU that somebody else may have a lease of.
#[test]
fn a_render_node_of_nvidias_is_not_given_without_a_lease() {
    let spec = asking(&host_root(), &json!({ "nodes": ["/dev/dri/renderD129"] }));
    let with = |vendor: &str| {
        let mut facts = chosen(root(), None);
        let host = facts.gpu_host.as_mut().unwrap();
        host.texts.insert("/sys/class/drm/renderD129/device/vendor".into(), format!("{vendor}\n"));
        facts
    };
    gives(&spec, &with("0x1002"));
    assert!(refusal(&spec, &with("0x10de")).contains("is of an NVIDIA GPU"));
}

#[test]
fn a_device_of_a_cdi_document() {
    let gpu = |skip: bool| json!({ "cdi": ["vendor.com/gpu=0"], "skip_hooks": skip });
    let spec = asking(&host_root(), &gpu(true));
    snapshot("cdi", &gives(&spec, &chosen(root(), None)));
    let refused = refusal(&asking(&host_root(), &gpu(false)), &chosen(root(), None));
    assert!(refused.contains("wants /usr/bin/vendor-hook of the host to be run"), "{refused}");
    for (name, why) in [
        ("vendor.com/gpu=wrong", "/dev/nvidia0 is device 195:0, and should be 195:1"),
        ("vendor.com/gpu=9", "there is no such device"),
        ("other.com/gpu=0", "has devices of the kind other.com/gpu; there is vendor.com/gpu"),
        ("vendor", "is not the name of a CDI device"),
    ] {
        let spec = asking(&host_root(), &json!({ "cdi": [name], "skip_hooks": true }));
        let refused = refusal(&spec, &chosen(root(), None));
        assert!(refused.contains(why), "{refused}");
    }
}

/// Every way in which the host can be otherwise than the driver says ends the plan, with the remedy.
#[test]
fn what_is_not_exactly_so_is_refused() {
    let spec = asking(&host_root(), &json!({ "count": 1 }));
    let one = || selection([(0, Some(slice(1, 0)))]);
    let refused = |edit: &dyn Fn(&mut GpuHost)| {
        let mut facts = chosen(root(), Some(one()));
        edit(facts.gpu_host.as_mut().unwrap());
        refusal(&spec, &facts)
    };
    planned(&spec, &chosen(root(), Some(one())));
    let node = |path: &'static str, number| {
        move |host: &mut GpuHost| {
            host.nodes.insert(path.into(), number);
        }
    };
    let lacks = |name: &'static str| {
        move |host: &mut GpuHost| {
            host.nodes.remove(Path::new(name));
            host.texts.remove(Path::new(name));
            host.majors.remove(name);
        }
    };
    type Edit<'a> = &'a dyn Fn(&mut GpuHost);
    let cases: [(Edit, &str); 12] = [
        (&node("/dev/nvidia7", (195, 3)), "/dev/nvidia7 is device 195:3, and should be 195:7"),
        (&node("/dev/nvidia-uvm", (195, 0)), "/dev/nvidia-uvm is device 195:0, and should be 508:0"),
        (&node("/dev/nvidia-caps/nvidia-cap10", (195, 0)), "should be 510:10"),
        (&lacks("/dev/nvidiactl"), "`nvidia-modprobe -c 255`, as root"),
        (&lacks("/dev/nvidia-caps/nvidia-cap11"), "capabilities/gpu7/mig/gi1/ci0/access`"),
        (&lacks("nvidia-uvm"), "no driver nvidia-uvm: `nvidia-modprobe -u -c0`, as root"),
        (&lacks("nvidia"), "no driver nvidia: "),
        (&|host| host.texts.clear(), "lists no capability gpu7/gi1/access"),
        (&lacks("/proc/driver/nvidia/params"), "params is not there"),
        (
            &|host| {
                let text = "Device Minor: \t 0\n".into();
                host.texts.insert("/proc/driver/nvidia/gpus/0000:18:00.0/information".into(), text);
            },
            "says minor number 0 of a GPU that was chosen as 7",
        ),
        (&|host| host.cache.clear(), "no libcuda.so of version 550.54.15"),
        (
            &|host| host.files.values_mut().for_each(|file| *file = "/usr/lib/libcuda.so.551.00".into()),
            "libcuda.so.551.00 is not of version 550.54.15",
        ),
    ];
    for (edit, why) in cases {
        let refused = refused(edit);
        assert!(refused.starts_with("gpu: ") && refused.contains(why), "{refused}");
    }
}

#[test]
fn nothing_is_given_that_nobody_chose() {
    let spec = asking(&host_root(), &json!({ "count": 1 }));
    assert!(refusal(&spec, &chosen(root(), None)).contains("none was chosen"));
    assert!(refusal(&spec, &root()).contains("was not looked at"));
    let service = asking(&host_root(), &json!({ "count": 1, "features": ["mps"] }));
    let refused = refusal(&service, &chosen(root(), Some(two())));
    assert!(refused.contains("mps is asked for, and /tmp/nvidia-mps/control is not a socket"), "{refused}");
    let word = asking(&host_root(), &json!({ "count": 1, "capabilities": ["all"] }));
    assert!(refusal(&word, &chosen(root(), Some(two()))).contains("capability \"all\" is not known"));
}

/// No tmpfs but Airlock's own covers anything of the kernel's.
#[test]
fn two_places_of_the_kernels_may_be_covered_and_no_other() {
    for target in ["/proc/self", "/proc/driver/nvidia", "/sys/kernel", "/proc"] {
        let spec = with_mounts([mount("tmpfs", target, &["ro"])]);
        assert!(compile(&spec, &root()).is_err(), "{target}");
    }
    let spec = with_mounts([bind("/usr", "/proc/driver", &["ro"])]);
    assert!(compile(&spec, &root()).is_err());
}
