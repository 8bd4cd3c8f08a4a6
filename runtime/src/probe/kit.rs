//! The kit of an audit: the probe program, and witnesses on the host that a sandbox must not reach.
//!
//! ```text
//! /tmp/airlock-audit-XXXXXXXX/bin      the probe program             mounted at the same path, with exec
//!                            /data     a mount like a policy's own   mounted at the same path, read-only
//!                            /hidden   a file and a socket           not mounted
//! ```

use std::fs::{self, File, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxDevice, LinuxDeviceBuilder, LinuxDeviceType};
use rustix::fs::{CWD, FileType, Mode};

use super::host::{Decoy, Key, Queue, Segment};
use super::spec::{self, Place};
use super::{Probe, SEPARATOR};
use crate::host::is_root;
use crate::spec::Spec;

/// Owner of the data when root audits: an ordinary user's data is mounted, not root's.
const NOBODY: u32 = 65534;
/// Number of the descriptor that is left open.
const DESCRIPTOR: i32 = 100;
/// Nodes that can be opened without doing anything, and that no policy lists.
const DEVICES: [&str; 8] = [
    "/dev/fuse",
    "/dev/autofs",
    "/dev/net/tun",
    "/dev/vsock",
    "/dev/loop-control",
    "/dev/hwrng",
    "/dev/kmsg",
    "/dev/console",
];
/// A variable of the caller's that no policy passes on.
const VARIABLE: &str = "AIRLOCK_AUDIT_SECRET";

/// The kit could not be laid out.
#[derive(Debug, thiserror::Error)]
#[error("audit kit: {what} {path}: {source}")]
pub struct KitError {
    /// What was made.
    what: &'static str,
    /// Where.
    path: PathBuf,
    /// Why it failed.
    source: io::Error,
}

/// The kit. Dropping it takes everything away.
#[derive(Debug)]
pub struct Kit {
    folder: PathBuf,
    name: String,
    port: u16,
    segment_key: i32,
    device: Option<(PathBuf, u32, u32)>,
    decoy: Decoy,
    shared: PathBuf,
    _segment: Segment,
    _queue: Option<Queue>,
    _key: Option<Key>,
    _descriptor: OwnedFd,
    _tcp: TcpListener,
    _sockets: [UnixListener; 2],
}

impl Kit {
    /// Lays the kit out around a static probe program. The caller must have one thread.
    ///
    /// # Errors
    /// What could not be made, and where.
    pub fn new(program: &Path) -> Result<Kit, KitError> {
        let mut random = [0_u8; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| failed("a name", Path::new("getrandom"))(error.into()))?;
        let number = u32::from_ne_bytes(random);
        let name = format!("airlock-audit-{number:08x}");
        let folder = Path::new("/tmp").join(&name);
        let decoy = Decoy::start().map_err(failed("the decoy process", Path::new("fork")))?;
        fs::create_dir(&folder).map_err(failed("the directory", &folder))?;
        let built = Kit::fill(&folder, &name, number, program, decoy);
        if built.is_err() {
            // The error says more than what is left.
            let _ = fs::remove_dir_all(&folder);
            let _ = fs::remove_file(shared_file(&name));
        }
        built
    }

