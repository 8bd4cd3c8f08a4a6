//! Single values: from the text of a policy file to what it means, or why it means nothing.

use std::path::{Component, Path, PathBuf};

use airlock_runtime::gpu::cdi::Name;
use airlock_runtime::gpu::nvidia;
use oci_spec::runtime::Capability;

use crate::diagnostic::{Fault, did_you_mean};
use crate::merged::{Gpu, User, Writable};
use crate::schema::Quantity;
use crate::units::{Duration, Energy, Percent, Size};

/// Ids of a sandbox's own range: 0 to 65,535.
const LAST_ID: u32 = 0xffff;
/// The kernel's default `fs.nr_open`; no process can have more files open.
const MOST_FILES: u64 = 1 << 20;
/// Trees that Airlock makes itself and whose content decides what is confined.
const RESERVED: [&str; 3] = ["/proc", "/sys", "/dev"];

pub(crate) fn version(version: i64) -> Result<u32, Fault> {
    match version {
        1 => Ok(1),
        other => Err(Fault::new(format!("version {other} of the policy language is unknown"))
            .help("this Airlock reads `version = 1`")),
    }
}

pub(crate) fn name(name: String) -> Result<String, Fault> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if fits {
        return Ok(name);
    }
    Err(Fault::new("a policy's name is 1 to 64 letters, digits, `-`, `_` and `.`"))
}

pub(crate) fn user(text: String) -> Result<User, Fault> {
    let id = |text: &str| text.parse().ok().filter(|id| *id <= LAST_ID && !text.starts_with('+'));
    text.split_once(':').and_then(|(uid, gid)| Some(User { uid: id(uid)?, gid: id(gid)? })).ok_or_else(|| {
        Fault::new(format!("`{text}` is not a user"))
            .help("write the numbers of user and group inside, 0 to 65535, such as \"1000:1000\"")
    })
}

pub(crate) fn hostname(name: String) -> Result<String, Fault> {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    // 64 is __NEW_UTS_LEN.
    if name.len() <= 64 && name.split('.').all(label) {
        return Ok(name);
    }
    Err(Fault::new("a host name is at most 64 letters, digits, `-` and `.`, and no part of it is empty"))
}

pub(crate) fn capability(name: String) -> Result<Capability, Fault> {
    let known: Vec<String> = CAPABILITIES.iter().map(|known| format!("CAP_{known}")).collect();
    // oci-spec takes other spellings too; a policy has one.
    let exact = known.contains(&name).then(|| serde_json::from_value(name.clone().into()).ok());
    exact.flatten().ok_or_else(|| {
        let full = format!("CAP_{}", name.to_uppercase().trim_start_matches("CAP_"));
        let near = did_you_mean(&full, known.iter().map(String::as_str));
        Fault::new(format!("no capability is called `{name}`"))
            .help(near.unwrap_or_else(|| "capabilities(7) lists the names".into()))
    })
}

