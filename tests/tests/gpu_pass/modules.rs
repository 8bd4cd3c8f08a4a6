//! The module of unified memory is loaded by NVIDIA's own program, which a stand-in takes the place of.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use airlock_tests::{Run, skip};

use crate::{PCI, Place};

/// A host that has not loaded `nvidia-uvm`, and whose program for that does so.
fn unloaded<'a>(place: &'a Place, program: Option<&str>) -> Run<'a> {
    let loaded = fs::read_to_string(place.gpus.devices()).unwrap();
    fs::write(place.site.path("loaded"), &loaded).unwrap();
    let without: String = loaded.split_inclusive('\n').filter(|line| !line.contains("nvidia-uvm")).collect();
    fs::write(place.gpus.devices(), without).unwrap();
    let Some(does) = program else { return place.run("2", "") };
    let folder = place.site.folder("modprobe");
    let path = folder.join("nvidia-modprobe");
    let log = place.site.path("modprobe.log");
    fs::write(&path, format!("#!/bin/sh\necho \"$* ${{HOME:-empty}}\" >> {}\n{does}\n", log.display()))
        .unwrap();
    for path in [&path, &folder] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(path, Some(0), Some(0)).unwrap();
    }
    let overlay = format!("\nmount -t overlay -o ro,lowerdir={}:/usr/bin overlay /usr/bin", folder.display());
    let run = place.site.run().policy(place.site.policy("")).flag("--gpus", PCI[2]);
    run.where_root_did(&format!("{}{overlay}", place.script))
}

#[test]
fn root_loads_it_and_an_ordinary_user_is_told_how() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let load = format!("cat {} > {}", place.site.path("loaded").display(), place.gpus.devices().display());
    let run = unloaded(&place, Some(&load));
    let log = || fs::read_to_string(place.site.path("modprobe.log")).unwrap_or_default();
    if !place.site.caller().is_root() {
        run.end(["/bin/true"]).refused(&["nvidia-uvm", "nvidia-modprobe -u -c0"]);
        assert_eq!(log(), "");
        return;
    }
    run.probe(["open", "/dev/nvidia-uvm", "w"]).refused(&["ENXIO"]);
    assert_eq!(log(), "-u -c0 empty\n", "with an empty environment");
    // It is loaded now, and nothing is run any more.
    place.tries("2", ["open", "/dev/nvidia-uvm", "w"]).refused(&["ENXIO"]);
    assert_eq!(log().lines().count(), 1);
}

#[test]
fn a_module_that_is_not_loaded_is_an_error_with_its_remedy() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let fails = unloaded(&place, Some("echo no such module; exit 1"));
    let ended = fails.end(["/bin/true"]);
    if place.site.caller().is_root() {
        ended.refused(&["/usr/bin/nvidia-modprobe: ended with exit status: 1: no such module", "see dmesg"]);
    } else {
        ended.refused(&["nvidia-modprobe -u -c0"]);
    }
    if !std::path::Path::new("/usr/bin/nvidia-modprobe").exists() {
        unloaded(&place, None).end(["/bin/true"]).refused(&["nvidia-uvm", "nvidia-modprobe -u -c0"]);
    }
}
