//! What a resolved policy needs to know of the host's file tree, as plain data.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
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
    /// Paths that could not be looked at, and why: what is there is unknown.
    pub unknown: BTreeMap<String, String>,
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
        let mut host = HostTree::default();
        let javas = host.listed(JVM).into_iter().filter_map(|path| java(path.file_name()?.to_str()?));
        for path in TOP.into_iter().chain(ETC).map(String::from).chain(javas) {
            if let Some(entry) = host.looked_at(&path) {
                host.system.insert(path, entry);
            }
        }
        host
    }

    /// What is at a path; that nobody knows is remembered.
    fn looked_at(&mut self, path: &str) -> Option<HostEntry> {
        self.known(path, look(Path::new(path))).flatten()
    }

    /// The paths of a directory's entries; none if there is no such directory.
    fn listed(&mut self, directory: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
        self.known(directory, entries).unwrap_or_default()
    }

    fn known<T>(&mut self, path: &str, found: io::Result<T>) -> Option<T> {
        match found {
            Ok(found) => Some(found),
            // What the caller may not see is not there for the caller's sandbox either.
            Err(error) if is_absent(&error) || error.kind() == ErrorKind::PermissionDenied => None,
            Err(error) => {
                self.unknown.insert(path.into(), error.to_string());
                None
            }
        }
    }

    /// Looks at the sources of the policy's mounts too, so that an optional one can be left out and a missing
    /// one be named with its place in the policy.
    pub fn with_sources(mut self, policy: &Policy) -> Self {
        for mount in &policy.mount {
            let missing = fs::metadata(&mount.source).is_err_and(|error| is_absent(&error));
            self.sources.insert(mount.source.clone(), !missing);
        }
        // Nothing can be mounted where the host has no directory for it, so the directory above is made anew then.
        let targets = policy.mount.iter().filter_map(|mount| mount.target.strip_prefix(OPT).ok());
        let names = targets.filter_map(|below| below.components().next());
        let places: Vec<PathBuf> = names.map(|name| Path::new(OPT).join(name)).collect();
        if places.iter().any(|place| place.to_str().is_none_or(|place| self.looked_at(place).is_none())) {
            let entries = self.listed(OPT).into_iter();
            let paths = entries.filter_map(|path| path.into_os_string().into_string().ok());
            let found = paths.filter_map(|path| self.looked_at(&path).map(|entry| (path, entry)));
            self.opt = Some(found.filter(|(_, entry)| *entry != HostEntry::File).collect());
        }
        self
    }
}

/// Where the settings of a Java are, by its name below [`JVM`].
fn java(name: &str) -> Option<String> {
    let (version, _arch) = name.rsplit_once('-')?;
    version.starts_with("java-").then(|| format!("/etc/{version}"))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// What is there; nothing if it is none of the kinds that are taken over.
fn look(path: &Path) -> io::Result<Option<HostEntry>> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_symlink() {
        Ok(Some(HostEntry::Link(fs::read_link(path)?)))
    } else if kind.is_dir() {
        Ok(Some(HostEntry::Dir))
    } else {
        Ok(kind.is_file().then_some(HostEntry::File))
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