/// The names of capabilities(7), without `CAP_`.
const CAPABILITIES: [&str; 41] = [
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

pub(crate) fn min_abi(abi: i64) -> Result<u8, Fault> {
    u8::try_from(abi)
        .ok()
        .filter(|abi| *abi <= 10)
        .ok_or_else(|| Fault::new(format!("Landlock has no ABI {abi}")).help("1 to 10, or 0 for best effort"))
}

/// A limit that `unlimited` lifts.
pub(crate) fn unless_unlimited<T>(
    parse: impl FnOnce(&str) -> Result<T, Fault>,
) -> impl FnOnce(Quantity) -> Result<Option<T>, Fault> {
    |Quantity(text)| match text.as_str() {
        "unlimited" => Ok(None),
        text => parse(text).map(Some),
    }
}

/// A limit that must be stated.
pub(crate) fn always<T>(
    parse: impl FnOnce(&str) -> Result<T, Fault>,
) -> impl FnOnce(Quantity) -> Result<T, Fault> {
    |Quantity(text)| parse(&text)
}

pub(crate) fn some_bytes(text: &str) -> Result<Size, Fault> {
    match Size::parse(text)? {
        Size(0) => Err(Fault::new("a size of 0 leaves nothing to run in")),
        size => Ok(size),
    }
}

pub(crate) fn some_energy(text: &str) -> Result<Energy, Fault> {
    match Energy::parse(text)? {
        Energy(0) => Err(Fault::new("an energy of 0 leaves nothing to run with")),
        energy => Ok(energy),
    }
}

/// Of a GPU's time.
pub(crate) fn utilisation(text: &str) -> Result<Percent, Fault> {
    match Percent::parse(text)? {
        Percent(0) => Err(Fault::new("0% leaves nothing to run with")),
        Percent(100) => Err(Fault::new("nothing exceeds 100%").help("less, or leave it out")),
        share => Ok(share),
    }
}

/// Airlock's own init is the first process of a sandbox, and what it uses counts.
pub(crate) fn memory(text: &str) -> Result<Size, Fault> {
    const LEAST: Size = Size(1 << 20);
    match some_bytes(text)? {
        size if size < LEAST => Err(Fault::new(format!("`{}` leaves no room to start in", text.trim()))
            .help(format!("at least {LEAST}"))),
        size => Ok(size),
    }
}

pub(crate) fn some_time(text: &str) -> Result<Duration, Fault> {
    match Duration::parse(text)? {
        Duration(0) => Err(Fault::new("a wall-clock limit of 0 ends the command before it starts")),
        duration => Ok(duration),
    }
}

pub(crate) fn cpus(text: &str) -> Result<f64, Fault> {
    // The kernel takes no quota below 1 ms per period of 100 ms.
    text.parse().ok().filter(|cpus| (0.01..=100_000.0).contains(cpus)).ok_or_else(|| {
        Fault::new(format!("`{text}` is not a number of CPUs")).help("a number from 0.01, such as 8.0")
    })
}

pub(crate) fn pids(text: &str) -> Result<u64, Fault> {
    // Runtimes disagree whether 0 means none or unlimited (youki issue 3634).
    let pids = whole(text, 1, 1 << 22, "number of processes")?;
    if pids == 1 {
        return Err(Fault::new(
            "1 process leaves no room for the command: Airlock's own init is one of them",
        )
        .help("at least 2"));
    }
    Ok(pids)
}

pub(crate) fn nofile(text: &str) -> Result<u64, Fault> {
    whole(text, 16, MOST_FILES, "number of open files")
}

pub(crate) fn io_weight(text: &str) -> Result<u16, Fault> {
    let weight = whole(text, 10, 1000, "block I/O weight")?;
    u16::try_from(weight).map_err(|_| Fault::new("a weight has 16 bits"))
}

fn whole(text: &str, least: u64, most: u64, what: &str) -> Result<u64, Fault> {
    text.parse().ok().filter(|number| (least..=most).contains(number)).ok_or_else(|| {
        Fault::new(format!("`{text}` is not a {what}")).help(format!("a whole number from {least} to {most}"))
    })
}

pub(crate) fn cpuset(text: String) -> Result<String, Fault> {
    let cpu = |text: &str| text.parse::<u32>().ok().filter(|cpu| *cpu < 8192);
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => cpu(first).zip(cpu(last)).is_some_and(|(first, last)| first <= last),
        None => cpu(part).is_some(),
    };
    if text.split(',').all(range) {
        return Ok(text);
    }
    Err(Fault::new(format!("`{text}` is not a list of CPUs")).help("such as \"0-3,8\""))
}

pub(crate) fn gpu_count(count: i64) -> Result<u32, Fault> {
    let help = match count {
        ..=0 => "leave [gpu] out for none",
        _ => "from 1 to 256; a kind of GPU has a letter in it, such as \"RTX 4090\"",
    };
    u32::try_from(count)
        .ok()
        .filter(|count| (1..=256).contains(count))
        .ok_or_else(|| Fault::new(format!("{count} is not a number of GPUs")).help(help))
}

/// What a list of GPUs cannot be.
pub(crate) fn gpu_devices(devices: &[String]) -> Result<(), Fault> {
    if devices.len() > 1 && devices.iter().any(|device| device == "all") {
        return Err(Fault::new("`all` stands alone").help("devices = [\"all\"]"));
    }
    let mut exact = devices.iter().filter(|device| is_exact(device)).collect::<Vec<_>>();
    exact.sort();
    match exact.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Fault::new(format!("`{}` is asked for twice", pair[0]))),
        None => Ok(()),
    }
}

/// Names one device, and not a kind of which there may be several.
fn is_exact(device: &str) -> bool {
    let number = |part: &str| part.parse::<u32>().is_ok();
    number(device)
        || device.split_once(':').is_some_and(|(gpu, slice)| number(gpu) && number(slice))
        || device.starts_with("GPU-")
        || device.starts_with("MIG-")
}

/// What a table says of GPUs that the sandbox has for itself.
pub(crate) fn gpu_keys(gpu: &Gpu) -> Result<(), Fault> {
    let keys = [
        ("memory", gpu.memory.is_some()),
        ("energy", gpu.energy.is_some()),
        ("utilisation", gpu.utilisation.is_some()),
        ("reset", gpu.reset),
    ];
    let Some((key, _)) = keys.into_iter().find(|(_, given)| *given) else { return Ok(()) };
    if gpu.count.is_none() && gpu.devices.is_empty() {
        return Err(Fault::new(format!(
            "`{key}` is of GPUs that `count` or `devices` ask for, and there are none"
        ))
        .help("ask for them, or leave it out"));
    }
    if gpu.shared {
        let fault = Fault::new(format!("`{key}` and `shared` contradict each other"));
        return Err(
            fault.help("what others do on a GPU is not the sandbox's to be ended for, nor to be reset")
        );
    }
    Ok(())
}

