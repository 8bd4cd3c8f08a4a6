//! What the chosen GPUs' user sees.

use airlock_tests::skip;

use crate::{PCI, Place};

#[test]
fn the_chosen_nodes_are_there_and_let_through() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let listed = place.lists("2,5", "/dev");
    let nvidia: Vec<_> = listed.iter().filter(|name| name.starts_with("nvidia")).collect();
    assert_eq!(nvidia, ["nvidia-uvm", "nvidia-uvm-tools", "nvidia2", "nvidia5", "nvidiactl"]);
    // Nothing is behind them, and that is what the kernel says once the filter, Landlock and the mount have let it by.
    for node in nvidia {
        place.tries("2,5", ["open", &format!("/dev/{node}"), "w"]).refused(&["ENXIO"]);
    }
    let uvm = place.gpus.uvm_major();
    let numbers =
        place.prints("2,5", "stat -c '%Hr:%Lr' /dev/nvidia2 /dev/nvidia5 /dev/nvidiactl /dev/nvidia-uvm");
    assert_eq!(numbers, format!("195:2\n195:5\n195:255\n{uvm}:0\n"));
}

#[test]
fn the_driver_shows_the_chosen_gpus_alone() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    assert_eq!(place.lists("2,5", "/proc/driver/nvidia/gpus"), [PCI[2].into(), PCI[5].into()].into());
    assert_eq!(place.tries("2,5", ["list", "/proc/driver"]).done(), "nvidia");
    let script = format!(
        "grep ModifyDeviceFiles /proc/driver/nvidia/params; grep -c Kernel /proc/driver/nvidia/version
         grep Minor /proc/driver/nvidia/gpus/{}/information; touch /proc/driver/x 2>/dev/null || echo closed",
        PCI[5]
    );
    let said = place.prints("2,5", &script);
    assert_eq!(said, "ModifyDeviceFiles: 0\n1\nDevice Minor: \t 5\nclosed\n");
}

#[test]
fn the_variables_name_them_by_uuid() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let said = place
        .prints("2,5", "echo $CUDA_VISIBLE_DEVICES; echo $NVIDIA_VISIBLE_DEVICES; echo $CUDA_DEVICE_ORDER");
    let uuids = "GPU-00000002-aaaa-bbbb-cccc-000000000002,GPU-00000005-aaaa-bbbb-cccc-000000000005";
    assert_eq!(said, format!("{uuids}\n{uuids}\nPCI_BUS_ID\n"));
}

/// Both capabilities of the slice, and the card that it is of.
#[test]
fn a_slice_has_its_two_capabilities() {
    let place = match Place::new("mig") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let slice = "MIG-00000000-1111-2222-3333-000000000008";
    let caps = place.lists(slice, "/dev/nvidia-caps");
    assert_eq!(caps.len(), 2, "{caps:?}");
    for cap in &caps {
        place.tries(slice, ["open", &format!("/dev/nvidia-caps/{cap}"), "r"]).refused(&["ENXIO"]);
    }
    let said = place.prints(slice, "cat /proc/driver/nvidia-caps/mig-minors; cd /proc/driver/nvidia/capabilities; find . -type f | sort | xargs grep Modify");
    let minors = caps.iter().map(|cap| cap.trim_start_matches("nvidia-cap")).collect::<Vec<_>>();
    let expected = format!(
        "gpu0/gi8/access {}\ngpu0/gi8/ci0/access {}\n\
         ./gpu0/mig/gi8/access:DeviceFileModify: 0\n./gpu0/mig/gi8/ci0/access:DeviceFileModify: 0\n",
        minors[0], minors[1]
    );
    assert_eq!(said, expected);
}

/// CUDA names its threads through /proc, maps memory files and makes ioctls (OpenShell#1486, nono#924).
#[test]
fn what_the_library_does_besides_is_let_through() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let script = "printf cuda-worker > /proc/self/task/$$/comm && cat /proc/self/comm && cat /proc/sys/kernel/random/boot_id | wc -c";
    let said = place.prints("0", script);
    assert_eq!(said.lines().last(), Some("37"), "{said}");
}

#[test]
fn a_run_says_what_holds() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let ended = place.run("2", "").end(["/bin/true"]).succeeded();
    let text = format!("{:?}", ended.report());
    assert!(text.contains("/proc/driver"), "{text}");
    if place.site.caller().is_root() && place.site.limits() {
        assert!(text.contains("c 195:2 rw") || text.contains("program(s) attached"), "{text}");
    }
}
