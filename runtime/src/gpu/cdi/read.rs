//! The documents of a host, and what the devices in them need.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::model::{VERSIONS, is_device, is_kind};
use super::{ContainerEdits, Document, Name};
use crate::gpu::guard::is_guarded;

/// Where documents lie. One in a later directory goes before one in an earlier.
pub const DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// Largest document in bytes.
const LARGEST: u64 = 1 << 20;
/// More documents than any host has.
const MOST_DOCUMENTS: usize = 256;

/// The documents of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Library {
    /// In the order of the directories, then of their names.
    pub documents: Vec<Found>,
}

/// A document and where it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Its file.
    pub path: PathBuf,
    /// Number of its directory: the higher goes first.
    pub priority: usize,
    /// What it says.
    pub document: Document,
}

/// A document or a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CdiError {
    /// A directory or file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// It.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not a document.
    #[error("{path}: {why}")]
    Document {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// No document has devices of this kind.
    #[error(
        "{name}: no document in {} has devices of the kind {}; there is {known}. `airlock gpu cdi` writes a document of \
         this host's NVIDIA GPUs",
        DIRECTORIES.join(" and "),
        .name.kind
    )]
    UnknownKind {
        /// The device asked for.
        name: Name,
        /// The kinds that there are.
        known: String,
    },
    /// The kind has no such device.
    #[error("{name}: there is no such device; of this kind there are {known}")]
    UnknownDevice {
        /// The device asked for.
        name: Name,
        /// The devices that there are.
        known: String,
    },
    /// Two documents of one directory have the same device.
    #[error("{name}: both {first} and {second} say what it is; remove one of them")]
    Conflict {
        /// The device.
        name: Name,
        /// One document.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
}

impl Library {
    /// Reads all documents of these directories; a directory that is not there has none.
    ///
    /// # Errors
    /// A file whose name ends in `.json`, `.yaml` or `.yml` is not a document, or others than root can change it. One
    /// that is passed over could be the one that goes before another.
    pub fn read(directories: &[impl AsRef<Path>]) -> Result<Library, CdiError> {
        let mut documents = Vec::new();
        for (priority, directory) in directories.iter().enumerate() {
            let directory = directory.as_ref();
            let failed = |source| CdiError::Read { path: directory.into(), source };
            let entries = match std::fs::read_dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(failed)?,
            };
            let mut paths: Vec<PathBuf> = Vec::new();
            for entry in entries {
                let path = entry.map_err(failed)?.path();
                if path.extension().is_some_and(|end| end == "json" || end == "yaml" || end == "yml") {
                    paths.push(path);
                }
            }
            paths.sort();
            for path in paths {
                if documents.len() == MOST_DOCUMENTS {
                    return Err(failed(io::Error::other(format!("more than {MOST_DOCUMENTS} documents"))));
                }
                let document = read(&path)?;
                documents.push(Found { path, priority, document });
            }
        }
        Ok(Library { documents })
    }

    /// What these devices need together. What a document asks for all its devices comes before what each needs.
    ///
    /// # Errors
    /// No document says what a device is, or two do.
    pub fn edits(&self, names: &[Name]) -> Result<ContainerEdits, CdiError> {
        let mut edits = ContainerEdits::default();
        let mut common: Vec<&Path> = Vec::new();
        for name in names {
            let (found, device) = self.find(name)?;
            if !common.contains(&found.path.as_path()) {
                common.push(&found.path);
                edits.append(found.document.container_edits.clone());
            }
            edits.append(device.container_edits.clone());
        }
        Ok(edits)
    }

    fn find(&self, name: &Name) -> Result<(&Found, &super::Device), CdiError> {
        let of_kind = || self.documents.iter().filter(|found| found.document.kind == name.kind);
        let having = of_kind().filter_map(|found| {
            let device = found.document.devices.iter().find(|device| device.name == name.device)?;
            Some((found, device))
        });
        let mut having: Vec<_> = having.collect();
        having.sort_by_key(|(found, _)| found.priority);
        match having[..] {
            [.., (first, _), (second, _)] if first.priority == second.priority => Err(CdiError::Conflict {
                name: name.clone(),
                first: first.path.clone(),
                second: second.path.clone(),
            }),
            [.., last] => Ok(last),
            [] if of_kind().next().is_none() => {
                let kinds = self.documents.iter().map(|found| found.document.kind.as_str());
                Err(CdiError::UnknownKind { name: name.clone(), known: listed(kinds) })
            }
            [] => {
                let devices = of_kind().flat_map(|found| &found.document.devices);
                let known = listed(devices.map(|device| device.name.as_str()));
                Err(CdiError::UnknownDevice { name: name.clone(), known })
            }
        }
    }
}