pub(crate) fn gpu_capability(text: String) -> Result<String, Fault> {
    if nvidia::Capability::from_word(&text).is_some() {
        return Ok(text);
    }
    let known = nvidia::Capability::ALL.map(nvidia::Capability::word).join(", ");
    Err(Fault::new(format!("`{text}` is not a capability of the driver")).help(known))
}

pub(crate) fn cdi_name(text: String) -> Result<String, Fault> {
    let name = text.parse::<Name>().map_err(|error| Fault::new(error.to_string()))?;
    Ok(name.to_string())
}

pub(crate) fn render_node(text: String) -> Result<PathBuf, Fault> {
    let path = inside_path(&text)?;
    let render = path.strip_prefix("/dev/dri").ok().and_then(|name| name.to_str());
    let render = render.is_some_and(|name| name.starts_with("renderD") && !name.contains('/'));
    if render || path == Path::new("/dev/kfd") {
        return Ok(path);
    }
    Err(Fault::new(format!("`{text}` is not a render node")).help("/dev/dri/renderD128 and so on, /dev/kfd"))
}

pub(crate) fn word(text: String) -> Result<String, Fault> {
    if text.is_empty() || text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(Fault::new("empty, or with white space in it"));
    }
    Ok(text)
}

pub(crate) fn variable(name: &str) -> Result<(), Fault> {
    if name.is_empty() || name.contains(|c: char| c == '=' || c.is_control()) {
        return Err(Fault::new("a variable's name is not empty and holds no `=` and no control character"));
    }
    Ok(())
}

pub(crate) fn value(text: String) -> Result<String, Fault> {
    if text.contains('\0') {
        return Err(Fault::new("a variable's value holds a NUL character"));
    }
    Ok(text)
}

/// A path of the host, made absolute against `base`.
pub(crate) fn host_path(text: &str, base: &Path) -> Result<PathBuf, Fault> {
    no_control(text)?;
    // `components` drops `.` and doubled slashes; `..` stays, since a link may stand before it.
    Ok(base.join(text).components().collect())
}

/// An absolute path inside the sandbox, without `..`.
pub(crate) fn inside_path(text: &str) -> Result<PathBuf, Fault> {
    no_control(text)?;
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(Fault::new(format!("`{text}` is not absolute"))
            .help(format!("a path inside starts with `/`: \"/{}\"", text.trim_start_matches("./"))));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(Fault::new(format!("`{text}` has `..` in it")).help("write the path that is meant"));
    }
    Ok(path.components().collect())
}

/// What a mount may show. Links are not looked at: this keeps an author from a slip, it is no boundary.
pub(crate) fn source(text: &str, base: &Path) -> Result<PathBuf, Fault> {
    let path = host_path(text, base)?;
    if let Some(reserved) = RESERVED.iter().find(|reserved| path.starts_with(reserved)) {
        return Err(Fault::new(format!("nothing at or below the host's {reserved} can be mounted"))
            .help("Airlock makes /proc and /dev itself, with what the policy allows; /sys stays away"));
    }
    // A read-only mount does not keep anyone from connecting to a socket in it (greywall issue 55).
    if ["/", "/run", "/var/run"].iter().any(|whole| path == Path::new(whole)) {
        return Err(Fault::new(format!("{} holds the sockets of the host's services", path.display()))
            .help("name the directory or file in it that is meant"));
    }
    Ok(path)
}

/// Where a mount may go: an absolute path that no reserved one covers.
pub fn target(text: &str) -> Result<PathBuf, Fault> {
    let path = inside_path(text)?;
    if path == Path::new("/") {
        return Err(Fault::new("a mount cannot take the place of `/`")
            .help("`[root] kind = \"dir\"` with `path` puts a directory there"));
    }
    if let Some(reserved) = RESERVED.iter().find(|reserved| path.starts_with(reserved)) {
        return Err(Fault::new(format!("nothing can be mounted at or below {reserved}"))
            .help("Airlock makes /proc and /dev itself, with what the policy allows; /sys stays away"));
    }
    Ok(path)
}

pub(crate) fn writable(text: &str, base: &Path) -> Result<Writable, Fault> {
    match text {
        "none" => Ok(Writable::None),
        "tmpfs" => Ok(Writable::Tmpfs),
        directory if directory.contains('/') => host_path(directory, base).map(Writable::Dir),
        other => Err(Fault::new(format!("unknown value `{other}`")).help(
            did_you_mean(other, ["none", "tmpfs"])
                .unwrap_or_else(|| "`none`, `tmpfs`, or a directory, written with a `/`".into()),
        )),
    }
}

fn no_control(text: &str) -> Result<(), Fault> {
    if text.is_empty() {
        return Err(Fault::new("an empty path"));
    }
    // A newline would make a second line in mountinfo-like texts, a NUL would end the path early.
    if text.contains(char::is_control) {
        return Err(Fault::new("a path with a NUL, a newline or another control character in it"));
    }
    Ok(())
}