    fn fill(folder: &Path, name: &str, number: u32, program: &Path, decoy: Decoy) -> Result<Kit, KitError> {
        let device = DEVICES.iter().find_map(|path| openable(Path::new(path)));
        let shared = shared_file(name);
        let [bin, data, hidden] = ["bin", "data", "hidden"].map(|part| folder.join(part));
        for path in [folder, &bin, &data, &hidden] {
            if path != folder {
                fs::create_dir(path).map_err(failed("the directory", path))?;
            }
            fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(failed("the mode of", path))?;
        }
        copy(program, &bin.join("airlock-probe"))?;
        copy(program, &data.join("program"))?;
        for (path, mode) in
            [(data.join("file"), 0o666), (hidden.join("secret"), 0o644), (shared.clone(), 0o644)]
        {
            write(&path, mode)?;
        }
        if is_root() {
            let node = |name, major, minor| {
                let path = data.join(name);
                let device = rustix::fs::makedev(major, minor);
                rustix::fs::mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), device)
                    .map_err(|error| failed("the node", &path)(error.into()))?;
                fs::set_permissions(&path, Permissions::from_mode(0o666))
                    .map_err(failed("the mode of", &path))
            };
            node("null", 1, 3)?;
            if let Some((_, major, minor)) = &device {
                node("device", *major, *minor)?;
            }
            for name in ["", "file", "program", "null", "device"].map(|name| data.join(name)) {
                match chown(&name, Some(NOBODY), Some(NOBODY)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(failed("the owner of", &name)(error));
                    }
                    _ => {}
                }
            }
            write(&data.join("private"), 0o600)?;
        }
        let socket = hidden.join("socket");
        let listener = UnixListener::bind(&socket).map_err(failed("the socket", &socket))?;
        fs::set_permissions(&socket, Permissions::from_mode(0o777))
            .map_err(failed("the mode of", &socket))?;
        let abstract_listener = SocketAddr::from_abstract_name(name)
            .and_then(|address| UnixListener::bind_addr(&address))
            .map_err(failed("the abstract socket", Path::new(name)))?;
        let loopback = Path::new("127.0.0.1");
        let tcp = TcpListener::bind("127.0.0.1:0").map_err(failed("a listener on", loopback))?;
        let port = tcp.local_addr().map_err(failed("a listener on", loopback))?.port();
        // Positive: 0 would be a private segment.
        let segment_key = i32::try_from(number >> 1 | 1).unwrap_or(1);
        let segment = Segment::new(segment_key).map_err(failed("a segment", Path::new("shmget")))?;
        let null = File::open("/dev/null").map_err(failed("opening", Path::new("/dev/null")))?;
        // Not close-on-exec: it is there to be inherited.
        let descriptor = nix::fcntl::fcntl(&null, nix::fcntl::FcntlArg::F_DUPFD(DESCRIPTOR))
            .map_err(|errno| failed("a descriptor of", Path::new("/dev/null"))(errno.into()))?;
        // SAFETY: the descriptor is fresh and nobody else's.
        let descriptor = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(descriptor) };
        Ok(Kit {
            folder: folder.to_path_buf(),
            name: name.to_owned(),
            port,
            segment_key,
            device,
            decoy,
            shared,
            _segment: segment,
            _queue: Queue::new(name).ok(),
            _key: Key::new(name).ok(),
            _descriptor: descriptor,
            _tcp: tcp,
            _sockets: [listener, abstract_listener],
        })
    }

    /// The probe program, inside and outside.
    pub fn program(&self) -> PathBuf {
        self.bin().join("airlock-probe")
    }

    /// Directory of the probe program: to be mounted read-only at the same path.
    pub fn bin(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// Directory of data: to be mounted read-only at the same path, programs and devices off.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(super) fn hidden(&self) -> PathBuf {
        self.folder.join("hidden")
    }

    /// Name of the variable that must not come in.
    pub fn variable(&self) -> &'static str {
        VARIABLE
    }

    pub(super) fn device(&self) -> Option<LinuxDevice> {
        let (path, major, minor) = self.device.as_ref()?;
        let device = LinuxDeviceBuilder::default()
            .path(path)
            .typ(LinuxDeviceType::C)
            .major(*major)
            .minor(*minor)
            .file_mode(0o666_u32);
        device.build().ok()
    }

    /// The order that makes the probe program try a probe.
    pub fn order(&self, probe: &Probe) -> String {
        let words = probe.action.iter().map(|word| self.word(word));
        std::iter::once(probe.id.to_owned()).chain(words).collect::<Vec<_>>().join(&SEPARATOR.to_string())
    }

    /// A word of an action with what it stands for.
    pub(super) fn word(&self, word: &str) -> String {
        if !word.contains('$') {
            return word.to_owned();
        }
        if let Some(kind) = word.strip_prefix('$').filter(|kind| kind.chars().all(|c| c.is_ascii_lowercase()))
        {
            let link = fs::read_link(format!("/proc/self/ns/{kind}"));
            return link.map_or_else(|_| "none".into(), |link| link.display().to_string());
        }
        let device = self.device.as_ref().map_or(Path::new("/dev/none"), |(path, ..)| path);
        [
            ("$HIDDEN", self.hidden().display().to_string()),
            ("$DATA", self.data().display().to_string()),
            ("$NAME", self.name.clone()),
            ("$PORT", self.port.to_string()),
            ("$PID", self.decoy.pid().to_string()),
            ("$SEGMENT", self.segment_key.to_string()),
            ("$DEVICE", device.display().to_string()),
            ("$DESCRIPTOR", DESCRIPTOR.to_string()),
            ("$VARIABLE", VARIABLE.to_owned()),
        ]
        .iter()
        .fold(word.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// Mounts the program and the data in a spec.
    pub(super) fn mount(&self, spec: &mut Spec) {
        for path in [self.bin(), self.data()] {
            spec::show(spec, &path);
            if let Some(read) = spec.airlock.landlock.as_mut().and_then(|landlock| landlock.read.as_mut()) {
                read.push(path);
            }
        }
        spec::option(spec, Place::Path(&self.bin()), "rnoexec", "rexec");
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        // What cannot be removed is left under a name that says what it was.
        let _ = fs::remove_file(&self.shared);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn shared_file(name: &str) -> PathBuf {
    Path::new("/dev/shm").join(name)
}

fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> KitError {
    move |source| KitError { what, path: path.to_path_buf(), source }
}

fn copy(source: &Path, target: &Path) -> Result<(), KitError> {
    fs::copy(source, target).map_err(failed("a copy of the probe program at", target))?;
    fs::set_permissions(target, Permissions::from_mode(0o755)).map_err(failed("the mode of", target))
}

fn write(path: &Path, mode: u32) -> Result<(), KitError> {
    let made = File::options().write(true).create_new(true).mode(mode).open(path);
    made.and_then(|mut file| {
        io::Write::write_all(&mut file, b"witness\n")?;
        file.set_permissions(Permissions::from_mode(mode))
    })
    .map_err(failed("the file", path))
}

fn openable(path: &Path) -> Option<(PathBuf, u32, u32)> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let device = file.metadata().ok()?.rdev();
    Some((path.to_path_buf(), rustix::fs::major(device), rustix::fs::minor(device)))
}
