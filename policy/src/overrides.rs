//! What the command line changes, as one more layer on top of the policy files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::diagnostic::{PolicyError, Source};
use crate::schema::{At, Document, GpuTable, MountMode, MountTable, Quantity};

/// Options of `airlock run` that need no policy file. Text is checked when the policy is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--workspace`: a directory that is read-write at `/workspace`, from which programs may be run, and
    /// which is the working directory.
    pub workspace: Option<PathBuf>,
    /// `--mount`, see [`parse_mount_arg`].
    pub mounts: Vec<MountArg>,
    /// `--memory`: a size with its unit, or `unlimited`.
    pub memory: Option<String>,
    /// `--cpus`: a number, or `unlimited`.
    pub cpus: Option<String>,
    /// `--pids`: a number, or `unlimited`.
    pub pids: Option<String>,
    /// `--wall`: a duration with its unit, or `unlimited`.
    pub wall: Option<String>,
    /// `--env`: `NAME=VALUE` to set, `NAME` to pass on the caller's value.
    pub env: Vec<String>,
    /// `--gpus`: a count, or a list of devices separated by commas.
    pub gpus: Option<String>,
    /// `--best-effort`: names of clauses.
    pub best_effort: Vec<String>,
    /// `--cwd`: working directory inside.
    pub cwd: Option<PathBuf>,
}

/// One `--mount`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountArg {
    /// Path on the host, relative to the working directory.
    pub source: String,
    /// Absolute path inside.
    pub target: String,
    /// Whether it may be written.
    pub mode: MountMode,
    /// Whether programs and libraries in it may be run.
    pub exec: bool,
    /// Left out where the host has no such source.
    pub optional: bool,
    /// Whether it is a Unix socket, and what listens on it can be connected to from inside.
    pub socket: bool,
}

/// Reads `SRC:DST[:OPTIONS]`; the options are `ro` or `rw`, `exec`, `optional` and `socket`, separated by commas.
pub fn parse_mount_arg(text: &str) -> Result<MountArg, PolicyError> {
    let bad = |message: &str| PolicyError::Argument {
        option: "--mount",
        value: text.to_owned(),
        message: message.to_owned(),
    };
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, options) = match parts.as_slice() {
        [source, target] => (source, target, ""),
        [source, target, options] => (source, target, *options),
        _ => {
            return Err(bad(
                "expected SOURCE:TARGET or SOURCE:TARGET:rw; a path with a colon needs a policy file",
            ));
        }
    };
    let (mut mode, mut exec, mut optional, mut socket) = (MountMode::Ro, false, false, false);
    for option in options.split(',').filter(|_| parts.len() == 3) {
        match option {
            "ro" => mode = MountMode::Ro,
            "rw" => mode = MountMode::Rw,
            "exec" => exec = true,
            "optional" => optional = true,
            "socket" => socket = true,
            _ => {
                let message =
                    "the options are `ro` or `rw`, `exec`, `optional` and `socket`, separated by commas";
                return Err(bad(message));
            }
        }
    }
    if source.is_empty() || target.is_empty() {
        return Err(bad("expected SOURCE:TARGET, neither of them empty"));
    }
    let (source, target) = ((*source).to_owned(), (*target).to_owned());
    Ok(MountArg { source, target, mode, exec, optional, socket })
}

