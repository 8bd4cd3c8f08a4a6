//! A root that is a directory: the driver's libraries come in, and the root's loader finds them.

use std::fs;
use std::path::Path;

use airlock_tests::skip;

use crate::Place;

/// A root with the loader, a C library, a program and a cache that leads astray.
fn image(place: &Place) -> std::path::PathBuf {
    let root = place.site.folder("image");
    for folder in ["lib64", "lib/x86_64-linux-gnu", "bin", "etc", "usr", "proc", "dev", "tmp", "run", "probe"]
    {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (file, target) in [
        ("/lib64/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2"),
        ("/lib/x86_64-linux-gnu/libc.so.6", "lib/x86_64-linux-gnu/libc.so.6"),
        ("/bin/cat", "bin/cat"),
        ("/sbin/ldconfig", "bin/ldconfig"),
    ] {
        fs::copy(file, root.join(target)).unwrap();
    }
    fs::write(root.join("etc/ld.so.cache"), "no cache").unwrap();
    root
}

#[test]
fn the_roots_own_loader_finds_the_hosts_driver() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let root = image(&place);
    if !Path::new("/lib64/ld-linux-x86-64.so.2").exists() {
        skip!("the root is made of a Debian's files");
    }
    let clauses = format!("[root]\nkind = \"dir\"\npath = \"{}\"\n", root.display());
    let ended = place.run("2", &clauses).end([
        "/lib64/ld-linux-x86-64.so.2",
        "--preload",
        "libcuda.so.1",
        "/bin/cat",
        "/proc/self/maps",
    ]);
    let maps = ended.succeeded().stdout;
    assert!(maps.contains("/usr/local/nvidia/lib64/libcuda.so.550.54.15"), "{maps}");
    let ended = place.run("2", &clauses).end(["/bin/ldconfig", "-p"]).succeeded();
    for library in ["libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"] {
        let line = format!("{library} (libc6,x86-64) => /usr/local/nvidia/lib64/{library}");
        assert!(ended.stdout.contains(&line), "{ended}");
    }
    assert!(!ended.stdout.contains("glcore"), "nobody asked for graphics: {ended}");
    assert_eq!(
        fs::read_to_string(root.join("etc/ld.so.cache")).unwrap(),
        "no cache",
        "the root stays as it is"
    );
}
