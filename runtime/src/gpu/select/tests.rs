use super::super::facts::{Clocks, Driver, GpuProcess, Health, Link, ProcessKind};
use super::*;

fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        uuid: format!("GPU-{index}1234567"),
        name: "NVIDIA H100 80GB HBM3".into(),
        pci: format!("0000:{index}5:00.0"),
        minor: index,
        memory_total: 80 << 30,
        memory_used: 0,
        mig: None,
        processes: Vec::new(),
        health: Health::default(),
        clocks: Clocks::default(),
        persistence: true,
    }
}

fn slice(gi: u32, profile: &str) -> Instance {
    Instance {
        uuid: format!("MIG-{gi}abcdef"),
        gi,
        ci: 0,
        profile: profile.into(),
        memory_total: 10 << 30,
        memory_used: 0,
    }
}

fn host(gpus: Vec<Gpu>) -> Inventory {
    let driver = Driver { version: "550.54.15".into(), cuda: (12, 4), nvml: "12.550.54.15".into() };
    Inventory { driver: Some(driver), gpus, links: Vec::new(), others: Vec::new() }
}

fn link(inventory: &mut Inventory, a: u32, b: u32, nvlinks: u32, path: PciPath) {
    inventory.links.push(Link { a, b, nvlinks, path });
}

fn count(count: u32) -> Wish {
    Wish { count: Some(count), ..Wish::default() }
}

fn devices(devices: &[&str]) -> Wish {
    Wish { devices: devices.iter().map(ToString::to_string).collect(), ..Wish::default() }
}

fn uuids(result: Result<Selection, SelectError>) -> Vec<String> {
    result.unwrap().gpus.iter().map(|chosen| chosen.uuid().to_owned()).collect()
}

fn got(inventory: &Inventory, wish: &Wish) -> Vec<u32> {
    select(inventory, wish, &Held::new()).unwrap().gpus.iter().map(|chosen| chosen.gpu.index).collect()
}

fn refusal(inventory: &Inventory, wish: &Wish) -> String {
    select(inventory, wish, &Held::new()).unwrap_err().to_string()
}

#[test]
fn a_count_takes_the_lowest_of_equals() {
    let host = host((0..4).map(gpu).collect());
    assert_eq!(got(&host, &count(1)), [0]);
    assert_eq!(got(&host, &count(3)), [0, 1, 2]);
}

#[test]
fn a_count_takes_those_that_are_bridged() {
    let mut host = host((0..4).map(gpu).collect());
    link(&mut host, 0, 1, 0, PciPath::Switch);
    link(&mut host, 0, 2, 12, PciPath::System);
    link(&mut host, 1, 3, 12, PciPath::System);
    assert_eq!(got(&host, &count(2)), [0, 2]);
    // With one of that pair taken, the other pair is whole.
    host.gpus[2].health.lost = true;
    assert_eq!(got(&host, &count(2)), [1, 3]);
    assert_eq!(got(&host, &count(1)), [0]);
}

#[test]
fn where_nvlink_is_alike_the_bus_decides() {
    let mut host = host((0..4).map(gpu).collect());
    for (a, b) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        link(&mut host, a, b, 18, if (a, b) == (1, 2) { PciPath::Node } else { PciPath::System });
    }
    assert_eq!(got(&host, &count(2)), [1, 2]);
}

#[test]
fn many_gpus_are_chosen_one_after_the_other() {
    let mut host = host((0..40).map(gpu).collect());
    link(&mut host, 0, 39, 4, PciPath::System);
    assert_eq!(got(&host, &count(3)), [0, 1, 39]);
    assert_eq!(got(&host, &count(40)).len(), 40);
}

#[test]
fn each_kind_of_name_finds_its_gpu() {
    let mut host = host((0..3).map(gpu).collect());
    host.gpus[1].name = "NVIDIA L4".into();
    host.gpus[2].pci = "0001:a5:00.0".into();
    for (device, index) in [
        ("1", 1),
        ("GPU-21234567", 2),
        ("gpu-21234567", 2),
        ("0000:15:00.0", 1),
        ("15:00.0", 1),
        ("00000001:A5:00.0", 2),
        ("l4", 1),
        ("H100", 0),
    ] {
        assert_eq!(got(&host, &devices(&[device])), [index], "{device}");
    }
    assert_eq!(got(&host, &devices(&["2", "0"])), [0, 2]);
    assert_eq!(got(&host, &devices(&["H100", "H100"])), [0, 2]);
    // What is named is not taken again for a kind.
    assert_eq!(got(&host, &devices(&["H100", "0"])), [0, 2]);
    assert_eq!(got(&host, &devices(&["all"])), [0, 1, 2]);
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let host = host(vec![gpu(0)]);
    let list = "it has 0 NVIDIA H100 80GB HBM3 GPU-01234567";
    assert_eq!(
        refusal(&host, &devices(&["A100"])),
        format!("gpu: there is no \"A100\" on this host; {list}")
    );
    assert_eq!(
        refusal(&host, &devices(&["GPU-0123"])),
        format!("gpu: there is no \"GPU-0123\" on this host; did you mean \"GPU-01234567\"?; {list}")
    );
    for device in ["1", "", "GPU-", "0:0", "MIG-0", "-1", "00"] {
        assert!(
            matches!(select(&host, &devices(&[device]), &Held::new()), Err(SelectError::Unknown { .. })),
            "{device}"
        );
    }
    assert_eq!(
        refusal(&host, &devices(&["0", "GPU-01234567"])),
        "gpu: GPU 0 (GPU-01234567) is asked for twice"
    );
    let both = Wish { count: Some(1), ..devices(&["0"]) };
    for wish in [count(0), Wish::default(), both] {
        assert_eq!(select(&host, &wish, &Held::new()), Err(SelectError::Unclear));
    }
    assert_eq!(select(&Inventory::default(), &count(1), &Held::new()), Err(SelectError::NoDriver));
}

