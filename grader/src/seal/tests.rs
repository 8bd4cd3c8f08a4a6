//! Sealing against trees that someone wrote to trouble the host.

use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags, mknodat};
use tempfile::TempDir;

use super::*;

/// A directory with a tree `a` and a store `store`.
struct Place {
    dir: TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        Self { dir, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("a").join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), bytes).unwrap();
    }

    fn root(&self) -> OwnedFd {
        File::open(self.dir.path().join("a")).unwrap().into()
    }

    fn seal(&self) -> Result<Sealed, SealError> {
        self.seal_within(&Limits::default())
    }

    fn seal_within(&self, limits: &Limits) -> Result<Sealed, SealError> {
        seal(self.root().as_fd(), &self.store, limits)
    }

    /// What the store directory holds.
    fn stored(&self) -> Vec<String> {
        let entries = fs::read_dir(self.store.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn path(text: &str) -> TreePath {
    TreePath::new(text).unwrap()
}

#[test]
fn same_bytes_have_the_same_name_whoever_wrote_them_and_when() {
    let (one, two) = (Place::new(), Place::new());
    for place in [&one, &two] {
        place.write("src/train.py", b"print(1)\n");
        place.write("run.sh", b"#!/bin/sh\n");
    }
    fs::set_permissions(one.path("run.sh"), Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(two.path("run.sh"), Permissions::from_mode(0o4777)).unwrap();
    File::open(two.path("run.sh")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let (first, second) = (one.seal().unwrap(), two.seal().unwrap());
    assert_eq!(first.digest(), second.digest());
    fs::set_permissions(two.path("run.sh"), Permissions::from_mode(0o644)).unwrap();
    assert_ne!(first.digest(), two.seal().unwrap().digest());
}

#[test]
fn a_sealed_tree_is_a_read_only_copy_without_set_id_bits() {
    let place = Place::new();
    place.write("a/b", b"text");
    fs::set_permissions(place.path("a/b"), Permissions::from_mode(0o6755)).unwrap();
    let sealed = place.seal().unwrap();
    let mode = |name| fs::metadata(sealed.path().join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("."), mode("a"), mode("a/b")), (0o555, 0o555, 0o555));
    assert_ne!(
        fs::metadata(sealed.path().join("a/b")).unwrap().ino(),
        fs::metadata(place.path("a/b")).unwrap().ino()
    );
    sealed.verify().unwrap();
    let again = place.store.get(sealed.digest()).unwrap().unwrap();
    assert_eq!(again.manifest(), sealed.manifest());
    assert_eq!(again.read(&path("a/b"), 4).unwrap(), b"text");
    assert!(matches!(again.read(&path("a/b"), 3), Err(SealError::Limit { .. })));
    assert!(matches!(again.read(&path("a/c"), 3), Err(SealError::Absent { .. })));
}

#[test]
fn sealing_twice_keeps_one_copy() {
    let place = Place::new();
    place.write("w", b"weights");
    let first = place.seal().unwrap();
    let inode = fs::metadata(first.path().join("w")).unwrap().ino();
    let second = place.seal().unwrap();
    assert_eq!(fs::metadata(second.path().join("w")).unwrap().ino(), inode);
    assert_eq!(place.stored(), [first.digest().hex()]);
    assert_eq!(place.store.list().unwrap(), [first.digest()]);
}

#[test]
fn a_damaged_entry_of_the_store_is_not_used_again() {
    let place = Place::new();
    place.write("w", b"weights");
    let sealed = place.seal().unwrap();
    let stored = sealed.path().join("w");
    fs::set_permissions(&stored, Permissions::from_mode(0o644)).unwrap();
    fs::write(&stored, b"Weights").unwrap();
    assert!(matches!(sealed.verify(), Err(SealError::Digest { .. })));
    assert!(matches!(sealed.read(&path("w"), 99), Err(SealError::Digest { .. })));
    let error = place.seal().unwrap_err();
    assert!(matches!(error, SealError::Damaged { .. }), "{error}");
}

/// TakoVM#60, NemoClaw#10636, benchflow#411: a link out of the artifact, read by the host.
#[test]
fn refuses_links_to_files_and_directories() {
    for target in ["/etc/passwd", "/etc", "file", "missing"] {
        let place = Place::new();
        place.write("file", b"x");
        place.seal().unwrap();
        symlink(target, place.path("link")).unwrap();
        let error = place.seal().unwrap_err();
        assert_eq!(
            error.to_string(),
            "link is a symbolic link; a tree holds regular files and directories only"
        );
    }
}

/// A directory swapped for a link between its listing and its opening is not followed.
#[test]
fn does_not_resolve_through_a_link_in_the_middle() {
    let place = Place::new();
    fs::create_dir(place.dir.path().join("outside")).unwrap();
    fs::write(place.dir.path().join("outside/secret"), b"x").unwrap();
    symlink("../outside", place.path("d")).unwrap();
    assert_eq!(handles::file(place.root(), "d/secret").unwrap_err(), rustix::io::Errno::LOOP);
    assert!(handles::file(place.root(), "../outside/secret").is_err());
    fs::remove_file(place.path("d")).unwrap();
    place.write("d/secret", b"x");
    assert!(handles::file(place.root(), "d/secret").is_ok());
}

#[test]
fn refuses_a_file_with_another_name() {
    let place = Place::new();
    place.write("file", b"x");
    place.seal().unwrap();
    fs::hard_link(place.path("file"), place.dir.path().join("elsewhere")).unwrap();
    let error = place.seal().unwrap_err();
    assert!(matches!(error, SealError::Links { links: 2, .. }), "{error}");
}

#[test]
fn refuses_special_files_without_waiting_for_them() {
    let place = Place::new();
    let kinds: [(&str, FileType); 2] =
        [("FIFO", FileType::Fifo), ("character device", FileType::CharacterDevice)];
    for (kind, file_type) in kinds {
        let made = mknodat(place.root(), "special", file_type, Mode::RUSR, rustix::fs::makedev(1, 3));
        if made.is_err() && file_type == FileType::CharacterDevice {
            continue; // Making devices needs CAP_MKNOD.
        }
        let start = Instant::now();
        let error = place.seal().unwrap_err();
        assert!(error.to_string().starts_with(&format!("special is a {kind}")), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
        fs::remove_file(place.path("special")).unwrap();
    }
    let _socket = UnixListener::bind(place.path("special")).unwrap();
    assert!(place.seal().unwrap_err().to_string().starts_with("special is a socket"));
}

/// A FIFO that takes the place of a file between the look and the open must not stall the host.
#[test]
fn opening_a_fifo_for_reading_does_not_wait() {
    let place = Place::new();
    mknodat(place.root(), "fifo", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let start = Instant::now();
    handles::file(place.root(), "fifo").unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_held_lease_is_an_error_and_not_a_wait() {
    let place = Place::new();
    place.write("file", b"x");
    let holder = File::options().read(true).write(true).open(place.path("file")).unwrap();
    // SAFETY: F_SETLEASE takes an integer; no memory is passed.
    let set = unsafe { libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    // The kernel tells the holder by SIGIO, whose default is to end the process.
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    let start = Instant::now();
    let error = place.seal().unwrap_err();
    assert!(matches!(error, SealError::Lease { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
    drop(holder);
    place.seal().unwrap();
}

#[test]
fn refuses_names_that_break_a_line_or_are_not_text() {
    for (name, shown) in [
        (&b"a\nb"[..], r"a\nb"),
        (b"a\xffb", r"a\xffb"),
        (b"\x1b[31m", r"\u{1b}[31m"),
        ("a\u{202e}b".as_bytes(), r"a\u{202e}b"),
    ] {
        let place = Place::new();
        place.write("sub/fine", b"");
        place.seal().unwrap();
        fs::write(place.path("sub").join(std::ffi::OsStr::from_bytes(name)), b"x").unwrap();
        let error = place.seal().unwrap_err();
        assert!(matches!(error, SealError::Name { .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("sub: the entry `{shown}` has ")), "{error}");
    }
}

/// PostTrainBench#66: archiving died on trees of gigabytes; a tree has a size before it is read.
#[test]
fn every_cap_is_enforced_and_named() {
    let place = Place::new();
    place.write("d/e/long-name", &[1; 4096]);
    place.write("f", &[1; 4096]);
    let allocated = fs::metadata(place.path("f")).unwrap().blocks() * 512;
    let full = Limits {
        entries: 4,
        logical_bytes: 8192,
        allocated_bytes: 2 * allocated,
        file_bytes: 4096,
        depth: 3,
        name_bytes: 9,
        path_bytes: 13,
        until: None,
    };
    place.seal_within(&full).unwrap();
    for (limits, what) in [
        (Limits { entries: 3, ..full }, "entries: 4, more than 3"),
        (Limits { logical_bytes: 8191, ..full }, "bytes in all files: 8192, more than 8191"),
        (Limits { allocated_bytes: 2 * allocated - 1, ..full }, "bytes allocated for all files: "),
        (Limits { file_bytes: 4095, ..full }, "bytes in the file: 4096, more than 4095"),
        (Limits { depth: 2, ..full }, "levels: 3, more than 2"),
        (Limits { name_bytes: 8, ..full }, "bytes in the name: 9, more than 8"),
        (Limits { path_bytes: 12, ..full }, "bytes in the path: 13, more than 12"),
    ] {
        let error = place.seal_within(&limits).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn a_huge_hole_is_refused_by_its_size_and_not_read() {
    let place = Place::new();
    File::create(place.path("sparse")).unwrap().set_len(1 << 40).unwrap();
    let start = Instant::now();
    let error = place.seal().unwrap_err();
    assert!(matches!(error, SealError::Limit { found, .. } if found == 1 << 40), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// Holes take no room and as long to hash as anything else.
#[test]
fn a_tree_that_takes_too_long_is_left_where_the_time_was_over() {
    let place = Place::new();
    let within = |time| Limits { until: Some(Instant::now() + time), ..Limits::default() };
    let sparse = File::create(place.path("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    place.seal_within(&within(Duration::from_secs(60))).unwrap();
    sparse.set_len(200 << 30).unwrap();
    let start = Instant::now();
    let error = place.seal_within(&within(Duration::from_millis(100))).unwrap_err();
    assert_eq!(error.to_string(), "sparse: the time for reading the tree was over here");
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(matches!(place.seal_within(&within(Duration::ZERO)), Err(SealError::Late { .. })));
}

#[test]
fn holes_stay_holes_and_count_as_zeros() {
    let place = Place::new();
    let size = 3 << 20;
    for (name, pieces) in [("middle", &[0, size - 5][..]), ("start", &[1 << 20]), ("none", &[])] {
        let file = File::create(place.path(name)).unwrap();
        file.set_len(size).unwrap();
        pieces.iter().for_each(|at| file.write_all_at(b"data!", *at).unwrap());
    }
    let sealed = place.seal().unwrap();
    let full = Place::new();
    for name in ["middle", "start", "none"] {
        let (source, copy) = (fs::read(place.path(name)).unwrap(), sealed.path().join(name));
        assert!(fs::read(&copy).unwrap() == source, "{name}");
        assert!(fs::metadata(&copy).unwrap().blocks() * 512 < size / 2, "{name}");
        full.write(name, &source);
    }
    assert_eq!(full.seal().unwrap().digest(), sealed.digest());
}

/// attacks: hud-python#526, arbos#397: a writer that outlives grading rewrites the artifact. Whatever the writer
/// does, what is graded is what the digest names.
#[test]
fn a_writer_cannot_change_what_was_sealed() {
    let place = Place::new();
    place.write("w", &vec![b'a'; 1 << 20]);
    let mut held = File::options().write(true).open(place.path("w")).unwrap();
    let sealed = place.seal().unwrap();
    fs::set_permissions(place.path("w"), Permissions::from_mode(0o400)).unwrap();
    held.write_all(&vec![b'b'; 1 << 20]).unwrap();
    assert_eq!(fs::read(place.path("w")).unwrap()[0], b'b', "the late write must reach the source");
    sealed.verify().unwrap();
    assert_ne!(place.seal().unwrap().digest(), sealed.digest());
}

#[test]
fn sealing_while_a_writer_runs_either_fails_or_names_the_copy() {
    let place = Place::new();
    place.write("w", &vec![b'a'; 4 << 20]);
    let stop = AtomicBool::new(false);
    let mut changed = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::options().write(true).open(place.path("w")).unwrap();
            for byte in (b'a'..=b'z').cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                file.seek(SeekFrom::Start(0)).unwrap();
                file.write_all(&vec![byte; 1 << 20]).unwrap();
            }
        });
        for _ in 0..20 {
            match place.seal() {
                Ok(sealed) => sealed.verify().unwrap(),
                Err(SealError::Changed { .. }) => changed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(changed > 0, "no change was noticed in 20 attempts");
    place.seal().unwrap().verify().unwrap();
}

#[test]
fn refuses_a_file_that_grows_when_it_is_read_again() {
    let place = Place::new();
    place.write("log", b"one\n");
    struct Grow(PathBuf, u32);
    impl Visit for Grow {
        fn directory(&mut self, _: &TreePath) -> Result<(), SealError> {
            Ok(())
        }
        fn file(&mut self, found: &Found<'_>) -> Result<(), SealError> {
            found.steadily(|_, _| {
                self.1 += 1;
                File::options().append(true).open(&self.0).unwrap().write_all(b"more\n").unwrap();
                Ok(())
            })
        }
    }
    let mut grow = Grow(place.path("log"), 0);
    let error = walk(place.root().as_fd(), &Limits::default(), &mut grow).unwrap_err();
    assert!(matches!(error, SealError::Changed { .. }), "{error}");
    assert_eq!(grow.1, 1);
}

#[test]
fn a_failed_sealing_leaves_the_store_as_it_was() {
    let place = Place::new();
    place.write("a/fine", b"x");
    symlink("x", place.path("z")).unwrap();
    place.seal().unwrap_err();
    assert!(place.stored().is_empty(), "{:?}", place.stored());
}

#[test]
fn opening_a_store_removes_dead_drafts_and_keeps_live_ones() {
    let place = Place::new();
    let dead = place.store.path().join(".draft-00");
    fs::create_dir_all(dead.join("tree/d")).unwrap();
    fs::write(dead.join("tree/d/f"), b"x").unwrap();
    fs::set_permissions(dead.join("tree/d"), Permissions::from_mode(0o555)).unwrap();
    let live = place.store.draft().unwrap();
    assert_eq!(place.stored().len(), 2);
    Store::open(place.store.path()).unwrap();
    assert!(!dead.exists());
    assert_eq!(place.stored().len(), 1);
    drop(live);
    assert!(place.stored().is_empty());
}

#[test]
fn copies_out_with_usual_modes_and_the_same_digest() {
    let place = Place::new();
    place.write("src/run", b"#!/bin/sh\n");
    place.write("data", b"1");
    fs::create_dir(place.path("empty")).unwrap();
    fs::set_permissions(place.path("src/run"), Permissions::from_mode(0o700)).unwrap();
    let sealed = place.seal().unwrap();
    let out = place.dir.path().join("out");
    fs::create_dir(&out).unwrap();
    sealed.copy_to(File::open(&out).unwrap().as_fd()).unwrap();
    let handle = File::open(&out).unwrap();
    verify_tree(handle.as_fd(), sealed.digest(), &Limits::default()).unwrap();
    let mode = |name: &str| fs::metadata(out.join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("src"), mode("src/run"), mode("data")), (0o755, 0o755, 0o644));
    fs::write(out.join("data"), b"2").unwrap();
    let error = verify_tree(handle.as_fd(), sealed.digest(), &Limits::default()).unwrap_err();
    assert!(matches!(error, SealError::Digest { .. }), "{error}");
    let mut text = String::new();
    sealed.open(&path("data")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "1");
}

/// A mount inside the tree is another file system's content under the candidate's name.
#[test]
fn refuses_what_is_mounted_inside_the_tree() {
    let root: OwnedFd = rustix::fs::openat(
        rustix::fs::CWD,
        "/",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .unwrap();
    assert!(Path::new("/proc/self").exists(), "procfs is a mount of its own");
    assert_eq!(handles::directory(&root, "proc").unwrap_err(), rustix::io::Errno::XDEV);
    let error = handles::name_error("opening", &path("proc"))(rustix::io::Errno::XDEV);
    assert_eq!(error.to_string(), "proc is on another mount");
    assert!(handles::directory(&root, "etc").is_ok());
}
