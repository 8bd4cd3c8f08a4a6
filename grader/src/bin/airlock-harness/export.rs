//! Copying a tree with every link replaced by what it leads to.
//!
//! Caches of models are trees of symbolic links, and a candidate may hold none. The links are followed here,
//! inside the sandbox and with its rights: where they lead, the sandbox can read anyway.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Bounds of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) depth: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { files: 1_000_000, bytes: 1 << 40, depth: 32 }
    }
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Why a tree cannot be exported. Paths are quoted, as a tree's names may be anything.
#[derive(Debug, Error)]
pub(crate) enum ExportError {
    #[error("{step} {path:?}: {source}")]
    Io { step: &'static str, path: PathBuf, source: io::Error },
    #[error("{0:?} exists")]
    Exists(PathBuf),
    #[error("{0:?} is not a directory")]
    NotDirectory(PathBuf),
    #[error("{0:?} would be copied into itself")]
    Inside(PathBuf),
    #[error("{0:?} is a {1}")]
    Special(PathBuf, &'static str),
    #[error("{0:?} leads back to a directory it is in")]
    Loop(PathBuf),
    #[error("{0:?}: more than {1} {2}")]
    Bound(PathBuf, u64, &'static str),
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ExportError {
    let path = path.to_owned();
    move |source| ExportError::Io { step, path, source }
}

/// Copies the directory `source` to `destination`, which must not exist. It appears whole or not at all.
pub(crate) fn export(source: &Path, destination: &Path, bounds: &Bounds) -> Result<Copied, ExportError> {
    if destination.symlink_metadata().is_ok() {
        return Err(ExportError::Exists(destination.into()));
    }
    let found = source.metadata().map_err(failed("looking at", source))?;
    if !found.is_dir() {
        return Err(ExportError::NotDirectory(source.into()));
    }
    let mut partial = destination.as_os_str().to_owned();
    partial.push(format!(".partial-{}", std::process::id()));
    let partial = PathBuf::from(partial);
    let parent = match destination.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let parent = parent.canonicalize().map_err(failed("looking at", parent))?;
    if parent.starts_with(source.canonicalize().map_err(failed("looking at", source))?) {
        return Err(ExportError::Inside(source.into()));
    }
    let mut copy = Copy { bounds, copied: Copied::default(), above: Vec::new() };
    let done = copy
        .directory(source, &found, &partial)
        .and_then(|()| fs::rename(&partial, destination).map_err(failed("renaming", &partial)));
    if let Err(error) = done {
        // What is left over is the user's own to see, should this fail.
        let _ = fs::remove_dir_all(&partial);
        return Err(error);
    }
    Ok(copy.copied)
}

struct Copy<'a> {
    bounds: &'a Bounds,
    copied: Copied,
    /// Device and inode of the directories that are being copied.
    above: Vec<(u64, u64)>,
}

impl Copy<'_> {
    fn directory(&mut self, from: &Path, found: &Metadata, to: &Path) -> Result<(), ExportError> {
        let identity = (found.dev(), found.ino());
        if self.above.contains(&identity) {
            return Err(ExportError::Loop(from.into()));
        }
        if self.above.len() >= self.bounds.depth {
            return Err(ExportError::Bound(from.into(), self.bounds.depth as u64, "levels"));
        }
        fs::create_dir(to).map_err(failed("creating", to))?;
        self.above.push(identity);
        for entry in fs::read_dir(from).map_err(failed("listing", from))? {
            let name = entry.map_err(failed("listing", from))?.file_name();
            self.entry(&from.join(&name), &to.join(&name))?;
        }
        self.above.pop();
        Ok(())
    }

    fn entry(&mut self, from: &Path, to: &Path) -> Result<(), ExportError> {
        let found = from.metadata().map_err(failed("following", from))?;
        if found.is_dir() {
            return self.directory(from, &found, to);
        }
        if let Some(kind) = special(&found) {
            return Err(ExportError::Special(from.into(), kind));
        }
        self.copied.files += 1;
        self.copied.bytes = self.copied.bytes.saturating_add(found.len());
        if self.copied.files > self.bounds.files {
            return Err(ExportError::Bound(from.into(), self.bounds.files, "files"));
        }
        if self.copied.bytes > self.bounds.bytes {
            return Err(ExportError::Bound(from.into(), self.bounds.bytes, "bytes"));
        }
        fs::copy(from, to).map_err(failed("copying", from))?;
        Ok(())
    }
}

fn special(found: &Metadata) -> Option<&'static str> {
    let kind = found.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_fifo() => Some("FIFO"),
        () if kind.is_socket() => Some("socket"),
        () => Some("device"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    const BOUNDS: Bounds = Bounds { files: 4, bytes: 100, depth: 4 };

    fn tree() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("src/snapshots")).unwrap();
        fs::write(place.path().join("blob"), "weights").unwrap();
        place
    }

    // PostTrainBench#66: caches of models are links, which a checkpoint of regular files only cannot hold.
    #[test]
    fn links_become_what_they_lead_to() {
        let place = tree();
        let at = |name: &str| place.path().join(name);
        symlink("../../blob", at("src/snapshots/model")).unwrap();
        symlink("snapshots", at("src/latest")).unwrap();
        let copied = export(&at("src"), &at("dst"), &BOUNDS).unwrap();
        assert_eq!(copied, Copied { files: 2, bytes: 14 });
        for copy in ["dst/snapshots/model", "dst/latest/model"] {
            let found = at(copy).symlink_metadata().unwrap();
            assert!(found.is_file() && found.nlink() == 1);
            assert_eq!(fs::read(at(copy)).unwrap(), b"weights");
        }
    }

    #[test]
    fn what_is_no_tree_is_refused_and_leaves_nothing() {
        type Build = fn(&Path);
        let cases: [(&str, Build); 6] = [
            ("leads back", |root| symlink("..", root.join("snapshots/up")).unwrap()),
            ("following", |root| symlink("nowhere", root.join("dangling")).unwrap()),
            ("is a socket", |root| drop(UnixListener::bind(root.join("s")).unwrap())),
            ("more than 4 levels", |root| fs::create_dir_all(root.join("a/b/c/d")).unwrap()),
            ("more than 4 files", |root| {
                (0..5).for_each(|n| fs::write(root.join(n.to_string()), "").unwrap())
            }),
            ("more than 100 bytes", |root| fs::write(root.join("big"), [0; 101]).unwrap()),
        ];
        for (error, build) in cases {
            let place = tree();
            let (source, destination) = (place.path().join("src"), place.path().join("dst"));
            build(&source);
            let found = export(&source, &destination, &BOUNDS).unwrap_err().to_string();
            assert!(found.contains(error), "{error}: {found}");
            let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(left.len(), 2, "{left:?}");
        }
    }

    #[test]
    fn the_destination_is_new_and_elsewhere() {
        let place = tree();
        let source = place.path().join("src");
        let exists = export(&source, &place.path().join("blob"), &BOUNDS).unwrap_err();
        assert!(matches!(exists, ExportError::Exists(_)));
        let inside = export(&source, &source.join("snapshots/dst"), &BOUNDS).unwrap_err();
        assert!(matches!(inside, ExportError::Inside(_)));
    }
}
