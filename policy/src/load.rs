//! From the POLICY argument to the merged policy: files, `extends`, the command line.

use std::path::{Path, PathBuf};

use airlock_runtime::seccomp::{SeccompError, check_launch_set};

use crate::apply::{Layer, apply};
use crate::builtin;
use crate::diagnostic::{Diagnostic, Fault, Place, PolicyError, Source, did_you_mean};
use crate::files;
use crate::merged::{Policy, Profile, Seccomp};
use crate::overrides::{self, Overrides};
use crate::parse::parse;
use crate::resolve;
use crate::schema::{Document, RootKind};

/// The policy that a file without `extends` changes.
const ROOT: &str = "base";

/// Where a policy's text is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Builtin(String),
    File(PathBuf),
}

struct Loaded {
    origin: Origin,
    source: Source,
    document: Document,
    base: PathBuf,
}

impl Policy {
    /// Loads the policy that `arg` names, with all that it extends, and lays the command line over it.
    ///
    /// An argument with `/` or ending in `.toml` is a file, relative to `cwd`; any other is a built-in name.
    /// Relative sources of mounts are relative to the file that states them, those of `overrides` to `cwd`,
    /// which must be absolute.
    pub fn load(arg: &str, overrides: &Overrides, cwd: &Path) -> Result<Policy, PolicyError> {
        let mut policy = Policy::default();
        let mut faults = Vec::new();
        for loaded in chain(arg, cwd)?.into_iter().rev() {
            let Loaded { origin, source, document, base } = loaded;
            if document.version.is_none() {
                let fault = Fault::new("the policy does not say its version");
                faults.push(fault.help("begin the file with `version = 1`").at(source.place(0..0)));
            }
            // A name is that of one file, not of those that extend it.
            policy.name = origin.name();
            let layer = Layer { source: &source, base: &base, extends_lists: false };
            faults.extend(apply(&mut policy, &layer, document));
        }
        let (source, document) = overrides::document(overrides)?;
        let layer = Layer { source: &source, base: cwd, extends_lists: true };
        faults.extend(apply(&mut policy, &layer, document));
        if faults.is_empty() {
            faults.extend(contradictions(&policy)?);
        }
        Policy::check(faults)?;
        Ok(policy)
    }
}

/// What only the merged policy shows to be wrong.
fn contradictions(policy: &Policy) -> Result<Vec<Diagnostic>, PolicyError> {
    let root = match (policy.root.kind, &policy.root.path) {
        (RootKind::Dir, None) => {
            let fault = Fault::new("root kind `dir` needs `path`").help("path = \"./rootfs\"");
            Some(("root.kind", fault))
        }
        (RootKind::Dir, Some(_)) | (_, None) => None,
        (_, Some(_)) => Some(("root.path", Fault::new("`path` belongs to root kind `dir`"))),
    };
    let at = |(clause, fault): (&str, Fault)| Some(fault.at(policy.place(clause)?));
    Ok(root.into_iter().chain(seccomp(policy)?).filter_map(at).collect())
}

/// Profiles that the runtime ships with are proven there; what a policy makes of them is compiled here once.
fn seccomp(policy: &Policy) -> Result<Option<(&'static str, Fault)>, PolicyError> {
    let Seccomp { profile, allow, deny, log } = &policy.seccomp;
    let file = matches!(profile, Profile::File { .. });
    if !file && allow.is_empty() && deny.is_empty() && log.is_empty() {
        return Ok(None);
    }
    let Some(filter) = resolve::filter(policy)? else {
        return Ok(None);
    };
    Ok(check_launch_set(&filter).err().map(|error| {
        let clause = match &error {
            SeccompError::LaunchSet { call, .. } if deny.iter().any(|denied| denied == call) => {
                "seccomp.deny"
            }
            _ => "seccomp.profile",
        };
        (clause, Fault::new(error.to_string()))
    }))
}

/// The policy that `arg` names, then what it extends, and so on down to one that extends nothing.
fn chain(arg: &str, cwd: &Path) -> Result<Vec<Loaded>, PolicyError> {
    let mut chain: Vec<Loaded> = vec![load(Origin::of(arg, cwd), arg, None)?];
    loop {
        let last = &chain[chain.len() - 1];
        let (next, shown, place) = match &last.document.extends {
            Some(extends) => {
                let place = last.source.place(extends.span());
                (Origin::of(extends, &last.base), extends.to_string(), Some(place))
            }
            None if last.origin == Origin::Builtin(ROOT.into()) => return Ok(chain),
            None => (Origin::Builtin(ROOT.into()), ROOT.into(), None),
        };
        let next = next.canonical();
        if let (Some(place), true) = (&place, chain.iter().any(|loaded| loaded.origin == next)) {
            let names: Vec<&str> = chain.iter().map(|loaded| &*loaded.source.name).collect();
            let message = format!("`extends` goes round in a circle: {} -> {shown}", names.join(" -> "));
            return Err(Fault::new(message).at(place.clone()).into());
        }
        chain.push(load(next, &shown, place)?);
    }
}

fn load(origin: Origin, shown: &str, wanted_by: Option<Place>) -> Result<Loaded, PolicyError> {
    let origin = origin.canonical();
    let (source, base) = match &origin {
        Origin::Builtin(name) => {
            let Some(text) = builtin::text(name) else {
                return Err(unknown(name, wanted_by));
            };
            (Source { name: format!("built-in {name}").into(), text: text.into() }, PathBuf::from("/"))
        }
        Origin::File(path) => {
            let text = files::read(path).map_err(|source| PolicyError::Read {
                path: path.clone(),
                wanted_by: wanted_by.clone(),
                source,
            })?;
            let base = path.parent().unwrap_or(Path::new("/")).to_owned();
            let name = if wanted_by.is_none() { shown.to_owned() } else { path.display().to_string() };
            (Source { name: name.into(), text: text.into() }, base)
        }
    };
    let document: Document = parse(&source)?;
    Ok(Loaded { origin, source, document, base })
}

fn unknown(name: &str, wanted_by: Option<Place>) -> PolicyError {
    let help = did_you_mean(name, builtin::names()).unwrap_or_else(|| {
        let names: Vec<&str> = builtin::names().collect();
        format!("the built-in policies are {}; a file has a `/` or ends in `.toml`", names.join(", "))
    });
    match wanted_by {
        Some(place) => {
            Fault::new(format!("no built-in policy is called `{name}`")).help(help).at(place).into()
        }
        None => PolicyError::UnknownBuiltin { name: name.to_owned(), help },
    }
}

impl Origin {
    fn of(arg: &str, base: &Path) -> Self {
        if arg.contains('/') || arg.ends_with(".toml") {
            Origin::File(base.join(arg))
        } else {
            Origin::Builtin(arg.to_owned())
        }
    }

    /// The same file under one name, so that a circle is seen; a missing file stays as it is.
    fn canonical(self) -> Self {
        match self {
            Origin::File(path) => Origin::File(path.canonicalize().unwrap_or(path)),
            builtin => builtin,
        }
    }

    fn name(&self) -> String {
        match self {
            Origin::Builtin(name) => name.clone(),
            Origin::File(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }
}
