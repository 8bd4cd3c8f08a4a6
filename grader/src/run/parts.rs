//! The frozen parts of a task: their digests, taken when a run is made and looked at again before they are used.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::directory::at;
use super::error::{RunError, tree};
use super::{Supervisor, blocking};
use crate::Digest;
use crate::seal::{Limits, read_tree};
use crate::task::{MountSource, Phase, Task};

/// Bytes that are hashed at once.
const BLOCK: usize = 1 << 20;

/// The digest of a part: of a file its bytes', of a directory its tree's.
pub(crate) fn part_digest(path: &Path) -> Result<Digest, RunError> {
    let file = File::open(path).map_err(at("opening", path))?;
    let metadata = file.metadata().map_err(at("looking at", path))?;
    if metadata.is_dir() {
        let manifest =
            read_tree(file.as_fd(), &Limits::default()).map_err(tree("reading a part of the task"))?;
        return Ok(manifest.digest());
    }
    if !metadata.is_file() {
        return Err(at("reading", path)(io::Error::other("neither a file nor a directory")).into());
    }
    let (mut file, mut hash, mut block) = (file, Sha256::new(), vec![0; BLOCK]);
    loop {
        match file.read(&mut block).map_err(at("reading", path))? {
            0 => return Ok(<[u8; 32]>::from(hash.finalize()).into()),
            length => hash.update(&block[..length]),
        }
    }
}

/// What a phase's mount shows of the host: the name of the part that it belongs to, and where it lies.
pub(crate) enum HostSource {
    /// A part of the task, or something in it.
    Part(String, PathBuf),
    /// What the operator supplied.
    Supplied(String, PathBuf),
}

impl Supervisor {
    /// Where an asset or a path of the task lies; none for what is the run's own.
    pub(crate) fn host_source(&self, source: &MountSource) -> Option<HostSource> {
        match source {
            MountSource::Run(_) => None,
            MountSource::Asset(name) => match self.manifest.digests.supplied.get(name) {
                Some(supplied) => Some(HostSource::Supplied(name.clone(), supplied.path.clone())),
                None => {
                    let path = self.task.assets.get(name)?.path.as_ref()?;
                    Some(HostSource::Part(format!("asset:{name}"), self.task.dir.join(path)))
                }
            },
            MountSource::Task(path) => {
                let first = path.components().next()?;
                let part = first.as_os_str().to_str()?.to_owned();
                Some(HostSource::Part(part, self.task.dir.join(path)))
            }
        }
    }

    /// Checks that everything of the host that a phase mounts is what it was when the run was made.
    pub(crate) async fn check_parts(&self, phase: &Phase) -> Result<(), RunError> {
        let mut parts: Vec<(String, PathBuf, Digest)> = Vec::new();
        for source in phase.mounts.iter().filter_map(|mount| self.host_source(&mount.source)) {
            let (name, path, expected) = match source {
                HostSource::Part(name, path) => match self.manifest.digests.parts.get(&name).copied() {
                    // Something beside the named parts is a part of no run; it is looked at as what it is in.
                    None => return Err(RunError::PartsChanged(name)),
                    Some(expected) => (name.clone(), part_root(&self.task, &name, path), expected),
                },
                HostSource::Supplied(name, path) => {
                    let expected = self.manifest.digests.supplied.get(&name).map(|supplied| supplied.digest);
                    let expected = expected.ok_or_else(|| RunError::PartsChanged(name.clone()))?;
                    (format!("asset {name}"), path, expected)
                }
            };
            if !parts.iter().any(|(known, ..)| *known == name) {
                parts.push((name, path, expected));
            }
        }
        blocking(move || {
            parts.into_iter().try_for_each(|(part, path, expected)| {
                let found = part_digest(&path)?;
                if found == expected { Ok(()) } else { Err(RunError::PartChanged { part, expected, found }) }
            })
        })
        .await?
    }
}

/// Where a part begins, of which a mount may show only something within.
fn part_root(task: &Task, name: &str, path: PathBuf) -> PathBuf {
    if name.starts_with("asset:") { path } else { task.dir.join(name) }
}
