//! What a resolved policy needs to know of the host's file tree, as plain data.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::merged::Policy;

/// Top-level names that a `host` root takes over. Nothing else of `/` is ever shown.
pub(crate) const TOP: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"];

/// What a `host` root takes over of `/etc`: settings that are the same for everyone, read by the loader,
/// locales, name tables, TLS and the like. Whatever may hold a secret or name a person stays away, and so
/// does what no program needs in order to run: each entry here is work at every launch.
pub(crate) const ETC: [&str; 16] = [
    "/etc/alternatives",
    "/etc/ca-certificates/extracted",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/protocols",
    "/etc/redhat-release",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

/// Where software lies that is not the distribution's, each in a directory of its own.
pub(crate) const OPT: &str = "/opt";

/// Debian keeps the settings of `/usr/lib/jvm/java-N-openjdk-ARCH` in `/etc/java-N-openjdk`, with links to
/// them below `/usr`; without them that Java does not start.
const JVM: &str = "/usr/lib/jvm";

/// What the host has at the paths that a policy may take over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostTree {
    /// By absolute path, links not followed; what is absent here is absent on the host.
    pub system: BTreeMap<String, HostEntry>,
    /// Whether the sources of the policy's mounts exist, links followed. A source that is not here is
    /// taken to exist.
    pub sources: BTreeMap<PathBuf, bool>,
    /// Directories and links that the host has in `/opt`, where the policy mounts something there that the host has no place for.
    pub opt: Option<BTreeMap<String, HostEntry>>,
}

/// One entry of the host's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEntry {
    /// A directory.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link and its text.
    Link(PathBuf),
}

impl HostTree {
    /// Looks at the fixed list of paths, and at what each Java has in `/etc`.
    pub fn read() -> Self {
        let jvms = fs::read_dir(JVM).into_iter().flatten().flatten();
        let javas = jvms.filter_map(|entry| java(entry.file_name().to_str()?));
        let fixed = TOP.into_iter().chain(ETC).map(String::from);
        let system =
            fixed.chain(javas).filter_map(|path| look(Path::new(&path)).map(|entry| (path, entry))).collect();
        HostTree { system, sources: BTreeMap::new(), opt: None }
    }

    /// Looks at the sources of the policy's mounts too, so that an optional one can be left out and a missing
    /// one be named with its place in the policy.
    pub fn with_sources(mut self, policy: &Policy) -> Self {
        for mount in &policy.mount {
            let missing = fs::metadata(&mount.source)
                .is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory));
            self.sources.insert(mount.source.clone(), !missing);
        }
        // Nothing can be mounted where the host has no directory for it, so the directory above is made anew then.
        let new = |target: &PathBuf| {
            let name = target.strip_prefix(OPT).ok().and_then(|below| below.components().next());
            name.is_some_and(|name| look(&Path::new(OPT).join(name)).is_none())
        };
        if policy.mount.iter().any(|mount| new(&mount.target)) {
            let entries = fs::read_dir(OPT).into_iter().flatten().flatten();
            let paths = entries.filter_map(|entry| entry.path().into_os_string().into_string().ok());
            let entries = paths.filter_map(|path| Some((path.clone(), look(Path::new(&path))?)));
            self.opt = Some(entries.filter(|(_, entry)| *entry != HostEntry::File).collect());
        }
        self
    }
}

/// Where the settings of a Java are, by its name below [`JVM`].
fn java(name: &str) -> Option<String> {
    let (version, _arch) = name.rsplit_once('-')?;
    version.starts_with("java-").then(|| format!("/etc/{version}"))
}

fn look(path: &Path) -> Option<HostEntry> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    if kind.is_symlink() {
        Some(HostEntry::Link(fs::read_link(path).ok()?))
    } else if kind.is_dir() {
        Some(HostEntry::Dir)
    } else {
        kind.is_file().then_some(HostEntry::File)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_usr_and_no_secret_is_looked_at() {
        let host = HostTree::read();
        assert_eq!(host.system["/usr"], HostEntry::Dir);
        for secret in ["/etc/shadow", "/etc", "/etc/ssl/private", "/root", "/run", "/var"] {
            assert!(!host.system.contains_key(secret), "{secret}");
        }
    }

    #[test]
    fn each_java_has_its_settings() {
        assert_eq!(java("java-17-openjdk-amd64").unwrap(), "/etc/java-17-openjdk");
        assert_eq!(java("default-java"), None);
        assert_eq!(java("java"), None);
    }
}
