//! No room on the disk and no memory while a sandbox is built.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use airlock_tests::{record_measure, skip};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::stage::Stage;

/// A tmpfs that holds so much, over a directory and with its owner.
struct Small(PathBuf);

impl Small {
    fn over(place: PathBuf, room: &str) -> Small {
        let owner = fs::metadata(&place).unwrap();
        let options = format!("{room},mode=700,uid={},gid={}", owner.uid(), owner.gid());
        mount(Some("tmpfs"), &place, Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).unwrap();
        Small(place)
    }

    fn files(&self) -> Vec<PathBuf> {
        files_below(&self.0)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Each file and directory of the state is once the one for which there is no room.
#[test]
fn a_state_directory_without_room_is_named_and_nothing_is_left() {
    if !airlock_tests::is_root() {
        skip!("needs root, to mount a file system that is full");
    }
    let stage = Stage::new(|_| String::new());
    let mut refused = 0;
    // The directory itself is the first file of the file system.
    for files in 1..12 {
        let small = Small::over(stage.state(), &format!("size=1m,nr_inodes={files}"));
        let ended = stage.end(stage.run());
        assert!(small.files().is_empty(), "{:?} {ended}", small.files());
        if ended.code == 0 {
            break;
        }
        ended.refused(&[&stage.state().display().to_string(), "No space left on device"]);
        refused += 1;
    }
    assert!(refused >= 2, "{refused}");
    for pages in 1..4 {
        let small = Small::over(stage.state(), &format!("size={}k", 4 * pages));
        let filler = small.0.join("filler");
        fs::write(&filler, vec![0; 4096 * (pages - 1)]).unwrap();
        // What is left for the rest: nothing, then one page for the record, and none for the next file.
        fs::write(small.0.join("last"), vec![0; if pages == 1 { 4096 } else { 0 }]).unwrap();
        let ended = stage.end(stage.run());
        assert_eq!(small.files().len(), 2, "{ended}");
        if ended.code != 0 {
            ended.refused(&["No space left on device"]);
            refused += 1;
        }
    }
    assert_eq!(stage.left(), "");
    record_measure(&format!("no room for the state: {refused} refused, nothing left"));
}

#[test]
fn an_end_report_without_room_is_named_and_no_part_of_it_is_left() {
    if !airlock_tests::is_root() {
        skip!("needs root, to mount a file system that is full");
    }
    let stage = Stage::new(|site| {
        site.folder("reports");
        String::new()
    });
    let place = stage.site.path("reports");
    for room in ["size=4k", "nr_inodes=1"] {
        let small = Small::over(place.clone(), room);
        let ended = stage.end(stage.run_reporting_to(&place.join("report.json")));
        assert!(stage.ran(&ended), "{ended}");
        let ended = ended.refused(&["report.json", "No space left on device"]);
        assert!(small.files().is_empty(), "{:?} {ended}", small.files());
    }
    assert_eq!(stage.left(), "");
}

/// Where writes are kept: the layers of an overlay have a directory each.
#[test]
fn a_directory_for_kept_writes_without_room_is_named_and_nothing_else_is_left() {
    if !airlock_tests::is_root() {
        skip!("needs root, to mount a file system that is full");
    }
    let stage = Stage::new(|site| format!("[root]\nwritable = {:?}\n", site.folder("kept")));
    let place = stage.site.path("kept");
    let mut refused = 0;
    for files in 1..64 {
        let small = Small::over(place.clone(), &format!("size=1m,nr_inodes={files}"));
        let ended = stage.end(stage.run());
        if ended.code == 0 {
            break;
        }
        ended.refused(&["overlay", "No space left on device"]);
        assert!(small.files().is_empty(), "{:?}", small.files());
        drop(small);
        assert_eq!(stage.left(), "", "{files}");
        refused += 1;
    }
    assert!((2..60).contains(&refused), "{refused}");
    record_measure(&format!("no room for kept writes: {refused} refused, nothing left"));
}

/// A parent's limit below what a sandbox needs: it is refused by a step's name, or ends for want of memory and says so,
/// and all is taken away. Of a policy's own limits the least is enough, and what is less is refused by name.
#[test]
fn a_memory_limit_below_what_a_sandbox_needs_is_told() {
    // A stage has its thread, and each a new parent: what the last sandbox left in the cache counts.
    let sizes = [4, 64, 256, 320, 384, 512, 768, 1024, 2048];
    let codes = sizes.map(|kib| std::thread::spawn(move || end_with_memory(kib)).join().unwrap());
    let codes: Vec<i32> = codes.into_iter().flatten().collect();
    if codes.is_empty() {
        skip!("needs a parent with the memory controller");
    }
    let ended = |with| codes.iter().filter(|code| **code == with).count();
    record_measure(&format!(
        "a parent with little memory: {} refused at set-up, {} ended by it, {} had enough",
        ended(125),
        ended(137),
        ended(0)
    ));
    let stage = Stage::new(|_| String::new());
    stage.end(stage.run().flag("--memory", "1023KiB")).refused(&["leaves no room to start in"]);
    assert_eq!(stage.left(), "");
    assert_eq!(stage.end(stage.run().flag("--memory", "1MiB")).code, 0);
}

/// The status of a run below a parent with so much memory, if it may have so little.
fn end_with_memory(kib: u64) -> Option<i32> {
    let stage = Stage::new(|_| String::new());
    let limit = stage
        .site
        .cgroups()?
        .folders()
        .iter()
        .flat_map(|folder| ["memory.max", "memory.limit_in_bytes"].map(|file| folder.join(file)))
        .find(|file| file.exists())?;
    match fs::write(&limit, (kib << 10).to_string()) {
        // Version 1 takes no limit below what is in use, and the directories alone may use 256 KiB.
        Err(busy) if busy.kind() == ErrorKind::ResourceBusy => return None,
        written => written.unwrap(),
    }
    let ended = stage.end(stage.run());
    let code = ended.code;
    match code {
        0 => assert!(stage.ran(&ended), "{kib} KiB: {ended}"),
        137 => assert_eq!(ended.report().reason(), "oom", "{kib} KiB: {ended}"),
        _ => drop(ended.refused(&["(", "): "])),
    }
    assert_eq!(stage.left(), "", "{kib} KiB");
    Some(code)
}