impl Document {
    /// Reads JSON, or YAML if `yaml`.
    ///
    /// # Errors
    /// In words: the syntax, an unknown field, or what the interface does not allow.
    pub fn parse(text: &str, yaml: bool) -> Result<Document, String> {
        let document: Document = if yaml {
            serde_saphyr::from_str(text).map_err(|error| error.to_string())?
        } else {
            serde_json::from_str(text).map_err(|error| error.to_string())?
        };
        document.check()?;
        Ok(document)
    }

    /// Checks what the fields' types do not say.
    ///
    /// # Errors
    /// In words.
    pub fn check(&self) -> Result<(), String> {
        if !VERSIONS.contains(&self.version.as_str()) {
            return Err(format!("cdiVersion {:?} is not known; {} are", self.version, VERSIONS.join(", ")));
        }
        if !is_kind(&self.kind) {
            return Err(format!("kind {:?} does not have the form `vendor.com/class`", self.kind));
        }
        for (index, device) in self.devices.iter().enumerate() {
            if !is_device(&device.name) {
                return Err(format!("{:?} cannot be the name of a device", device.name));
            }
            if self.devices[..index].iter().any(|earlier| earlier.name == device.name) {
                return Err(format!("the device {:?} is there twice", device.name));
            }
        }
        let edits = self.devices.iter().map(|device| &device.container_edits);
        edits.chain([&self.container_edits]).try_for_each(check_edits)
    }
}

