//! CDI documents of the host, and render nodes that a policy names.

use std::fs;

use airlock_tests::{Site, skip};

use crate::Place;

/// A host with this document in `/etc/cdi`.
fn with_document(place: &mut Place, name: &str, text: &str) {
    let etc = place.site.path("etc");
    fs::create_dir_all(etc.join("cdi")).unwrap();
    fs::write(etc.join("cdi").join(name), text).unwrap();
    place.script += &format!("\nmount -t overlay -o ro,lowerdir={}:/etc overlay /etc", etc.display());
}

const DOCUMENT: &str = "cdiVersion: '0.6.0'
kind: vendor.com/gpu
containerEdits:
  env: [VENDOR=1]
  deviceNodes: [{path: /dev/nvidiactl}]
devices:
- name: one
  containerEdits:
    deviceNodes: [{path: /dev/nvidia1, major: 195, minor: 1}]
- name: wrong
  containerEdits:
    deviceNodes: [{path: /dev/nvidia1, major: 195, minor: 2}]
- name: hooked
  containerEdits:
    hooks: [{hookName: createContainer, path: /usr/bin/env, args: [env, touch, /tmp/hooked]}]
";

#[test]
fn a_document_of_the_host_gives_what_it_says() {
    let mut place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    with_document(&mut place, "vendor.yaml", DOCUMENT);
    let run = |name: &str| place.run("", &format!("[gpu]\ncdi = [\"vendor.com/gpu={name}\"]\n"));
    let said = run("one").end(["/bin/sh", "-c", "echo /dev/nv*; echo $VENDOR"]).succeeded().stdout;
    assert_eq!(said, "/dev/nvidia1 /dev/nvidiactl\n1\n");
    run("one").probe(["open", "/dev/nvidia1", "w"]).refused(&["ENXIO"]);
    run("one").probe(["open", "/dev/nvidia2", "w"]).refused(&["ENOENT"]);
    run("one").probe(["list", "/proc/driver/nvidia/gpus"]).refused(&["ENOENT"]);
    run("one").probe(["read", "/proc/driver/nvidia/params"]).done();
    run("wrong").end(["/bin/true"]).refused(&["/dev/nvidia1 is device 195:1, and should be 195:2"]);
    run("none")
        .end(["/bin/true"])
        .refused(&["there is no such device; of this kind there are hooked, one, wrong"]);
    run("hooked").end(["/bin/true"]).refused(&["/usr/bin/env of the host", "cdi_hooks = \"skip\""]);
}

#[test]
fn what_airlock_writes_is_what_it_reads() {
    let mut place = match Place::new("mig") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let written =
        place.site.airlock_where_root_did(&place.script, ["gpu", "cdi", "--kind", "example.com/gpu"]);
    let text = written.succeeded().stdout;
    // Root writes it for the host, whoever has printed it.
    with_document(&mut place, "example.json", &text);
    fs::set_permissions(
        place.site.path("etc/cdi/example.json"),
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    let run = |name: &str| place.run("", &format!("[gpu]\ncdi = [\"example.com/gpu={name}\"]\n"));
    let list = ["/bin/sh", "-c", "echo /dev/nvidia* /dev/nvidia-caps/*"];
    let whole = run("1").end(list).succeeded().stdout;
    assert_eq!(
        whole,
        "/dev/nvidia-uvm /dev/nvidia-uvm-tools /dev/nvidia1 /dev/nvidiactl /dev/nvidia-caps/*\n"
    );
    let slice = run("MIG-00000000-1111-2222-3333-000000000007").end(list).succeeded().stdout;
    assert_eq!(slice, run("0:1").end(list).succeeded().stdout);
    assert!(slice.contains("/dev/nvidia0 ") && slice.matches("-caps/").count() == 2, "{slice}");
}

/// AMD's and Intel's GPUs are nodes of the kernel's own kind.
#[test]
fn a_render_node_is_passed_by_name() {
    let site = Site::new();
    if !airlock_tests::is_root() {
        skip!("only root makes device nodes");
    }
    // On top of the host's own /dev, so that everything else is as it was.
    let dev = site.path("dev");
    let script = format!(
        "mkdir -p {0}/dri {0}/pts {0}/shm\n\
         [ -e {0}/dri/renderD128 ] || mknod -m 666 {0}/dri/renderD128 c 226 128\n\
         [ -e {0}/dri/renderD129 ] || mknod -m 666 {0}/dri/renderD129 c 226 5\n\
         mount -t overlay -o ro,lowerdir={0}:/dev overlay {0}\n\
         for place in pts shm; do mount --rbind /dev/$place {0}/$place; done\nmount --rbind {0} /dev",
        dev.display()
    );
    let run = |node: &str| {
        let clauses = format!("[gpu]\nnodes = [\"{node}\"]\n");
        site.run().policy(site.policy(&clauses)).where_root_did(&script)
    };
    run("/dev/dri/renderD128").probe(["open", "/dev/dri/renderD128", "w"]).refused(&["ENXIO"]);
    assert_eq!(run("/dev/dri/renderD128").probe(["list", "/dev/dri"]).done(), "renderD128");
    run("/dev/dri/renderD129").end(["/bin/true"]).refused(&["is device 226:5, and should be 226:129"]);
    run("/dev/dri/renderD130").end(["/bin/true"]).refused(&["/dev/dri/renderD130 is not there"]);
}
