//! Every other GPU: by path, by making a node, by a node that the host makes, by /proc, by an inherited descriptor.

use std::fs::File;
use std::io::Write;

use airlock_tests::{Gpus, Outcome, skip};
use rustix::fs::{Mode, OFlags};

use crate::{PCI, Place};

#[test]
fn no_name_leads_to_another_gpu() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    for node in ["/dev/nvidia3", "/dev/nvidia-modeset", "/dev/nvidia-caps/nvidia-cap1", "/dev/char/195:3"] {
        place.tries("2", ["open", node, "r"]).refused(&["ENOENT"]);
    }
    let other = format!("/proc/driver/nvidia/gpus/{}/information", PCI[3]);
    place.tries("2", ["read", &other]).refused(&["ENOENT"]);
    // For the one who has it there is nothing in the way but the missing driver.
    place.tries("3", ["open", "/dev/nvidia3", "r"]).refused(&["ENXIO"]);
    place.tries("3", ["read", &other]).done();
    place.tries("2", ["read", &format!("/proc/1/root{other}")]).refused(&["ENOENT", "EACCES"]);
    for node in ["/dev/node", "/tmp/node"] {
        place.tries("2", ["mknod", node, "195", "3"]).refused(&["EPERM", "EACCES"]);
    }
    if place.site.caller().is_root() {
        // The numbers are not what is wrong with it.
        let node = place.site.path("node");
        place.site.outside(["mknod", node.to_str().unwrap(), "195", "3"]).done();
    }
    place.tries("2", ["unmount", "/proc/driver"]).refused(&["EPERM"]);
}

/// The filter alone. In the sandbox's own `/dev`, where devices are allowed, the host makes nodes of the chosen GPU and
/// of another.
#[test]
fn the_filter_lets_the_chosen_numbers_by_and_no_other() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let Some(group) = place.site.cgroups().filter(|_| place.site.caller().is_root()) else {
        skip!("only root filters devices, in cgroups of its own");
    };
    let open = |major: u64, minor: u64| {
        let (input, typed) = nix::unistd::pipe().unwrap();
        let script = "echo ready; read line; exec /probe/probe open /dev/extra r";
        let mut live = place.run("2", "").stdin(input).start(["/bin/sh", "-c", script]);
        live.printed("ready");
        let pid = *group.processes().first().unwrap();
        let node = format!("/proc/{pid}/root/dev/extra");
        place.site.outside(["mknod", &node, &major.to_string(), &minor.to_string()]).done();
        place.site.outside(["open", &node, "r"]).refused(&["ENXIO"]);
        File::from(typed).write_all(b"go\n").unwrap();
        let mut ended = live.end();
        ended.stdout = ended.stdout.replace("ready\n", "");
        Outcome::of(&ended)
    };
    open(195, 2).refused(&["ENXIO"]);
    open(place.gpus.uvm_major(), 1).refused(&["ENXIO"]);
    for (major, minor) in [(195, 3), (195, 254), (place.gpus.uvm_major(), 2), (place.gpus.caps_major(), 1)] {
        open(major, minor).refused(&["EPERM"]);
    }
}

/// Two sandboxes at once, each with a GPU of its own.
#[test]
fn neighbours_do_not_see_each_others() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let wait = |gpu: &str| {
        let mut live = place.run(gpu, "").start(["/bin/sh", "-c", "echo /dev/nvidia[0-9]; sleep 1"]);
        live.printed("nvidia");
        live
    };
    let (first, second) = (wait("1"), wait("6"));
    assert_eq!(first.end().succeeded().stdout, "/dev/nvidia1\n");
    assert_eq!(second.end().succeeded().stdout, "/dev/nvidia6\n");
}

#[test]
fn no_descriptor_of_another_gpu_is_inherited() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let node = place.gpus.node("nvidia3");
    let held = rustix::fs::open(node, OFlags::PATH, Mode::empty()).unwrap();
    let run = place.run("2", "").descriptor(held.try_clone().unwrap(), 9);
    run.probe(["open", "/proc/self/fd/9", "r"]).refused(&["ENOENT"]);
    // Whoever has the descriptor opens the node by it.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
    let error = File::open(path).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENXIO), "{error}");
}

/// NVIDIA's library shows a caller the GPUs whose nodes it can open; the stand-in does the same.
#[test]
fn the_library_shows_the_chosen_gpus_alone() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    place.gpus.change(|host| host["by_nodes"] = true.into());
    let folder = place.site.folder("nvml");
    std::fs::copy(Gpus::count(), folder.join("count")).unwrap();
    let mount = format!("{}:/nvml:ro,exec", folder.display());
    let shown = |gpus: &str| {
        let run = place.run(gpus, "").flag("--mount", &mount);
        run.end(["/nvml/count"])
    };
    let uuid = |index: usize| format!("GPU-{index:08x}-aaaa-bbbb-cccc-{index:012x}\n");
    assert_eq!(shown("2,5").succeeded().stdout, uuid(2) + &uuid(5));
    // Outside there are all of them, and without the clause not even the library's start succeeds.
    let all = place.site.program_where_root_did(&place.script, &folder.join("count"), [""; 0]);
    assert_eq!(all.succeeded().stdout.lines().count(), 8);
    assert_eq!(shown("").stdout, "error 4\n");
}

/// apptainer#2203: with the variable alone, whoever unsets it has all of them.
#[test]
fn a_policy_without_gpus_shows_none() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    for node in ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"] {
        place.tries("", ["open", node, "r"]).refused(&["ENOENT"]);
    }
    assert_eq!(place.tries("", ["list", "/proc/driver"]).done(), "");
}
