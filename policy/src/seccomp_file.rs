//! Seccomp profiles that stand in a file of their own, in OCI's JSON format.

use std::collections::BTreeSet;
use std::path::Path;

use airlock_runtime::seccomp;
use oci_spec::runtime::LinuxSeccomp;
use serde_json::Value;

use crate::checks;
use crate::diagnostic::{Fault, did_you_mean};
use crate::files;
use crate::merged::Profile;

const PROFILE_KEYS: [&str; 5] = ["defaultAction", "defaultErrnoRet", "architectures", "flags", "syscalls"];
const RULE_KEYS: [&str; 4] = ["names", "action", "errnoRet", "args"];

/// A profile by name, or the file that `text` names.
pub(crate) fn profile(text: &str, base: &Path) -> Result<Profile, Fault> {
    match text {
        "default" => Ok(Profile::Default),
        "strict" => Ok(Profile::Strict),
        "none" => Ok(Profile::None),
        file if file.contains('/') => {
            let path = checks::host_path(file, base)?;
            let text = files::read(&path)
                .map_err(|error| Fault::new(format!("read seccomp profile {}: {error}", path.display())))?;
            let content = Box::new(parse(&text)?);
            Ok(Profile::File { path, content })
        }
        other => Err(Fault::new(format!("no seccomp profile is called `{other}`")).help(
            did_you_mean(other, ["default", "strict", "none"])
                .unwrap_or_else(|| "`default`, `strict`, `none`, or a file, written with a `/`".into()),
        )),
    }
}

/// oci-spec skips keys that it does not know. A rule whose condition was skipped would let more through
/// than its author meant (container engines' own format has `includes` and `excludes`), so they are refused.
fn parse(text: &str) -> Result<LinuxSeccomp, Fault> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| Fault::new(format!("not a JSON document: {error}")))?;
    only(&value, &PROFILE_KEYS)?;
    for rule in value["syscalls"].as_array().into_iter().flatten() {
        only(rule, &RULE_KEYS)?;
    }
    serde_json::from_value(value)
        .map_err(|error| Fault::new(format!("not a seccomp profile in OCI's format: {error}")))
}

fn only(value: &Value, known: &[&str]) -> Result<(), Fault> {
    let known: BTreeSet<&str> = known.iter().copied().collect();
    let fields = value.as_object().ok_or_else(|| Fault::new("not a seccomp profile in OCI's format"))?;
    match fields.keys().find(|key| !known.contains(key.as_str())) {
        None => Ok(()),
        Some(key) => Err(Fault::new(format!("key `{key}` of the seccomp profile is not taken"))
            .help("only the keys of linux.seccomp in an OCI config.json, without a listener")),
    }
}

/// A system call's name, as it may stand in a list.
pub(crate) fn syscall(name: String) -> Result<String, Fault> {
    if seccomp::syscall_number(&name).is_some() {
        return Ok(name);
    }
    let near = did_you_mean(&name, seccomp::all().iter().map(|(known, _)| *known));
    let help = near.unwrap_or_else(|| "syscalls(2) lists the names".into());
    Err(Fault::new(format!("no system call is called `{name}`")).help(help))
}
