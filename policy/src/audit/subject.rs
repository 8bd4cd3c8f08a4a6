//! One sandbox as it was written down: an Airlock policy, or an OCI bundle's `config.json`.

use std::path::{Path, PathBuf};

use airlock_runtime::seccomp::{self, Program, SeccompError};
use airlock_runtime::spec::Extension;
use oci_spec::runtime::{LinuxSeccomp, Spec};
use serde_json::Value;

use super::document::Document;
use super::filter::Filter;
use super::rule::{Locate, Spot};
use super::spans::Spans;
use crate::diagnostic::{Fault, Place, PolicyError, Source};
use crate::host::{HostEntry, HostTree};
use crate::merged::Policy;
use crate::overrides::Overrides;
use crate::resolve::{ResolveInput, resolve};

/// Why something cannot be audited.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// A policy that does not load.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A file that could not be read.
    #[error("read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A filter that cannot be compiled, so that nothing can be said of it.
    #[error("{file}: {source}")]
    Filter {
        /// The file.
        file: String,
        /// What the compiler said.
        source: SeccompError,
    },
}

/// One sandbox as it was written down.
#[derive(Clone, Debug)]
pub struct Subject {
    document: Document,
    filter: Option<Filter>,
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Origin {
    Policy { policy: Box<Policy>, airlock: Box<Extension> },
    Bundle { source: Source, spans: Spans },
}

impl Subject {
    /// The policy that `arg` names, see [`Policy::load`].
    pub fn policy_named(arg: &str, cwd: &Path) -> Result<Self, AuditError> {
        Self::of_policy(Policy::load(arg, &Overrides::default(), cwd)?)
    }

    /// A policy, resolved as for a host that has nothing but `/usr`: what else a host has there is read-only too.
    pub fn of_policy(policy: Policy) -> Result<Self, AuditError> {
        let system = [(String::from("/usr"), HostEntry::Dir)].into();
        let host = HostTree { system, ..HostTree::default() };
        // GPUs are the policy's own words; a document has none for them before a host is known.
        let resolved = Policy { gpu: None, ..policy.clone() };
        let input = ResolveInput { args: vec!["audited".into()], host, ..ResolveInput::default() };
        let spec = resolve(&resolved, &input)?;
        let filter = compiled(&policy.name, &spec.oci)?;
        let document = Document(
            serde_json::to_value(&spec.oci)
                .map_err(|error| PolicyError::Write { format: "JSON", message: error.to_string() })?,
        );
        let origin = Origin::Policy { policy: Box::new(policy), airlock: Box::new(spec.airlock) };
        Ok(Subject { document, filter, origin })
    }

    /// The `config.json` of a bundle.
    pub fn bundle(file: &Path) -> Result<Self, AuditError> {
        let text =
            crate::files::read(file).map_err(|source| AuditError::Read { path: file.to_owned(), source })?;
        Self::bundle_text(&file.display().to_string(), &text)
    }

    /// The text of a `config.json`, and what to call the file.
    pub fn bundle_text(name: &str, text: &str) -> Result<Self, AuditError> {
        let source = Source::new(name, text);
        let bad = |error: serde_json::Error| {
            let lines = text.split_inclusive('\n').take(error.line().saturating_sub(1));
            let at = lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
            let fault = Fault::new(format!("not an OCI runtime configuration: {error}"));
            PolicyError::from(fault.at(source.place(at..at)))
        };
        let value: Value = serde_json::from_str(text).map_err(bad)?;
        // A list would be taken for the fields in their order.
        if !value.is_object() {
            let fault = Fault::new("not an OCI runtime configuration: it is not an object");
            return Err(PolicyError::from(fault.at(source.place(0..text.len().min(1)))).into());
        }
        let oci: Spec = serde_json::from_str(text).map_err(bad)?;
        let filter = compiled(name, &oci)?;
        let spans = Spans::json(text);
        Ok(Subject { document: Document(value), filter, origin: Origin::Bundle { source, spans } })
    }

    /// The seccomp filter as it was written and as Airlock compiles it; `None` where no call is filtered.
    pub fn seccomp(&self) -> Option<(&LinuxSeccomp, &Program)> {
        self.filter.as_ref().map(|filter| (&filter.document, &filter.program))
    }

    pub(super) fn document(&self) -> &Document {
        &self.document
    }

    /// The seccomp filter; absent where no call is filtered.
    pub(super) fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// The policy, of an Airlock policy.
    pub(super) fn policy(&self) -> Option<&Policy> {
        match &self.origin {
            Origin::Policy { policy, .. } => Some(policy),
            Origin::Bundle { .. } => None,
        }
    }