/// The command line as a document whose "file" has one option a line, so that its mistakes are shown the
/// way those of a file are.
pub(crate) fn document(overrides: &Overrides) -> Result<(Source, Document), PolicyError> {
    let mut line = CommandLine::default();
    let mut document = Document::default();
    if let Some(workspace) = &overrides.workspace {
        let source = line.add("--workspace", text("--workspace", workspace)?);
        let target = At::new(source.span(), String::from("/workspace"));
        document.process.cwd = Some(target.clone());
        document.mount.push(At::new(
            source.span(),
            MountTable { source, target, mode: MountMode::Rw, exec: true, optional: false, socket: false },
        ));
    }
    for MountArg { source, target, mode, exec, optional, socket } in &overrides.mounts {
        let whole = line.add("--mount", format!("{source}:{target}"));
        let colon = whole.span().start + source.len();
        let source = At::new(whole.span().start..colon, source.clone());
        let target = At::new(colon + 1..whole.span().end, target.clone());
        let (mode, exec, optional, socket) = (*mode, *exec, *optional, *socket);
        let mount = MountTable { source, target, mode, exec, optional, socket };
        document.mount.push(At::new(whole.span(), mount));
    }
    document.limits.memory = line.quantity("--memory", &overrides.memory);
    document.limits.cpus = line.quantity("--cpus", &overrides.cpus);
    document.limits.pids = line.quantity("--pids", &overrides.pids);
    document.limits.wall = line.quantity("--wall", &overrides.wall);
    if let Some(cwd) = &overrides.cwd {
        document.process.cwd = Some(line.add("--cwd", text("--cwd", cwd)?));
    }
    let mut pass = Vec::new();
    let mut set = BTreeMap::new();
    for variable in &overrides.env {
        let whole = line.add("--env", variable.clone());
        match variable.split_once('=') {
            Some((name, value)) => {
                let equals = whole.span().start + name.len();
                let value = At::new(equals + 1..whole.span().end, value.to_owned());
                set.insert(At::new(whole.span().start..equals, name.to_owned()), value);
            }
            None => pass.push(whole),
        }
    }
    document.env.set = set;
    document.env.pass = list(pass);
    if let Some(gpus) = &overrides.gpus {
        let whole = line.add("--gpus", gpus.clone());
        let mut table = GpuTable::default();
        match gpus.parse() {
            Ok(..=0) => {
                return Err(PolicyError::Argument {
                    option: "--gpus",
                    value: gpus.clone(),
                    message:
                        "not a number of GPUs; leave --gpus out for none, and name GPU 0 by its UUID or PCI \
                              address"
                            .into(),
                });
            }
            Ok(count) => table.count = Some(At::new(whole.span(), count)),
            Err(_) => {
                let devices = gpus.split(',').map(|device| At::new(whole.span(), device.to_owned()));
                table.devices = list(devices.collect());
            }
        }
        document.gpu = Some(At::new(whole.span(), table));
    }
    let mut best_effort = Vec::new();
    for name in &overrides.best_effort {
        let whole = line.add("--best-effort", name.clone());
        let clause = serde_json::from_value(name.clone().into()).map_err(|_| PolicyError::Argument {
            option: "--best-effort",
            value: name.clone(),
            message: "expected `limits` or `devices`".into(),
        })?;
        best_effort.push(At::new(whole.span(), clause));
    }
    document.best_effort = list(best_effort);
    let source = Source { name: "command line".into(), text: line.text.into() };
    Ok((source, document))
}

/// A list that the policy files' list is extended by; none if it is empty.
fn list<T>(items: Vec<At<T>>) -> Option<At<Vec<At<T>>>> {
    let span = items.first()?.span();
    Some(At::new(span, items))
}

fn text(option: &'static str, path: &std::path::Path) -> Result<String, PolicyError> {
    path.to_str().map(str::to_owned).ok_or_else(|| PolicyError::Argument {
        option,
        value: path.display().to_string(),
        message: "a path must be UTF-8".into(),
    })
}

#[derive(Default)]
struct CommandLine {
    text: String,
}

impl CommandLine {
    fn add(&mut self, option: &str, value: String) -> At<String> {
        self.text.push_str(option);
        self.text.push(' ');
        let start = self.text.len();
        self.text.push_str(&value);
        let span = start..self.text.len();
        self.text.push('\n');
        At::new(span, value)
    }

    fn quantity(&mut self, option: &str, value: &Option<String>) -> Option<At<Quantity>> {
        let value = self.add(option, value.clone()?);
        Some(At::new(value.span(), Quantity(value.into_inner())))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn no_gpus_are_asked_for_by_leaving_the_flag_out() {
        let asked = |gpus: &str| {
            let overrides = Overrides { gpus: Some(gpus.into()), ..Overrides::default() };
            crate::Policy::load("base", &overrides, Path::new("/"))
        };
        assert!(asked("1").is_ok());
        for none in ["0", "-1"] {
            let error = asked(none).unwrap_err().to_string();
            assert!(error.contains("leave --gpus out"), "{error}");
        }
    }

    #[test]
    fn mounts_are_read_only_unless_said_otherwise() {
        let mount = |text| parse_mount_arg(text).unwrap();
        assert_eq!(mount("a:/b").mode, MountMode::Ro);
        assert_eq!(mount("a:/b:ro").mode, MountMode::Ro);
        assert_eq!(mount("a:/b:rw").mode, MountMode::Rw);
        assert!(mount("a:/b:rw,optional").optional && !mount("a:/b:rw").optional);
        assert_eq!((mount("a:/b").socket, mount("a:/b:ro,socket").socket), (false, true));
        for bad in ["a", "a:", ":/b", "a:/b:rwx", "a:/b:rw:c", ""] {
            assert!(matches!(parse_mount_arg(bad), Err(PolicyError::Argument { .. })), "{bad}");
        }
    }
}
