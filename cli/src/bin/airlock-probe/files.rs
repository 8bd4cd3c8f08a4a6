//! Files, directories, programs, device nodes, descriptors.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use airlock_runtime::probe::Outcome;
use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use rustix::fs::{OFlags, StatVfsMountFlags};

use crate::{Attempt, EXECUTED, Verb, Words, done, number, word};

pub(crate) const VERBS: &[Verb] = &[
    ("read", read),
    ("open", open),
    ("list", list),
    ("run", run),
    ("script-run", script_run),
    ("tmpfile", unnamed_file),
    ("mknod", make_node),
    ("set-id-bits", set_id_bits),
    ("set-id-mount", set_id_mount),
    ("descriptor", descriptor),
    ("link", link),
];

pub(crate) fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

fn opened(path: &str, write: bool) -> Result<File, Errno> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(!write).write(write).custom_flags(flags).open(path);
    file.map_err(|error| errno(&error))
}

/// Reads the first bytes; a file that says nothing is as good as none.
fn read(words: Words<'_>) -> Attempt {
    let mut part = [0; 64];
    let length = opened(word(words, 0)?, false)?.read(&mut part).map_err(|error| errno(&error))?;
    Ok(if length == 0 { Outcome::Absent("it is empty".into()) } else { Outcome::Done(String::new()) })
}

/// Opens for reading (`r`) or writing (`w`), and does neither.
fn open(words: Words<'_>) -> Attempt {
    let path = word(words, 0)?;
    let device = opened(path, word(words, 1)? == "w")?.metadata().map_err(|error| errno(&error))?.rdev();
    match device == makedev(1, 3) && path.starts_with("/proc") {
        true => Ok(Outcome::Absent("the null device covers it".into())),
        false => done(),
    }
}

/// Looks for an entry of a directory.
fn list(words: Words<'_>) -> Attempt {
    let mut entries = fs::read_dir(word(words, 0)?).map_err(|error| errno(&error))?;
    match entries.next() {
        Some(Ok(_)) => done(),
        Some(Err(error)) => Err(errno(&error)),
        None => Ok(Outcome::Absent("it is empty".into())),
    }
}

/// Executes a copy of this program, which says so itself.
fn run(words: Words<'_>) -> Attempt {
    execute(Path::new(word(words, 0)?))
}

fn execute(path: &Path) -> Attempt {
    use std::os::unix::process::CommandExt;
    Err(errno(&std::process::Command::new(path).arg(EXECUTED).exec()))
}

/// A file of this name is there while its owner looks.
struct Scratch(PathBuf);

impl Scratch {
    fn of(directory: &str) -> Scratch {
        Scratch(Path::new(directory).join(format!(".airlock-probe-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes a script for this program into a directory and executes it, in one more process: it is removed after it.
/// The kernel refuses a script on a noexec mount as it does a program.
fn script_run(words: Words<'_>) -> Attempt {
    let script = Scratch::of(word(words, 0)?);
    let io = |error: std::io::Error| errno(&error);
    let text = format!("#!{} {EXECUTED}\n", std::env::args().next().unwrap_or_default());
    let made = OpenOptions::new().write(true).create_new(true).mode(0o700).open(&script.0);
    made.and_then(|mut file| file.write_all(text.as_bytes())).map_err(io)?;
    let status = std::process::Command::new(&script.0).stdout(std::process::Stdio::null()).status();
    status.map_err(io)?;
    done()
}

/// A file without a name: a write to the directory that leaves nothing there.
fn unnamed_file(words: Words<'_>) -> Attempt {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(word(words, 0)?, flags, rustix::fs::Mode::RUSR);
    opened.map_err(|error| Errno::from_raw(error.raw_os_error()))?;
    done()
}

fn make_node(words: Words<'_>) -> Attempt {
    let node = Scratch::of(word(words, 0)?);
    let device = makedev(number(words, 1)?.unsigned_abs(), number(words, 2)?.unsigned_abs());
    mknod(&node.0, SFlag::S_IFCHR, Mode::S_IRUSR, device)?;
    done()
}

/// Makes a file set-id by chmod.
fn set_id_bits(words: Words<'_>) -> Attempt {
    let file = Scratch::of(word(words, 0)?);
    let io = |error: std::io::Error| errno(&error);
    File::create_new(&file.0).and_then(|mut file| file.write_all(b"x")).map_err(io)?;
    fs::set_permissions(&file.0, fs::Permissions::from_mode(0o6700)).map_err(io)?;
    done()
}

/// Whether set-id programs of a mount get their owner's rights.
fn set_id_mount(words: Words<'_>) -> Attempt {
    let found = rustix::fs::statvfs(word(words, 0)?);
    let found = found.map_err(|error| Errno::from_raw(error.raw_os_error()))?;
    let without = found.f_flag.contains(StatVfsMountFlags::NOSUID);
    Ok(if without { Outcome::Absent("the mount is nosuid".into()) } else { Outcome::Done(String::new()) })
}

/// Looks for a descriptor that somebody left open.
fn descriptor(words: Words<'_>) -> Attempt {
    match fs::read_link(format!("/proc/self/fd/{}", number(words, 0)?)) {
        Ok(target) => Ok(Outcome::Done(target.display().to_string())),
        Err(error) => Err(errno(&error)),
    }
}

/// Follows a link of the kernel's in /proc, such as `/proc/1/root`.
fn link(words: Words<'_>) -> Attempt {
    fs::read_link(word(words, 0)?).map_err(|error| errno(&error))?;
    done()
}