fn check_edits(edits: &ContainerEdits) -> Result<(), String> {
    if let Some(variable) = edits.env.iter().find(|text| text.find('=').is_none_or(|at| at == 0)) {
        return Err(format!("the variable {variable:?} does not have the form NAME=VALUE"));
    }
    let mut paths = Vec::new();
    for node in &edits.device_nodes {
        paths.extend([&node.path].into_iter().chain(&node.host_path));
        if node.kind.as_deref().is_some_and(|kind| !matches!(kind, "b" | "c" | "u" | "p")) {
            return Err(format!("the type of {} is none of b, c, u and p", node.path.display()));
        }
        if node.permissions.as_deref().is_some_and(|text| text.chars().any(|letter| !"rwm".contains(letter)))
        {
            return Err(format!("the permissions of {} are not of r, w and m", node.path.display()));
        }
    }
    paths.extend(edits.mounts.iter().flat_map(|mount| [&mount.host_path, &mount.container_path]));
    paths.extend(edits.hooks.iter().map(|hook| &hook.path));
    match paths.into_iter().find(|path| !path.is_absolute()) {
        Some(path) => Err(format!("{path:?} is not an absolute path")),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Document, CdiError> {
    let failed = |source: io::Error| CdiError::Read { path: path.into(), source };
    let wrong = |why: String| CdiError::Document { path: path.into(), why };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file: File =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?.into();
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(wrong("is not a regular file".into()));
    }
    let guarded = std::fs::canonicalize(path).is_ok_and(|real| is_guarded(&real, 0));
    if metadata.uid() != 0 || metadata.mode() & 0o022 != 0 || !guarded {
        let why = "others than root can write to it or replace it, and it says what sandboxes get: `chown root` and \
                   `chmod go-w` it and its directories";
        return Err(wrong(why.into()));
    }
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > LARGEST {
        return Err(wrong("is larger than 1 MiB".into()));
    }
    Document::parse(&text, path.extension().is_none_or(|end| end != "json")).map_err(wrong)
}

fn listed<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut words: Vec<&str> = words.collect();
    words.sort_unstable();
    words.dedup();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{
        "cdiVersion": "0.7.0", "kind": "vendor.com/net",
        "containerEdits": { "env": ["ALL=1"] },
        "devices": [
            { "name": "a", "containerEdits": { "deviceNodes": [{ "path": "/dev/a", "major": 9, "minor": 1 }] } },
            { "name": "b", "containerEdits": { "mounts": [{ "hostPath": "/x", "containerPath": "/y", "options": ["ro"] }] } }
        ]
    }"#;

    fn library(files: &[(usize, &str, String)]) -> Result<Library, CdiError> {
        let directory = tempfile::tempdir().unwrap();
        let folders = ["etc", "run", "absent"].map(|name| directory.path().join(name));
        folders[..2].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        for (folder, name, text) in files {
            std::fs::write(folders[*folder].join(name), text).unwrap();
        }
        Library::read(&folders)
    }

    fn edits(library: &Library, names: &[&str]) -> Result<ContainerEdits, CdiError> {
        library.edits(&names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn yaml_says_the_same_as_json() {
        let yaml = "---\ncdiVersion: \"0.7.0\"\nkind: vendor.com/net\ncontainerEdits:\n  env: [ALL=1]\ndevices:\n\
            - name: a\n  containerEdits:\n    deviceNodes:\n    - path: /dev/a\n      major: 9\n      minor: 1\n\
            - name: \"b\"\n  containerEdits:\n    mounts:\n    - hostPath: /x\n      containerPath: /y\n      options: [ro]\n";
        assert_eq!(Document::parse(yaml, true).unwrap(), Document::parse(JSON, false).unwrap());
    }

    /// The `0` that toolkits write as a name is a string in quotes; a number would be another type.
    #[test]
    fn what_the_interface_does_not_allow_is_refused() {
        for (from, to, why) in [
            ("0.7.0", "0.9.9", "cdiVersion \"0.9.9\" is not known"),
            ("vendor.com/net", "net", "does not have the form"),
            ("\"name\": \"b\"", "\"name\": \"a\"", "is there twice"),
            ("\"name\": \"b\"", "\"name\": \"../b\"", "cannot be the name"),
            ("ALL=1", "ALL", "NAME=VALUE"),
            ("/dev/a", "dev/a", "not an absolute path"),
            ("\"major\"", "\"magor\"", "unknown field `magor`"),
            ("\"major\": 9", "\"major\": 9, \"major\": 8", "duplicate field"),
            ("\"major\": 9", "\"permissions\": \"x\"", "not of r, w and m"),
        ] {
            let error = Document::parse(&JSON.replacen(from, to, 1), false).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let twice = "cdiVersion: '0.7.0'\nkind: a/b\nkind: a/c\ndevices: []\n";
        assert!(Document::parse(twice, true).is_err());
        let unknown = "cdiVersion: '0.7.0'\nkind: a/b\ndevices: []\nmore: 1\n";
        assert!(Document::parse(unknown, true).unwrap_err().contains("unknown field"));
    }

    /// Each line is ten of the one before it.
    #[test]
    fn a_document_cannot_grow_without_end() {
        let mut bomb =
            String::from("cdiVersion: '0.7.0'\nkind: a/b\ndevices: []\nannotations:\n  a: &a0 x\n");
        for level in 1..12 {
            let ten = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb += &format!("  k{level}: &a{level} [{ten}]\n");
        }
        assert!(Document::parse(&bomb, true).is_err());
        let deep = format!("cdiVersion: '0.7.0'\nkind: {}", "[".repeat(100_000));
        assert!(Document::parse(&deep, true).is_err());
        assert!(Document::parse(&"[".repeat(100_000), false).is_err());
    }

    #[test]
    fn what_all_devices_need_comes_once() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let library = library(&[(0, "v.json", JSON.into()), (0, "README", "no document".into())]).unwrap();
        let both = edits(&library, &["vendor.com/net=a", "vendor.com/net=b"]).unwrap();
        assert_eq!((both.env.len(), both.device_nodes.len(), both.mounts.len()), (1, 1, 1));
        let unknown = edits(&library, &["vendor.com/net=c"]).unwrap_err().to_string();
        assert_eq!(unknown, "vendor.com/net=c: there is no such device; of this kind there are a, b");
        let kind = edits(&library, &["other.com/net=a"]).unwrap_err().to_string();
        let pieces = [
            "in /etc/cdi and /var/run/cdi has",
            "other.com/net; there is vendor.com/net.",
            "`airlock gpu cdi`",
        ];
        assert!(pieces.iter().all(|piece| kind.contains(piece)), "{kind}");
    }

    #[test]
    fn a_later_directory_goes_first_and_one_directory_must_not_contradict_itself() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let other = JSON.replace("/dev/a", "/dev/other");
        let over = library(&[(0, "v.json", JSON.into()), (1, "v.json", other.clone())]).unwrap();
        let found = edits(&over, &["vendor.com/net=a"]).unwrap();
        assert_eq!(found.device_nodes[0].path, Path::new("/dev/other"));
        let twice = library(&[(1, "v.json", JSON.into()), (1, "w.json", other)]).unwrap();
        let conflict = edits(&twice, &["vendor.com/net=a"]).unwrap_err().to_string();
        assert!(conflict.contains("v.json and ") && conflict.contains("w.json say what it is"), "{conflict}");
    }

    #[test]
    fn a_file_that_is_no_document_stops_everything() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let error = library(&[(0, "v.json", JSON.into()), (1, "x.yaml", "a: [".into())]).unwrap_err();
        assert!(error.to_string().contains("x.yaml: "), "{error}");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("v.json");
        std::fs::write(&file, JSON).unwrap();
        std::os::unix::fs::chown(&file, Some(1234), None).unwrap();
        let error = Library::read(&[directory.path()]).unwrap_err().to_string();
        assert!(error.contains("others than root"), "{error}");
    }
}
