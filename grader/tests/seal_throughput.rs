//! How fast trees are sealed, against `cp` and `sha256sum` on the same tree.
//!
//! ```text
//! cargo test --release -p airlock-grader --test seal_throughput -- --ignored --nocapture
//! ```

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use airlock_grader::seal::{Limits, Store, seal};

fn time(action: impl FnOnce()) -> Duration {
    let start = Instant::now();
    action();
    start.elapsed()
}

fn shell(command: &str) -> Duration {
    time(|| {
        assert!(
            Command::new("sh")
                .args(["-c", command])
                .status()
                .unwrap()
                .success()
        )
    })
}

fn measure(name: &str, bytes: u64, place: &Path) {
    let at = place.display();
    let show = |what: &str, duration: Duration| {
        let seconds = duration.as_secs_f64();
        println!(
            "  {what:30} {seconds:6.2} s {:5.2} GB/s",
            bytes as f64 / 1e9 / seconds
        );
    };
    println!("{name}");
    // Once, to have the tree in memory for all alike.
    shell(&format!(
        "find {at}/tree -type f -print0 | xargs -0 cat > /dev/null; sync -f {at}"
    ));
    show(
        "cp -r --reflink=never",
        shell(&format!("cp -r --reflink=never {at}/tree {at}/copy")),
    );
    show("  and sync", shell(&format!("sync -f {at}")));
    shell(&format!("rm -r {at}/copy && sync -f {at}"));
    show(
        "sha256sum",
        shell(&format!(
            "find {at}/tree -type f -print0 | xargs -0 sha256sum > /dev/null"
        )),
    );
    let store = Store::open(&place.join("store")).unwrap();
    let handle = File::open(place.join("tree")).unwrap();
    show(
        "seal: copy, digest, sync",
        time(|| drop(seal(handle.as_fd(), &store, &Limits::default()).unwrap())),
    );
    show(
        "seal again: copy, digest",
        time(|| drop(seal(handle.as_fd(), &store, &Limits::default()).unwrap())),
    );
    let sealed = store.get(store.list().unwrap()[0]).unwrap().unwrap();
    show("verify: digest", time(|| sealed.verify().unwrap()));
    show("check: no reading", time(|| sealed.check().unwrap()));
}

#[test]
#[ignore = "writes gigabytes; run by hand"]
fn throughput() {
    let small = tempfile::tempdir().unwrap();
    for directory in 0..100 {
        let directory = small.path().join(format!("tree/d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        (0..100_u8).for_each(|file| fs::write(directory.join(file.to_string()), vec![file; 10_000]).unwrap());
    }
    measure("10,000 files of 10 kB", 100_000_000, small.path());

    let large = tempfile::tempdir().unwrap();
    fs::create_dir(large.path().join("tree")).unwrap();
    let mut file = File::create(large.path().join("tree/model")).unwrap();
    let block: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    (0..4096).for_each(|_| file.write_all(&block).unwrap());
    measure("one file of 4 GiB", 4 << 30, large.path());
}