    pub(super) fn is_bundle(&self) -> bool {
        matches!(self.origin, Origin::Bundle { .. })
    }
}

fn compiled(name: &str, oci: &Spec) -> Result<Option<Filter>, AuditError> {
    let document = oci.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
    let Some(document) = document.cloned() else { return Ok(None) };
    match seccomp::compile(&document) {
        Ok(program) => Ok(Some(Filter { document, program })),
        Err(source) => Err(AuditError::Filter { file: name.to_owned(), source }),
    }
}

impl Locate for Subject {
    fn locate(&self, spot: &Spot) -> (String, Place) {
        match (&self.origin, spot) {
            (Origin::Bundle { source, spans }, Spot::Member(pointer) | Spot::Clause(pointer)) => {
                let clause = pointer.trim_start_matches('/').replace('/', ".");
                (clause, source.place(spans.nearest(pointer)))
            }
            (Origin::Policy { policy, airlock }, spot) => {
                let clause = match spot {
                    Spot::Clause(clause) => clause.clone(),
                    Spot::Member(pointer) => clause_of(pointer, &self.document, airlock),
                };
                let place = policy.place(&clause).or_else(|| policy.place("version"));
                let clause = clause.trim_end_matches(" source").to_owned();
                let file = || policy.name.clone();
                let unknown = || Place { file: file(), line: 1, column: 1, width: 1, text: String::new() };
                (clause, place.unwrap_or_else(unknown))
            }
        }
    }
}

/// The clause that a member of a resolved policy's document comes from.
fn clause_of(pointer: &str, document: &Document, airlock: &Extension) -> String {
    let parts: Vec<&str> = pointer.trim_start_matches('/').split('/').collect();
    let clause = match parts.as_slice() {
        ["mounts", index, rest @ ..] => {
            let target = document.text(&format!("/mounts/{index}/destination"));
            let origin = airlock.origins.get(Path::new(target)).map_or("root.kind", String::as_str);
            let source = rest == ["source"] && origin.starts_with("[[mount]]");
            return if source { format!("{origin} source") } else { origin.to_owned() };
        }
        ["process", "env", index] => {
            let variable = document.text(&format!("/process/env/{index}"));
            return format!("env.set.{}", variable.split_once('=').map_or(variable, |(name, _)| name));
        }
        ["process", "capabilities", ..] => "capabilities.keep",
        ["process", "user", ..] => "identity.user",
        ["process", "rlimits", ..] => "limits.core",
        ["root", "readonly"] => "root.writable",
        ["root", ..] => "root.kind",
        ["linux", "resources", "memory", "swap"] => "limits.swap",
        ["linux", "resources", "memory", ..] => "limits.memory",
        ["linux", "resources", "pids", ..] => "limits.pids",
        ["linux", "resources", "cpu", ..] => "limits.cpus",
        ["linux", "seccomp", ..] => "seccomp.profile",
        _ => "version",
    };
    clause.to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A configuration in which each place may hold what does not belong there.
    fn config() -> impl Strategy<Value = String> {
        let odd = || {
            prop_oneof![
                Just("null"),
                Just("-1"),
                Just("18446744073709551616"),
                Just("1e999"),
                Just("\"\""),
                Just("\"/\""),
                Just("[]"),
                Just("[null]"),
                Just("{}"),
                Just("true"),
                Just("\"\u{1b}[0m\""),
            ]
        };
        let places = [
            ("ociVersion", "\"1.0.2\""),
            ("hostname", "\"h\""),
            ("root", "{\"path\":\"rootfs\",\"readonly\":VALUE}"),
            ("process", "{\"cwd\":VALUE,\"args\":[\"a\"],\"user\":{\"uid\":0,\"gid\":0}}"),
            (
                "process",
                "{\"cwd\":\"/\",\"capabilities\":{\"bounding\":VALUE},\"user\":{\"uid\":0,\"gid\":0}}",
            ),
            ("mounts", "[{\"destination\":VALUE,\"source\":\"/\",\"options\":[\"rw\"]}]"),
            ("mounts", "[{\"destination\":\"/\",\"options\":VALUE}]"),
            ("linux", "{\"namespaces\":VALUE}"),
            ("linux", "{\"resources\":{\"memory\":{\"limit\":VALUE},\"devices\":VALUE}}"),
            ("linux", "{\"seccomp\":{\"defaultAction\":\"SCMP_ACT_ERRNO\",\"syscalls\":VALUE}}"),
            ("linux", "{\"maskedPaths\":VALUE,\"uidMappings\":VALUE}"),
            ("hooks", "VALUE"),
        ];
        let member = (prop::sample::select(places.to_vec()), odd())
            .prop_map(|((name, text), odd)| format!("\"{name}\":{}", text.replace("VALUE", odd)));
        let members = prop::collection::vec(member, 0..6);
        (members, 0..400_usize, prop::bool::weighted(0.2)).prop_map(|(members, at, cut)| {
            let text = format!("{{{}}}", members.join(",\n"));
            if cut { text.chars().take(at).collect() } else { text }
        })
    }

    proptest! {
        /// A document is refused at a place in it, or the rules judge it; neither ends the program.
        #[test]
        fn any_configuration_is_judged_or_refused_at_a_place(text in config()) {
            match Subject::bundle_text("config.json", &text) {
                Ok(subject) => drop(subject.findings()),
                Err(AuditError::Policy(error)) => {
                    let error = error.to_string();
                    prop_assert!(error.starts_with("config.json:"), "{error}");
                }
                Err(error) => prop_assert!(error.to_string().starts_with("config.json: "), "{error}"),
            }
        }
    }
}