#[test]
fn what_is_in_use_is_refused_in_words_unless_it_is_shared() {
    let mut host = host(vec![gpu(0), gpu(1)]);
    host.gpus[0].processes =
        vec![GpuProcess { pid: 4711, memory: None, kind: ProcessKind::Compute, gi: None }];
    assert_eq!(
        refusal(&host, &devices(&["0"])),
        "gpu: GPU 0 (GPU-01234567) is in use by process 4711, which is not of this sandbox"
    );
    assert_eq!(got(&host, &count(1)), [1]);
    assert_eq!(
        refusal(&host, &count(2)),
        "gpu: 2 GPUs asked for, at most 1 can be had; GPU 0 (GPU-01234567) is in use by process 4711, which is not of this \
         sandbox"
    );
    assert!(refusal(&host, &devices(&["all"])).contains("process 4711"));
    assert_eq!(got(&host, &Wish { shared: true, ..count(2) }), [0, 1]);
    // In a container the driver names no process of another; what they use is seen all the same.
    host.gpus[0].processes.clear();
    host.gpus[0].memory_used = 4 << 30;
    assert!(
        refusal(&host, &devices(&["0"])).contains("has 4096 MiB in use, by no process that the driver names")
    );
}

#[test]
fn what_is_not_sound_is_refused_even_if_it_is_shared() {
    for (health, words) in [
        (Health { lost: true, ..Health::default() }, "is not sound: lost"),
        (Health { ecc_uncorrected: Some(2), ..Health::default() }, "2 uncorrected ECC errors"),
        (Health { repair_pending: true, ..Health::default() }, "repaired by a reset"),
        (Health { repair_failed: true, ..Health::default() }, "worn out"),
    ] {
        let mut host = host(vec![gpu(0)]);
        host.gpus[0].health = health;
        let wish = Wish { shared: true, ..devices(&["0"]) };
        assert!(refusal(&host, &wish).contains(words), "{words}");
    }
    // Errors that were corrected, or are of an earlier life of the driver, are none.
    let mut host = host(vec![gpu(0)]);
    host.gpus[0].health = Health {
        ecc_corrected: Some(9),
        ecc_uncorrected_total: Some(3),
        ecc_uncorrected: Some(0),
        ..Health::default()
    };
    assert_eq!(got(&host, &count(1)), [0]);
}

#[test]
fn what_others_hold_is_passed_over_or_refused_with_the_holder() {
    let host = host(vec![gpu(0), gpu(1)]);
    let held = Held::from([("GPU-01234567".to_owned(), "run 7f3a, phase score".to_owned())]);
    assert_eq!(uuids(select(&host, &count(1), &held)), ["GPU-11234567"]);
    let error = select(&host, &devices(&["0"]), &held).unwrap_err().to_string();
    assert!(error.contains("is held by run 7f3a, phase score; wait until it is given back"), "{error}");
}

#[test]
fn slices_are_chosen_by_uuid_number_and_profile() {
    let mut host = host(vec![gpu(0), gpu(1)]);
    host.gpus[0].mig = Some(vec![slice(2, "3g.40gb"), slice(7, "1g.10gb"), slice(8, "1g.10gb")]);
    let one = |device: &str| uuids(select(&host, &devices(&[device]), &Held::new()));
    assert_eq!(one("MIG-7abcdef"), ["MIG-7abcdef"]);
    assert_eq!(one("0:2"), ["MIG-8abcdef"]);
    assert_eq!(one("1g.10gb"), ["MIG-7abcdef"]);
    assert_eq!(one("all"), ["MIG-2abcdef", "MIG-7abcdef", "MIG-8abcdef", "GPU-11234567"]);
    assert!(refusal(&host, &devices(&["0"])).contains("is divided into slices (MIG); ask for a slice"));
    // A count is of whole GPUs.
    assert_eq!(got(&host, &count(1)), [1]);
    assert!(
        refusal(&host, &devices(&["1g.10gb", "1g.10gb", "1g.10gb"]))
            .contains("3 of \"1g.10gb\" asked for, at most 2 can")
    );
    // Each slice has its own users.
    host.gpus[0].processes =
        vec![GpuProcess { pid: 9, memory: None, kind: ProcessKind::Compute, gi: Some(7) }];
    assert_eq!(uuids(select(&host, &devices(&["1g.10gb"]), &Held::new())), ["MIG-8abcdef"]);
    host.gpus[0].processes[0].gi = None;
    assert!(refusal(&host, &devices(&["0:2"])).contains("in use by process 9"));
}

/// Whoever has them now, and in whatever state they are.
#[test]
fn what_might_be_granted_is_known_beforehand() {
    let mut host = host(vec![gpu(0), gpu(1), gpu(2)]);
    host.gpus[0].mig = Some(vec![slice(2, "3g.40gb"), slice(7, "1g.10gb")]);
    host.gpus[1].health.lost = true;
    let of = |wish: &Wish| candidates(&host, wish).into_iter().collect::<Vec<_>>();
    let [one, two] = [1, 2].map(|index: usize| host.gpus[index].uuid.clone());
    assert_eq!(of(&count(1)), [one.clone(), two.clone()]);
    assert_eq!(of(&devices(&["2"])), std::slice::from_ref(&two));
    assert_eq!(of(&devices(&["1g.10gb", "2"])), [two.clone(), "MIG-7abcdef".into()]);
    assert_eq!(of(&devices(&["all"])), [one, two, "MIG-2abcdef".into(), "MIG-7abcdef".into()]);
    assert_eq!(of(&devices(&["A100"])), [""; 0]);
}
